/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much free dirty memory a zone keeps: the rules of giving back, as pure functions of pages and milliseconds. Level 1.
 *
 * Three things make a zone give back (cause):
 *   RUN   a pure run of frees: a spike is over. All above a quarter of the floor and the credit goes, at once: the rest of
 *         the floor is what slabs, caches and page lists keep.
 *   CAP   mixed traffic has left far more dirty pages than the heap's size warrants.
 *   AGE   an epoch of decay_ms is over: pages that nobody wanted in all of it (the least number of dirty pages seen) go.
 * What has aged goes in small parts, one a call: the call may be a malloc.
 * A purge is regretted when pages are wanted again within decay_ms of it and only clean ones are there. A regret adds what
 * was missed to the credit, at most doubling it between two purges, so a program that swings by a steady amount is
 * purged a few times and then no more. The credit halves with every decay_ms without a regret.
 *   INV-GIVE-1 credit <= GIVE_CREDIT_MAX + a half of what is out, wherever it is used.
 *   INV-GIVE-2 a purge on behalf of RUN leaves at most a quarter of the floor + credit pages dirty.
 * Locks: the state belongs to a zone, under its lock. Source of the idea: hysteresis by what is missed, and the least
 * level of an epoch as the measure of what is idle, are ours; the pure run is from Linux's discussion of pcp free_count.
 */
#ifndef CORE_GIVEBACK_H
#define CORE_GIVEBACK_H

#include "tunables.h"

enum give_cause { GIVE_RUN, GIVE_CAP, GIVE_AGE };

struct giveback {
    size_t credit;       /* pages kept beyond the floor */
    size_t credit_most;  /* what the next regrets may raise it to */
    size_t gone;         /* pages purged lately and not wanted since */
    size_t low;          /* least dirty pages since the epoch began */
    size_t owed;         /* pages that were idle in the last epoch and are still to go */
    uint64_t purged_ms;  /* the last purge */
    uint64_t credit_ms;  /* when the credit was last raised, and whole decay_ms on from there */
    uint64_t epoch_ms;   /* when the epoch began; 0: never yet */
    bool spiking;        /* a pure run has been purged and not been regretted */
};

/* What the rules look at besides. */
struct give_view {
    size_t dirty, out; /* pages */
    size_t floor;      /* pages; option keep */
    uint64_t now, decay; /* ms; decay > 0 */
};

/* What: pages that a zone keeps at the end of a spike, whatever the credit. */
static inline size_t giveback_floor(const struct give_view *v)
{
    return v->floor / 4;
}

/* What: pages that may stay dirty when a cause asks. Result: v->dirty or more: nothing is to go. Changes: halves an old
 * credit; AGE: begins a new epoch when the old one is over. */
size_t giveback_keep(struct giveback *g, enum give_cause cause, const struct give_view *v);

/* What: npages have been purged. */
void giveback_purged(struct giveback *g, enum give_cause cause, size_t npages, const struct give_view *v);

/* What: npages clean pages were taken because there were no dirty ones. Regrets what was purged lately. */
void giveback_wanted(struct giveback *g, size_t npages, const struct give_view *v);

/* What: the zone has only so many dirty pages now. Call after each fall. */
static inline void giveback_dirty(struct giveback *g, size_t dirty)
{
    if (dirty < g->low)
        g->low = dirty;
}

#endif
