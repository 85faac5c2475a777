/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The red-black tree for maple_bench: libbsd's, one node a range from an array, every operation under the lock. If gaps
 * are asked for, each node also has the size of the gap before its range and the longest such below it, kept right through
 * rotations and up the tree no further than it changes.
 */
#include "maple_bench.h"

#include "compat/os/lock.h"
#include "core/rank.h"

#include <stdlib.h>

struct range {
    uintptr_t first, last;
    void *entry;
    struct {
        struct range *rbe_left, *rbe_right, *rbe_parent;
        int rbe_color;
    } link;
    uintptr_t gap, longest;
};

static void augment(struct range *r);
#define RB_AUGMENT(r) augment(r)
#include <bsd/sys/tree.h>

static int compare(const struct range *a, const struct range *b)
{
    return a->first < b->first ? -1 : a->first > b->first;
}

RB_HEAD(ranges, range);
RB_GENERATE_INTERNAL(ranges, range, link, compare, __attribute__((unused)) static)

static struct ranges head = RB_INITIALIZER(&head);
static struct lock lock;
static struct range *pool, *unused;
static bool with_gaps;

static uintptr_t longest(const struct range *r)
{
    const struct range *left = RB_LEFT(r, link), *right = RB_RIGHT(r, link);
    uintptr_t max = r->gap;
    if (left != NULL && left->longest > max)
        max = left->longest;
    if (right != NULL && right->longest > max)
        max = right->longest;
    return max;
}

static void augment(struct range *r)
{
    if (with_gaps)
        r->longest = longest(r);
}

static void raise(struct range *r)
{
    for (; r != NULL; r = RB_PARENT(r, link)) {
        uintptr_t max = longest(r);
        if (r->longest == max)
            return;
        r->longest = max;
    }
}

static struct range *find(uintptr_t index)
{
    struct range *r = RB_ROOT(&head);
    while (r != NULL) {
        if (index < r->first)
            r = RB_LEFT(r, link);
        else if (index > r->last)
            r = RB_RIGHT(r, link);
        else
            return r;
    }
    return NULL;
}

static void insert(uintptr_t first, uintptr_t last, void *entry)
{
    struct range *r = unused;
    if (r != NULL)
        unused = RB_LEFT(r, link);
    else
        r = pool++;
    r->first = first;
    r->last = last;
    r->entry = entry;
    r->gap = r->longest = 0;
    RB_INSERT(ranges, &head, r);
    if (with_gaps) {
        struct range *before = RB_PREV(ranges, &head, r), *after = RB_NEXT(ranges, &head, r);
        r->gap = before != NULL ? first - before->last - 1 : first;
        raise(r);
        if (after != NULL) {
            after->gap = after->first - last - 1;
            raise(after);
        }
    }
}

static void take_out(struct range *r)
{
    struct range *after = with_gaps ? RB_NEXT(ranges, &head, r) : NULL, *up;
    uintptr_t gap = r->gap + (r->last - r->first + 1);
    RB_REMOVE(ranges, &head, r);
    up = RB_PARENT(r, link);
    if (with_gaps && up != NULL)
        raise(up);
    if (after != NULL) {
        after->gap += gap;
        raise(after);
    }
    RB_LEFT(r, link) = unused;
    unused = r;
}

/* The lowest gap of the size that begins at from or is cut there. */
static bool search(const struct range *r, uintptr_t from, uintptr_t size, uintptr_t *at)
{
    while (r != NULL && r->longest >= size) {
        if (r->first > from) {
            uintptr_t start = r->first - r->gap;
            if (start > from && search(RB_LEFT(r, link), from, size, at))
                return true;
            start = start < from ? from : start;
            if (r->first - start >= size) {
                *at = start;
                return true;
            }
        }
        r = RB_RIGHT(r, link);
    }
    return false;
}

static void rb_init(bool gaps, size_t n)
{
    with_gaps = gaps;
    pool = bench_memory((n + 64) * sizeof *pool);
}

static void *rb_load(uintptr_t index)
{
    lock_acquire(&lock, RANK_REGION);
    struct range *r = find(index);
    void *entry = r != NULL ? r->entry : NULL;
    lock_release(&lock);
    return entry;
}

static void rb_store(uintptr_t first, uintptr_t last, void *entry)
{
    lock_acquire(&lock, RANK_REGION);
    insert(first, last, entry);
    lock_release(&lock);
}

static void rb_erase(uintptr_t index)
{
    lock_acquire(&lock, RANK_REGION);
    struct range *r = find(index);
    if (r == NULL)
        abort();
    take_out(r);
    lock_release(&lock);
}

static void rb_change(uintptr_t first, uintptr_t last, void *entry)
{
    lock_acquire(&lock, RANK_REGION);
    struct range *r = find(first);
    if (r == NULL || r->last != last)
        abort();
    r->entry = entry;
    lock_release(&lock);
}

static bool rb_gap(uintptr_t from, uintptr_t size, uintptr_t *at)
{
    lock_acquire(&lock, RANK_REGION);
    bool found = search(RB_ROOT(&head), from, size, at);
    lock_release(&lock);
    return found;
}

static bool rb_place(uintptr_t from, uintptr_t size, void *entry, uintptr_t *at)
{
    lock_acquire(&lock, RANK_REGION);
    bool found = search(RB_ROOT(&head), from, size, at);
    if (found)
        insert(*at, *at + size - 1, entry);
    lock_release(&lock);
    return found;
}

static uint64_t rb_lock_holds(void)
{
    return lock.acquired;
}

const struct tree_ops redblack_ops = {"redblack", rb_init, rb_load, rb_store, rb_erase, rb_change, rb_gap, rb_place,
                                      rb_lock_holds};
