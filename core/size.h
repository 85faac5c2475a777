/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Size classes: the only place where they exist. Level 1.
 *
 * One table (size.def) and one look-up. All data are constant, so they are valid before anything of ours has run.
 */
#ifndef CORE_SIZE_H
#define CORE_SIZE_H

#include "tunables.h"

typedef unsigned class_t; /* 0..SIZE_CLASSES-1 */

enum {
#define SIZE(c, low, high, order) +1
    SIZE_CLASSES = 0
#include "size.def"
#undef SIZE
    ,
    SIZE_SMALL_MAX = 32 << 10,
    SIZE_UNIT_SHIFT = 4,
    SIZE_RECIP_SHIFT = 40,
};

struct size_info {
    uint32_t size;  /* object size in bytes */
    uint8_t order;  /* slab is 2^order pages */
    uint8_t group;  /* objects that together fill whole cache lines: 1, 2 or 4 */
    uint16_t objs;  /* objects in a slab */
    uint32_t bucket_recip; /* nfree * bucket_recip >> 16 is a fullness bucket below SLAB_BUCKETS */
    uint64_t recip; /* ceil(2^40 / size): offset * recip >> 40 is the object's index, exact below 2^24 bytes */
};

extern const uint8_t size_table[(SIZE_SMALL_MAX >> SIZE_UNIT_SHIFT) + 1];
extern const struct size_info size_info[SIZE_CLASSES];

/* What: the class that serves a request. Units: bytes, at most SIZE_SMALL_MAX; 0 counts as 1. Cost: one load. */
HOT_INLINE class_t size_to_class(size_t size)
{
    return size_table[(size + (1 << SIZE_UNIT_SHIFT) - 1) >> SIZE_UNIT_SHIFT];
}

/* What: object size of a class in bytes. */
static inline size_t class_to_size(class_t c)
{
    return size_info[c].size;
}

/* What: index of the object that holds the byte at `offset` of a slab. */
static inline unsigned size_index(class_t c, size_t offset)
{
    return (unsigned)(offset * size_info[c].recip >> SIZE_RECIP_SHIFT);
}

/* What: smallest class of objects of at least `size` bytes that are all aligned to `align` within a page-aligned slab.
 * Units: bytes; align a power of two. Fails: SIZE_CLASSES if no class will do. Cost: a few steps. */
class_t size_aligned_class(size_t size, size_t align);

#endif
