/* SPDX-License-Identifier: BSD-2-Clause */
/* A writer's way down, and the three things that are done to one node: splice, fill, gather. */
#include "maple_edit.h"

#include "dbg.h"

/* One loop for each kind, so that no level asks which. */
HOT_INLINE void descend(uintptr_t root, enum maple_kind kind, uintptr_t index, struct maple_path *path)
{
    struct maple_node *n = maple_root(root);
    uintptr_t min = 0, max = UINTPTR_MAX;
    unsigned level = path->height = maple_height(root);
    while (--level > 0) {
        unsigned o = maple_offset(n, kind, index);
        struct maple_node *child = maple_slot_array(n, kind)[o];
        maple_prefetch(child);
        path->step[level] = (struct maple_step){.node = n, .min = min, .max = max, .offset = o};
        uintptr_t first = maple_first_of(n, o, min);
        max = maple_last_of(n, kind, o, max);
        min = first;
        n = child;
    }
    path->step[0] = (struct maple_step){.node = n, .min = min, .max = max, .offset = maple_range_offset(n, index)};
}

void maple_path_to(const struct maple *m, uintptr_t index, struct maple_path *path)
{
    if (m->gaps)
        descend(m->root, MAPLE_ARANGE, index, path);
    else
        descend(m->root, MAPLE_RANGE, index, path);
}

static void put_item(struct maple_node *n, enum maple_kind kind, unsigned i, const struct maple_item *item)
{
    if (i < maple_slots(kind) - 1)
        maple_put(&maple_pivots(n)[i], item->last);
    maple_put(&maple_slot_array(n, kind)[i], item->p);
    if (kind == MAPLE_ARANGE)
        maple_put(&n->arange.gap[i], item->gap);
}

/* Move the words [at, at + n) up or down by a number of places. */
static void move_up(uintptr_t *at, unsigned n, unsigned by)
{
    uintptr_t *to = at + by;
    while (n-- > 0)
        maple_put(&to[n], at[n]);
}

static void move_down(uintptr_t *at, unsigned n, unsigned by)
{
    uintptr_t *to = at - by;
    for (unsigned i = 0; i < n; i++)
        maple_put(&to[i], at[i]);
}

static void open_up(struct maple_node *n, enum maple_kind kind, unsigned to, unsigned by)
{
    unsigned count = (unsigned)n->count, pivots = maple_slots(kind) - 1;
    unsigned bounds = count + by <= pivots ? count - to : pivots - to - by; /* the last slot has no pivot */
    if (to + by < pivots)
        move_up(maple_pivots(n) + to, bounds, by);
    move_up((uintptr_t *)(void *)(maple_slot_array(n, kind) + to), count - to, by);
    if (kind == MAPLE_ARANGE)
        move_up(n->arange.gap + to, count - to, by);
}

static void close_up(struct maple_node *n, enum maple_kind kind, uintptr_t max, unsigned to, unsigned by)
{
    unsigned count = (unsigned)n->count, pivots = maple_slots(kind) - 1;
    uintptr_t *pivot = maple_pivots(n);
    unsigned bounds = count <= pivots ? count : pivots;
    if (to < bounds)
        move_down(pivot + to, bounds - to, by);
    if (count > pivots && to < count) /* the last entry gets a pivot */
        maple_put(&pivot[count - 1 - by], max);
    for (unsigned i = count - by; i < bounds; i++)
        maple_put(&pivot[i], UINTPTR_MAX);
    move_down((uintptr_t *)(void *)(maple_slot_array(n, kind) + to), count - to, by);
    if (kind == MAPLE_ARANGE)
        move_down(n->arange.gap + to, count - to, by);
}

void maple_splice(struct maple_node *n, enum maple_kind kind, uintptr_t max, unsigned from, unsigned to,
                  const struct maple_item *put, unsigned k)
{
    unsigned replaced = to - from;
    ASSERT(n->count - replaced + k <= maple_slots(kind));
    if (k > replaced)
        open_up(n, kind, to, k - replaced);
    else if (k < replaced)
        close_up(n, kind, max, to, replaced - k);
    for (unsigned i = 0; i < k; i++)
        put_item(n, kind, from + i, &put[i]);
    n->count += k;
    n->count -= replaced;
}

void maple_fill(struct maple_node *n, enum maple_kind kind, const struct maple_item *items, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        put_item(n, kind, i, &items[i]);
    for (unsigned i = count; i < maple_slots(kind) - 1; i++)
        maple_put(&maple_pivots(n)[i], UINTPTR_MAX);
    n->count = count;
}

unsigned maple_gather(struct maple_node *n, enum maple_kind kind, uintptr_t max, unsigned from, unsigned to,
                      struct maple_item *items)
{
    for (unsigned i = from; i < to; i++)
        items[i - from] = (struct maple_item){
            .last = maple_last_of(n, kind, i, max),
            .p = maple_slot_array(n, kind)[i],
            .gap = kind == MAPLE_ARANGE ? n->arange.gap[i] : 0,
        };
    return to > from ? to - from : 0;
}

void maple_set_root(struct maple *m, struct maple_node *n, unsigned height)
{
    CHECK(height <= MAPLE_HEIGHT_MAX);
    maple_put(&m->root, (uintptr_t)n | height);
}
