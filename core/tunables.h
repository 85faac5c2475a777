/* SPDX-License-Identifier: BSD-2-Clause */
/* Every constant that a sweep may change, with its unit and its reason. Level 1. */
#ifndef CORE_TUNABLES_H
#define CORE_TUNABLES_H

#include "compat/os/cc.h"

enum {
    PAGE_SHIFT = 16, /* our page: 64 KiB, so one leaf of 2^16 tags covers 4 GiB and a tag look-up is two shifts */
    BLOCK_SHIFT = 21, /* the zone's block: 2 MiB, a huge page, 32 pages in one mask */
    BLOCK_PAGES = 1 << (BLOCK_SHIFT - PAGE_SHIFT),
    RUN_ORDER_MAX = 3, /* pages 2^0..2^3, 64 to 512 KiB, come from the pcp */
};

#define PAGE_BYTES ((size_t)1 << PAGE_SHIFT)
#define RUN_BYTES_MAX (PAGE_BYTES << RUN_ORDER_MAX) /* largest block that is a page run */
#define RUN_PAGES_MAX ((size_t)1 << RUN_ORDER_MAX)

/* ---- sheaves (tcache.c, barn.c) ---- */
enum {
    START_OPS = 4,             /* first operations of a class in a thread go to the slab one by one */
    SMALL_SHEAF_BYTES = 2048,  /* objects in a thread's first sheaf of a class */
    SHEAF_BYTES_USUAL = 64 << 10, /* objects in one sheaf, where that is at least ... */
    SHEAF_OBJS_USUAL = 128,       /* ... so many; classes above 512 bytes hold so many instead, but ... */
    SHEAF_BYTES_MAX = 256 << 10,  /* ... never more bytes than this: 8 objects of the largest class */
    GROW_VISITS = 4,           /* barn visits after which a class doubles its capacity */
    AGE_STEPS_MAX = 8,         /* periods of decay_ms that are made up for at once */
    AGE_TICKS = 64,            /* slow calls of a thread between two looks at the clock */
    MOVES_MAX = 4,             /* changes of a thread's home node in one step of the coarse clock, some milliseconds */
    IDLE_SCAN = 2048,          /* slow calls of a thread between two looks for idle classes */
    BARN_FULL_MIN = 10,        /* full sheaves a barn keeps before traffic has shown a need */
    BARN_LIMIT_MAX = 32,       /* times the two minima a barn may come to keep */
    BARN_EMPTY_MAX = 10,       /* empty sheaves a barn keeps */
    BARN_CPUS = 16,            /* cpus that share a barn: a node with more has several (docs/simulation.md) */
};
#define CACHE_BUDGET ((size_t)64 << 20)     /* bytes of objects all threads may park in sheaves, shared evenly */
#define CACHE_THREAD_MAX ((size_t)8 << 20)  /* one thread's share, at most */
#define CACHE_THREAD_MIN ((size_t)64 << 10) /* one thread's share, at least */
#define BARN_BYTES_MIN ((size_t)256 << 10)  /* bytes of objects a barn keeps before traffic has shown a need */

/* ---- slabs (slab.c, slab_holes.c) ---- */
enum {
    SLAB_BUCKETS = 8,      /* lists of partial slabs by fullness */
    SLAB_HOLD_OBJS = 128,  /* most objects moved under one hold of a list lock: each may cost a cache miss, so 10-20 us */
    SLAB_HOLD_SLABS = 128, /* most slabs taken off the lists under one hold: all that so many objects can make empty */
    SLAB_EMPTY_KEEP = 1,   /* empty slabs a class keeps ... */
    SLAB_EMPTY_SHIFT = 4,  /* ... plus one for every 2^4 slabs it has */
    SLAB_RUN_PAGES = 32,   /* most pages taken at once for slabs of one class: 2 MiB */
    SLAB_FEW = 32,         /* slabs of a class that are looked at for holes at every mark of a run of frees */
    SLAB_DRAIN_BYTES = 1 << 20, /* free bytes above which a mostly free class counts as draining */
    HOLE_SCAN_SLABS = 32,  /* most slabs looked at for holes under one hold: up to 64 os pages each, 10-30 us */
    HOLE_FLIGHT = 64,      /* most holes in flight: put back under one hold; a list in the library's data */
    HOLE_SKIP = 16,        /* after a refused purge, one call in so many tries the class again */
};

/* ---- page layer (pcp.c, zone.c) ---- */
enum {
    PCP_BATCH_PAGES = 7,      /* pages moved between a shard and the zone at a time, before traffic has shown a need ... */
    PCP_BATCH_PAGES_MANY = 3, /* ... and where there are more than ... */
    PCP_MANY_SHARDS = 32,     /* ... so many shards */
    PCP_SCALE_MAX = 3,        /* doublings of a batch: 56 pages, 3.5 MiB */
    PCP_IDLE_PAGES = 32,      /* pages all shards together keep when idle: 2 MiB */
    PCP_BUSY_PAGES = 512,     /* pages all shards together may come to hold, 32 MiB, but at least ... */
    PCP_HIGH_BATCHES = 4,     /* ... so many batches a shard, and at most ... */
    PCP_HIGH_PAGES = 64,      /* ... so many pages a shard: 4 MiB, a scaled batch and one more */
    PCP_REFILL_PAGES = 32,    /* pages of one refill: what fits a block, so that no whole block is broken for it */
    PCP_RUN_PAGES = 128,      /* a pure run of frees so long means that a spike is over: 8 MiB */
    PCP_RUN_AGAIN = 32,       /* the same while the last spike's memory is still being given back: 2 MiB */
    PCP_RUN_STEP = 16,        /* and again after so many more: 1 MiB */
    PCP_HOLD_PAGES = 8,       /* pages given back under one hold of the zone's lock: a batch, or one run of order 3 */
    PCP_AGE_PAGES = 256,      /* pages that one look for idle shards may give back */
};
enum {
    ZONE_HOLD_BLOCKS = 64, /* most 2 MiB blocks isolated, or runs of pages given back, under one hold of the zone lock */
    GIVE_CAP_FLOORS = 4,   /* mixed traffic may leave so many floors dirty ... */
    GIVE_CAP_SHARE = 4,    /* ... or one in so many of the pages that are out, until it has aged */
    GIVE_CREDIT_SHARE = 2, /* regretted purges may add one in so many of the pages that are out to what is kept */
};
#define ZONE_PURGE_MAX ((size_t)32 << 20) /* bytes isolated at a time */
#define SPIKE_HOLE_BYTES ((size_t)64 << 20) /* of holes given back at once by the free that ends a spike */
#define GIVE_FLOOR ((size_t)4 << 20)      /* free dirty bytes kept whatever the heap's size: default of the option keep */
#define GIVE_CREDIT_MAX ((size_t)64 << 20) /* bytes that regretted purges may add to it, besides GIVE_CREDIT_SHARE */

/* ---- regions (region_*.c, large.c) ---- */
#define WINDOW_BYTES_MIN ((size_t)2 << 20)   /* first window of the zone */
#define THP_WINDOW_BYTES ((size_t)8 << 20)  /* smaller windows have no huge pages: each may cost 2 MiB for one object */
#define WINDOW_BYTES_MAX ((size_t)256 << 20) /* its windows grow with the heap up to this */
#define LOCKED_LOOK_BYTES ((size_t)12 << 20) /* larger windows are looked at: are they in memory at once (mlockall)? */
#define HUGE_STEP_BYTES ((size_t)1 << 30)    /* huge windows double what is mapped up to this, then add a quarter */
#define HUGE_KEEP_BYTES ((size_t)1 << 30)    /* address space of empty huge windows that is kept, or as much as is in use */
#define LARGE_OWN_BYTES ((size_t)64 << 20)   /* larger blocks have a mapping of their own */
#define LARGE_GROW_BYTES ((size_t)32 << 20)  /* so have those that realloc has grown to more than this: mremap moves them */
#define HOT_OWN_MAX ((size_t)1 << 30)        /* longest mapping kept for the next request: touching more takes longer than mapping it */
enum {
    STALE_TRIES = 4,  /* ranges that could not be purged are tried again, so many by a block that finds no gap ... */
    STALE_SKIP = 64,  /* ... but after a failure by none of so many */
};

#endif
