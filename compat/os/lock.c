/* SPDX-License-Identifier: BSD-2-Clause */
#include "lock.h"

#include "atomic.h"
#include "sys.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { FREE, HELD, HELD_WAIT, FORK, FORK_WAIT };
enum { SPINS = 60 }; /* about a microsecond: longer than any hold that is not preempted */

static int *fork_thread; /* names the thread that holds all locks for a fork, or NULL; atomic */

#if defined(SHEAF_DEBUG) && SHEAF_DEBUG
static TLS_IE uint64_t held_mask; /* ranks held by this thread */
#else
static uint64_t held_mask; /* never used: costs no thread-local storage */
#endif

/* ---- lab: how long locks are held (configure --enable-lock-times); nothing of it is left in a usual build ---- */

#if defined(SHEAF_LOCK_TIMES) && SHEAF_LOCK_TIMES
#include <stdlib.h> /* here: in one unit it would spoil the attributes of our own malloc */
enum { cfg_lock_times = 1 };
#define LAB_TLS TLS_IE
#else
enum { cfg_lock_times = 0 };
#define LAB_TLS
#endif
enum { TIMED_RANKS = 64 };

/*
 * What a hold costs is read from the thread's cpu clock. Two things spoil it: our own readings, which are taken off
 * (those of locks taken inside too), and the machine: an interrupt, a switch of threads or a pause of a virtual machine
 * is booked on whoever runs. So holds with a switch inside are kept apart, and after each hold an empty one is measured
 * in the same way: a longest hold says something only if it is longer than the longest empty one.
 */
struct probe {
    uint64_t ns;       /* cpu time of this thread */
    uint64_t switches; /* of this thread */
    uint64_t probes;   /* taken by this thread until now */
};
/* One a rank is enough: a thread holds at most one lock of a rank. */
static LAB_TLS struct probe hold[TIMED_RANKS];
static LAB_TLS uint64_t probes;

struct hold_times {
    uint64_t holds, longest_ns, over_10_us, over_100_us, switched, longest_switched_ns; /* atomic */
};
static struct hold_times hold_times[TIMED_RANKS], empty_times;
static uint64_t clock_cost, probe_cost; /* ns of a clock reading, of a whole probe; atomic; 0: not known yet */

static uint64_t thread_cpu_ns(void)
{
    struct timespec t = {0};
    sys_call3(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, (long)&t, 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t thread_switches(void)
{
    struct rusage used = {0};
    sys_call3(SYS_getrusage, RUSAGE_THREAD, (long)&used, 0);
    return (uint64_t)(used.ru_nvcsw + used.ru_nivcsw);
}

/* The clock is read last at the start and first at the end. */
static struct probe probe_start(void)
{
    struct probe p = {.switches = thread_switches()};
    p.probes = ++probes;
    p.ns = thread_cpu_ns();
    return p;
}

static struct probe probe_end(void)
{
    struct probe p = {.ns = thread_cpu_ns()};
    p.switches = thread_switches();
    p.probes = probes++;
    return p;
}

/* The least of many: more would be taken off than every reading costs. Threads that meet here find much the same. */
static void learn_costs(void)
{
    uint64_t clock = UINT64_MAX, probe = UINT64_MAX;
    if (load_relaxed(&probe_cost) != 0)
        return;
    for (int i = 0; i < 200; i++) {
        uint64_t a = thread_cpu_ns(), b = thread_cpu_ns();
        (void)thread_switches();
        uint64_t c = thread_cpu_ns();
        clock = b - a < clock ? b - a : clock;
        probe = c - b < probe ? c - b : probe;
    }
    store_relaxed(&clock_cost, clock);
    store_relaxed(&probe_cost, probe | 1);
}

static void raise_to(uint64_t *most, uint64_t value)
{
    uint64_t now = load_relaxed(most);
    while (value > now && !cas_acquire(most, &now, value))
        ;
}

static void note_hold(struct hold_times *t, const struct probe *from, const struct probe *to)
{
    uint64_t inside = to->probes - from->probes;
    uint64_t cost = load_relaxed(&clock_cost) + inside * load_relaxed(&probe_cost), ns = to->ns - from->ns;
    ns = ns > cost ? ns - cost : 0;
    add_relaxed(&t->holds, 1);
    if (to->switches != from->switches) {
        add_relaxed(&t->switched, 1);
        raise_to(&t->longest_switched_ns, ns);
        return;
    }
    add_relaxed(&t->over_10_us, ns > 10000);
    add_relaxed(&t->over_100_us, ns > 100000);
    raise_to(&t->longest_ns, ns);
}

static void hold_begin(unsigned rank)
{
    if (cfg_lock_times) {
        learn_costs();
        hold[rank] = probe_start();
    }
}

/* While the lock is still held: what the empty hold costs is a probe's time inside the holds around this one. */
static void hold_end(unsigned rank)
{
    if (cfg_lock_times) {
        struct probe to = probe_end();
        note_hold(&hold_times[rank], &hold[rank], &to);
        struct probe empty = probe_start();
        to = probe_end();
        note_hold(&empty_times, &empty, &to);
    }
}

#if defined(SHEAF_LOCK_TIMES) && SHEAF_LOCK_TIMES
static void print_hold_times(const char *what, unsigned rank, const struct hold_times *t)
{
    char line[240];
    int len = snprintf(line, sizeof line,
                       "sheaf: lock %s %u: %llu holds, longest %llu ns, %llu over 10 us, %llu over 100 us; with a switch "
                       "inside %llu, longest %llu ns\n",
                       what, rank, (unsigned long long)t->holds, (unsigned long long)t->longest_ns,
                       (unsigned long long)t->over_10_us, (unsigned long long)t->over_100_us,
                       (unsigned long long)t->switched, (unsigned long long)t->longest_switched_ns);
    if (t->holds != 0 && write(2, line, (size_t)len) < 0)
        return;
}

/* Reads the option by itself: this level knows no options. */
__attribute__((destructor)) static void print_lock_times(void)
{
    const char *conf = getenv("SHEAF_CONF");
    if (conf == NULL || strstr(conf, "stats_print:true") == NULL)
        return;
    for (unsigned rank = 0; rank < TIMED_RANKS; rank++)
        print_hold_times("rank", rank, &hold_times[rank]);
    print_hold_times("empty", 0, &empty_times);
}
#endif

/* ---- the lock ---- */

/* A name of the calling thread that needs no thread-local storage of ours. */
static int *self(void)
{
    return &errno;
}

static void futex_wait(uint32_t *word, uint32_t value)
{
    sys_call6(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, value, 0, 0, 0);
}

void lock_doze(const uint32_t *word, uint32_t value, uint64_t ns)
{
    struct timespec t = {.tv_nsec = (long)ns};
    sys_call6(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, value, (long)&t, 0, 0);
}

static void futex_wake(uint32_t *word, int n)
{
    sys_call6(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, n, 0, 0, 0);
}

static void note_held(unsigned rank)
{
    if (cfg_debug) {
        if ((held_mask >> rank) != 0) /* a lock of this or a higher rank is held: out of order */
            __builtin_trap();
        held_mask |= (uint64_t)1 << rank;
    }
}

static bool mine_by_fork(void)
{
    return load_relaxed(&fork_thread) == self(); /* only this thread can have stored its own address */
}

/* Wait until the word was FREE and is now ours, or we are the forking thread (false: nothing to release). */
static bool acquire_slow(struct lock *l)
{
    for (int i = 0; i < SPINS; i++) {
        uint32_t w = load_relaxed(&l->word);
        if (w == FREE && cas_acquire(&l->word, &w, HELD))
            return true;
        if (w != HELD)
            break;
        cpu_relax();
    }
    for (;;) {
        uint32_t w = load_relaxed(&l->word);
        if (w == FREE) {
            if (cas_acquire(&l->word, &w, HELD_WAIT)) /* others may sleep still: wake them when we leave */
                return true;
            continue;
        }
        if (w >= FORK && mine_by_fork())
            return false;
        uint32_t waiting = w >= FORK ? FORK_WAIT : HELD_WAIT;
        if (w != waiting && !cas_acquire(&l->word, &w, waiting))
            continue;
        futex_wait(&l->word, waiting);
    }
}

void lock_acquire(struct lock *l, unsigned rank)
{
    uint32_t w = FREE;
    bool waited = !cas_acquire(&l->word, &w, HELD);
    if (UNLIKELY(waited) && !acquire_slow(l))
        return;
    note_held(rank);
    l->rank = rank;
    owner_add(&l->acquired, 1);
    if (UNLIKELY(waited))
        owner_add(&l->contended, 1);
    hold_begin(rank);
}

bool lock_try(struct lock *l, unsigned rank)
{
    uint32_t w = FREE;
    if (!cas_acquire(&l->word, &w, HELD))
        return w >= FORK && mine_by_fork();
    note_held(rank);
    l->rank = rank;
    owner_add(&l->acquired, 1);
    hold_begin(rank);
    return true;
}

void lock_release(struct lock *l)
{
    if (UNLIKELY(load_relaxed(&l->word) >= FORK)) /* only the forking thread gets here with such a word */
        return;
    hold_end(l->rank);
    if (cfg_debug)
        held_mask &= ~((uint64_t)1 << l->rank);
    if (UNLIKELY(exchange_release(&l->word, FREE) == HELD_WAIT)) /* pairs with the acquires above */
        futex_wake(&l->word, 1);
}

void lock_fork_begin(void)
{
    store_relaxed(&fork_thread, self());
}

void lock_fork_hold(struct lock *l, unsigned rank)
{
    uint32_t w = FREE;
    if (!cas_acquire(&l->word, &w, HELD))
        acquire_slow(l);
    l->rank = rank;
    /* Sleepers that came while we held it as HELD_WAIT sleep on that value: tell them apart, wake them to re-wait. */
    if (exchange_acquire(&l->word, FORK) == HELD_WAIT)
        futex_wake(&l->word, INT_MAX);
}

void lock_fork_open(struct lock *l)
{
    if (exchange_release(&l->word, FREE) == FORK_WAIT)
        futex_wake(&l->word, INT_MAX);
}

void lock_fork_end(void)
{
    store_relaxed(&fork_thread, NULL);
}

bool lock_rank_held(unsigned rank)
{
    return !cfg_debug || mine_by_fork() || (held_mask >> rank & 1);
}
