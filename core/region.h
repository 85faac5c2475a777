/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every range of address space we mapped for the program. Level 4, over vm and pmap.
 *
 * Windows are large ranges that the zone cuts up; blocks above LARGE_OWN_BYTES are mappings of their own.
 * A simple body for now: a list. The maple tree takes its place behind this header ("regions").
 */
#ifndef CORE_REGION_H
#define CORE_REGION_H

#include "compat/os/cc.h"

enum region_kind { REGION_WINDOW, REGION_LARGE, REGION_KINDS };

struct region {
    struct region *next, *prev; /* REGION lock */
    char *base;                 /* constant, but for region_remap_large */
    size_t size;
    enum region_kind kind;
};

/* What: map a new window of at least need bytes, aligned to our pages, its leaves in place. It grows with what is mapped
 * already and shrinks to the need when address space is short. Locks: none may be held. Fails: NULL.
 * Owner: the zone, for ever. Cost: a few system calls. */
struct region *region_map_window(size_t need);

/* What: map one block of size bytes (a multiple of the os page) at a multiple of align. Locks: none. Fails: NULL. */
struct region *region_map_large(size_t size, size_t align);

/* What: give a large block's mapping back. Fails: -errno: the region is then still mapped, and still ours. */
int region_unmap_large(struct region *r);

/* What: resize a large block's mapping, moving it if need be; r->base and r->size follow. Fails: false, unchanged. */
bool region_remap_large(struct region *r, size_t new_size);

struct region_stats {
    size_t bytes[REGION_KINDS], count[REGION_KINDS];
};
/* What: what is mapped, by kind. Locks: takes REGION. */
struct region_stats region_stats(void);

/* What: the region an address lies in, as a copy. Locks: takes REGION. Fails: false, none of ours. For messages and
 * checks. Cost: O(regions). */
bool region_find(const void *p, struct region *copy);

/* What: does an address lie in a region? */
static inline bool region_contains(const void *p)
{
    struct region r;
    return region_find(p, &r);
}

/* What: fork: hold and open the lock. */
void region_fork_hold(void);
void region_fork_open(void);

#endif
