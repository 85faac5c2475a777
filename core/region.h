/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every range of address space we mapped, and the free space in it. Level 4, over maple, pmap and meta.
 *
 *     space, a maple tree with gaps over the whole line:
 *        foreign | zone | gap | foreign | large | gap | large | foreign | own | foreign | metadata | leaf | foreign
 *                [------------]         [-------- window -----]
 *
 * A *window* is one mapping that several regions are cut from. There are two sorts: plain ones, whose pieces go to the
 * zone, and huge ones, for blocks above LARGE_OWN_BYTES, which are advised to be huge pages as a whole. Taking a block
 * from a window and giving it back is a write to the tree; the kernel is only told that its pages are free.
 *
 *   INV-REGION-1 A gap of the tree is address space that we mapped, that nobody uses, and that reads as zero and costs no
 *                memory. Each gap lies in windows. All that is not ours is covered by one marker entry (foreign).
 *   INV-REGION-2 A region's entry covers exactly [base, base + size).
 *   INV-REGION-3 In a huge window regions begin at multiples of 2 MiB, so a 2 MiB block there is touched by one region at
 *                most, and purging may round up to its end.
 *   INV-REGION-4 Areas of the zone that share a 2 MiB block are of one node: struct block has one node.
 *   INV-REGION-5 What is not known to be zero (a freed block whose purge was refused or is under way) is no gap but an
 *                entry: REGION_STALE.
 *   INV-REGION-6 struct region is type-stable: its memory is never used for anything else. version is odd while its fields
 *                change. So a reader may copy what it found, and ask again whether it is still there.
 *
 * Locks: REGION, around every change; inside it SPACE, the tree's own. No system call is made under either. A block's
 * owner, and nobody else, may resize or unmap it, and reads its base and size without a lock.
 */
#ifndef CORE_REGION_H
#define CORE_REGION_H

#include "compat/os/cc.h"

enum region_kind {
    REGION_ZONE,  /* an area that the zone cuts up; never given back */
    REGION_LARGE, /* a block in a huge window */
    REGION_OWN,   /* a block with a mapping of its own, which mremap can move */
    REGION_META,  /* a chunk of metadata */
    REGION_LEAF,  /* a leaf of the page map */
    REGION_STALE, /* part of a huge window that is free and not known to be zero */
    REGION_KINDS
};

struct region {
    uint32_t version; /* INV-REGION-6; atomic, as are the next four for those who do not own the region */
    uint16_t node;
    uint8_t kind;     /* enum region_kind */
    bool zero;        /* STALE: purged; only the tree could not be told yet */
    bool small;       /* ZONE: no huge pages here any more; atomic, a hint */
    char *base;
    size_t size;
    struct region_window *window; /* LARGE, STALE: where it lies. REGION lock */
    struct region *next, *prev;   /* list of stale, unused or not yet entered ones. REGION lock */
    const void *purger;           /* STALE: the thread that purges it, or NULL. REGION lock */
};
_Static_assert(sizeof(struct region) <= 64, "one cache line");

/* What: the name of a kind: "zone", "large", "own", "metadata", "leaf", "stale". */
const char *region_kind_name(enum region_kind kind);

/* What: an area for a zone, of at least need bytes and whole pages of ours, all zero, its leaves in place: a gap of a plain
 * window that is large enough, all of it; else a new window, which grows with what is mapped already and shrinks to the need
 * when address space is short. Locks: none may be held. Fails: NULL. Owner: the node's zone, for ever.
 * Cost: a few system calls, or none. */
struct region *region_map_window(size_t need, unsigned node);

/* What: a block of size bytes (a multiple of the os page) at a multiple of align (a power of two), all zero: in a huge
 * window (LARGE); or, where it is smaller than 2 MiB, an alignment above 2 MiB finds no gap, purging is off, or address
 * space is short, with a mapping of its own (OWN). Locks: none may be held. Fails: NULL. Cost: two holds of a lock; seldom
 * a few system calls. */
struct region *region_map_large(size_t size, size_t align);

/* What: a block with a mapping of its own (OWN), which region_remap_large can move. The rest as region_map_large.
 * Cost: a few system calls. */
struct region *region_map_own(size_t size, size_t align);

/* What: free a block of either kind. LARGE: its pages go back to the system, its range becomes a gap (or stale, if the
 * system refuses); a window that is empty then may be unmapped. OWN: its mapping goes. Locks: none may be held.
 * Fails: -errno, OWN only: the region is then still mapped, and still the caller's. Cost: two madvise, or a munmap. */
int region_unmap_large(struct region *r);

/* What: resize a block; r->base and r->size follow. OWN: moves if need be. LARGE: region_grow or region_shrink, else it
 * moves without copying to a mapping of its own, and is OWN from then on.
 * Locks: none may be held. Fails: false, unchanged. */
bool region_remap_large(struct region *r, size_t new_size);

/* What: make a LARGE block longer, into the gap that follows it. What is new reads as zero. Units: bytes, a multiple of the
 * os page. Locks: none may be held. Fails: false, unchanged: no gap, not long enough, or OWN. Cost: no system call. */
bool region_grow(struct region *r, size_t new_size);

/* What: make a block shorter; the tail goes back as region_unmap_large does it. Units: as region_grow; new_size > 0.
 * Locks: none may be held. Fails: false, unchanged: no memory for bookkeeping, or the system refuses (OWN). */
bool region_shrink(struct region *r, size_t new_size);

/* What: part of a huge page at p, in an area of a zone, is given back, or is going to be: refuse huge pages in that area, or
 * the system would fill the hole again. thp:auto only. Locks: none may be held. Cost: a look-up; once an area a madvise. */
void region_punctured(const void *p);

struct region_stats {
    size_t bytes[REGION_KINDS], count[REGION_KINDS];
    size_t windows, window_bytes; /* huge windows: they hold LARGE, STALE and gaps */
    size_t gaps;                  /* bytes of gaps, in windows of both sorts */
    size_t lost;                  /* bytes of windows that could not be unmapped */
};
/* What: what is mapped, by kind. Locks: takes REGION; none may be held: enters what is new of metadata and leaves. */
struct region_stats region_stats(void);

/* What: the region that an address lies in, anywhere in it, as a copy (version and what needs the lock is zero).
 * Order: whatever is copied was so at one moment of the call. Locks: may take REGION or SPACE, so none of these ranks or
 * above may be held. Fails: false: none of ours, or a gap, or this thread is in the middle of a change (signal handlers).
 * Context: any, signal handlers included. Cost: O(log regions), no lock but under heavy change. */
bool region_find(const void *p, struct region *copy);

/* What: does an address lie in a region? */
static inline bool region_contains(const void *p)
{
    struct region r;
    return region_find(p, &r);
}

/* What: is it the program's memory, or free and meant for it? Not metadata, not a leaf. */
static inline bool region_of_program(const struct region *r)
{
    return r->kind != REGION_META && r->kind != REGION_LEAF;
}

/* What: does an address lie in a gap: mapped by us, used by nobody? Order: a hint. Context: as region_find. */
bool region_is_gap(const void *p);

/* What: call fn for a copy of each region, by address, until it returns other than 0; that is returned. What changes
 * meanwhile may be met or not; no byte is met twice. Locks: none may be held, and fn may call anything.
 * Fails: -EBUSY, as region_find. */
int region_walk(int (*fn)(void *arg, const struct region *copy), void *arg);

/* What: verify INV-REGION-1 to 5, as far as can be seen, and the sums. Locks: takes REGION and SPACE. Cost: O(regions).
 * Tests only. Fails: dbg_fail. */
void region_check(void);

struct maple_stats;
/* What: the tree's counters. */
struct maple_stats region_tree_stats(void);

/* What: fork: hold and open the locks. In the child, stale regions that other threads were purging are nobody's again;
 * mappings in their hands are lost. */
void region_fork_hold(void);
void region_fork_open(bool child);

#endif
