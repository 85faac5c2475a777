/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A node gets too full: push to a sibling if both then have a slot to spare, else split, and go on with the parent.
 * Everything is gathered, then dealt out again; the nodes involved are written in place.
 */
#include "maple_edit.h"

#include "dbg.h"

/* -1: the left sibling takes part, 1: the right one, 0: none can. One slot stays free, against back and forth. */
static int pick_sibling(const struct maple *m, const struct maple_path *path, unsigned level, unsigned count)
{
    if (level + 1 == path->height)
        return 0;
    const struct maple_step *up = &path->step[level + 1];
    void **slot = maple_slot_array(up->node, maple_kind(m, level + 1));
    unsigned room = 2 * maple_slots(maple_kind(m, level));
    if (up->offset > 0 && ((struct maple_node *)slot[up->offset - 1])->count + count < room)
        return -1;
    if (up->offset + 1 < up->node->count && ((struct maple_node *)slot[up->offset + 1])->count + count < room)
        return 1;
    return 0;
}

unsigned maple_split_need(const struct maple *m, const struct maple_path *path, unsigned level, unsigned count)
{
    unsigned need = 0;
    while (count > maple_slots(maple_kind(m, level))) {
        if (level + 1 == path->height)
            return need + 2; /* its other half, and a root above both */
        if (pick_sibling(m, path, level, count) != 0)
            return need;
        need++;
        level++;
        count = (unsigned)path->step[level].node->count + 1;
    }
    return need;
}

void maple_deal(struct maple *m, unsigned level, uintptr_t min, const struct maple_item *items, unsigned count,
                struct maple_node *const *nodes, unsigned n, struct maple_item *up)
{
    enum maple_kind kind = maple_kind(m, level);
    for (unsigned i = 0; i < n; i++) {
        unsigned share = (count + (n - i) - 1) / (n - i);
        if (level == 0 && share < count && items[share - 1].p == NULL)
            share--;
        ASSERT(share > 0 && share <= maple_slots(kind));
        uintptr_t max = items[share - 1].last;
        maple_fill(nodes[i], kind, items, share);
        up[i] = (struct maple_item){
            .last = max, .p = nodes[i], .gap = maple_node_gap(m, nodes[i], level, min, max)};
        items += share;
        count -= share;
        min = max + 1;
    }
}

/* The path's node of this level, with its entries [from, to) replaced by put, and maybe a sibling, become two. */
static NOINLINE void deal_in_two(struct maple *m, struct maple_path *path, unsigned level, unsigned from, unsigned to,
                                 const struct maple_item *put, unsigned k, int side, struct maple_item *two)
{
    struct maple_item items[2 * RANGE_SLOTS + 3];
    struct maple_node *nodes[2];
    enum maple_kind kind = maple_kind(m, level);
    struct maple_step *s = &path->step[level], *up = s + 1;
    struct maple_node *other =
        side == 0 ? maple_take(m) : maple_slot_array(up->node, maple_kind(m, level + 1))[(int)up->offset + side];
    uintptr_t min = s->min;
    unsigned n = 0;
    if (side < 0) {
        min = maple_first_of(up->node, up->offset - 1, up->min);
        n += maple_gather(other, kind, s->min - 1, 0, (unsigned)other->count, items);
    }
    n += maple_gather(s->node, kind, s->max, 0, from, items + n);
    for (unsigned i = 0; i < k; i++)
        items[n++] = put[i];
    n += maple_gather(s->node, kind, s->max, to, (unsigned)s->node->count, items + n);
    if (side > 0)
        n += maple_gather(other, kind, maple_last_of(up->node, maple_kind(m, level + 1), up->offset + 1, up->max), 0,
                          (unsigned)other->count, items + n);
    nodes[0] = side < 0 ? other : s->node;
    nodes[1] = side < 0 ? s->node : other;
    maple_deal(m, level, min, items, n, nodes, 2, two);
}

void maple_split(struct maple *m, struct maple_path *path, unsigned level, unsigned from, unsigned to,
                 const struct maple_item *put, unsigned k)
{
    struct maple_item two[2];
    for (;; level++) {
        struct maple_step *s = &path->step[level];
        enum maple_kind kind = maple_kind(m, level);
        unsigned count = (unsigned)s->node->count - (to - from) + k;
        if (count <= maple_slots(kind)) {
            maple_splice(s->node, kind, s->max, from, to, put, k);
            maple_raise_gap(m, path, level);
            return;
        }
        int side = pick_sibling(m, path, level, count);
        deal_in_two(m, path, level, from, to, put, k, side, two);
        put = two;
        k = 2;
        if (level + 1 == path->height)
            break;
        from = path->step[level + 1].offset - (side < 0);
        to = from + (side == 0 ? 1 : 2);
    }
    struct maple_node *root = maple_take(m);
    maple_fill(root, maple_kind(m, level + 1), two, 2);
    maple_set_root(m, root, path->height + 1);
}
