/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every size with every alignment (R19): address, contents of neighbours, all ways back.
 *
 * Sizes: 0..4096, and up to 1 MiB the values around eight steps a doubling, where any sensible size class ends.
 * Alignments: the powers of two from 1 to 64 KiB. Eight blocks of each pair live at once.
 */
#define _GNU_SOURCE
#include "api_routes.h"

#define LIVE 8
#define ALIGN_MAX ((size_t)64 << 10)
#define DENSE_MAX 4096
#define SIZE_MAX_TRIED ((size_t)1 << 20)

static const struct alloc_route *getters[ALLOC_ROUTES];
static const struct free_route *putters[FREE_ROUTES];
static size_t getters_n, putters_n;

/* Ways back that agree with how the block was made by the letter of the standards; mixing is another program's. */
static bool keeps_promise(const struct free_route *r)
{
    return r->f && (r->end == END_PTR || r->end == END_ALIGN_SIZE || r->end == END_SIZE_ALIGN || r->end == END_ALIGN ||
                    r->end == END_FLAGS || r->end == END_SIZE_FLAGS);
}

static void choose_routes(void)
{
    routes_init();
    for (size_t i = 0; i < ALLOC_ROUTES; i++)
        if (alloc_routes[i].f && route_takes_align(&alloc_routes[i]))
            getters[getters_n++] = &alloc_routes[i];
    for (size_t i = 0; i < FREE_ROUTES; i++)
        if (keeps_promise(&free_routes[i]))
            putters[putters_n++] = &free_routes[i];
    CHECK(getters_n >= 3 && putters_n >= 1);
}

static void check_block(const struct alloc_route *r, const void *p, size_t align, size_t size)
{
    CHECKF(p != NULL, "%s: size %zu, alignment %zu: NULL", r->name, size, align);
    CHECKF((uintptr_t)p % route_align(r, align) == 0, "%s: size %zu, alignment %zu: at %p", r->name, size, align, p);
}

static void one_pair(size_t align, size_t size)
{
    static size_t turn;
    void *p[LIVE];
    for (size_t i = 0; i < LIVE; i++) {
        const struct alloc_route *r = getters[(turn + i) % getters_n];
        p[i] = route_alloc(r, align, size);
        check_block(r, p[i], align, size);
        pattern_fill_sparse(p[i], size, (uintptr_t)p[i] + i);
    }
    for (size_t i = 0; i < LIVE; i++) {
        size_t at = pattern_diff_sparse(p[i], size, (uintptr_t)p[i] + i);
        CHECKF(at == size, "size %zu, alignment %zu: byte %zu is a neighbour's", size, align, at);
        route_free(putters[(turn / LIVE + i) % putters_n], p[i], align, size);
    }
    turn += LIVE + 1;
}

/* Routes that take no alignment: 16 whatever the size. */
static void one_size(size_t size)
{
    void *p[ALLOC_ROUTES];
    for (size_t i = 0; i < ALLOC_ROUTES; i++) {
        const struct alloc_route *r = &alloc_routes[i];
        if (!r->f || route_takes_align(r))
            continue;
        p[i] = route_alloc(r, 1, size);
        check_block(r, p[i], 1, size);
        pattern_fill_sparse(p[i], size, i);
    }
    for (size_t i = 0; i < ALLOC_ROUTES; i++) {
        const struct alloc_route *r = &alloc_routes[i];
        if (!r->f || route_takes_align(r))
            continue;
        CHECKF(pattern_diff_sparse(p[i], size, i) == size, "%s of %zu bytes is a neighbour's", r->name, size);
        free(p[i]);
    }
}

static void all_alignments(size_t size)
{
    one_size(size);
    for (unsigned lg = 0; ((size_t)1 << lg) <= ALIGN_MAX; lg++)
        one_pair((size_t)1 << lg, size);
}

int main(void)
{
    choose_routes();
    for (size_t size = 0; size <= DENSE_MAX; size++)
        all_alignments(size);
    for (size_t base = DENSE_MAX; base < SIZE_MAX_TRIED; base *= 2) {
        for (size_t step = 1; step <= 8; step++) {
            size_t edge = base + step * (base / 8);
            all_alignments(edge - 1);
            all_alignments(edge);
            all_alignments(edge + 1);
        }
    }
    return 0;
}
