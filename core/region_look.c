/* SPDX-License-Identifier: BSD-2-Clause */
/* Whose is an address, what is there, and does it all agree? */
#include "block.h"
#include "compat/os/atomic.h"
#include "dbg.h"
#include "pmap.h"
#include "region_impl.h"

#include <errno.h>

enum { FIND_ROUNDS = 64 };

const char *region_kind_name(enum region_kind kind)
{
    static const char names[REGION_KINDS][12] = {"zone", "large", "own", "metadata", "leaf", "stale"};
    return names[kind];
}

/* ---- looking ---- */

/* All fields as they were at one moment, or false. */
static bool copy_region(const struct region *r, struct region *copy)
{
    uint32_t version = load_acquire(&r->version); /* pairs with set_fields, as do the next ones */
    *copy = (struct region){.kind = load_acquire(&r->kind), .node = load_acquire(&r->node),
                            .zero = load_acquire(&r->zero), .base = load_acquire(&r->base),
                            .size = load_acquire(&r->size)};
    return (version & 1) == 0 && load_acquire(&r->version) == version;
}

/* Result: 1 found, 0 none of ours, -EAGAIN. */
static int try_region(uintptr_t a, struct region *copy)
{
    const struct region *r = maple_load(&region_space, a);
    if (r == NULL || r == &region_foreign || r == MAPLE_BUSY)
        return 0;
    bool ok = copy_region(r, copy) && a - (uintptr_t)copy->base < copy->size;
    return ok && maple_load(&region_space, a) == r ? 1 : -EAGAIN;
}

bool region_find(const void *p, struct region *copy)
{
    uintptr_t a = (uintptr_t)p;
    int found = -EAGAIN;
    for (int round = 0; found == -EAGAIN && round < FIND_ROUNDS; round++) {
        if (round > 0)
            cpu_relax();
        found = try_region(a, copy);
    }
    if (found == -EAGAIN && !region_locked_by_me()) {
        region_lock();
        found = try_region(a, copy);
        region_unlock();
    }
    return found == 1;
}

bool region_is_gap(const void *p)
{
    return load_acquire(&region_space.root) != 0 && maple_load(&region_space, (uintptr_t)p) == NULL;
}

/* Enter what region does not see coming: leaves that others asked for, new metadata. */
static void settle(void)
{
    region_lock();
    region_ready();
    region_enter_new(NULL, 0);
    if (region_state.stats.bytes[REGION_LEAF] != pmap_mapped_bytes())
        region_enter_new(NULL, (uintptr_t)1 << (PMAP_LEAF_SHIFT + PMAP_ROOT_BITS));
    region_unlock();
}

int region_walk(int (*fn)(void *arg, const struct region *copy), void *arg)
{
    struct maple_cursor c;
    struct maple_range at;
    struct region copy;
    char *end = NULL;
    int error;
    settle();
    maple_cursor_init(&c, &region_space, 0);
    while ((error = maple_next(&c, &at)) == 0) {
        if (at.entry == &region_foreign || !region_find((void *)at.first, &copy) || copy.base < end)
            continue;
        end = copy.base + copy.size;
        if ((error = fn(arg, &copy)) != 0)
            return error;
    }
    return error == -ENOENT ? 0 : error;
}

struct region_stats region_stats(void)
{
    settle();
    region_lock();
    struct region_stats s = region_state.stats;
    region_unlock();
    return s;
}

struct maple_stats region_tree_stats(void)
{
    return maple_stats(&region_space);
}

/* ---- checking ---- */

struct region_sums {
    size_t bytes[REGION_KINDS], count[REGION_KINDS];
    size_t gaps;
};

static void add_sums(struct region_sums *s, const struct region *r)
{
    s->bytes[r->kind] += r->size;
    s->count[r->kind]++;
}

static void check_entry(const struct region *r, const struct maple_range *at)
{
    CHECK_EQ((uintptr_t)r->base, at->first); /* INV-REGION-2 */
    CHECK_EQ((uintptr_t)r->base + r->size - 1, at->last);
    CHECK_EQ(r->version % 2, 0);
    CHECK_EQ(r->kind == REGION_LARGE || r->kind == REGION_STALE, r->window != NULL);
    if (r->window == NULL || r->kind == REGION_ZONE)
        return;
    CHECK(r->base >= r->window->base && r->base + r->size <= r->window->base + r->window->size);
    CHECK(r->kind != REGION_LARGE || (uintptr_t)r->base % BLOCK_BYTES == 0); /* INV-REGION-3 */
}

/* All that is in the tree, the line from one end to the other. */
static void check_tree(struct region_sums *s)
{
    struct maple_range at = {.last = UINTPTR_MAX};
    uintptr_t index = 0;
    do {
        CHECK_EQ(maple_at(&region_space, index, &at), 0);
        if (at.entry == NULL) {
            s->gaps += at.last - at.first + 1;
        } else if (at.entry != &region_foreign) {
            check_entry(at.entry, &at);
            add_sums(s, at.entry);
        }
        index = at.last + 1;
    } while (at.last != UINTPTR_MAX);
}

static size_t check_window(struct region_window *w)
{
    struct maple_range at;
    size_t live = 0, stale = 0, gaps = 0;
    for (uintptr_t a = (uintptr_t)w->base, end = a + w->size; a < end; a = at.last + 1) {
        CHECK_EQ(maple_at(&region_space, a, &at), 0);
        CHECK(at.entry != &region_foreign);
        const struct region *r = at.entry;
        size_t part = (at.last < end - 1 ? at.last : end - 1) - a + 1;
        *(r == NULL ? &gaps : r->kind == REGION_STALE ? &stale : &live) += part;
        CHECK(r == NULL || w->sort == REGION_PLAIN || r->window == w);
    }
    CHECK_EQ(live, w->live);
    CHECK_EQ(stale, w->stale);
    return gaps;
}

void region_check(void)
{
    struct region_sums s = {.gaps = 0};
    size_t gaps = 0, windows = 0, window_bytes = 0, empty = 0;
    settle();
    maple_check(&region_space);
    region_lock();
    check_tree(&s);
    for (const struct region *r = region_state.waiting; r != NULL; r = r->next)
        add_sums(&s, r);
    for (int sort = 0; sort < REGION_SORTS; sort++)
        for (struct region_window *w = region_state.window[sort]; w != NULL; w = w->next) {
            gaps += check_window(w);
            windows += sort == REGION_HUGE;
            window_bytes += sort == REGION_HUGE ? w->size : 0;
            empty += sort == REGION_HUGE && w->live == 0 ? w->size : 0;
        }
    CHECK_EQ(s.gaps, gaps); /* INV-REGION-1: no gap outside of windows */
    CHECK_EQ(gaps, region_state.stats.gaps);
    CHECK_EQ(windows, region_state.stats.windows);
    CHECK_EQ(window_bytes, region_state.stats.window_bytes);
    CHECK_EQ(empty, region_state.empty_bytes);
    for (int kind = 0; kind < REGION_KINDS; kind++) {
        CHECK_EQ(s.bytes[kind], region_state.stats.bytes[kind]);
        CHECK_EQ(s.count[kind], region_state.stats.count[kind]);
    }
    region_unlock();
}
