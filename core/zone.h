/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The page allocator of a node: pages of 64 KiB in blocks of 2 MiB inside windows. Level 5, over region and pmap.
 *
 *     struct block (pmap.h), one for every 2 MiB:  free, dirty, lazy, flight: masks of its 32 pages (block.h)
 *     partial[fullness][order] -> block <-> block   blocks with free pages, by their largest free aligned piece
 *     dirty[fullness][order]   -> block <-> block   of those, the ones with dirty pages, by their largest dirty piece
 *     extent[state][length]    -> block <-> block   runs of wholly free blocks, by their first block
 *
 * clean: reads as zero and costs no memory; dirty: was used; lazy: given back by MADV_FREE.
 * A request up to 2 MiB takes an aligned piece of the next power of two and leaves the tail behind at once; dirty pages
 * come first, of the fullest block that has them, then clean ones of the fullest block, so that emptier blocks become
 * wholly free. Longer ones take whole blocks, and leave the tail of the last.
 *   INV-ZONE-1 dirty and lazy are parts of free and share no page; free and flight share none.
 *   INV-ZONE-2 a block is on the lists of its masks; wholly free ones are on none but as the first of their extent.
 *   INV-ZONE-3 dirty_pages, lazy_pages and clean_pages are the sums over the blocks; pages out of the zone are in none.
 *   INV-ZONE-4 pages being purged are in no list: nothing can be handed out while it is being zeroed.
 *   INV-ZONE-5 no two extents of the same state and node touch.
 * Lock: rank ZONE, one a node. A hold handles at most ZONE_HOLD_BLOCKS blocks or runs, but for a request that is longer; a
 * search looks at DIRTY_LOOKS blocks, or at ZONE_HOLD_BLOCKS extents of each length that might do; a run of up to
 * BLOCK_PAGES pages has each page's clean mask set. Descriptors are touched before a window is entered, so that no hold
 * takes a page fault for one; where a window below 8 MiB begins or ends in a 2 MiB block, the entering hold may.
 * Source of the idea: the kernel's buddy with lists by order; masks instead of lists of pieces, and fullest first by
 * 2 MiB block, are ours.
 */
#ifndef CORE_ZONE_H
#define CORE_ZONE_H

#include "pmap.h"

/* What: a run of exactly npages pages, its first page aligned to align_pages (a power of two; 1 for none). The first
 * page's descriptor has kind PAGE_CACHED, npages, and zeroed telling whether all of it reads as zero; up to BLOCK_PAGES
 * pages, every page's descriptor has its clean mask. Locks: takes ZONE; none may be held. May map a window.
 * Owner: the caller. Fails: NULL: no address space, or the hard limit. */
struct page *zone_alloc(unsigned node, size_t npages, size_t align_pages);

/* What: the same from what the zone has. Locks: takes ZONE; PCP may be held. Fails: NULL. Cost: no system call. */
struct page *zone_try_alloc(unsigned node, size_t npages, size_t align_pages);

/* What: as zone_try_alloc for a cache of runs: at least 2^order pages and at most npages, a multiple of 2^order, dirty
 * pages before clean ones. Units: pages; npages <= BLOCK_PAGES. */
struct page *zone_try_alloc_some(unsigned node, unsigned order, size_t npages);

/* What: give a run back whose pages' clean masks are not kept. Locks: takes ZONE; PCP may be held. Cost: O(blocks), no system call.
 * Call zone_relax with no lock held some time later. */
void zone_free(struct page *pg, size_t npages, bool zeroed);

/* What: give back up to ZONE_HOLD_BLOCKS runs of at most BLOCK_PAGES pages, linked by next, under one hold; each has its
 * npages, its zeroed mark and the clean masks of its pages right, and all are of one node. */
void zone_free_list(struct page *list);

/* What: give back tail pages of a run (dirty), or grow it into the free pages that follow: npages is its new length. A
 * grown run is zeroed if it was and they are; their clean masks are not set.
 * Owner: the run must be the caller's. Locks: takes ZONE; PCP may be held. Fails: grow with false, unchanged.
 * Cost: O(blocks), no system call; zone_relax as after zone_free. */
void zone_shrink(struct page *pg, size_t npages);
bool zone_grow(struct page *pg, size_t npages);

/* What: cut one run into two; both stay the caller's. Units: pages, 0 < first_pages < npages. Result: descriptor of the
 * second. Locks: none needed. */
struct page *zone_split(struct page *pg, size_t first_pages);

/* What: purge what the rules of giveback.h say; run: a pure run of frees has passed its threshold; else at most 4 MiB a
 * call. Locks: none may be held. Cost: nothing most times, else madvise. */
void zone_relax(unsigned node, bool run);

/* What: pages that somebody has taken, without those that are being purged. As zone_spiking. */
size_t zone_in_use(unsigned node);

/* What: has a pure run been purged lately, and not been regretted? Order: relaxed, a hint. Context: any lock may be held. */
bool zone_spiking(unsigned node);

/* What: has aged memory been left for the next zone_relax? As zone_spiking. */
bool zone_owes(unsigned node);

/* What: purge dirty runs until at most keep bytes are dirty, or as many are gone as there were too many at first: others may
 * go on freeing. Where the system refuses a range, its blocks stay dirty and the others go (64 such blocks
 * are kept apart until the end, so that each round meets new ones); a round in which nothing at all goes is the last. Result: bytes given back. Locks: none may be held. */
size_t zone_purge(unsigned node, size_t keep);

/* What: is another thread giving pages back? They are charged, and nobody can have them: wait until its round is over, for
 * some tens of milliseconds at most. Result: false, nothing to wait for. Locks: none may be held. */
bool zone_await_purge(unsigned node);

struct zone_stats {
    size_t dirty, lazy, clean; /* free bytes by state */
    size_t out;                /* bytes handed out, or being purged */
    size_t purged;             /* bytes given back so far */
    size_t purge_calls, purge_failures;
    size_t credit;             /* bytes that regrets have added to what may stay dirty */
    size_t lock_acquired, lock_contended;
};
/* What: a look at the sums. Locks: takes ZONE. */
struct zone_stats zone_stats(unsigned node);

/* What: verify INV-ZONE-1 to 3 and 5. Locks: takes ZONE. Cost: O(blocks with free pages). Tests only. Fails: dbg_fail. */
void zone_check(unsigned node);

/* What: rows for so many nodes (nodes.h). Context: our constructor, before there are threads. Fails: false, one node. */
bool zone_nodes(unsigned count);

/* What: fork. In the child, runs that other threads were purging go back as dirty. */
void zone_fork_hold(void);
void zone_fork_open(bool child);

#endif
