/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lists of free page runs in front of the zone, one set a cpu. Level 6.
 *
 *     shard[cpu] -> list[order 0..3] of runs of 2^order pages, last in first out
 *
 * A shard is only tried: who finds it taken goes to the zone, nobody waits. Runs keep their "reads as zero" mark.
 *   INV-PCP-1 count is the sum of pages on the shard's lists.
 *   INV-PCP-2 count <= PCP_HIGH_PAGES + 2^RUN_ORDER_MAX: frees stop at high, and only a shard below it takes a batch.
 * Source of the idea: the kernel's per_cpu_pages. A simple body for now: fixed batch and high; free_count, its modes and
 * the signal that a spike is over come with "the page layer".
 */
#ifndef CORE_PCP_H
#define CORE_PCP_H

#include "pmap.h"

/* What: one shard for every cpu we may run on. Context: start of the process, before there are threads. */
void pcp_init(void);

/* What: a run of 2^order pages; kind PAGE_CACHED, npages, order and zeroed are set. Locks: none may be held.
 * Owner: the caller. Fails: NULL. Cost: O(1) mostly. */
struct page *pcp_alloc(unsigned node, unsigned order);

/* What: give a run back; tags must be cleared. Locks: none may be held; may purge. */
void pcp_free(struct page *pg, unsigned order, bool zeroed);

/* What: empty all shards into the zones. Locks: none may be held. */
void pcp_drain(void);
bool pcp_spike_over(void);
void pcp_age(unsigned steps);

struct pcp_stats {
    size_t bytes;                  /* on the lists */
    size_t alloc, refill, free, drain; /* operations that reached a shard, and those that went on to the zone */
};
/* What: the sum over the shards. Locks: takes PCP, one shard at a time. */
struct pcp_stats pcp_stats(void);

/* What: verify INV-PCP-1 and 2. Tests only. */
void pcp_check(void);

/* What: fork: hold and open the locks. */
void pcp_fork_hold(void);
void pcp_fork_open(void);

#endif
