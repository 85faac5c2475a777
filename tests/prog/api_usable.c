/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc_usable_size (R23): never below the request, all of it writable, close to it on the whole, the same for the
 * block's life, and realloc inside it does not move.
 *
 *     api_usable [large]    large: realloc inside blocks up to 8 MiB too, where glibc's mmap'd blocks do move
 */
#define _GNU_SOURCE
#include "api_check.h"

#include <malloc.h>
#include <stdbool.h>

#define LIVE 4
#define SIZE_TOP ((size_t)64 << 10)
#define DENSE_TOP 2048
#define OTHER_OPS 1000

static uint64_t seed = 23;

static size_t usable(void *p, size_t size)
{
    size_t got = malloc_usable_size(opaque_ptr(p));
    CHECKF(got >= size, "usable size of %zu bytes is %zu", size, got);
    return got;
}

/* Every size to 64 KiB once: what is handed out beyond the request stays under 15 %. */
static void slack(void)
{
    size_t asked = 0, given = 0;
    for (size_t size = 1; size <= SIZE_TOP; size++) {
        void *p = malloc(size);
        CHECK(p);
        asked += size;
        given += usable(p, size);
        free(p);
    }
    CHECKF((given - asked) * 100 < asked * 15, "slack is %zu of %zu bytes", given - asked, asked);
}

/* Neighbours of one size, each written to its last usable byte. `align` 0: malloc. */
static void write_all_of_it(size_t align, size_t size)
{
    unsigned char *p[LIVE];
    size_t n[LIVE];
    for (size_t i = 0; i < LIVE; i++) {
        p[i] = align ? memalign(align, size) : malloc(size);
        CHECK(p[i]);
        n[i] = usable(p[i], size);
        pattern_fill(p[i], n[i], i);
    }
    for (size_t i = 0; i < LIVE; i++)
        CHECKF(pattern_diff(p[i], n[i], i) == n[i], "size %zu, alignment %zu: usable bytes overlap", size, align);
    for (size_t i = 0; i < LIVE; i++)
        free(p[i]);
}

/* Growing to the usable size, by steps, stays in place and keeps the contents. */
static void realloc_inside(size_t size)
{
    unsigned char *p = malloc(size);
    CHECK(p);
    pattern_fill(p, size, size);
    size_t top = usable(p, size);
    const size_t steps[] = {size, size + (top - size) / 2, top};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        unsigned char *q = realloc(opaque_ptr(p), steps[i]);
        CHECKF(q == p, "realloc of %zu to %zu, within usable %zu, moved the block", size, steps[i], top);
        usable(p, steps[i]);
    }
    CHECKF(pattern_diff(p, size, size) == size, "realloc of %zu within usable changed the contents", size);
    free(p);
}

static void other_ops(void)
{
    static void *slots[64];
    for (size_t i = 0; i < OTHER_OPS; i++) {
        size_t s = rng_below(&seed, 64);
        free(slots[s]);
        slots[s] = malloc(rng_log(&seed, 1, 64u << 10));
        CHECK(slots[s]);
    }
}

/* The value does not change while others come and go. */
static void stable(void)
{
    enum { N = 200 };
    void *p[N];
    size_t n[N];
    for (size_t i = 0; i < N; i++) {
        size_t size = rng_log(&seed, 1, 1u << 20);
        p[i] = i % 4 ? malloc(size) : memalign((size_t)16 << (i % 9), size);
        CHECK(p[i]);
        n[i] = usable(p[i], size);
    }
    for (size_t round = 0; round < 4; round++) {
        other_ops();
        for (size_t i = 0; i < N; i++)
            CHECKF(malloc_usable_size(p[i]) == n[i], "usable size %zu became %zu", n[i], malloc_usable_size(p[i]));
    }
    for (size_t i = 0; i < N; i++)
        free(p[i]);
}

/* Above some pages a block is pages and no more (R56). */
static void huge(void)
{
    static const size_t sizes[] = {1000000, 5000001, 70000001, 540000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *p = malloc(sizes[i]);
        CHECK(p);
        CHECKF(usable(p, sizes[i]) < sizes[i] + 65536, "%zu bytes for %zu", malloc_usable_size(p), sizes[i]);
        free(p);
    }
}

int main(int argc, char **argv)
{
    bool large = argc > 1 && strcmp(argv[1], "large") == 0;
    CHECK(malloc_usable_size(opaque_ptr(NULL)) == 0);
    slack();
    for (size_t size = 1; size <= SIZE_TOP; size += size < DENSE_TOP ? 1 : 1 + size / 64) {
        write_all_of_it(0, size);
        write_all_of_it((size_t)32 << (size % 8), size);
        realloc_inside(size);
    }
    for (size_t size = SIZE_TOP; large && size <= (8u << 20); size += size / 5)
        realloc_inside(size);
    stable();
    huge();
    return 0;
}
