/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A write over the end of a leaf. Two ways lead down, to its first and to its last number; they part below some node.
 * Level by level from the leaves, what is left of the left node, what is new and what is left of the right node are dealt
 * out to one, two or three nodes; whatever lay between is cut off. Where the ways meet, the new nodes replace the old, and
 * it goes on as a split, if at all. Nodes that came out too small are put right last (maple_rebalance), which takes none.
 *
 * What is most frequent, by far, has a short way: the last range of a leaf is erased, and its numbers go to the gap with
 * which the next leaf begins or now begins. Only the border between the two leaves moves.
 */
#include "maple_edit.h"

#include "dbg.h"

/* How many nodes the items of a level need. Two full leaves cannot hold 32 entries if the left one would end in a gap. */
static unsigned deal_count(enum maple_kind kind, unsigned count, bool gap_in_middle)
{
    unsigned slots = maple_slots(kind);
    if (count <= slots)
        return 1;
    return count < 2 * slots || (count == 2 * slots && !gap_in_middle) ? 2 : 3;
}

/* The way to the last leaf: that of the last number, or, if the gap ends there with the leaf, of the number behind. */
static unsigned right_way(const struct maple *m, struct maple_edit *e, struct maple_path *right)
{
    maple_path_to(m, e->end, right);
    const struct maple_step *s = &right->step[0];
    uintptr_t last = maple_last_of(s->node, MAPLE_RANGE, s->offset, s->max);
    if (e->entry == NULL && last == e->end && last == s->max && last != UINTPTR_MAX) {
        maple_path_to(m, e->end + 1, right);
        return 0;
    }
    return s->offset + 1;
}

/* What the right leaf adds to the write: e->last, e->to, and whether a part of its entry is left. */
static void cut_right(struct maple_edit *e, const struct maple_step *s, unsigned to)
{
    void **slot = s->node->range.slot;
    e->last = e->end;
    if (to > 0) {
        uintptr_t last = maple_last_of(s->node, MAPLE_RANGE, s->offset, s->max);
        if (e->entry == NULL && slot[s->offset] == NULL)
            e->last = last;
        else if (last != e->last)
            e->put[e->k++] = (struct maple_item){.last = last, .p = slot[s->offset]};
    }
    if (e->entry == NULL && to < s->node->count && slot[to] == NULL &&
        e->last + 1 == maple_first_of(s->node, to, s->min)) {
        e->last = maple_last_of(s->node, MAPLE_RANGE, to, s->max);
        to++;
    }
    e->to = to;
}

/* With as many entries as two leaves hold: would the first 16 end in a gap? */
static bool gap_in_middle(const struct maple_edit *e, struct maple_node *left, struct maple_node *right)
{
    unsigned i = RANGE_SLOTS - 1;
    if (i < e->from)
        return left->range.slot[i] == NULL;
    i -= e->from;
    if (i < e->k)
        return e->put[i].p == NULL;
    return right->range.slot[e->to + i - e->k] == NULL;
}

static unsigned count_need(const struct maple *m, const struct maple_edit *e, const struct maple_path *right)
{
    const struct maple_path *left = &e->path;
    unsigned need = 0, level = 0, k = e->k, from = e->from, to = e->to;
    for (; left->step[level].node != right->step[level].node; level++) {
        struct maple_node *r = right->step[level].node;
        unsigned count = from + k + (unsigned)r->count - to;
        bool gap = level == 0 && count == 2 * RANGE_SLOTS && gap_in_middle(e, left->step[0].node, r);
        k = deal_count(maple_kind(m, level), count, gap);
        need += k == 3;
        from = left->step[level + 1].offset;
        to = right->step[level + 1].offset + 1;
    }
    return need + maple_split_need(m, left, level, (unsigned)left->step[level].node->count - (to - from) + k);
}

/* Can the next leaf, of the same parent, take the gap, and can this one spare it? */
static bool plan_border(const struct maple *m, struct maple_edit *e)
{
    const struct maple_step *leaf = &e->path.step[0], *up = leaf + 1;
    if (e->entry != NULL || e->end != leaf->max || e->path.height < 2 || up->offset + 1 == up->node->count)
        return false;
    struct maple_node *next = maple_slot_array(up->node, maple_kind(m, 1))[up->offset + 1];
    bool begins = next->range.slot[0] == NULL;
    if (e->from + e->k < RANGE_MIN || next->count + !begins > RANGE_SLOTS)
        return false;
    e->type = MAPLE_SPANNING;
    e->beside = next;
    e->to = begins;
    e->last = leaf->max;
    if (begins)
        e->last = maple_last_of(next, MAPLE_RANGE, 0, maple_last_of(up->node, maple_kind(m, 1), up->offset + 1, up->max));
    return true;
}

static void move_border(struct maple *m, struct maple_edit *e)
{
    struct maple_path *path = &e->path;
    struct maple_step *leaf = &path->step[0], *up = leaf + 1;
    struct maple_item gap = {.last = leaf->max};
    if (e->to == 0)
        maple_splice(e->beside, MAPLE_RANGE, maple_last_of(up->node, maple_kind(m, 1), up->offset + 1, up->max), 0, 0,
                     &gap, 1);
    leaf->max = e->first - 1;
    maple_splice(leaf->node, MAPLE_RANGE, leaf->max, e->from, (unsigned)leaf->node->count, e->put, e->k);
    maple_put(&maple_pivots(up->node)[up->offset], leaf->max);
    if (!m->gaps)
        return;
    maple_raise_gap(m, path, 0);
    *leaf = (struct maple_step){.node = e->beside, .min = e->first,
                                .max = maple_last_of(up->node, MAPLE_ARANGE, up->offset + 1, up->max)};
    up->offset++;
    maple_raise_gap(m, path, 0);
}

void maple_span_plan(const struct maple *m, struct maple_edit *e)
{
    struct maple_path right;
    if (plan_border(m, e))
        return;
    unsigned to = right_way(m, e, &right);
    unsigned at = e->k++; /* the entry; its end is known below */
    cut_right(e, &right.step[0], to);
    e->put[at] = (struct maple_item){.last = e->last, .p = e->entry};
    e->type = MAPLE_SPANNING;
    if (e->first == 0 && e->last == UINTPTR_MAX) {
        e->type = MAPLE_NEW_ROOT;
        e->need = e->entry != NULL;
        return;
    }
    e->need = count_need(m, e, &right);
}

/* Cut off the subtrees in slots [from, to) of a node. */
static void drop_slots(struct maple *m, struct maple_node *n, unsigned level, unsigned from, unsigned to)
{
    for (unsigned i = from; level > 0 && i < to; i++)
        maple_drop_subtree(m, maple_slot_array(n, maple_kind(m, level))[i], level - 1);
}

/* One level below the meeting: both nodes, and what is new, to up to three. Result: how many, their entries in put. */
static NOINLINE unsigned deal_level(struct maple *m, unsigned level, const struct maple_step *l, unsigned from,
                                    const struct maple_step *r, unsigned to, struct maple_item *put, unsigned k)
{
    struct maple_item items[2 * RANGE_SLOTS + 3];
    struct maple_node *nodes[3] = {l->node, r->node};
    enum maple_kind kind = maple_kind(m, level);
    unsigned n = maple_gather(l->node, kind, l->max, 0, from, items);
    for (unsigned i = 0; i < k; i++)
        items[n++] = put[i];
    n += maple_gather(r->node, kind, r->max, to, (unsigned)r->node->count, items + n);
    bool gap = level == 0 && n == 2 * RANGE_SLOTS && items[RANGE_SLOTS - 1].p == NULL;
    k = deal_count(kind, n, gap);
    if (k == 3)
        nodes[2] = maple_take(m);
    maple_deal(m, level, l->min, items, n, nodes, k, put);
    if (k == 1)
        maple_drop_node(m, r->node);
    return k;
}

void maple_span(struct maple *m, struct maple_edit *e)
{
    struct maple_path *left = &e->path, right;
    unsigned level = 0, k = e->k, from = e->from, to = e->to;
    if (e->beside != NULL) {
        move_border(m, e);
        return;
    }
    maple_path_to(m, e->last, &right); /* the last leaf either way: of the number behind, a gap at its start was taken in */
    if (to == 0)
        maple_path_to(m, e->last + 1, &right);
    for (; left->step[level].node != right.step[level].node; level++) {
        const struct maple_step *l = &left->step[level], *r = &right.step[level];
        if (level > 0) {
            drop_slots(m, l->node, level, l->offset + 1, (unsigned)l->node->count);
            drop_slots(m, r->node, level, 0, r->offset);
        }
        k = deal_level(m, level, l, from, r, to, e->put, k);
        from = left->step[level + 1].offset;
        to = right.step[level + 1].offset + 1;
    }
    drop_slots(m, left->step[level].node, level, from + 1, to - 1);
    maple_split(m, left, level, from, to, e->put, k);
    maple_rebalance(m, e->first);
}
