/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The large block that was freed last, a cpu: the next request of its length takes it in one exchange. Level 6, over pmap.
 *
 *     slot[cpu_shard() % HOT_SLOTS] -> block   a free large block, its length and node, as its last user left it
 *                                      own     a free block with a mapping of its own, likewise
 *
 * A program that takes and frees one large block after the other would pay the zone's lock and lists twice a round.
 * Whether a block may wait here is decided on the slow path, once: a slot is granted a length, and from then on blocks up
 * to that length go in and out without a count. Only lengths that were freed, asked for within decay_ms and freed again are
 * granted, so the one large block that a program frees goes back at once.
 *   INV-HOT-1 a block in a slot is in no list, has tag 0 and kind PAGE_HOT, and whoever takes it out of the word owns it.
 *   INV-HOT-2 no block longer than its slot's grant enters; grants together stay within what hot_put_new was told, but
 *             for threads that are granted something at the same moment.
 * A block with a mapping of its own is longer than any grant. It is purged when it enters, but not twice in one step of
 * the coarse clock: what it can cost is what a program can touch in that time, a few milliseconds.
 * Locks: none. Order: a block enters by a release store into its word and leaves by an acquire exchange of it.
 * Source of the idea: the last freed extent, kept aside, is in many allocators; the grant is ours.
 */
#ifndef CORE_HOT_H
#define CORE_HOT_H

#include "pmap.h"

/* What: a waiting block of npages to 9/8 npages of this node; the caller's from then on. Context: any lock may be held.
 * Fails: NULL, and remembers that the length was asked for. Cost: one locked operation. */
struct page *hot_take(unsigned node, size_t npages);

/* What: leave a free block, if the slot is empty and its grant long enough. Fails: false, still the caller's. Cost: one
 * locked operation. */
bool hot_put(struct page *pg);

/* What: the same for one without a grant. It may have one if its length has been freed and asked for before. most: pages
 * that all grants together may reach, asked only then. For want of room, idle slots are emptied by way of release. Fails:
 * false, still the caller's. Locks: none may be held. Cost: a look at every slot. */
bool hot_put_new(struct page *pg, size_t (*most)(unsigned node), void (*release)(struct page *));

/* What: a waiting block with a mapping of its own of `bytes` to 9/8 of that, at a multiple of align. Fails: NULL; then
 * *stray is what waited in vain and must go, or NULL. */
struct page *hot_take_own(size_t bytes, size_t align, struct page **stray);

/* What: leave a free block with its own mapping. purge gives its pages back; it is called unless the block was empty
 * (pg->purged_ms) in this step of the clock, with no lock held, and says whether they read as zero. pg->zeroed follows.
 * Result: what waited there and must go, or NULL. */
struct page *hot_put_own(struct page *pg, bool (*purge)(struct page *));

/* What: take out all that waits (idle: in slots that nobody has taken from since the last such call) and end the grants.
 * Each block goes to release, with no lock held. Result: how many there were. */
size_t hot_drain(bool idle, void (*release)(struct page *));

struct hot_stats {
    size_t bytes, count, usable, stale; /* blocks inside windows: whole; of that usable, and resident behind it */
    size_t own_usable, own_count;       /* those with mappings of their own */
};
/* What: what waits. Order: relaxed; exact when nothing moves. */
struct hot_stats hot_stats(void);

#endif
