/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What slab.c and slab_holes.c share, and nobody else sees: the lists of a class and node, and the bits of a slab. Level 7.
 *
 *     struct slabs: list[0..7] partial, 0 the fullest; list[8] wholly free          full slabs are on none
 *     slab's descriptor: bits, nfree, bucket: which list; epoch, flight: of a sweep for holes (slab_holes.c)
 *
 * While a sweep runs, every list has the slabs that it has not looked at in front of those it has: it looks at the first,
 * and moves it to the end.
 */
#ifndef CORE_SLAB_IMPL_H
#define CORE_SLAB_IMPL_H

#include "clean.h"
#include "compat/os/lock.h"
#include "compat/os/numa.h"
#include "pmap.h"
#include "zone.h"

enum { NO_BUCKET = 0xff };

struct slab_list {
    struct page *head, *tail;
};

struct slabs {
    struct lock lock;
    struct slab_list list[SLAB_BUCKETS + 1]; /* everything here: SLAB lock */
    size_t nempty;
    size_t nslabs, free_objs; /* also read without the lock, as a hint */
    size_t clean;             /* clean os pages in all slabs */
    size_t made, released, refills, flushed_objs;
    size_t hole_bytes; /* given back so far */
    uint32_t hole_calls, hole_failures;
    uint32_t flight_objs; /* objects in flight: free, but marked allocated */
    uint8_t epoch;        /* of the last sweep, 1..255 */
    bool sweeping;        /* it has not ended */
    uint16_t hole_skip; /* after a failed purge: so many calls of slab_holes do nothing */
} CACHE_ALIGNED;
_Static_assert(sizeof(struct slabs) == 256, "there are many, and every process touches some");

extern struct slabs slabs_here[SIZE_CLASSES]; /* node 0's: valid before there are others */
extern struct slabs *slabs_more;              /* those of the other nodes; constant after slab_nodes */

static inline struct slabs *slabs_of(unsigned node, class_t c)
{
    return LIKELY(node == 0) ? &slabs_here[c] : &slabs_more[(size_t)(node - 1) * SIZE_CLASSES + c];
}

static inline unsigned slabs_node(const struct slabs *s)
{
    bool here = s >= slabs_here && s < slabs_here + SIZE_CLASSES;
    return LIKELY(here) ? 0 : (unsigned)((size_t)(s - slabs_more) / SIZE_CLASSES) + 1;
}

/* ---- geometry ---- */

static inline unsigned slab_words(class_t c)
{
    return (size_info[c].objs + 63u) / 64;
}

static inline unsigned slab_bucket(class_t c, unsigned nfree)
{
    return nfree * size_info[c].bucket_recip >> 16;
}

/* ---- lists ---- */

static inline void slab_list_add(struct slab_list *l, struct page *pg)
{
    pg->prev = NULL;
    pg->next = l->head;
    if (pg->next != NULL)
        pg->next->prev = pg;
    else
        l->tail = pg;
    l->head = pg;
}

static inline void slab_list_add_tail(struct slab_list *l, struct page *pg)
{
    pg->next = NULL;
    pg->prev = l->tail;
    if (pg->prev != NULL)
        pg->prev->next = pg;
    else
        l->head = pg;
    l->tail = pg;
}

static inline void slab_list_remove(struct slab_list *l, struct page *pg)
{
    if (pg->next != NULL)
        pg->next->prev = pg->prev;
    else
        l->tail = pg->prev;
    if (pg->prev != NULL)
        pg->prev->next = pg->next;
    else
        l->head = pg->next;
}

/* Has the running sweep looked at this slab? */
static inline bool slab_swept(const struct slabs *s, const struct page *pg)
{
    return s->sweeping && pg->epoch == s->epoch;
}

static inline unsigned slab_bucket_now(const struct page *pg)
{
    if (pg->nfree == 0)
        return NO_BUCKET;
    bool empty = pg->nfree == size_info[pg->class].objs && pg->flight == 0; /* pages in flight keep their slab */
    return empty ? SLAB_BUCKETS : slab_bucket(pg->class, pg->nfree);
}

/* Put a slab where its nfree says (INV-SLAB-2). */
static inline void slab_relist(struct slabs *s, struct page *pg)
{
    unsigned bucket = slab_bucket_now(pg);
    if (LIKELY(bucket == pg->bucket))
        return;
    if (pg->bucket != NO_BUCKET)
        slab_list_remove(&s->list[pg->bucket], pg);
    s->nempty += (bucket == SLAB_BUCKETS) - (size_t)(pg->bucket == SLAB_BUCKETS);
    pg->bucket = (uint8_t)bucket;
    if (bucket == NO_BUCKET)
        return;
    if (UNLIKELY(slab_swept(s, pg)))
        slab_list_add_tail(&s->list[bucket], pg);
    else
        slab_list_add(&s->list[bucket], pg);
}

/* ---- slab.c ---- */

/* What: take wholly free slabs beyond the allowance off the list, SLAB_HOLD_SLABS at most. Locks: SLAB. Result: list
 * linked by next, for slab_release. */
struct page *slab_collect_locked(struct slabs *s, size_t keep);

/* What: wholly free slabs that a class may keep: none while a spike is being given back. Locks: SLAB. */
static inline size_t slab_allowance(const struct slabs *s)
{
    return zone_spiking(slabs_node(s)) ? 0 : SLAB_EMPTY_KEEP + (s->nslabs >> SLAB_EMPTY_SHIFT);
}

/* What: give the pages of collected slabs down. Locks: none may be held. */
void slab_release(struct page *list);

/* ---- slab_holes.c ---- */

/* What: is an object of a slab with pages in flight in one of the holes, so free although its bit is clear? Locks: SLAB. */
bool slab_hole_covers(const struct page *pg, unsigned obj);

/* What: in a fork child, holes that another thread was purging become free objects again, not clean. Locks: all SLAB. */
void slab_holes_fork_child(void);

/* Debug builds, tests only: mark a hole's objects after the purge instead of before it, which is wrong. */
extern bool slab_holes_swapped;

#endif
