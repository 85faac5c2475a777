/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lists of free page runs in front of the zone, one set a cpu. Level 6.
 *
 *     shard[cpu] -> newest[order 0..3] -> run -> run <- oldest[order 0..3]      runs of 2^order pages
 *
 * A shard is only tried: who finds it taken goes to the zone, nobody waits. An allocation takes the newest run of its
 * order; an empty list is refilled by one larger run of the zone's, cut up, so that neighbours stay neighbours. A shard
 * that is full gives back its oldest runs, first of the order just freed. How much each time is pcp_tune.h's business.
 *
 * Runs keep their "reads as zero" mark and their pages' clean masks: here they are only added up.
 *
 * Frees without an allocation between them are a run (run_pages). When it passes a mark, all that the shard has goes to
 * the zone, which is then told that a spike is over (zone_relax, pure); each mark also empties one other shard whose last
 * operation was a free, as the run may have begun there. pcp_spike_over tells the layers above. A run in which memory in
 * use did not fall by half as much is no spike's end: its cpu frees what others go on allocating.
 *
 *   INV-PCP-1 count is the sum of pages on the shard's lists, clean the sum of their clean os pages.
 *   INV-PCP-2 count <= high_max whenever the lock is free: at most 64 pages a shard, and all of them together at most the
 *             larger of 512 pages (32 MiB) and four batches each.
 *   INV-PCP-3 one hold of the ZONE lock moves at most PCP_HOLD_PAGES = 8 pages down (one run of order 3 is that), and one
 *             run of at most PCP_REFILL_PAGES = 32 pages up.
 *   INV-PCP-4 a list holds each run once, linked both ways.
 * Lock: rank PCP, one a shard. A hold takes no other lock. It takes one run off, or links in one run or what a refill has
 * brought (at most PCP_REFILL_PAGES - 1 runs, linked before), and takes at most as many pages off as a shard may hold
 * (PCP_HIGH_PAGES = 64; all of them: by list). The zone is asked, runs are cut and handed over with the lock let go: what
 * a thread has in its hands then, at most 64 pages, a fork child of another thread has lost. A refill that finds the shard
 * taken or full when it comes back goes to the zone again.
 * Source of the idea: the kernel's per_cpu_pages.
 */
#ifndef CORE_PCP_H
#define CORE_PCP_H

#include "pmap.h"

/* What: one shard for every cpu we may run on. Context: start of the process, before there are threads. */
void pcp_init(void);

/* What: a set of shards for each of so many nodes. Context: our constructor, after pcp_init and before there are threads.
 * Fails: false, one node. */
bool pcp_nodes(unsigned count);

/* What: a run of 2^order pages; kind PAGE_CACHED, npages, order and zeroed are set. Locks: none may be held.
 * Owner: the caller. Fails: NULL. Cost: O(1) mostly; a refill cuts up to 32 runs. */
struct page *pcp_alloc(unsigned node, unsigned order);

/* What: give a run back; tags must be cleared, the clean masks of all its pages right. Locks: none may be held; may purge.
 * Cost: O(1) mostly; a drain moves what the shard has, 8 pages a hold of the zone's lock. */
void pcp_free(struct page *pg, unsigned order, bool zeroed);

/* What: a block that bypasses the lists was freed, or allocated: it counts for the run of frees, or ends it.
 * Locks: none may be held; the first may purge. Cost: a try of the shard's lock; a taken one is not counted. */
void pcp_note_free(size_t npages);
void pcp_note_alloc(void);

/* What: has a run of frees said that a spike is over? True once when it first did, and once each time the run has doubled
 * since. Who asks takes the answer. Context: slow paths; any thread. Cost: a load. */
bool pcp_spike_over(void);

/* What: likewise at every mark of a run, a few megabytes apart. */
bool pcp_mark_passed(void);

/* What: so many steps of idleness for every shard that is not in use just now: what it may hold falls by an eighth each,
 * down to its share of 2 MiB, and what it has above that goes to the zone. At most about PCP_AGE_PAGES pages a call; the
 * next one goes on with the next shard. Locks: none may be held; may purge. */
void pcp_age(unsigned steps);

/* What: empty all shards into the zones, but for what other threads are moving just now. Locks: none may be held. */
void pcp_drain(void);

struct pcp_stats {
    size_t bytes, resident;     /* on the lists; without os pages that cost no memory */
    size_t alloc, alloc_busy;   /* allocations that had the shard; that found it taken: from the zone */
    size_t refill, refill_fail; /* of alloc: those that took a run of the zone's; that found none there */
    size_t free, free_busy;     /* frees that had the shard; that found it taken: to the zone */
    size_t drain, free_high, mark,
        spike;                         /* drains; those for a row of runs, at a mark; and marks that told of a spike */
    size_t refill_holds, refill_pages; /* holds of ZONE locks, and pages moved: up */
    size_t drain_holds, drain_pages;   /* down */
    size_t lock_acquired, lock_contended; /* shards' locks; who only tries is never contended */
};
/* What: the sum over the shards. Locks: takes PCP, one shard at a time. */
struct pcp_stats pcp_stats(void);

/* What: verify INV-PCP-1, 2 and 4 and the tuning's. Tests only. */
void pcp_check(void);

/* What: fork: hold and open the locks. */
void pcp_fork_hold(void);
void pcp_fork_open(void);

#endif
