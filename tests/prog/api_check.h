/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the stand-alone programs share: one-line failures, seeded numbers, a pattern to recognise a block by, and values
 * that the compiler cannot see through. C and C++.
 */
#ifndef PROG_API_CHECK_H
#define PROG_API_CHECK_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAILF(...)                                                                                                     \
    do {                                                                                                               \
        char fail_text[400];                                                                                           \
        snprintf(fail_text, sizeof fail_text, __VA_ARGS__);                                                            \
        fprintf(stderr, "FAIL %s:%d: %s\n", __FILE__, __LINE__, fail_text);                                            \
        _exit(1);                                                                                                      \
    } while (0)

/* CHECK(cond) and CHECKF(cond, "format", ...): the second says which case it was. */
#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        if (!(cond))                                                                                                   \
            FAILF("%s", #cond);                                                                                        \
    } while (0)
#define CHECKF(cond, ...)                                                                                              \
    do {                                                                                                               \
        if (!(cond))                                                                                                   \
            FAILF(__VA_ARGS__);                                                                                        \
    } while (0)

/* This machine cannot run the program: say why, exit as automake expects. */
#define SKIPF(...)                                                                                                     \
    do {                                                                                                               \
        fprintf(stderr, "skipped: " __VA_ARGS__);                                                                      \
        fputc('\n', stderr);                                                                                           \
        _exit(77);                                                                                                     \
    } while (0)

/* Bytes of an os page as the library sees them: the page tests (tests/gate/pages) name a larger one than the kernel's. */
static inline size_t os_page(void)
{
    const char *told = getenv("SHEAF_TEST_OS_PAGE");
    return told ? strtoul(told, NULL, 10) : (size_t)sysconf(_SC_PAGESIZE);
}

/* A value that no errno has, to see whether a call wrote it. */
#define ERRNO_MARK 1234

/* Values through these are unknown to the optimiser and to its warnings about odd sizes and uses after free. */
static inline size_t opaque(size_t v)
{
    __asm__ volatile("" : "+r"(v));
    return v;
}

static inline void *opaque_ptr(void *p)
{
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

/* A seeded generator (a Weyl sequence with a finisher of our choice); state is one word. */
static inline uint64_t rng_next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 32)) * UINT64_C(0xD6E8FEB86659FD93);
    x = (x ^ (x >> 29)) * UINT64_C(0xD6E8FEB86659FD93);
    return x ^ (x >> 32);
}

static inline size_t rng_below(uint64_t *state, size_t n)
{
    return (size_t)(rng_next(state) % n);
}

/* About the same number of values from every doubling between lo and hi, both included. */
static inline size_t rng_log(uint64_t *state, size_t lo, size_t hi)
{
    unsigned steps = 0;
    while ((lo << (steps + 1)) <= hi)
        steps++;
    size_t base = lo << rng_below(state, steps + 1);
    size_t v = base + rng_below(state, base);
    return v > hi ? hi : v;
}

/* The copies below are spelled as builtins, because the programs are built with -fno-builtin: else each word of a
 * pattern would be a call. */

/* Word k of the pattern that belongs to a seed. */
static inline uint64_t pattern_word(uint64_t seed, size_t k)
{
    return (seed + k + 1) * UINT64_C(0x9E3779B97F4A7C15);
}

static inline void pattern_fill(void *block, size_t size, uint64_t seed)
{
    unsigned char *p = (unsigned char *)block;
    size_t k = 0;
    for (; (k + 1) * 8 <= size; k++) {
        uint64_t w = pattern_word(seed, k);
        __builtin_memcpy(p + k * 8, &w, 8);
    }
    uint64_t w = pattern_word(seed, k);
    __builtin_memcpy(p + k * 8, &w, size - k * 8);
}

/* Offset of the first byte that differs, or size if none does. */
static inline size_t pattern_diff(const void *block, size_t size, uint64_t seed)
{
    const unsigned char *p = (const unsigned char *)block;
    size_t k = 0;
    for (; (k + 1) * 8 <= size; k++) {
        uint64_t is;
        __builtin_memcpy(&is, p + k * 8, 8);
        if (is != pattern_word(seed, k))
            break;
    }
    for (size_t at = k * 8; at < size; at++) {
        uint64_t w = pattern_word(seed, at / 8);
        if (p[at] != ((const unsigned char *)&w)[at % 8])
            return at;
    }
    return size;
}

/* For large blocks: only the ends and up to 16 words between them, because touching every page costs far more than the
 * allocator that is under test. */
#define SPARSE_END ((size_t)256)
#define SPARSE_STEPS ((size_t)16)
#define SPARSE_ABOVE ((size_t)4 * 4096)

static inline void pattern_fill_sparse(void *block, size_t size, uint64_t seed)
{
    if (size <= SPARSE_ABOVE) {
        pattern_fill(block, size, seed);
        return;
    }
    unsigned char *p = (unsigned char *)block;
    pattern_fill(p, SPARSE_END, seed);
    for (size_t i = 1; i < SPARSE_STEPS; i++)
        pattern_fill(p + size / SPARSE_STEPS * i, 8, seed + i);
    pattern_fill(p + size - SPARSE_END, SPARSE_END, seed + SPARSE_STEPS);
}

static inline size_t pattern_diff_sparse(const void *block, size_t size, uint64_t seed)
{
    if (size <= SPARSE_ABOVE)
        return pattern_diff(block, size, seed);
    const unsigned char *p = (const unsigned char *)block;
    size_t d = pattern_diff(p, SPARSE_END, seed);
    if (d != SPARSE_END)
        return d;
    for (size_t i = 1; i < SPARSE_STEPS; i++) {
        size_t at = size / SPARSE_STEPS * i;
        d = pattern_diff(p + at, 8, seed + i);
        if (d != 8)
            return at + d;
    }
    return size - SPARSE_END + pattern_diff(p + size - SPARSE_END, SPARSE_END, seed + SPARSE_STEPS);
}

/* Offset of the first byte that is not zero, or size. */
static inline size_t nonzero_at(const void *block, size_t size)
{
    const unsigned char *p = (const unsigned char *)block;
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t w;
        __builtin_memcpy(&w, p + i, 8);
        if (w != 0)
            break;
    }
    while (i < size && p[i] == 0)
        i++;
    return i;
}

#endif
