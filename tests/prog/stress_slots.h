/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the stress programs share: slots that all threads take blocks from and put blocks into, so that a block is as
 * often freed by another thread as by its own.
 *
 * A slot holds all that is known of its block outside of it: size, alignment, the seed of its pattern. Nothing about a
 * block is read from the block, and the slots are static: they work whatever the allocator under test does. A slot is
 * held by try-lock only; a thread that finds it held goes on to another.
 */
#ifndef PROG_STRESS_SLOTS_H
#define PROG_STRESS_SLOTS_H

#include "api_check.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define SLOTS 4096
#define NOT_SIZED SIZE_MAX

struct slot {
    atomic_flag held; /* taken with acquire, released with release: orders the other fields and the block's contents */
    void *p;
    size_t size;
    size_t align; /* 0: from malloc, calloc or realloc; else from aligned_alloc with this; NOT_SIZED: no sized free */
    uint64_t mark;
} __attribute__((aligned(64)));

static struct slot slots[SLOTS];

/* For messages: what to run again. */
static unsigned long stress_seed = 1, stress_threads = 8, stress_ops = 200000;

#define STRESS_CHECK(cond, ...)                                                                                        \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            char stress_text[200];                                                                                     \
            snprintf(stress_text, sizeof stress_text, __VA_ARGS__);                                                    \
            FAILF("%s (-s %lu -t %lu -n %lu)", stress_text, stress_seed, stress_threads, stress_ops);                  \
        }                                                                                                              \
    } while (0)

/* NULL where the process has none. */
static void (*stress_free_sized)(void *, size_t);
static void (*stress_free_aligned_sized)(void *, size_t, size_t);

static inline bool slot_try(struct slot *s)
{
    return !atomic_flag_test_and_set_explicit(&s->held, memory_order_acquire);
}

static inline void slot_release(struct slot *s)
{
    atomic_flag_clear_explicit(&s->held, memory_order_release);
}

/* Mostly small, some up to 64 KiB, a few up to 1 MiB: about 4 KiB a block. */
static inline size_t stress_size(uint64_t *rng)
{
    size_t kind = rng_below(rng, 256);
    if (kind < 2)
        return rng_log(rng, 64u << 10, 1u << 20);
    if (kind < 16)
        return rng_log(rng, 1024, 64u << 10);
    if (kind < 128)
        return 1 + rng_below(rng, 256);
    return rng_log(rng, 1, 4096);
}

static inline void slot_verify(const struct slot *s)
{
    size_t at = pattern_diff(s->p, s->size, s->mark);
    STRESS_CHECK(at == s->size, "block %p of %zu bytes: byte %zu changed", s->p, s->size, at);
    STRESS_CHECK(malloc_usable_size(s->p) >= s->size, "block %p of %zu bytes: usable %zu", s->p, s->size,
                 malloc_usable_size(s->p));
}

static inline void slot_fill(struct slot *s, void *p, size_t size, size_t align, uint64_t *rng)
{
    STRESS_CHECK(p != NULL, "%zu bytes: NULL, errno %d", size, errno);
    STRESS_CHECK((uintptr_t)p % align == 0, "%zu bytes, alignment %zu: at %p", size, align, p);
    s->p = p;
    s->size = size;
    s->align = 0;
    s->mark = rng_next(rng);
    pattern_fill(p, size, s->mark);
}

static inline void *posix(size_t align, size_t size)
{
    void *p = NULL;
    return posix_memalign(&p, align, size) == 0 ? p : NULL;
}

static inline void slot_alloc(struct slot *s, uint64_t *rng)
{
    size_t size = stress_size(rng), align = (size_t)16 << rng_below(rng, 9);
    void *p;
    switch (rng_below(rng, 16)) {
    case 0:
    case 1:
        p = calloc(1, size);
        STRESS_CHECK(!p || nonzero_at(p, size) == size, "calloc of %zu bytes at %p is not zero", size, p);
        slot_fill(s, p, size, 16, rng);
        break;
    case 2:
        slot_fill(s, aligned_alloc(align, size), size, align, rng);
        s->align = align;
        break;
    case 3:
        slot_fill(s, memalign(align, size), size, align, rng);
        s->align = NOT_SIZED;
        break;
    case 4:
        slot_fill(s, posix(align, size), size, align, rng);
        s->align = NOT_SIZED;
        break;
    case 5:
        slot_fill(s, realloc(NULL, size), size, 16, rng);
        break;
    default:
        slot_fill(s, malloc(size), size, 16, rng);
    }
}

static inline void slot_realloc(struct slot *s, uint64_t *rng)
{
    size_t size = stress_size(rng), kept = size < s->size ? size : s->size;
    slot_verify(s);
    void *p = rng_below(rng, 4) ? realloc(s->p, size) : reallocarray(s->p, 1, size);
    STRESS_CHECK(p != NULL, "realloc of %zu to %zu bytes: NULL", s->size, size);
    size_t at = pattern_diff(p, kept, s->mark);
    STRESS_CHECK(at == kept, "realloc of %zu to %zu bytes at %p lost byte %zu", s->size, size, p, at);
    slot_fill(s, p, size, 16, rng);
}

static inline void slot_free(struct slot *s, uint64_t *rng)
{
    slot_verify(s);
    /* Dirt over the pattern: whoever reads a freed block as its own must not find it intact. */
    memset(s->p, 0xDD, s->size < 64 ? s->size : 64);
    bool sized = rng_below(rng, 4) == 0;
    if (sized && stress_free_sized && s->align == 0)
        stress_free_sized(s->p, s->size);
    else if (sized && stress_free_aligned_sized && s->align && s->align != NOT_SIZED)
        stress_free_aligned_sized(s->p, s->align, s->size);
    else if (rng_below(rng, 16) == 0)
        STRESS_CHECK(realloc(s->p, opaque(0)) == NULL, "realloc to 0 of %zu bytes is not NULL", s->size);
    else
        free(s->p);
    s->p = NULL;
}

/* One operation on some slot. `span` slots starting anywhere are this thread's favourites: half of its operations stay
 * among them, half go to everybody's. */
static inline void stress_op(uint64_t *rng, size_t first, size_t span)
{
    struct slot *s;
    do
        s = &slots[rng_below(rng, 2) ? (first + rng_below(rng, span)) % SLOTS : rng_below(rng, SLOTS)];
    while (!slot_try(s));
    if (!s->p)
        slot_alloc(s, rng);
    else if (rng_below(rng, 8) == 0)
        slot_realloc(s, rng);
    else
        slot_free(s, rng);
    slot_release(s);
}

/* Verify and free what is left. All threads have ended. */
static inline void stress_drain(void)
{
    uint64_t rng = stress_seed;
    for (size_t i = 0; i < SLOTS; i++)
        if (slots[i].p)
            slot_free(&slots[i], &rng);
}

/* -t threads, -n operations in all, -s seed. */
static inline void stress_options(int argc, char **argv)
{
    int c;
    while ((c = getopt(argc, argv, "t:n:s:")) != -1) {
        unsigned long v = optarg ? strtoul(optarg, NULL, 0) : 0;
        if (c == 't' && v > 0)
            stress_threads = v;
        else if (c == 'n')
            stress_ops = v;
        else if (c == 's')
            stress_seed = v;
        else
            FAILF("usage: %s [-t threads] [-n operations] [-s seed]", argv[0]);
    }
    stress_free_sized = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    stress_free_aligned_sized = (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
}

#endif
