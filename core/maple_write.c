/* SPDX-License-Identifier: BSD-2-Clause */
/* Writing: what is asked, how it changes the tree, and the writes that stay within one leaf. */
#include "maple_edit.h"

#include <errno.h>

/* ---- classifying ---- */

/* What is left of the first entry; a gap takes in the gap before it. */
static void cut_left(struct maple_edit *e, const struct maple_step *s)
{
    struct maple_node *n = s->node;
    uintptr_t first = maple_first_of(n, s->offset, s->min);
    e->k = 0;
    e->first = e->index;
    e->from = s->offset;
    e->old = n->range.slot[s->offset];
    if (e->entry == NULL && e->old == NULL)
        e->first = first;
    else if (first != e->index)
        e->put[e->k++] = (struct maple_item){.last = e->index - 1, .p = e->old};
    if (e->entry == NULL && e->first == first && e->from > 0 && n->range.slot[e->from - 1] == NULL) {
        e->from--;
        e->first = maple_first_of(n, e->from, s->min);
    }
}

/* The same on the other side, within the leaf. */
static void cut_right_here(struct maple_edit *e, const struct maple_step *s)
{
    struct maple_node *n = s->node;
    unsigned o = s->offset, at = e->k++;
    uintptr_t last = maple_last_of(n, MAPLE_RANGE, o, s->max);
    while (last < e->end)
        last = maple_last_of(n, MAPLE_RANGE, ++o, s->max);
    e->last = e->end;
    if (e->entry == NULL && n->range.slot[o] == NULL)
        e->last = last;
    else if (last != e->end)
        e->put[e->k++] = (struct maple_item){.last = last, .p = n->range.slot[o]};
    if (e->entry == NULL && e->last == last && o + 1 < n->count && n->range.slot[o + 1] == NULL)
        e->last = maple_last_of(n, MAPLE_RANGE, ++o, s->max);
    e->to = o + 1;
    e->put[at] = (struct maple_item){.last = e->last, .p = e->entry};
}

static enum maple_write classify(const struct maple_edit *e, const struct maple_node *leaf)
{
    unsigned replaced = e->to - e->from, count = (unsigned)leaf->count - replaced + e->k;
    if (e->first == 0 && e->last == UINTPTR_MAX)
        return MAPLE_NEW_ROOT;
    if (e->k == 1 && replaced == 1)
        return e->entry == NULL && e->old == NULL ? MAPLE_NOTHING : MAPLE_EXACT_FIT;
    if (count > RANGE_SLOTS)
        return MAPLE_SPLIT;
    if (count < RANGE_MIN && e->path.height > 1)
        return MAPLE_REBALANCE;
    if (e->from + 1 == leaf->count && e->k > 1)
        return MAPLE_APPEND;
    return count == leaf->count ? MAPLE_SLOT_STORE : MAPLE_NODE_STORE;
}

static void plan_leaf(const struct maple *m, struct maple_edit *e)
{
    const struct maple_step *leaf = &e->path.step[0];
    e->beside = NULL;
    cut_left(e, leaf);
    if (e->end > leaf->max || (e->end == leaf->max && e->entry == NULL && e->end != UINTPTR_MAX)) {
        maple_span_plan(m, e);
        return;
    }
    cut_right_here(e, leaf);
    e->type = classify(e, leaf->node);
    if (e->type == MAPLE_SPLIT)
        e->need = maple_split_need(m, &e->path, 0, (unsigned)leaf->node->count - (e->to - e->from) + e->k);
    else if (e->type == MAPLE_NEW_ROOT)
        e->need = e->entry != NULL;
}

/* A tree without nodes. */
static int plan_empty(struct maple_edit *e)
{
    if (e->ask == MAPLE_ASK_ERASE || e->ask == MAPLE_ASK_GROW)
        return -ENOENT;
    e->first = e->index;
    e->last = e->end;
    e->type = e->entry == NULL ? MAPLE_NOTHING : MAPLE_NEW_ROOT;
    e->need = e->entry != NULL;
    return 0;
}

/* What of the request depends on what is there: the numbers of an erase, whether an insert or a growth may be. */
static int look(struct maple_edit *e)
{
    struct maple_step *s = &e->path.step[0];
    void *there = s->node->range.slot[s->offset];
    uintptr_t first = maple_first_of(s->node, s->offset, s->min);
    uintptr_t last = maple_last_of(s->node, MAPLE_RANGE, s->offset, s->max);
    if (e->ask == MAPLE_ASK_INSERT)
        return there == NULL && e->end <= last ? 0 : -EEXIST;
    if (there == NULL)
        return -ENOENT;
    e->index = first;
    if (e->ask == MAPLE_ASK_ERASE) {
        e->end = last;
        return 0;
    }
    e->entry = there;
    return e->end > last ? 0 : -EINVAL;
}

/* Is all of [index, end] one gap? */
static bool is_gap(const struct maple *m, uintptr_t index, uintptr_t end)
{
    struct maple_path path;
    maple_path_to(m, index, &path);
    struct maple_step *s = &path.step[0];
    return s->node->range.slot[s->offset] == NULL && maple_last_of(s->node, MAPLE_RANGE, s->offset, s->max) >= end;
}

static NOINLINE int look_behind(const struct maple *m, const struct maple_edit *e)
{
    const struct maple_step *s = &e->path.step[0];
    return is_gap(m, maple_last_of(s->node, MAPLE_RANGE, s->offset, s->max) + 1, e->end) ? 0 : -EEXIST;
}

int maple_plan(struct maple *m, struct maple_edit *e)
{
    e->need = 0;
    e->index = e->asked;
    e->end = e->asked_end;
    if (e->ask == MAPLE_ASK_PLACE) {
        int error = maple_gap_locked(m, e->want, &e->index);
        if (error != 0)
            return error;
        e->end = e->index + e->want->size - 1;
    }
    if (m->root == 0)
        return plan_empty(e);
    maple_path_to(m, e->index, &e->path);
    if (e->ask != MAPLE_ASK_STORE && e->ask != MAPLE_ASK_PLACE) {
        int error = look(e);
        if (error == 0 && e->ask == MAPLE_ASK_GROW)
            error = look_behind(m, e);
        if (error != 0)
            return error;
    }
    plan_leaf(m, e);
    return 0;
}

/* ---- writes within one leaf ---- */

/* The gap of the leaf needs a look at all of it only if its longest gap may have been cut. */
static void leaf_gap_changed(struct maple *m, struct maple_edit *e, uintptr_t removed)
{
    struct maple_step *up = &e->path.step[1];
    uintptr_t *gap = &up->node->arange.gap[up->offset];
    if (e->entry == NULL && e->last - e->first + 1 >= *gap)
        maple_set_gap(&e->path, e->last - e->first + 1);
    else if (removed >= *gap)
        maple_raise_gap(m, &e->path, 0);
}

/* The longest gap among the entries that go. */
static uintptr_t removed_gap(const struct maple_edit *e, const struct maple_step *s)
{
    uintptr_t longest = 0;
    for (unsigned i = e->from; i < e->to; i++)
        if (s->node->range.slot[i] == NULL) {
            uintptr_t size = maple_last_of(s->node, MAPLE_RANGE, i, s->max) - maple_first_of(s->node, i, s->min) + 1;
            longest = size > longest ? size : longest;
        }
    return longest;
}

static void write_leaf(struct maple *m, struct maple_edit *e)
{
    struct maple_step *s = &e->path.step[0];
    bool gaps = m->gaps && e->path.height > 1;
    uintptr_t removed = gaps ? removed_gap(e, s) : 0;
    if (e->type == MAPLE_EXACT_FIT)
        maple_put(&s->node->range.slot[e->from], e->entry);
    else
        maple_splice(s->node, MAPLE_RANGE, s->max, e->from, e->to, e->put, e->k);
    if (gaps)
        leaf_gap_changed(m, e, removed);
}

static void new_root(struct maple *m, const struct maple_edit *e)
{
    if (m->root != 0)
        maple_drop_subtree(m, maple_root(m->root), maple_height(m->root) - 1);
    if (e->entry == NULL) {
        maple_put(&m->root, 0);
        return;
    }
    struct maple_item items[3];
    unsigned n = 0;
    if (e->first > 0)
        items[n++] = (struct maple_item){.last = e->first - 1};
    items[n++] = (struct maple_item){.last = e->last, .p = e->entry};
    if (e->last < UINTPTR_MAX)
        items[n++] = (struct maple_item){.last = UINTPTR_MAX};
    struct maple_node *leaf = maple_take(m);
    maple_fill(leaf, MAPLE_RANGE, items, n);
    maple_set_root(m, leaf, 1);
}

void maple_apply(struct maple *m, struct maple_edit *e)
{
    switch (e->type) {
    case MAPLE_SPLIT:
        maple_split(m, &e->path, 0, e->from, e->to, e->put, e->k);
        break;
    case MAPLE_SPANNING:
        maple_span(m, e);
        break;
    case MAPLE_NEW_ROOT:
        new_root(m, e);
        break;
    case MAPLE_REBALANCE:
        write_leaf(m, e);
        maple_rebalance(m, e->first);
        break;
    default:
        write_leaf(m, e);
        break;
    }
}

/* ---- what can be asked ---- */

int maple_store(struct maple *m, uintptr_t first, uintptr_t last, void *entry)
{
    if (first > last || entry == MAPLE_BUSY)
        return -EINVAL;
    struct maple_edit e;
    e.ask = MAPLE_ASK_STORE;
    e.asked = first;
    e.asked_end = last;
    e.entry = entry;
    return maple_write(m, &e);
}

int maple_insert(struct maple *m, uintptr_t first, uintptr_t last, void *entry)
{
    if (first > last || entry == NULL || entry == MAPLE_BUSY)
        return -EINVAL;
    struct maple_edit e;
    e.ask = MAPLE_ASK_INSERT;
    e.asked = first;
    e.asked_end = last;
    e.entry = entry;
    return maple_write(m, &e);
}

int maple_erase(struct maple *m, uintptr_t index, struct maple_range *out)
{
    struct maple_edit e;
    e.ask = MAPLE_ASK_ERASE;
    e.asked = e.asked_end = index;
    e.entry = NULL;
    int error = maple_write(m, &e);
    if (error == 0 && out != NULL)
        *out = (struct maple_range){.first = e.index, .last = e.end, .entry = e.old};
    return error;
}

int maple_grow(struct maple *m, uintptr_t index, uintptr_t last)
{
    struct maple_edit e;
    e.ask = MAPLE_ASK_GROW;
    e.asked = index;
    e.asked_end = last;
    return maple_write(m, &e);
}

int maple_place(struct maple *m, const struct maple_want *w, void *entry, uintptr_t *first)
{
    if (entry == NULL || entry == MAPLE_BUSY)
        return -EINVAL;
    struct maple_edit e;
    e.ask = MAPLE_ASK_PLACE;
    e.want = w;
    e.asked = e.asked_end = 0; /* found under the lock */
    e.entry = entry;
    int error = maple_write(m, &e);
    if (error == 0)
        *first = e.index;
    return error;
}
