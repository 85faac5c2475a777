/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lock order. A thread may take a lock only while every lock it holds has a smaller rank; fork takes them all in
 * this order. A new lock gets its row here first.
 */
#ifndef CORE_RANK_H
#define CORE_RANK_H

enum lock_rank {
    RANK_FORK,    /* life.c: one fork at a time */
    RANK_THREADS, /* tcache.c: list of live threads and of orphans */
    RANK_BARN,    /* barn.c: one a class and node */
    RANK_SLAB,    /* slab.c: list lock, one a class and node */
    RANK_PCP,     /* pcp.c: one a shard */
    RANK_ZONE,    /* zone.c: one a node */
    RANK_REGION,  /* region_space.c: windows, lists of regions, the pools of tree nodes and region structs */
    RANK_SPACE,   /* region_space.c: the tree of regions; inside REGION, or alone by a reader that gave up */
    RANK_META,    /* meta.c: metadata pools */
    RANKS
};

#endif
