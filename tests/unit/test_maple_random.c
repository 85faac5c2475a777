/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/maple.h against the model: every operation at random, the tree checked after each. SHEAF_TEST_LONG=1 makes it a
 * million operations a tree.
 */
#include "maple_model.h"

#include <errno.h>

struct shape {
    bool gaps;
    uintptr_t space;   /* keys are below; 0: all of the line */
    uintptr_t longest; /* range */
    size_t ranges;     /* beyond, erase more */
    unsigned looks;    /* operations between two checks */
    bool refuse;       /* the source refuses now and then */
    bool worst, zero;
};

struct run {
    const struct shape *shape;
    struct nodes ns;
    struct maple m;
    struct model md;
    uint64_t seed;
};

static uintptr_t some_key(struct run *r)
{
    if (r->shape->space > 0)
        return unit_below(&r->seed, r->shape->space);
    switch (unit_below(&r->seed, 16)) {
    case 0:
        return unit_below(&r->seed, 4);
    case 1:
        return UINTPTR_MAX - unit_below(&r->seed, 4);
    default:
        return unit_random(&r->seed) & ~(uintptr_t)0xffffffffffff;
    }
}

static void some_range(struct run *r, uintptr_t *first, uintptr_t *last)
{
    *first = some_key(r);
    uintptr_t size = unit_below(&r->seed, unit_below(&r->seed, 50) == 0 ? r->shape->longest * 20 : r->shape->longest);
    *last = *first + size < *first ? UINTPTR_MAX : *first + size;
    if (r->shape->space > 0 && unit_below(&r->seed, 4) == 0) { /* end where something ends or begins */
        struct maple_range at = model_at(&r->md, *first);
        if (unit_below(&r->seed, 2) == 0)
            *first = at.first;
        *last = unit_below(&r->seed, 2) == 0 ? at.last : model_at(&r->md, *last).last;
        if (*last - *first > r->shape->space)
            *last = *first;
    }
}

static void op_store(struct run *r, bool gap)
{
    uintptr_t first, last;
    some_range(r, &first, &last);
    void *entry = gap ? NULL : bounds_entry(unit_random(&r->seed), last);
    int error = maple_store(&r->m, first, last, entry);
    EXPECT(error == 0 || (error == -ENOMEM && r->ns.allow == 0));
    if (error == 0)
        model_store(&r->md, first, last, entry);
}

static void op_insert(struct run *r)
{
    uintptr_t first, last;
    some_range(r, &first, &last);
    void *entry = bounds_entry(first, unit_random(&r->seed));
    struct maple_range there;
    bool taken = model_find(&r->md, first, last, &there);
    int error = maple_insert(&r->m, first, last, entry);
    if (error == -ENOMEM && r->ns.allow == 0)
        return;
    EXPECT_EQ(error, taken ? -EEXIST : 0);
    if (!taken)
        model_store(&r->md, first, last, entry);
}

static void op_erase(struct run *r)
{
    uintptr_t index = some_key(r);
    struct maple_range was = model_at(&r->md, index), out;
    if (was.entry == NULL && model_find(&r->md, index, UINTPTR_MAX, &was))
        index = was.first;
    int error = maple_erase(&r->m, index, &out);
    if (error == -ENOMEM && r->ns.allow == 0)
        return;
    EXPECT_EQ(error, was.entry == NULL ? -ENOENT : 0);
    if (error == 0) {
        EXPECT(range_equal(&out, &was));
        model_store(&r->md, was.first, was.last, NULL);
    }
}

static void op_grow(struct run *r)
{
    struct maple_range at = model_at(&r->md, some_key(r)), next;
    uintptr_t last = at.last + unit_below(&r->seed, r->shape->longest);
    bool blocked = last > at.last && model_find(&r->md, at.last + 1, last, &next);
    int error = maple_grow(&r->m, at.first, last);
    if (error == -ENOMEM && r->ns.allow == 0)
        return;
    EXPECT_EQ(error, at.entry == NULL ? -ENOENT : last <= at.last ? -EINVAL : blocked ? -EEXIST : 0);
    if (error == 0)
        model_store(&r->md, at.first, last, at.entry);
}

static void op_place(struct run *r)
{
    struct maple_want w = {.to = UINTPTR_MAX, .high = unit_below(&r->seed, 2) == 0};
    w.size = 1 + unit_below(&r->seed, r->shape->longest);
    w.align = (uintptr_t)1 << unit_below(&r->seed, 6);
    if (unit_below(&r->seed, 3) > 0)
        some_range(r, &w.from, &w.to);
    if (unit_below(&r->seed, 3) == 0)
        w.to = w.to + 40 * r->shape->longest < w.to ? UINTPTR_MAX : w.to + 40 * r->shape->longest;
    if (r->shape->space > 0 && w.to > r->shape->space) {
        w.to = r->shape->space;
        w.from = w.from < w.to ? w.from : w.to;
    }
    uintptr_t want = 0, got = 0;
    int expect = !r->shape->gaps ? -EINVAL : model_gap(&r->md, &w, &want) ? 0 : -EBUSY;
    EXPECT_EQ(maple_gap(&r->m, &w, &got), expect);
    EXPECT(expect != 0 || got == want);
    void *entry = bounds_entry(want, w.size);
    int error = maple_place(&r->m, &w, entry, &got);
    if (error == -ENOMEM && r->ns.allow == 0)
        return;
    EXPECT_EQ(error, expect);
    if (error == 0) {
        EXPECT_EQ(got, want);
        model_store(&r->md, want, want + w.size - 1, entry);
    }
}

static void op_read(struct run *r)
{
    uintptr_t from = some_key(r), to = some_key(r);
    struct maple_range at = model_at(&r->md, from), got, want;
    EXPECT(maple_load(&r->m, from) == at.entry);
    EXPECT_EQ(maple_at(&r->m, from, &got), 0);
    EXPECT(range_equal(&got, &at));
    bool found = from <= to && model_find(&r->md, from, to, &want);
    EXPECT_EQ(maple_find(&r->m, from, to, &got), found ? 0 : -ENOENT);
    EXPECT(!found || range_equal(&got, &want));
    found = from <= to && model_find_last(&r->md, from, to, &want);
    EXPECT_EQ(maple_find_last(&r->m, from, to, &got), found ? 0 : -ENOENT);
    EXPECT(!found || range_equal(&got, &want));
}

static void step(struct run *r)
{
    bool crowded = r->md.n > r->shape->ranges;
    r->ns.allow = r->shape->refuse && unit_below(&r->seed, 3) == 0 ? 0 : -1;
    switch (unit_below(&r->seed, crowded ? 20 : 12)) {
    case 0:
    case 1:
    case 2:
        op_store(r, false);
        break;
    case 3:
    case 4:
        op_insert(r);
        break;
    case 5:
        op_grow(r);
        break;
    case 6:
    case 7:
        op_place(r);
        break;
    case 8:
        op_read(r);
        break;
    case 9:
        op_store(r, true);
        break;
    default:
        op_erase(r);
        break;
    }
}

/* Nodes taken are nodes in the tree, or freed by it: none was counted for nothing. */
static void check_counts(const struct run *r)
{
    struct maple_stats s = maple_stats(&r->m);
    EXPECT_EQ(s.taken - s.returned, r->m.nodes + s.freed);
    EXPECT(r->shape->worst || s.returned == 0);
    EXPECT_EQ(s.bytes_zeroed, r->shape->zero ? s.taken * MAPLE_NODE_BYTES : 0);
    EXPECT_EQ(r->ns.out, r->m.nodes + r->m.nspare);
}

static void run_shape(const struct shape *shape, uint64_t seed)
{
    static struct run r;
    const char *longer = getenv("SHEAF_TEST_LONG");
    unsigned steps = longer != NULL && *longer == '1' ? 1000000 : 20000;
    memset(&r, 0, sizeof r);
    r.shape = shape;
    r.seed = seed;
    nodes_init(&r.ns);
    maple_init(&r.m, shape->gaps, RANK_REGION, &r.ns.source);
    r.m.worst = shape->worst;
    r.m.zero = shape->zero;
    if (shape->refuse)
        r.m.keep = 0;
    for (unsigned i = 0; i < steps; i++) {
        step(&r);
        if (i % shape->looks == 0)
            maple_check(&r.m);
        check_counts(&r);
        if (i % 1000 == 0)
            model_compare(&r.md, &r.m);
    }
    model_compare(&r.md, &r.m);
    r.ns.allow = -1;
    maple_destroy(&r.m);
    nodes_fini(&r.ns);
}

TEST(maple_random, small_gaps)
{
    run_shape(&(struct shape){.gaps = true, .space = 2000, .longest = 12, .ranges = 200, .looks = 1}, 1);
}

TEST(maple_random, small_plain)
{
    run_shape(&(struct shape){.space = 2000, .longest = 12, .ranges = 200, .looks = 1}, 2);
}

TEST(maple_random, tall_gaps)
{
    run_shape(&(struct shape){.gaps = true, .space = 40000, .longest = 12, .ranges = 4000, .looks = 50}, 3);
}

TEST(maple_random, tall_plain)
{
    run_shape(&(struct shape){.space = 40000, .longest = 12, .ranges = 4000, .looks = 50}, 4);
}

TEST(maple_random, whole_line_gaps)
{
    run_shape(&(struct shape){.gaps = true, .longest = (uintptr_t)1 << 50, .ranges = 150, .looks = 1}, 5);
}

TEST(maple_random, whole_line_plain)
{
    run_shape(&(struct shape){.longest = (uintptr_t)1 << 50, .ranges = 150, .looks = 1}, 6);
}

TEST(maple_random, source_that_refuses)
{
    run_shape(&(struct shape){.gaps = true, .space = 2000, .longest = 12, .ranges = 300, .looks = 1, .refuse = true}, 7);
    run_shape(&(struct shape){.space = 2000, .longest = 12, .ranges = 300, .looks = 1, .refuse = true}, 8);
}

TEST(maple_random, worst_case_and_zeroing)
{
    run_shape(&(struct shape){.gaps = true, .space = 2000, .longest = 12, .ranges = 300, .looks = 1, .worst = true,
                              .zero = true}, 9);
}
