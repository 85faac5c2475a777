/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The page map: from any address to a 16-bit tag and a page descriptor. Level 4; the tag look-up is part of the hit path.
 *
 *     root[address >> 32]              48 bits of address; beyond is foreign
 *       -> leaf: tag[2^16], page[2^16] one of each for every 64 KiB page of 4 GiB
 *
 * root holds the distance from one shared leaf of zeroes, 0 meaning that one: an all-zero process is valid as it is, and
 * no look-up tests for absence. Leaves are mapped when address space below them is, and never unmapped.
 *
 * tag = node << TAG_NODE_SHIFT | class + 1 for every page of a slab, TAG_BLOCK for the first page of a run or large
 * block, 0 for all else.
 *   INV-PMAP-1 a tag is set before any pointer into the slab is handed out, and cleared, under the list lock, once every
 *              object is free and before the pages go down.
 *   INV-PMAP-2 a leaf's contents are in place before root points to it (release; readers depend on the address).
 * Nothing near a pointer is ever read to find out whose it is.
 */
#ifndef CORE_PMAP_H
#define CORE_PMAP_H

#include "compat/os/atomic.h"
#include "size.h"

enum {
    PMAP_ROOT_BITS = 16,
    PMAP_LEAF_SHIFT = 32,
    PMAP_LEAF_PAGES = 1 << (PMAP_LEAF_SHIFT - PAGE_SHIFT),
    PMAP_LEAF_BLOCKS = 1 << (PMAP_LEAF_SHIFT - BLOCK_SHIFT),
    TAG_NODE_SHIFT = 6,
    TAG_CLASS_MASK = (1 << TAG_NODE_SHIFT) - 1,
    TAG_BLOCK = TAG_CLASS_MASK,
    TAG_NODES_MAX = 1 << (16 - TAG_NODE_SHIFT), /* nodes that a tag can tell apart */
};
_Static_assert(SIZE_CLASSES + 1 < TAG_BLOCK, "class + 1 must fit the tag beside TAG_BLOCK");

enum page_kind {
    PAGE_NONE,      /* not ours, or inside a block */
    PAGE_FREE,      /* first page of a free run of the zone */
    PAGE_FREE_LAST, /* last page of a free run of two or more */
    PAGE_CACHED,    /* first page of a run that a pcp list, a purge or a builder holds */
    PAGE_SLAB,      /* first page of a slab */
    PAGE_SLAB_TAIL, /* further page of a slab */
    PAGE_RUN,       /* first page of a page run, a block of up to RUN_BYTES_MAX */
    PAGE_LARGE,     /* first page of a larger block inside a window */
    PAGE_OWN,       /* first page of a block that is a mapping of its own; not aligned to our pages */
    PAGE_GONE,      /* there was such a block, base tells where; kept for the misuse line until the page has a new use */
    PAGE_HOT,       /* first page of a free large or own block that waits for the next request (hot.h) */
};

/* One descriptor for every page of 64 KiB. Who writes: the layer that owns the page at the time, under its lock. */
struct page {
    uint8_t kind;   /* enum page_kind; the zone reads its neighbours': page_kind, page_set_kind */
    uint8_t order;  /* slab, pcp: the run is 2^order pages */
    uint8_t class;  /* slab */
    uint8_t zeroed; /* the whole run is known to read as zero */
    uint32_t pfn;   /* address >> PAGE_SHIFT; set whenever kind is */
    uint32_t npages;
    uint16_t node;
    uint16_t clean; /* slab, run, cached, each page of it: one bit an os page that reads as zero and costs no memory */
    union {
        struct {
            struct page *next, *prev; /* list of the owner */
        };
        uint64_t purged_ms; /* own: the coarse clock when it was last known to be empty */
    };
    union {
        struct { /* slab, list lock */
            uint64_t *bits; /* set bit: object is free (in the slab, not in a sheaf) */
            uint64_t inline_bits[2];
            uint16_t nfree; /* free objects */
            uint8_t bucket; /* which list it is on */
            uint8_t nclean; /* clean os pages of the slab */
            uint8_t flight; /* holes of it that are being given back */
            uint8_t epoch;  /* last sweep for holes that has looked at it */
        };
        struct { /* run, large, own: constant while the block lives, but for realloc by its owner */
            size_t usable; /* bytes: the request rounded up to os pages */
            void *base;
            struct region *region; /* own */
            size_t stale;          /* bytes behind the usable ones that are resident from an earlier use */
        };
        struct page *head; /* slab tail */
    };
};
_Static_assert(sizeof(struct page) == 64, "one cache line a page");

/* One descriptor for every 2 MiB of address space, the zone's alone (zone.h draws it). Masks: bit i is page i of the block.
 * All of it under the ZONE lock of the block's node. */
struct block {
    uint32_t free;   /* pages in the zone */
    uint32_t dirty;  /* of those, used before and still resident */
    uint32_t lazy;   /* of those, given back by MADV_FREE: not resident for long, not known to be zero */
    uint32_t flight; /* isolated pages that are being purged: in no list, not free */
    struct block *next, *prev;             /* list of blocks with free pages, or of free extents */
    union {
        struct {
            struct block *dirty_next, *dirty_prev; /* list of blocks with dirty pages */
        };
        size_t nblocks; /* first and last block of a free extent: its length */
    };
    struct block *flight_next; /* list of blocks with pages in flight */
    uint32_t number;                       /* address >> BLOCK_SHIFT */
    uint16_t node;
    uint8_t list;           /* which list, or NO_LIST */
    uint8_t dirty_list : 7; /* likewise */
    uint8_t coarse : 1;     /* the clean masks of dirty pages here may be out of date: long blocks do not keep them */
};
_Static_assert(sizeof(struct block) == 64, "one cache line a block");

struct pmap_leaf {
    uint16_t tag[PMAP_LEAF_PAGES];
    struct page page[PMAP_LEAF_PAGES];
    struct block block[PMAP_LEAF_BLOCKS];
};

extern intptr_t pmap_root[1 << PMAP_ROOT_BITS];
extern uint16_t pmap_zero_tags[PMAP_LEAF_PAGES];

/* What: an address as a number, without the tag that arm64 programs may keep in the top byte. */
HOT_INLINE uintptr_t pmap_strip(const void *p)
{
#if defined(__aarch64__) /* if: only there do programs keep tags in the top byte */
    return (uintptr_t)p & (((uintptr_t)1 << 56) - 1);
#else
    return (uintptr_t)p;
#endif
}

/* What: the address as we hand it out: what goes back into a sheaf must not carry the last owner's tag to the next, who
 * may give it to the kernel (which refuses tags) or keep bits there. */
HOT_INLINE void *pmap_plain(void *p)
{
    return (void *)pmap_strip(p);
}

/* What: the tag of the page an address lies in; 0 for anything that is not ours. Order: relaxed; whoever got the pointer
 * rightly also got the tag (INV-PMAP-1). Context: any time. Cost: two loads. */
HOT_INLINE unsigned pmap_tag(const void *p)
{
    uintptr_t a = pmap_strip(p);
    if (UNLIKELY(a >> PMAP_LEAF_SHIFT >> PMAP_ROOT_BITS != 0))
        return 0;
    intptr_t distance = load_relaxed(&pmap_root[a >> PMAP_LEAF_SHIFT]);
    const uint16_t *tags = (const uint16_t *)((uintptr_t)pmap_zero_tags + (uintptr_t)distance);
    return load_relaxed(&tags[(a >> PAGE_SHIFT) & (PMAP_LEAF_PAGES - 1)]);
}

static inline unsigned tag_make(class_t c, unsigned node)
{
    return node << TAG_NODE_SHIFT | (c + 1);
}

/* What: class of a slab's tag; SIZE_CLASSES or more for TAG_BLOCK and 0. */
static inline class_t tag_class(unsigned tag)
{
    return (tag & TAG_CLASS_MASK) - 1;
}

/* What: descriptor of the page an address lies in. Fails: NULL where there is no leaf. Context: any time. */
struct page *pmap_page(const void *p);

/* What: descriptor of the 2 MiB block an address lies in. Fails: NULL where there is no leaf. Context: any time. */
struct block *pmap_block(const void *p);

/* What: as pmap_page, for a page of a covered range; also writes down the page's number. Locks: the owner's. */
struct page *pmap_page_init(void *p);

/* What: kind of a page that may be another's. Order: relaxed: to and from the kinds of free runs it changes under the ZONE
 * lock only, and whoever asks without owning the page asks whether it is one of those. */
static inline enum page_kind page_kind(const struct page *pg)
{
    return (enum page_kind)load_relaxed(&pg->kind);
}

/* What: set the kind. Locks: the owner's. */
static inline void page_set_kind(struct page *pg, enum page_kind kind)
{
    store_relaxed(&pg->kind, (uint8_t)kind);
}

/* What: first byte of a page. */
static inline char *page_address(const struct page *pg)
{
    return (char *)((uintptr_t)pg->pfn << PAGE_SHIFT);
}

/* What: set the tags of n pages from pg on. Locks: the owner's. Order: relaxed, see INV-PMAP-1. */
void pmap_set_tags(struct page *pg, size_t npages, unsigned tag);

/* What: map the leaves over a range. Locks: none may be held. Fails: false (no memory). */
bool pmap_cover(void *base, size_t size);

/* What: set a leaf aside, so that the next pmap_cover of one leaf cannot fail; two callers may share it, then the second
 * may. Locks: none may be held. Fails: false (no memory). */
bool pmap_prepare(void);

/* What: the memory of the leaf for the 4 GiB around an address: its first byte, or NULL; and the size of any leaf. For the
 * list of regions. Context: any time. */
void *pmap_leaf(uintptr_t a);
size_t pmap_leaf_bytes(void);

/* What: bytes of leaves that cost memory. Cost: a look at every leaf, for statistics. */
size_t pmap_resident_bytes(void);

/* What: bytes of leaves mapped. */
size_t pmap_mapped_bytes(void);

#endif
