/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading without a lock. Whatever a reader has loaded is garbage until seq has been read again and found as it was; a
 * pointer is not followed before. Offsets are within a node whatever it holds, and the depth is the root word's, so
 * garbage leads nowhere.
 */
#include "maple_edit.h"

#include <errno.h>

enum { ROUNDS = 64 };

/* A leaf as of one seq, and a place in it. */
struct view {
    uint64_t seq;
    struct maple_node *leaf; /* NULL: the tree has no nodes */
    uintptr_t min, max;
    unsigned offset;
};

HOT_INLINE bool still(const struct maple *m, uint64_t seq)
{
    return LIKELY(load_acquire(&m->seq) == seq);
}

/* Down to the leaf of index, entry and nothing else. False: interfered with. */
HOT_INLINE bool load_in(const struct maple *m, enum maple_kind kind, uintptr_t index, void **entry)
{
    uint64_t seq = load_acquire(&m->seq); /* pairs with the stores of maple_change_* */
    uintptr_t root = load_acquire(&m->root);
    *entry = NULL;
    if (UNLIKELY(seq & 1))
        return false;
    if (root == 0)
        return still(m, seq);
    struct maple_node *n = maple_root(root);
    for (unsigned height = maple_height(root); height > 1; height--) {
        if (!still(m, seq))
            return false;
        n = maple_get(&maple_slot_array(n, kind)[maple_offset(n, kind, index)]);
        maple_prefetch(n);
    }
    if (!still(m, seq))
        return false;
    *entry = maple_get(&n->range.slot[maple_range_offset(n, index)]);
    return still(m, seq);
}

static bool try_load(const struct maple *m, uintptr_t index, void **entry)
{
    return m->gaps ? load_in(m, MAPLE_ARANGE, index, entry) : load_in(m, MAPLE_RANGE, index, entry);
}

/* The same, with the bounds of the leaf. */
static bool view_at(const struct maple *m, uintptr_t index, struct view *v)
{
    v->seq = load_acquire(&m->seq);
    uintptr_t root = load_acquire(&m->root);
    v->leaf = NULL;
    v->min = 0;
    v->max = UINTPTR_MAX;
    if (UNLIKELY(v->seq & 1) || !still(m, v->seq))
        return false;
    if (root == 0)
        return true;
    struct maple_node *n = maple_root(root);
    enum maple_kind kind = m->gaps ? MAPLE_ARANGE : MAPLE_RANGE;
    for (unsigned height = maple_height(root); height > 1; height--) {
        unsigned o = maple_offset(n, kind, index);
        uintptr_t first = maple_first_of(n, o, v->min);
        v->max = maple_last_of(n, kind, o, v->max);
        v->min = first;
        n = maple_get(&maple_slot_array(n, kind)[o]);
        if (!still(m, v->seq))
            return false;
        maple_prefetch(n);
    }
    v->leaf = n;
    v->offset = maple_range_offset(n, index);
    return still(m, v->seq);
}

/* The range at the view's place. Believed only if seq is still the view's. */
static void view_range(const struct view *v, struct maple_range *r)
{
    if (v->leaf == NULL) {
        *r = (struct maple_range){.first = 0, .last = UINTPTR_MAX};
        return;
    }
    r->first = maple_first_of(v->leaf, v->offset, v->min);
    r->last = maple_last_of(v->leaf, MAPLE_RANGE, v->offset, v->max);
    r->entry = maple_get(&v->leaf->range.slot[v->offset]);
}

/* ---- searches from a view on: 0, -ENOENT, or -EAGAIN when interfered with ---- */

static int seek_up(const struct maple *m, uintptr_t to, struct view *v, struct maple_range *out)
{
    for (;;) {
        view_range(v, out);
        if (!still(m, v->seq))
            return -EAGAIN;
        if (out->first > to)
            return -ENOENT;
        if (out->entry != NULL)
            return 0;
        if (out->last >= to || out->last == UINTPTR_MAX)
            return -ENOENT;
        if (out->last != v->max)
            v->offset++;
        else if (!view_at(m, out->last + 1, v))
            return -EAGAIN;
    }
}

static int seek_down(const struct maple *m, uintptr_t from, struct view *v, struct maple_range *out)
{
    for (;;) {
        view_range(v, out);
        if (!still(m, v->seq))
            return -EAGAIN;
        if (out->last < from)
            return -ENOENT;
        if (out->entry != NULL)
            return 0;
        if (out->first <= from || out->first == 0)
            return -ENOENT;
        if (v->offset > 0)
            v->offset--;
        else if (!view_at(m, out->first - 1, v))
            return -EAGAIN;
    }
}

enum way { HERE, UP, DOWN };

static int try_find(const struct maple *m, enum way way, uintptr_t index, uintptr_t end, struct view *v,
                    struct maple_range *out)
{
    if (!view_at(m, index, v))
        return -EAGAIN;
    if (way == UP)
        return seek_up(m, end, v, out);
    if (way == DOWN)
        return seek_down(m, end, v, out);
    view_range(v, out);
    return still(m, v->seq) ? 0 : -EAGAIN;
}

/* ---- rounds, then the lock ---- */

/* What to do after a round that was interfered with: go on, or (at the end, once) hold the lock. A thread in the middle of
 * its own change gets neither. */
static bool own_change(const struct maple *m)
{
    return load_relaxed(&m->owner) == maple_self(); /* relaxed: whoever else it may be, it is not us */
}

static NOINLINE int find_locked(struct maple *m, enum way way, uintptr_t index, uintptr_t end, struct view *v,
                                struct maple_range *out)
{
    if (own_change(m))
        return -EBUSY;
    maple_lock(m);
    owner_add(&m->stats.reader_locks, 1);
    int error = try_find(m, way, index, end, v, out);
    maple_unlock(m);
    return error;
}

static int find(struct maple *m, enum way way, uintptr_t index, uintptr_t end, struct view *v, struct maple_range *out)
{
    for (int round = 0; round < ROUNDS; round++) {
        int error = try_find(m, way, index, end, v, out);
        if (LIKELY(error != -EAGAIN))
            return error;
        cpu_relax();
    }
    return find_locked(m, way, index, end, v, out);
}

static NOINLINE void *load_again(struct maple *m, uintptr_t index)
{
    void *entry;
    for (int round = 1; round < ROUNDS; round++) {
        cpu_relax();
        if (try_load(m, index, &entry))
            return entry;
    }
    if (own_change(m))
        return MAPLE_BUSY;
    maple_lock(m);
    owner_add(&m->stats.reader_locks, 1);
    try_load(m, index, &entry); /* nobody can interfere */
    maple_unlock(m);
    return entry;
}

void *maple_load(struct maple *m, uintptr_t index)
{
    void *entry;
    return LIKELY(try_load(m, index, &entry)) ? entry : load_again(m, index);
}

int maple_at(struct maple *m, uintptr_t index, struct maple_range *out)
{
    struct view v;
    return find(m, HERE, index, index, &v, out);
}

int maple_find(struct maple *m, uintptr_t from, uintptr_t to, struct maple_range *out)
{
    struct view v;
    return from > to ? -ENOENT : find(m, UP, from, to, &v, out);
}

int maple_find_last(struct maple *m, uintptr_t from, uintptr_t to, struct maple_range *out)
{
    struct view v;
    return from > to ? -ENOENT : find(m, DOWN, to, from, &v, out);
}

/* ---- cursors ---- */

void maple_cursor_init(struct maple_cursor *c, struct maple *m, uintptr_t index)
{
    *c = (struct maple_cursor){.maple = m, .at = {.first = index, .last = index}};
}

static int step_from(struct maple_cursor *c, enum way way, uintptr_t index, uintptr_t end, struct maple_range *out)
{
    struct view v;
    struct maple_range r;
    int error = -EAGAIN;
    if (c->leaf != NULL && still(c->maple, c->seq)) { /* nothing has changed: the next place in the leaf */
        v = (struct view){.seq = c->seq, .leaf = c->leaf, .min = c->min, .max = c->max, .offset = c->offset};
        if (way == UP && c->at.last != c->max) {
            v.offset++;
            error = seek_up(c->maple, end, &v, &r);
        } else if (way == DOWN && v.offset > 0) {
            v.offset--;
            error = seek_down(c->maple, end, &v, &r);
        }
    }
    if (error == -EAGAIN)
        error = find(c->maple, way, index, end, &v, &r);
    if (error != 0)
        return error;
    *c = (struct maple_cursor){.maple = c->maple, .at = r, .started = true, .seq = v.seq, .leaf = v.leaf, .min = v.min,
                               .max = v.max, .offset = v.offset};
    *out = r;
    return 0;
}

int maple_next(struct maple_cursor *c, struct maple_range *out)
{
    if (!c->started)
        return step_from(c, UP, c->at.first, UINTPTR_MAX, out);
    return c->at.last == UINTPTR_MAX ? -ENOENT : step_from(c, UP, c->at.last + 1, UINTPTR_MAX, out);
}

int maple_prev(struct maple_cursor *c, struct maple_range *out)
{
    if (!c->started)
        return step_from(c, DOWN, c->at.first, 0, out);
    return c->at.first == 0 ? -ENOENT : step_from(c, DOWN, c->at.first - 1, 0, out);
}

int maple_walk(struct maple *m, int (*fn)(void *arg, const struct maple_range *r), void *arg)
{
    struct maple_cursor c;
    struct maple_range r;
    maple_cursor_init(&c, m, 0);
    for (;;) {
        int error = maple_next(&c, &r);
        if (error != 0)
            return error == -ENOENT ? 0 : error;
        error = fn(arg, &r);
        if (error != 0)
            return error;
    }
}
