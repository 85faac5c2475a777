/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * realloc keeps contents, from 1 B to 64 MiB (R61): growth by several factors, shrinking, every size to every other,
 * aligned blocks, and a walk of many blocks at once so that a move into a neighbour is seen.
 */
#define _GNU_SOURCE
#include "api_check.h"

#include <malloc.h>

#define TOP ((size_t)64 << 20)
#define WALK_SLOTS 256
#define WALK_OPS 60000

static uint64_t seed = 61;

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* One step: the common part is still there, then the block is filled to its new end. The whole block is written: a
 * large one that moves by remapping must bring every page. */
static void *step(void *p, size_t from, size_t to, uint64_t mark)
{
    void *q = realloc(p, to);
    CHECKF(q != NULL, "realloc of %zu to %zu is NULL", from, to);
    CHECKF((uintptr_t)q % 16 == 0 && malloc_usable_size(q) >= to, "realloc of %zu to %zu: at %p, usable %zu", from, to,
           q, malloc_usable_size(q));
    size_t kept = smaller(from, to), at = pattern_diff(q, kept, mark);
    CHECKF(at == kept, "realloc of %zu to %zu lost byte %zu", from, to, at);
    pattern_fill(q, to, mark);
    return q;
}

/* Numerator and denominator of a factor. */
static void grow(size_t num, size_t den)
{
    size_t size = 1;
    void *p = malloc(size);
    CHECK(p);
    pattern_fill(p, size, num);
    while (size < TOP) {
        size_t next = smaller(size * num / den + 1, TOP);
        p = step(p, size, next, num);
        size = next;
    }
    while (size > 1) {
        size_t next = size * den / num;
        next = next < size && next ? next : size - 1;
        p = step(p, size, next, num);
        size = next;
    }
    free(p);
}

/* A buffer that grows by a constant, as naive programs do it. */
static void grow_by(size_t bytes, size_t top)
{
    void *p = NULL;
    size_t size = 0;
    while (size < top) {
        p = realloc(p, size + bytes);
        CHECK(p);
        pattern_fill((char *)p + size, bytes, size);
        size += bytes;
    }
    for (size_t at = 0; at < size; at += bytes)
        CHECKF(pattern_diff((char *)p + at, bytes, at) == bytes, "growth by %zu lost bytes near %zu", bytes, at);
    free(p);
}

static void every_size_to_every_other(void)
{
    static const size_t sizes[] = {1,     15,    16,    17,     100,    256,    1000,    2048,    4000,
                                   8192,  16384, 32767, 32768,  32769,  65536,  100000,  131072,  262144,
                                   500000, 524288, 524289, 1048576, 2097152, 5000000, 33554432, 40000000};
    size_t n = sizeof sizes / sizeof *sizes;
    for (size_t a = 0; a < n; a++) {
        for (size_t b = 0; b < n; b++) {
            if (sizes[a] > 5000000 && sizes[b] > 5000000)
                continue;
            void *p = malloc(sizes[a]), *q = NULL;
            CHECK(p);
            pattern_fill_sparse(p, sizes[a], a);
            size_t kept = smaller(sizes[a], sizes[b]);
            q = realloc(p, sizes[b]);
            CHECK(q);
            /* Where the sparse pattern lies depends on the size: of a shrunk block only its head can be compared. */
            size_t head = smaller(kept, 256);
            CHECKF(pattern_diff(q, head, a) == head, "realloc of %zu to %zu lost its head", sizes[a], sizes[b]);
            if (sizes[b] >= sizes[a])
                CHECKF(pattern_diff_sparse(q, sizes[a], a) == sizes[a], "realloc of %zu to %zu", sizes[a], sizes[b]);
            free(q);
        }
    }
}

static void aligned_blocks(void)
{
    for (size_t align = 32; align <= 65536; align *= 2) {
        for (size_t size = 1; size <= 300000; size = size * 3 + 1) {
            void *p = memalign(align, size);
            CHECK(p);
            pattern_fill(p, size, align);
            p = step(p, size, size * 2, align);
            p = step(p, size * 2, size / 2 + 1, align);
            free(p);
        }
    }
}

static void array_form(void)
{
    size_t n = 1;
    uint32_t *v = reallocarray(NULL, n, sizeof *v);
    CHECK(v);
    v[0] = 0;
    for (uint32_t i = 1; i < 300000; i++) {
        if (i == n) {
            n *= 2;
            v = reallocarray(v, n, sizeof *v);
            CHECK(v);
        }
        v[i] = i;
    }
    for (uint32_t i = 0; i < 300000; i++)
        CHECKF(v[i] == i, "reallocarray lost element %u", i);
    free(v);
}

static void walk(void)
{
    static struct {
        void *p;
        size_t size;
    } slots[WALK_SLOTS];
    for (size_t i = 0; i < WALK_OPS; i++) {
        size_t s = rng_below(&seed, WALK_SLOTS), size;
        switch (rng_below(&seed, 256)) {
        case 0:
            size = rng_log(&seed, 1, 8u << 20);
            break;
        case 1:
        case 2:
        case 3:
        case 4:
            size = rng_log(&seed, 1, 512u << 10);
            break;
        default:
            size = rng_log(&seed, 1, 16u << 10);
        }
        if (slots[s].p)
            slots[s].p = step(slots[s].p, slots[s].size, size, s);
        else {
            slots[s].p = malloc(size);
            CHECK(slots[s].p);
            pattern_fill(slots[s].p, size, s);
        }
        slots[s].size = size;
    }
    for (size_t s = 0; s < WALK_SLOTS; s++) {
        CHECK(pattern_diff(slots[s].p, slots[s].size, s) == slots[s].size);
        free(slots[s].p);
    }
}

int main(void)
{
    grow(2, 1);
    grow(3, 2);
    grow(5, 1);
    grow_by(1, 5000);
    grow_by(100, 300000);
    grow_by(4096, 4u << 20);
    grow_by(1000000, 48000000);
    every_size_to_every_other();
    aligned_blocks();
    array_form();
    walk();
    return 0;
}
