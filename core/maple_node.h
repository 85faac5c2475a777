/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The nodes of a maple tree: layout, searching, and the accesses that make lock-free reading well defined. Level 3, for
 * the maple modules only.
 *
 * Every word of a node that a reader may look at is written by maple_put, a release store, and read by maple_get, an
 * acquire load, on both sides: a reader that has seen a word of a change also sees that seq has moved, whatever the
 * machine. (On x86 both are plain moves.) No fences: a thread sanitizer does not know them.
 *
 * A node says neither its level nor its kind. The root word has the height; leaves are range nodes; above them one kind
 * serves the whole tree. There are no parent pointers: a writer has its path, so splitting a node touches none of its
 * children. The first word, the number of entries, is for writers.
 */
#ifndef CORE_MAPLE_NODE_H
#define CORE_MAPLE_NODE_H

#include "maple.h"

enum { RANGE_PIVOTS = 15, RANGE_SLOTS = 16, RANGE_MIN = 7, ARANGE_PIVOTS = 9, ARANGE_SLOTS = 10, ARANGE_MIN = 5 };

enum maple_kind { MAPLE_RANGE, MAPLE_ARANGE };

struct maple_node {
    uintptr_t count; /* entries; 0 when not in a tree. Under the lock; readers keep off */
    union {
        struct {
            uintptr_t pivot[RANGE_PIVOTS];
            void *slot[RANGE_SLOTS];
        } range;
        struct {
            uintptr_t pivot[ARANGE_PIVOTS];
            void *slot[ARANGE_SLOTS];
            uintptr_t gap[ARANGE_SLOTS]; /* under the lock */
        } arange;
    };
};
_Static_assert(sizeof(struct maple_node) == MAPLE_NODE_BYTES, "four cache lines");

/* An entry on its way into a node. */
struct maple_item {
    uintptr_t last;
    void *p;
    uintptr_t gap; /* of the child, in nodes that keep it */
};

#define maple_get(p) load_acquire(p)
#define maple_put(p, v) store_release(p, v)

static inline unsigned maple_slots(enum maple_kind kind)
{
    return kind == MAPLE_ARANGE ? (unsigned)ARANGE_SLOTS : (unsigned)RANGE_SLOTS;
}

static inline unsigned maple_min(enum maple_kind kind)
{
    return kind == MAPLE_ARANGE ? (unsigned)ARANGE_MIN : (unsigned)RANGE_MIN;
}

static inline uintptr_t *maple_pivots(struct maple_node *n)
{
    return n->range.pivot; /* at the same place in both kinds */
}

static inline void **maple_slot_array(struct maple_node *n, enum maple_kind kind)
{
    return kind == MAPLE_ARANGE ? n->arange.slot : n->range.slot;
}

static inline enum maple_kind maple_kind(const struct maple *m, unsigned level)
{
    return level > 0 && m->gaps ? MAPLE_ARANGE : MAPLE_RANGE;
}

/* ---- the root word ---- */

static inline unsigned maple_height(uintptr_t root)
{
    return (unsigned)(root % MAPLE_NODE_ALIGN);
}

static inline struct maple_node *maple_root(uintptr_t root)
{
    return (struct maple_node *)(root - root % MAPLE_NODE_ALIGN);
}

/* ---- searching: the offset is the number of pivots below index, within the slots whatever they hold ---- */

#define COUNT(i) offset += maple_get(&p[i]) < index

HOT_INLINE unsigned maple_range_offset(const struct maple_node *n, uintptr_t index)
{
    const uintptr_t *p = n->range.pivot;
    size_t offset = (size_t)(maple_get(&p[7]) < index) * 8;
    p += offset;
    COUNT(0);
    COUNT(1);
    COUNT(2);
    COUNT(3);
    COUNT(4);
    COUNT(5);
    COUNT(6);
    return (unsigned)offset;
}

HOT_INLINE unsigned maple_arange_offset(const struct maple_node *n, uintptr_t index)
{
    const uintptr_t *p = n->arange.pivot;
    size_t offset = (size_t)(maple_get(&p[4]) < index) * 5;
    p += offset;
    COUNT(0);
    COUNT(1);
    COUNT(2);
    COUNT(3);
    return (unsigned)offset;
}

#undef COUNT

HOT_INLINE unsigned maple_offset(const struct maple_node *n, enum maple_kind kind, uintptr_t index)
{
    return kind == MAPLE_ARANGE ? maple_arange_offset(n, index) : maple_range_offset(n, index);
}

/* First and last number of an entry, given the node's. */
HOT_INLINE uintptr_t maple_first_of(struct maple_node *n, unsigned offset, uintptr_t min)
{
    return offset > 0 ? maple_get(&maple_pivots(n)[offset - 1]) + 1 : min;
}

HOT_INLINE uintptr_t maple_last_of(struct maple_node *n, enum maple_kind kind, unsigned offset, uintptr_t max)
{
    return offset < maple_slots(kind) - 1 ? maple_get(&maple_pivots(n)[offset]) : max;
}

/* All four lines at once: a search touches three of them one after the other. */
HOT_INLINE void maple_prefetch(const struct maple_node *n)
{
    const char *p = (const char *)n;
    __builtin_prefetch(p);
    __builtin_prefetch(p + CACHE_LINE);
    __builtin_prefetch(p + 2 * CACHE_LINE);
    __builtin_prefetch(p + 3 * CACHE_LINE);
}

#endif
