/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mutex that is valid when zero-filled, spins briefly and then sleeps in the kernel. Level 0.
 *
 * Spinning for long is a loss: the holder may be off cpu (measured with more threads than cpus: spinning locks made a
 * producer/consumer run three times slower than spinning briefly and then sleeping).
 *
 * Word: 0 free, 1 held, 2 held with sleepers, 3 held by a fork, 4 held by a fork with sleepers. While the forking
 * thread holds every lock, its own acquire and release are no-ops: other libraries' fork handlers may call malloc.
 *
 * Locks are ordered by rank (core/rank.h); a debug build checks the order of each thread.
 */
#ifndef COMPAT_OS_LOCK_H
#define COMPAT_OS_LOCK_H

#include "cc.h"

struct lock {
    uint32_t word;      /* see above; atomic */
    uint32_t rank;      /* set at first use in debug builds; constant after */
    uint64_t acquired;  /* written by the holder only: acquisitions */
    uint64_t contended; /* written by the holder only: acquisitions that had to wait */
};

/* What: take the lock, sleeping if need be. Order: acquire; pairs with lock_release. Context: any thread; not from a
 * signal handler that may have interrupted a holder. rank is only checked (debug). Cost: one compare-and-swap. */
void lock_acquire(struct lock *l, unsigned rank);

/* What: take the lock if it is free. Fails: false, nothing changed. */
bool lock_try(struct lock *l, unsigned rank);

/* What: let go. Order: release. Locks: must be held by the caller. */
void lock_release(struct lock *l);

/* What: sleep while *word is value, for ns at most; nobody need wake us. Not for locks: for what somebody else is about to
 * be done with. By futex, which every process may call. Locks: none may be held. Units: nanoseconds, below a second. */
void lock_doze(const uint32_t *word, uint32_t value, uint64_t ns);

/* What: fork. lock_fork_begin names the calling thread as the one that forks; then each lock is taken with
 * lock_fork_hold; after the fork each is opened with lock_fork_open (both sides), then lock_fork_end.
 * Order: hold in rank order. Context: atfork handlers only. */
void lock_fork_begin(void);
void lock_fork_hold(struct lock *l, unsigned rank);
void lock_fork_open(struct lock *l);
void lock_fork_end(void);

/* What: does this thread hold a lock of this rank (debug builds; always true otherwise)? For assertions. */
bool lock_rank_held(unsigned rank);

#endif
