/* SPDX-License-Identifier: BSD-2-Clause */
#include "lock.h"

#include "atomic.h"
#include "sys.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>

enum { FREE, HELD, HELD_WAIT, FORK, FORK_WAIT };
enum { SPINS = 60 }; /* about a microsecond: longer than any hold that is not preempted */

static int *fork_thread; /* names the thread that holds all locks for a fork, or NULL; atomic */

#if defined(SHEAF_DEBUG) && SHEAF_DEBUG
static TLS_IE uint64_t held_mask; /* ranks held by this thread */
#else
static uint64_t held_mask; /* never used: costs no thread-local storage */
#endif

/* A name of the calling thread that needs no thread-local storage of ours. */
static int *self(void)
{
    return &errno;
}

static void futex_wait(uint32_t *word, uint32_t value)
{
    sys_call6(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, value, 0, 0, 0);
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
}

bool lock_try(struct lock *l, unsigned rank)
{
    uint32_t w = FREE;
    if (!cas_acquire(&l->word, &w, HELD))
        return w >= FORK && mine_by_fork();
    note_held(rank);
    l->rank = rank;
    owner_add(&l->acquired, 1);
    return true;
}

void lock_release(struct lock *l)
{
    if (UNLIKELY(load_relaxed(&l->word) >= FORK)) /* only the forking thread gets here with such a word */
        return;
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
