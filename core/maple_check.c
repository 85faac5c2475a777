/* SPDX-License-Identifier: BSD-2-Clause */
/* Does the tree keep its invariants? For tests. */
#include "maple_edit.h"

#include "dbg.h"

struct look {
    const struct maple *m;
    size_t nodes;
    bool gap_before; /* the range before this one, in key order, is a gap */
};

/* INV-MAPLE-2. */
static void check_pivots(struct maple_node *n, enum maple_kind kind, uintptr_t min, uintptr_t max)
{
    unsigned count = (unsigned)n->count, pivots = maple_slots(kind) - 1;
    uintptr_t *pivot = maple_pivots(n), first = min;
    for (unsigned i = 0; i < count && i < pivots; i++) {
        CHECK(pivot[i] >= first && pivot[i] <= max);
        CHECK(i + 1 == count || pivot[i] < max);
        first = pivot[i] + 1;
    }
    if (count <= pivots)
        CHECK_EQ(pivot[count - 1], max);
    for (unsigned i = count; i < pivots; i++)
        CHECK_EQ(pivot[i], UINTPTR_MAX);
}

/* INV-MAPLE-3. Result: the longest gap, found without the code that keeps them. */
static uintptr_t check_leaf(struct look *l, struct maple_node *n, uintptr_t min, uintptr_t max)
{
    uintptr_t longest = 0;
    for (unsigned i = 0; i < n->count; i++) {
        bool gap = n->range.slot[i] == NULL;
        CHECK(!gap || !l->gap_before);
        l->gap_before = gap;
        uintptr_t size = maple_last_of(n, MAPLE_RANGE, i, max) - maple_first_of(n, i, min) + 1;
        if (gap && size > longest)
            longest = size;
    }
    CHECK(!l->gap_before || max == UINTPTR_MAX);
    return longest;
}

/* INV-MAPLE-1, and 4 for each child. Result: the longest gap. */
static uintptr_t check_node(struct look *l, struct maple_node *n, unsigned level, uintptr_t min, uintptr_t max)
{
    enum maple_kind kind = maple_kind(l->m, level);
    bool root = level + 1 == maple_height(l->m->root);
    unsigned least = root ? 1 + (level > 0) : maple_min(kind);
    uintptr_t longest = 0;
    CHECK(n->count >= least && n->count <= maple_slots(kind));
    l->nodes++;
    check_pivots(n, kind, min, max);
    if (level == 0)
        return check_leaf(l, n, min, max);
    void **slot = maple_slot_array(n, kind);
    for (unsigned i = 0; i < n->count; i++) {
        CHECK(slot[i] != NULL && (uintptr_t)slot[i] % MAPLE_NODE_ALIGN == 0);
        for (unsigned j = 0; j < i; j++)
            CHECK(slot[j] != slot[i]);
        uintptr_t gap = check_node(l, slot[i], level - 1, maple_first_of(n, i, min), maple_last_of(n, kind, i, max));
        if (kind == MAPLE_ARANGE)
            CHECK_EQ(n->arange.gap[i], gap);
        longest = gap > longest ? gap : longest;
    }
    return longest;
}

void maple_check(struct maple *m)
{
    struct look l = {.m = m};
    maple_lock(m);
    CHECK(m->seq % 2 == 0 && m->nhand == 0 && m->gone == NULL);
    if (m->root != 0)
        check_node(&l, maple_root(m->root), maple_height(m->root) - 1, 0, UINTPTR_MAX);
    CHECK_EQ(l.nodes, m->nodes);
    for (unsigned i = 0; i < m->nspare; i++)
        CHECK_EQ(((struct maple_node *)m->spare[i])->count, 0);
    maple_unlock(m);
}
