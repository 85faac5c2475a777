/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slabs: runs of pages cut into equal objects. Level 7, over pcp and pmap.
 *
 *     per class and node:   bucket[0..7] -> slab <-> slab ...      partial slabs, bucket 0 the fullest
 *                           empty        -> slab ...               wholly free, a few kept
 *     slab's page descriptor: bits (1: free), nfree, bucket; full slabs are on no list
 *     every page's descriptor: clean, a bit for each os page that reads as zero and costs no memory (clean.h)
 *
 * Bookkeeping lies outside of the slab and nothing is written into free objects: an overflow cannot forge it, a fork
 * child that frees dirties nothing, and a double free shows as a bit that is set already.
 *   INV-SLAB-1 nfree is the number of set bits, and every set bit is below objs.
 *   INV-SLAB-2 a slab is in the bucket of its nfree; full ones in none; wholly free ones on the empty list, unless a hole
 *              of theirs is in flight.
 *   INV-SLAB-3 every page of a slab carries its tag and leads to its first descriptor.
 *   INV-SLAB-4 nslabs, nempty, free_objs and clean are the sums.
 *   INV-SLAB-5 every object that touches a clean os page is free.
 *   INV-SLAB-6 a slab's os pages are charged (limit.h) but for the clean ones.
 * Lock: the list lock (rank SLAB) of the class and node. A hold moves at most SLAB_HOLD_OBJS objects, enters at most
 * SLAB_RUN_PAGES new slabs, takes at most SLAB_HOLD_SLABS off, looks at HOLE_SCAN_SLABS for holes, puts HOLE_FLIGHT holes
 * back. It is let go before pages are asked for or given back. A refill takes whole cache lines, so that no line is split between two threads' fresh
 * objects. Source of the idea: SLUB's lists by fullness; bitmaps instead of in-object lists are ours.
 */
#ifndef CORE_SLAB_H
#define CORE_SLAB_H

#include "pmap.h"

enum { SLAB_GROUP_EXTRA = 3 }; /* objects a call may return beyond `want` to end on a cache line */

/* What: take free objects, fullest slabs first, ascending within a slab, into out[0..]. Units: objects; between 1 and
 * want + SLAB_GROUP_EXTRA come back, fewer than want only if that saves a new slab. room >= 1 bounds the result.
 * Locks: takes SLAB; none may be held. Owner: the caller. Fails: 0: no memory, or the hard limit. Order: what was written before the free of
 * an object is visible. Cost: O(want); now and then a new slab. */
unsigned slab_alloc_bulk(class_t c, unsigned node, void **out, unsigned want, unsigned room);

/* What: give n objects of class c back. func: public name of the operation, for the misuse line.
 * Locks: takes SLAB; none may be held; may purge pages. Fails: wrong pointers end in a misuse line and abort.
 * Cost: O(n). */
void slab_free_bulk(class_t c, unsigned node, void *const *objs, unsigned n, const char *func);

/* What: is p the start of an object of this page's slab that is allocated as far as the slab knows (it may lie in a
 * sheaf)? Otherwise the misuse line and abort. Locks: takes SLAB. */
void slab_verify(const void *p, const char *func);

/* What: give every wholly free slab back to the page layer. Locks: none may be held. Result: slabs given back. */
size_t slab_trim(class_t c, unsigned node);

/* What: give back os pages that are wholly free inside partly used slabs, at most max_bytes of them, the emptiest slabs
 * first. Result: bytes given back; 0 where purge is off, another sweep runs, or the system refused lately. Locks: takes
 * SLAB many times, each hold bounded as above; none may be held. Fails: a refused purge ends the sweep. Context: may be
 * called from a shim's madvise in a purge: then it does nothing. Cost: O(slabs x (words of bits + os pages)), madvise for
 * each run of neighbouring os pages. */
size_t slab_holes(class_t c, unsigned node, size_t max_bytes);

/* What: forget that the system refused lately: the next slab_holes tries. Locks: takes SLAB. */
void slab_holes_retry(class_t c, unsigned node);

/* What: is the class draining: has it more free objects in its slabs than objects out, and those worth a megabyte? Then
 * keeping freed objects in a barn only pins slabs. Order: relaxed, a hint. Context: any lock may be held. Cost: two loads. */
bool slab_draining(class_t c, unsigned node);

/* What: is more than half of a class's objects free, and are its slabs so few that looking at all of them costs little? */
bool slab_small_and_empty(class_t c, unsigned node);

struct slab_stats {
    size_t slabs, empty, free_objs;
    size_t clean; /* bytes of os pages in slabs that cost no memory: of free objects and of slabs' ends */
    size_t made, released, refills, flushed_objs; /* since the start */
    size_t hole_bytes, hole_calls, hole_failures; /* given back inside slabs, since the start */
    size_t lock_acquired, lock_contended;
};
struct slab_stats slab_stats(class_t c, unsigned node);

/* What: verify INV-SLAB-1 to 5 for the slabs on lists. Locks: takes SLAB. Tests only. */
void slab_check(class_t c, unsigned node);

/* What: fork. In the child, holes that other threads were giving back become free objects again, not clean. */
void slab_fork_hold(void);
void slab_fork_open(bool child);

#endif
