/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every way to get a block with every way to give it back (R48): a program may have half of a pair from one library and
 * half from another, so all of them must be one heap. Contents are checked before each free, and the whole of what is
 * live stays apart from what comes next.
 */
#define _GNU_SOURCE
#include "api_routes.h"

#define KEPT 512

static const size_t sizes[] = {0, 1, 24, 100, 1000, 4096, 20000, 50000, 300000, 1 << 20};

/* Blocks that outlive their pair by a while, in a ring. */
static struct kept {
    void *p;
    size_t size;
    const struct alloc_route *from;
    const struct free_route *to;
} ring[KEPT];
static size_t turn, pairs;

static void give_back(struct kept *k)
{
    if (!k->p)
        return;
    CHECKF(pattern_diff_sparse(k->p, k->size, (uintptr_t)k->p) == k->size, "%s of %zu bytes was overwritten",
           k->from->name, k->size);
    errno = ERRNO_MARK;
    route_free(k->to, k->p, 64, k->size);
    CHECKF(errno == ERRNO_MARK, "%s of a block of %s set errno to %d", k->to->name, k->from->name, errno);
    k->p = NULL;
}

static void pair(const struct alloc_route *from, const struct free_route *to, size_t size)
{
    struct kept *k = &ring[turn++ % KEPT];
    give_back(k);
    void *p = route_alloc(from, 64, size);
    CHECKF(p != NULL, "%s of %zu bytes is NULL", from->name, size);
    CHECKF(malloc_usable_size(p) >= size, "%s of %zu bytes has usable size %zu", from->name, size,
           malloc_usable_size(p));
    pattern_fill_sparse(p, size, (uintptr_t)p);
    *k = (struct kept){p, size, from, to};
    pairs++;
}

int main(void)
{
    routes_init();
    for (int round = 0; round < 4; round++)
        for (size_t a = 0; a < ALLOC_ROUTES; a++)
            for (size_t f = 0; f < FREE_ROUTES; f++)
                for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                    if (alloc_routes[a].f && free_routes[f].f)
                        pair(&alloc_routes[a], &free_routes[f], sizes[s]);
    for (size_t i = 0; i < KEPT; i++)
        give_back(&ring[i]);
    printf("%zu pairs\n", pairs);
    return 0;
}
