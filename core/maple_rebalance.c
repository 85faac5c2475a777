/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes that got too empty. At most one of each level can be, all on the way to one number. The highest is put right first:
 * its parent has a second child then, to merge or share with. Merging takes an entry from the parent, so look again.
 */
#include "maple_edit.h"

/* A root with one child is not needed. */
static bool lower_root(struct maple *m, const struct maple_path *path)
{
    unsigned top = path->height - 1;
    struct maple_node *root = path->step[top].node;
    if (top == 0 || root->count > 1)
        return false;
    maple_set_root(m, maple_slot_array(root, maple_kind(m, top))[0], top);
    maple_drop_node(m, root);
    return true;
}

/* The path's node of this level and a sibling become one, or share what they have. */
static NOINLINE void join(struct maple *m, struct maple_path *path, unsigned level)
{
    struct maple_item items[2 * RANGE_SLOTS], put[2];
    enum maple_kind kind = maple_kind(m, level), up_kind = maple_kind(m, level + 1);
    struct maple_step *up = &path->step[level + 1];
    struct maple_node *nodes[2];
    unsigned at = up->offset + 1 < up->node->count ? up->offset : up->offset - 1, n = 0;
    uintptr_t min = maple_first_of(up->node, at, up->min);
    for (unsigned i = 0; i < 2; i++) {
        nodes[i] = maple_slot_array(up->node, up_kind)[at + i];
        uintptr_t max = maple_last_of(up->node, up_kind, at + i, up->max);
        n += maple_gather(nodes[i], kind, max, 0, (unsigned)nodes[i]->count, items + n);
    }
    unsigned k = n <= maple_slots(kind) ? 1 : 2;
    maple_deal(m, level, min, items, n, nodes, k, put);
    if (k == 1)
        maple_drop_node(m, nodes[1]);
    maple_splice(up->node, up_kind, up->max, at, at + 2, put, k);
    maple_raise_gap(m, path, level + 1);
}

void maple_rebalance(struct maple *m, uintptr_t index)
{
    struct maple_path path;
    for (;;) {
        maple_path_to(m, index, &path);
        if (lower_root(m, &path))
            continue;
        unsigned level = path.height - 1;
        while (level-- > 0)
            if (path.step[level].node->count < maple_min(maple_kind(m, level)))
                break;
        if (level + 1 == 0)
            return;
        join(m, &path, level);
    }
}
