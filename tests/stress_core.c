/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The traffic of the stress programs on the core itself, linked with the debug build: under a sanitizer, which the
 * preloaded library cannot be.
 *
 *     stress_core [-t threads at most] [-n operations of one round] [-r rounds] [-s seed]      SHEAF_TEST_LONG=1: 20 times as long
 *
 * A round is 1, 2, 4 ... threads that allocate, resize and free through shared slots, so that a block is as often freed
 * by another thread as by its own; they trim, fork and walk the heap meanwhile, and end. Contents are checked at every
 * operation; then everything is freed, each layer's invariants are checked, and nothing may be left.
 */
#define _GNU_SOURCE
#include "tests/prog/api_check.h"

#include "core/alloc.h"
#include "core/barn.h"
#include "core/fast.h"
#include "core/large.h"
#include "core/life.h"
#include "core/limit.h"
#include "core/pcp.h"
#include "core/reclaim.h"
#include "core/region.h"
#include "core/report.h"
#include "core/slab.h"
#include "core/zone.h"
#include "compat/os/tls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { SLOTS = 2048, FORK_BLOCKS = 64, LONG_TIMES = 20 };

struct slot {
    atomic_flag held; /* taken with acquire, released with release: orders the rest and the block's contents */
    void *p;
    size_t size;
    uint64_t mark;
} __attribute__((aligned(64)));

static struct slot slots[SLOTS];
static unsigned long seed = 1, threads_most = 8, ops = 24000, rounds = 1;
static pthread_barrier_t start;

/* ---- the calls, as preload/malloc.c makes them ---- */

static void free_slow(void *p)
{
    alloc_free_slow(p, "free");
}

static void *get(uint64_t *rng, size_t size)
{
    size_t align = (size_t)16 << rng_below(rng, 14);
    size_t kind = rng_below(rng, 16);
    void *p = kind < 2 ? alloc_zeroed(size) : kind < 4 ? alloc_aligned(align, size, kind == 3) : alloc_fast(size, alloc_slow);
    CHECKF(p != NULL, "%zu bytes: NULL (seed %lu)", size, seed);
    if (kind < 2 || kind == 3)
        CHECKF(nonzero_at(p, size) == size, "%zu bytes at %p are not zero (seed %lu)", size, p, seed);
    if (kind == 2 || kind == 3)
        CHECKF((uintptr_t)p % align == 0, "%zu bytes, alignment %zu: at %p", size, align, p);
    return p;
}

static void put(void *p)
{
    free_fast(p, free_slow);
}

/* ---- blocks ---- */

/* Mostly small, some up to 64 KiB, a few up to 4 MiB, one in 8,192 larger than windows serve. */
static size_t some_size(uint64_t *rng)
{
    size_t kind = rng_below(rng, 8192);
    if (kind == 0)
        return (size_t)65 << 20;
    if (kind < 32)
        return rng_log(rng, 64u << 10, 4u << 20);
    if (kind < 512)
        return rng_log(rng, 1024, 64u << 10);
    return kind < 4096 ? 1 + rng_below(rng, 256) : rng_log(rng, 1, 4096);
}

/* Of a long block only both ends: the sanitizers make each word dear. */
enum { END = 8192 };

static void stamp(struct slot *s, void *p, size_t size, uint64_t *rng)
{
    s->p = p;
    s->size = size;
    s->mark = rng_next(rng);
    pattern_fill(p, size < END ? size : END, s->mark);
    if (size > 2 * END)
        pattern_fill((char *)p + size - END, END, s->mark + 1);
}

static void verify(const struct slot *s, size_t kept)
{
    size_t head = kept < END ? kept : END, at = pattern_diff(s->p, head, s->mark);
    CHECKF(at == head, "block %p of %zu bytes: byte %zu changed (seed %lu)", s->p, s->size, at, seed);
    if (kept == s->size && kept > 2 * END) {
        at = pattern_diff((char *)s->p + kept - END, END, s->mark + 1);
        CHECKF(at == END, "block %p of %zu bytes: byte %zu of its end changed (seed %lu)", s->p, s->size, at, seed);
    }
    CHECKF(alloc_usable(s->p) >= s->size, "block %p of %zu bytes: usable %zu", s->p, s->size, alloc_usable(s->p));
}

static void resize(struct slot *s, uint64_t *rng)
{
    size_t size = some_size(rng), kept = size < s->size ? size : s->size;
    verify(s, s->size);
    if (!alloc_resize_in_place(s->p, size)) {
        s->p = alloc_resize(s->p, size, "realloc");
        CHECKF(s->p != NULL, "realloc of %zu to %zu bytes: NULL", s->size, size);
    }
    s->size = size;
    size_t head = kept < END ? kept : END;
    CHECKF(pattern_diff(s->p, head, s->mark) == head, "realloc to %zu bytes lost contents (seed %lu)", size, seed);
    stamp(s, s->p, size, rng);
}

static void drop(struct slot *s)
{
    verify(s, s->size);
    memset(s->p, 0xdd, s->size < 64 ? s->size : 64);
    put(s->p);
    s->p = NULL;
}

static void one_op(uint64_t *rng)
{
    struct slot *s;
    do
        s = &slots[rng_below(rng, SLOTS)];
    while (atomic_flag_test_and_set_explicit(&s->held, memory_order_acquire));
    if (s->p == NULL) {
        size_t size = some_size(rng);
        stamp(s, get(rng, size), size, rng);
    } else if (rng_below(rng, 8) == 0) {
        resize(s, rng);
    } else {
        drop(s);
    }
    atomic_flag_clear_explicit(&s->held, memory_order_release);
}

/* ---- what else a program does ---- */

/* The child has our blocks and a heap that works; other threads' slots may be in the middle of a change. */
static void fork_once(uint64_t *rng)
{
    struct slot mine[FORK_BLOCKS];
    for (int i = 0; i < FORK_BLOCKS; i++) {
        size_t size = some_size(rng);
        stamp(&mine[i], get(rng, size), size, rng);
    }
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < FORK_BLOCKS; i++)
            resize(&mine[i], rng);
        reclaim_trim(0);
    }
    for (int i = 0; i < FORK_BLOCKS; i++)
        drop(&mine[i]);
    if (pid == 0)
        _exit(0);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECKF(status == 0, "a child ended with status 0x%x", status);
}

static void look(void)
{
    struct report *r = report_take();
    if (r != NULL)
        report_done(r);
}

static void traffic(size_t id, unsigned long n)
{
    uint64_t rng = seed * 1000003 + id;
    for (unsigned long i = 0; i < n; i++) {
        one_op(&rng);
        switch (rng_below(&rng, 4096)) {
        case 0:
            fork_once(&rng);
            break;
        case 1:
        case 2:
            reclaim_trim(rng_below(&rng, 2) ? 0 : (size_t)1 << 20);
            break;
        case 3:
            look();
        }
    }
}

/* ---- rounds ---- */

extern void tsan_init_symbol(void) __asm__("__tsan_init") __attribute__((weak));
static unsigned long threads_now;

/* TSan ends its thread in the last round of key destructors, before ours: there each says goodbye itself. */
static void *worker(void *arg)
{
    pthread_barrier_wait(&start);
    traffic((size_t)arg, ops / threads_now);
    if (tsan_init_symbol != NULL)
        tcache_detach();
    return NULL;
}

static void check_all(void)
{
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        slab_check(c, 0);
        barn_check(c, 0);
    }
    tcache_check();
    pcp_check();
    zone_check(0);
    region_check();
}

static void round_of(unsigned long n)
{
    pthread_t thread[64];
    threads_now = n;
    CHECK(n <= 64 && pthread_barrier_init(&start, NULL, (unsigned)n) == 0);
    for (size_t i = 0; i < n; i++)
        CHECK(pthread_create(&thread[i], NULL, worker, (void *)i) == 0);
    for (size_t i = 0; i < n; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    pthread_barrier_destroy(&start);
    check_all();
    for (size_t i = 0; i < SLOTS; i++)
        if (slots[i].p != NULL)
            drop(&slots[i]);
    reclaim_trim(0);
    check_all();
    CHECKF(limit_stats().charged == 0, "%zu bytes are still charged (seed %lu)", limit_stats().charged, seed);
}

static void options(int argc, char **argv)
{
    int c;
    while ((c = getopt(argc, argv, "t:n:r:s:")) != -1) {
        unsigned long v = optarg ? strtoul(optarg, NULL, 0) : 0;
        *(c == 't' ? &threads_most : c == 'n' ? &ops : c == 'r' ? &rounds : &seed) = v;
    }
    const char *longer = getenv("SHEAF_TEST_LONG");
    if (longer != NULL && *longer == '1')
        rounds *= LONG_TIMES;
}

int main(int argc, char **argv)
{
    options(argc, argv);
    pthread_atfork(life_fork_prepare, life_fork_parent, life_fork_child);
    if (tsan_init_symbol == NULL)
        tls_exit_init(tcache_detach);
    unsigned long runs = 0;
    for (unsigned long i = 0; i < rounds; i++, seed++)
        for (unsigned long n = 1; n <= threads_most; n *= 2, runs++)
            round_of(n);
    printf("stress_core: %lu rounds of %lu operations, 1 to %lu threads: contents and invariants hold\n", runs, ops,
           threads_most);
    return 0;
}
