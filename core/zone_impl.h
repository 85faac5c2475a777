/* SPDX-License-Identifier: BSD-2-Clause */
/* What zone.c and zone_purge.c share: the zone itself and the two moves of a block. Level 5. Private to them. */
#ifndef CORE_ZONE_IMPL_H
#define CORE_ZONE_IMPL_H

#include "block.h"
#include "compat/os/lock.h"
#include "giveback.h"
#include "opt.h"
#include "pmap.h"

enum {
    FULLNESS = 8,                        /* classes of blocks by pages in use, 0 the fullest */
    BLOCK_LISTS = BLOCK_ORDERS * FULLNESS, /* list = fullness * BLOCK_ORDERS + order of the largest piece */
    EXTENT_EXACT = 40,                   /* extents of 1..40 blocks have a bin each, longer ones one a doubling */
    EXTENT_BINS = 64,
    NO_LIST = 0x7f,
};

enum extent_state { EXTENT_DIRTY, EXTENT_CLEAN, EXTENT_STATES };

struct block_lists {
    struct block *head[BLOCK_LISTS];
    uint64_t used; /* a bit for every list that is not empty */
};

struct zone {
    struct lock lock;
    struct block_lists partial; /* everything here: ZONE lock. Blocks with free pages, by largest free piece */
    struct block_lists dirty;   /* of those, blocks with dirty pages, by largest dirty piece */
    struct block *extent[EXTENT_STATES][EXTENT_BINS];
    uint64_t extent_used[EXTENT_STATES];
    struct block *flight; /* blocks with pages that are being purged, linked by flight_next; for a fork child */
    struct block *parked; /* likewise, with pages that the system has refused: until the end of a purge of several rounds */
    size_t nparked;
    struct giveback give;
    size_t dirty_pages; /* also read without the lock, as a hint; so are the next five */
    size_t out_pages;
    size_t flight_pages;   /* of them: in flight or parked */
    uint32_t spiking;      /* give.spiking, or 0 */
    uint32_t owes;         /* give.owed, or 0 */
    uint16_t node;         /* constant */
    uint32_t relax_skip;   /* after a failed purge: so many calls of zone_relax do nothing; racy */
    size_t lazy_pages, clean_pages;
    size_t purged_pages, purge_calls, purge_failures;
    uint32_t rounds; /* of purging, ended so far */
    void *purger; /* the thread that purges, or NULL: one purge at a time; a shim's madvise may call malloc, or fork */
} CACHE_ALIGNED;

extern struct zone zone_here;   /* node 0's: valid before there are others */
extern struct zone *zones_more; /* those of the other nodes; constant after zone_nodes */

static inline struct zone *zone_of(unsigned node)
{
    return LIKELY(node == 0) ? &zone_here : &zones_more[node - 1];
}

/* What: take a block out of the lists it is on, before its masks change, and enter it again where they say now. A wholly
 * free block leaves its extent, which splits, and merges with its neighbours of the same state. Locks: ZONE held.
 * Cost: O(1). */
void block_detach(struct zone *z, struct block *b);
void block_attach(struct zone *z, struct block *b);

/* What: the rules' view of a zone. Units: now in milliseconds (clock_coarse_ms). Locks: ZONE held. */
static inline struct give_view zone_view(const struct zone *z, uint64_t now)
{
    return (struct give_view){
        .dirty = z->dirty_pages,
        .out = z->out_pages,
        .floor = opt.keep >> PAGE_SHIFT,
        .now = now,
        .decay = opt.decay_ms == 0 ? 1 : opt.decay_ms,
    };
}

/* What: first byte of a block. */
static inline char *block_address(const struct block *b)
{
    return (char *)((uintptr_t)b->number << BLOCK_SHIFT);
}

#endif
