/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --calibrate: the table of costs measured on the machine at hand. One thread, the shipped code, locks that work as the
 * shipped ones do when nobody else is there; the least of many rounds, since a busy machine only adds. Two threads for
 * what a line, a wake and a sleep cost. What needs several sockets, counts of lines, and what is judged stay as they are.
 */
#include "sim.h"

#include "compat/os/atomic.h"
#include "compat/os/sys.h"
#include "core/alloc.h"
#include "core/barn.h"
#include "core/fast.h"
#include "core/life.h"
#include "core/meta.h"
#include "core/pcp.h"
#include "core/slab.h"
#include "core/zone.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 300, INNER = 200, OBJS = 128, MANY = 4096 };
static const class_t c64 = 3; /* 64 bytes; looked at in calibrate() */
static void *object[MANY];

static uint64_t ns_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Picoseconds of one of `calls` in body, the least of all rounds. */
static uint64_t least(void (*body)(void), unsigned calls)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t from = ns_now();
        body();
        uint64_t ns = ns_now() - from;
        best = ns < best ? ns : best;
    }
    return best * PS_PER_NS / calls;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* ---- one thread ---- */

static void *get(size_t size)
{
    return alloc_fast(size, alloc_slow);
}

static void slow_put(void *p)
{
    alloc_free_slow(p, "free");
}

static void hits(void)
{
    for (int i = 0; i < INNER; i++) {
        void *p = get(64);
        __asm__ volatile("" : "+r"(p) : : "memory");
        free_fast(p, slow_put);
    }
}

static struct lock some_lock;

static void lock_pairs(void)
{
    for (int i = 0; i < INNER; i++) {
        lock_acquire(&some_lock, RANK_FORK);
        lock_release(&some_lock);
    }
}

static void barn_pairs(void)
{
    for (int i = 0; i < INNER; i++) {
        struct sheaf *s = barn_get_full(c64, 0, NULL), *empty;
        if (s == NULL || !barn_put_full(c64, 0, s, UINT32_MAX, &empty, "sim"))
            abort();
    }
}

static void slab_take(unsigned n)
{
    for (int i = 0; i < INNER / 4; i++) {
        unsigned got = slab_alloc_bulk(c64, 0, object, n, n);
        slab_free_bulk(c64, 0, object, got, "sim");
    }
}

static void slab_few(void)
{
    slab_take(4);
}

static void slab_many(void)
{
    slab_take(OBJS);
}

/* More than both sheaves hold: slow calls and visits to the barn. */
static void batch(void)
{
    for (int i = 0; i < MANY; i++)
        object[i] = get(64);
    for (int i = 0; i < MANY; i++)
        free_fast(object[i], slow_put);
}

static void pcp_pairs(void)
{
    for (int i = 0; i < INNER; i++) {
        struct page *pg = pcp_alloc(0, 0);
        pcp_free(pg, 0, false);
    }
}

static void zone_pairs(void)
{
    for (int i = 0; i < INNER; i++) {
        struct page *pg = zone_alloc(0, 8, 1);
        zone_free(pg, 8, false);
    }
}

static void run_pairs(void)
{
    for (int i = 0; i < INNER; i++)
        alloc_free_slow(alloc_slow(64 << 10), "free");
}

static void meta_pairs(void)
{
    for (int i = 0; i < INNER; i++)
        meta_free(meta_alloc(4096), 4096);
}

static void pauses(void)
{
    for (int i = 0; i < 60; i++)
        cpu_relax();
}

static void maps(void)
{
    for (int i = 0; i < 16; i++)
        munmap(mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 2 << 20);
}

static char *some_pages;

static void purge_nothing(void)
{
    for (int i = 0; i < 16; i++)
        madvise(some_pages, 64 << 10, MADV_DONTNEED);
}

static uint64_t purge_touched(void)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        for (int at = 0; at < 64 << 10; at += 4096)
            ((volatile char *)some_pages)[at] = 1;
        uint64_t from = ns_now();
        madvise(some_pages, 64 << 10, MADV_DONTNEED);
        uint64_t ns = ns_now() - from;
        best = ns < best ? ns : best;
    }
    return best * PS_PER_NS;
}

/* ---- two threads ---- */

enum { BALLS = 20000, WAKES = 2000 };
static uint32_t ball __attribute__((aligned(128)));
static uint32_t bell __attribute__((aligned(128)));
static uint64_t wake_ns[WAKES], latency_ns[WAKES], rung;

static void *return_balls(void *arg)
{
    for (uint32_t i = 0; i < BALLS; i++) {
        while (load_acquire(&ball) != 2 * i + 1)
            ;
        store_release(&ball, 2 * i + 2);
    }
    return arg;
}

/* A line there and back is two transfers. */
static uint64_t transfer(void)
{
    pthread_t t;
    uint64_t best = UINT64_MAX;
    pthread_create(&t, NULL, return_balls, NULL);
    for (uint32_t i = 0; i < BALLS; i += BALLS / 100) {
        uint64_t from = ns_now();
        for (uint32_t k = i; k < i + BALLS / 100; k++) {
            store_release(&ball, 2 * k + 1);
            while (load_acquire(&ball) != 2 * k + 2)
                ;
        }
        uint64_t ns = ns_now() - from;
        best = ns < best ? ns : best;
    }
    pthread_join(t, NULL);
    return best * PS_PER_NS / (2 * BALLS / 100);
}

static void *wait_for_bell(void *arg)
{
    for (uint32_t i = 0; i < WAKES; i++) {
        while (load_acquire(&bell) == i)
            sys_call6(SYS_futex, (long)&bell, FUTEX_WAIT_PRIVATE, i, 0, 0, 0);
        latency_ns[i] = ns_now() - load_relaxed(&rung);
    }
    return arg;
}

static void wakes(void)
{
    pthread_t t;
    pthread_create(&t, NULL, wait_for_bell, NULL);
    for (uint32_t i = 0; i < WAKES; i++) {
        usleep(50); /* it sleeps by then */
        uint64_t from = ns_now();
        store_relaxed(&rung, from);
        store_release(&bell, i + 1);
        sys_call6(SYS_futex, (long)&bell, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
        wake_ns[i] = ns_now() - from;
    }
    pthread_join(t, NULL);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The least is of a cpu that had not gone idle yet. */
static uint64_t median(uint64_t *ns)
{
    qsort(ns, WAKES, sizeof *ns, by_value);
    return ns[WAKES / 2] * PS_PER_NS;
}

static void refused_waits(void)
{
    for (int i = 0; i < INNER; i++)
        sys_call6(SYS_futex, (long)&bell, FUTEX_WAIT_PRIVATE, load_relaxed(&bell) + 1, 0, 0, 0);
}

/* ---- all ---- */

static void measure_locks(void)
{
    uint64_t pair = least(lock_pairs, INNER);
    cost.cas = cost.xchg = pair / 2;
    cost.hold_barn = less(least(barn_pairs, 2 * INNER), pair);
    cost.hold_meta = less(least(meta_pairs, 2 * INNER), pair);
    cost.hold_pcp = less(least(pcp_pairs, 2 * INNER), pair);
    cost.hold_zone = less(least(zone_pairs, 2 * INNER), pair);
}

/* Taking and putting are measured together: a quarter and three quarters, as perf annotate divides them. */
static void measure_slabs(void)
{
    uint64_t few = least(slab_few, INNER / 4), many = least(slab_many, INNER / 4), one = less(many, few) / (OBJS - 4);
    cost.slab_take = one / 4;
    cost.slab_put = one - one / 4;
    cost.hold_slab = less(few, 4 * one + 2 * (cost.cas + cost.xchg)) / 2;
}

static void measure_calls(void)
{
    struct tcache_stats before, after;
    cost.hit = least(hits, 2 * INNER);
    tcache_stats(&before);
    uint64_t calls = 2 * MANY, all = least(batch, 1) - calls * cost.hit;
    tcache_stats(&after);
    uint64_t slow = (after.counts.slow_alloc + after.counts.slow_free - before.counts.slow_alloc - before.counts.slow_free) / ROUNDS;
    uint64_t visits = (after.counts.barn_get + after.counts.barn_put - before.counts.barn_get - before.counts.barn_put) / ROUNDS;
    cost.slow_call = less(all, visits * (cost.cas + cost.xchg + cost.hold_barn)) / (slow == 0 ? 1 : slow);
    cost.page_call = less(least(run_pairs, 2 * INNER), cost.cas + cost.xchg + cost.hold_pcp);
}

static void measure_system(void)
{
    cost.spin = least(pauses, 1);
    cost.mmap = least(maps, 32);
    some_pages = mmap(NULL, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cost.purge = least(purge_nothing, 16);
    cost.purge_page = less(purge_touched(), cost.purge);
    cost.sleep_call = least(refused_waits, INNER);
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        return;
    uint64_t here = transfer();
    wakes();
    cost.wake_call = median(wake_ns);
    cost.wake_latency = median(latency_ns);
    printf("/* a line between two cpus of this machine: %llu ps; transfer_llc is the published figure */\n",
           (unsigned long long)here);
}

void calibrate(void)
{
    machine = (struct machine){.cpus = 1, .nodes = 1, .llc = 1};
    life_start();
    if (class_to_size(c64) != 64)
        abort();
    for (int i = 0; i < 20; i++) /* sheaves grow, the barn fills */
        batch();
    measure_locks();
    measure_slabs();
    measure_calls();
    measure_system();
    cost_print();
}
