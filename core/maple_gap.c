/* SPDX-License-Identifier: BSD-2-Clause */
/* The longest gap of each subtree, kept on the way up, and the search for a place on the way down. */
#include "maple_edit.h"

#include "compat/os/bits.h"

#include <errno.h>

/* ---- keeping them ---- */

static uintptr_t leaf_gap(struct maple_node *n, uintptr_t min, uintptr_t max)
{
    uintptr_t longest = 0, first = min;
    unsigned end = (unsigned)n->count - 1;
    for (unsigned i = 0; i < end; i++) {
        uintptr_t next = n->range.pivot[i] + 1;
        uintptr_t size = n->range.slot[i] == NULL ? next - first : 0;
        longest = size > longest ? size : longest;
        first = next;
    }
    if (n->range.slot[end] == NULL && max - first + 1 > longest)
        longest = max - first + 1;
    return longest;
}

static uintptr_t arange_gap(struct maple_node *n)
{
    uintptr_t longest = 0;
    for (unsigned i = 0; i < n->count; i++)
        longest = n->arange.gap[i] > longest ? n->arange.gap[i] : longest;
    return longest;
}

uintptr_t maple_node_gap(const struct maple *m, struct maple_node *n, unsigned level, uintptr_t min, uintptr_t max)
{
    if (!m->gaps)
        return 0;
    return level == 0 ? leaf_gap(n, min, max) : arange_gap(n);
}

/* The node of this level has another longest gap. Above, it matters if it is longer than all there, or was the longest. */
static void raise_from(struct maple_path *path, unsigned level, uintptr_t gap)
{
    for (; level + 1 < path->height; level++) {
        struct maple_step *up = &path->step[level + 1];
        uintptr_t *kept = &up->node->arange.gap[up->offset], old = *kept;
        if (gap == old)
            return;
        maple_put(kept, gap);
        if (level + 2 == path->height)
            return;
        uintptr_t above = up[1].node->arange.gap[up[1].offset];
        if (gap < above && old < above)
            return;
        if (gap < above)
            gap = arange_gap(up->node);
    }
}

void maple_set_gap(struct maple_path *path, uintptr_t gap)
{
    raise_from(path, 0, gap);
}

void maple_raise_gap(struct maple *m, struct maple_path *path, unsigned level)
{
    struct maple_step *s = &path->step[level];
    if (m->gaps && level + 1 < path->height)
        raise_from(path, level, maple_node_gap(m, s->node, level, s->min, s->max));
}

/* ---- finding a place ---- */

/* Does the place fit into the gap [first, last]? */
static bool fits(const struct maple_want *w, uintptr_t first, uintptr_t last, uintptr_t *at)
{
    if (first < w->from)
        first = w->from;
    if (last > w->to)
        last = w->to;
    if (first > last || last - first < w->size - 1)
        return false;
    uintptr_t a = w->high ? align_down(last - (w->size - 1), w->align) : align_up(first, w->align);
    if (w->high ? a < first : a < first || a > last || last - a < w->size - 1)
        return false;
    *at = a;
    return true;
}

static bool search_leaf(struct maple_node *n, const struct maple_want *w, uintptr_t min, uintptr_t max, uintptr_t *at)
{
    unsigned count = (unsigned)n->count;
    for (unsigned j = 0; j < count; j++) {
        unsigned i = w->high ? count - 1 - j : j;
        if (n->range.slot[i] == NULL &&
            fits(w, maple_first_of(n, i, min), maple_last_of(n, MAPLE_RANGE, i, max), at))
            return true;
    }
    return false;
}

/* Only the two ends of [from, to] cut gaps short, and alignment, so few descents find nothing. */
static bool search(struct maple_node *n, const struct maple_want *w, unsigned level, uintptr_t min, uintptr_t max,
                   uintptr_t *at)
{
    if (level == 0)
        return search_leaf(n, w, min, max, at);
    unsigned lo = w->from > min ? maple_arange_offset(n, w->from) : 0;
    unsigned hi = w->to < max ? maple_arange_offset(n, w->to) : (unsigned)n->count - 1;
    for (unsigned j = 0; j <= hi - lo; j++) {
        unsigned i = w->high ? hi - j : lo + j;
        if (n->arange.gap[i] >= w->size && search(n->arange.slot[i], w, level - 1, maple_first_of(n, i, min),
                                                  maple_last_of(n, MAPLE_ARANGE, i, max), at))
            return true;
    }
    return false;
}

int maple_gap_locked(const struct maple *m, const struct maple_want *w, uintptr_t *first)
{
    if (!m->gaps || w->size == 0 || w->from > w->to || !is_pow2(w->align))
        return -EINVAL;
    bool found = m->root == 0 ? fits(w, 0, UINTPTR_MAX, first)
                              : search(maple_root(m->root), w, maple_height(m->root) - 1, 0, UINTPTR_MAX, first);
    return found ? 0 : -EBUSY;
}

int maple_gap(struct maple *m, const struct maple_want *w, uintptr_t *first)
{
    maple_lock(m);
    int error = maple_gap_locked(m, w, first);
    maple_unlock(m);
    return error;
}
