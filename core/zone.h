/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The page allocator of a node: runs of 64 KiB pages inside windows. Level 5, over region and pmap.
 *
 *     free runs, by state and size:  bin[dirty|clean][size bin] -> page <-> page ...
 *     a free run is described by its first page (PAGE_FREE, npages) and its last (PAGE_FREE_LAST, npages)
 *
 * clean: reads as zero and costs no memory; dirty: was used. Neighbours of the same state are merged.
 *   INV-ZONE-1 no two free runs of the same state and node touch, also across windows.
 *   INV-ZONE-2 the bin of a run is the bin of its length; the bitmap has a bit for every non-empty bin.
 *   INV-ZONE-3 dirty_pages and clean_pages are the sums over the bins; pages out of the zone are not in them.
 *   INV-ZONE-4 pages being purged are in no bin: nothing can be handed out while it is being zeroed.
 * A simple body for now (best fit by bins); the buddy, the 2 MiB blocks and the rules of giving back come with
 * "the page layer".
 */
#ifndef CORE_ZONE_H
#define CORE_ZONE_H

#include "pmap.h"

/* What: a run of exactly npages pages, its first page aligned to align_pages (a power of two; 1 for none). The first
 * page's descriptor has kind PAGE_CACHED, npages, and zeroed telling whether all of it reads as zero.
 * Locks: takes ZONE; none may be held. May map a window. Owner: the caller. Fails: NULL. */
struct page *zone_alloc(unsigned node, size_t npages, size_t align_pages);

/* What: the same from what the zone has. Locks: takes ZONE; PCP may be held. Fails: NULL. Cost: no system call. */
struct page *zone_try_alloc(unsigned node, size_t npages, size_t align_pages);

/* What: give a run back; its descriptors are cleared. Locks: takes ZONE; PCP may be held. Cost: O(1), no system call.
 * Call zone_relax with no lock held some time later. */
void zone_free(struct page *pg, size_t npages, bool zeroed);

/* What: give back tail pages of a run (dirty), or grow it into the free run that follows: npages is its new length.
 * Owner: the run must be the caller's. Locks: takes ZONE; PCP may be held. Fails: grow with false, unchanged.
 * Cost: O(1), no system call; zone_relax as after zone_free. */
void zone_shrink(struct page *pg, size_t npages);
bool zone_grow(struct page *pg, size_t npages);

/* What: cut one run into two; both stay the caller's. Units: pages, 0 < first_pages < npages. Result: descriptor of the
 * second. Locks: none needed. */
struct page *zone_split(struct page *pg, size_t first_pages);

/* What: purge dirty pages above the allowance. `pure`: a run of frees without an allocation says that a spike is over.
 * Locks: none may be held. Cost: nothing most times, else madvise. */
void zone_relax(unsigned node, bool pure);

/* What: is the memory of the last spike still being given back? Locks: none; PCP may be held. Cost: a load. */
bool zone_spiking(unsigned node);

/* What: purge dirty runs until at most keep bytes are dirty. Result: bytes given back. Locks: none may be held. */
size_t zone_purge(unsigned node, size_t keep);

struct zone_stats {
    size_t dirty, clean;  /* free bytes by state */
    size_t out;           /* bytes handed out */
    size_t purged;        /* bytes given back so far */
    size_t purge_calls, purge_failures;
};
/* What: a look at the sums. Locks: takes ZONE. */
struct zone_stats zone_stats(unsigned node);

/* What: verify INV-ZONE-1 to 3. Locks: takes ZONE. Cost: O(free runs). Tests only. Fails: dbg_fail. */
void zone_check(unsigned node);

/* What: fork. In the child, runs that other threads were purging go back as dirty. */
void zone_fork_hold(void);
void zone_fork_open(bool child);

#endif
