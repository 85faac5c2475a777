/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks of no bytes (R44): 1,000 live ones from every entry, all distinct, aligned to 64 where that can be asked, and
 * freed by every route with size 0 and alignment 64.
 */
#define _GNU_SOURCE
#include "api_routes.h"

#define LIVE 1000
#define ALIGN 64

static void *blocks[ALLOC_ROUTES * LIVE], *sorted[ALLOC_ROUTES * LIVE];
static size_t n;

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (void *const *)a, y = (uintptr_t) * (void *const *)b;
    return x < y ? -1 : x > y;
}

static void take(void)
{
    for (size_t i = 0; i < ALLOC_ROUTES; i++) {
        const struct alloc_route *r = &alloc_routes[i];
        for (size_t k = 0; r->f && k < LIVE; k++) {
            errno = ERRNO_MARK;
            void *p = route_alloc(r, ALIGN, 0);
            CHECKF(p != NULL, "%s of 0 bytes is NULL", r->name);
            CHECKF(errno == ERRNO_MARK, "%s of 0 bytes set errno to %d", r->name, errno);
            CHECKF((uintptr_t)p % route_align(r, ALIGN) == 0, "%s of 0 bytes is at %p", r->name, p);
            blocks[n++] = p;
        }
    }
}

static void all_distinct(void)
{
    memcpy(sorted, blocks, n * sizeof *blocks);
    qsort(sorted, n, sizeof *sorted, by_address);
    for (size_t i = 1; i < n; i++)
        CHECKF(sorted[i - 1] != sorted[i], "%p was given twice", sorted[i]);
}

/* By the routes in turn. A route that does not exist is passed over. */
static void give_back(void)
{
    size_t turn = 0;
    for (size_t i = 0; i < n; i++) {
        do
            turn = (turn + 1) % FREE_ROUTES;
        while (!free_routes[turn].f);
        errno = ERRNO_MARK;
        route_free(&free_routes[turn], blocks[i], ALIGN, 0);
        CHECKF(errno == ERRNO_MARK, "%s of 0 bytes set errno to %d", free_routes[turn].name, errno);
    }
    n = 0;
}

int main(void)
{
    routes_init();
    for (int round = 0; round < 3; round++) {
        take();
        CHECK(n >= 9 * LIVE);
        all_distinct();
        give_back();
    }
    return 0;
}
