/* SPDX-License-Identifier: BSD-2-Clause */
/* core/maple.h: what a store, an erase and a search answer, case by case. */
#include "maple_model.h"

#include <errno.h>

static struct nodes ns;
static struct maple m;
static struct model md;

static void start(bool gaps)
{
    nodes_init(&ns);
    maple_init(&m, gaps, RANK_REGION, &ns.source);
    md.n = 0;
}

static void finish(void)
{
    model_compare(&md, &m);
    maple_destroy(&m);
    EXPECT(m.root == 0);
    nodes_fini(&ns);
}

static void both_store(uintptr_t first, uintptr_t last, void *entry)
{
    EXPECT_EQ(maple_store(&m, first, last, entry), 0);
    model_store(&md, first, last, entry);
    maple_check(&m);
}

/* Run a test on a plain tree and on one with gaps. */
static void on_both_kinds(void (*body)(void))
{
    for (int gaps = 0; gaps < 2; gaps++) {
        start(gaps);
        body();
        finish();
    }
}

/* ---- single numbers ---- */

static void empty(void)
{
    struct maple_range r;
    EXPECT(maple_load(&m, 0) == NULL && maple_load(&m, UINTPTR_MAX) == NULL);
    EXPECT_EQ(maple_at(&m, 5, &r), 0);
    EXPECT(r.first == 0 && r.last == UINTPTR_MAX && r.entry == NULL);
    EXPECT_EQ(maple_find(&m, 0, UINTPTR_MAX, &r), -ENOENT);
    EXPECT_EQ(maple_find_last(&m, 0, UINTPTR_MAX, &r), -ENOENT);
    EXPECT_EQ(maple_erase(&m, 7, &r), -ENOENT);
    EXPECT_EQ(maple_grow(&m, 7, 9), -ENOENT);
    EXPECT_EQ(maple_store(&m, 3, 9, NULL), 0);
    EXPECT(m.root == 0 && m.nodes == 0);
}

TEST(maple, empty_tree_is_one_gap)
{
    on_both_kinds(empty);
}

static void refused(void)
{
    both_store(10, 20, &m);
    EXPECT_EQ(maple_store(&m, 9, 8, &m), -EINVAL);
    EXPECT_EQ(maple_store(&m, 8, 9, MAPLE_BUSY), -EINVAL);
    EXPECT_EQ(maple_insert(&m, 8, 9, NULL), -EINVAL);
    EXPECT_EQ(maple_insert(&m, 0, 10, &m), -EEXIST);
    EXPECT_EQ(maple_insert(&m, 20, 30, &m), -EEXIST);
    EXPECT_EQ(maple_insert(&m, 12, 13, &m), -EEXIST);
    EXPECT_EQ(maple_insert(&m, 5, 50, &m), -EEXIST);
    EXPECT_EQ(maple_insert(&m, 21, 30, &ns), 0);
    model_store(&md, 21, 30, &ns);
    EXPECT_EQ(maple_grow(&m, 15, 25), -EEXIST);
    EXPECT_EQ(maple_grow(&m, 15, 20), -EINVAL);
    EXPECT_EQ(maple_grow(&m, 9, 9), -ENOENT);
    EXPECT_EQ(maple_grow(&m, 25, 99), 0);
    model_store(&md, 21, 99, &ns);
}

TEST(maple, what_cannot_be_is_refused_and_changes_nothing)
{
    on_both_kinds(refused);
}

static void edges(void)
{
    both_store(0, 0, &m);
    both_store(UINTPTR_MAX, UINTPTR_MAX, &md);
    both_store(1, UINTPTR_MAX - 1, &ns);
    EXPECT(maple_load(&m, 0) == &m && maple_load(&m, 1) == &ns && maple_load(&m, UINTPTR_MAX) == &md);
    both_store(0, UINTPTR_MAX, &ns);
    EXPECT(maple_load(&m, 0) == &ns && maple_load(&m, UINTPTR_MAX) == &ns);
    both_store(5, UINTPTR_MAX, NULL);
    both_store(0, 4, NULL);
    EXPECT(m.root == 0); /* nothing but a gap: no node */
}

TEST(maple, both_ends_of_the_line)
{
    on_both_kinds(edges);
}

enum { KEYS = 1000 };

static void every_key_after_every_store(bool descending)
{
    for (uintptr_t i = 0; i < KEYS; i++) {
        uintptr_t key = descending ? KEYS - 1 - i : i;
        both_store(key, key, bounds_entry(key, 0));
        for (uintptr_t j = 0; j < KEYS; j++) {
            bool there = descending ? j >= key : j <= key;
            EXPECT(maple_load(&m, j) == (there ? bounds_entry(j, 0) : NULL));
        }
        EXPECT(maple_load(&m, KEYS) == NULL);
    }
}

static void ascending(void)
{
    every_key_after_every_store(false);
}

static void descending(void)
{
    every_key_after_every_store(true);
}

TEST(maple, ascending_keys)
{
    on_both_kinds(ascending);
}

TEST(maple, descending_keys)
{
    on_both_kinds(descending);
}

/* ---- ranges ---- */

/* Every way in which one range can lie over three others and the gaps around them. */
static void overwrite(void)
{
    for (uintptr_t first = 0; first < 40; first++)
        for (uintptr_t last = first; last < 40; last++)
            for (int gap = 0; gap < 2; gap++) {
                md.n = 0;
                both_store(0, UINTPTR_MAX, NULL);
                both_store(5, 9, &m);
                both_store(10, 10, &md);
                both_store(20, 29, &ns);
                both_store(first, last, gap ? NULL : &ns.lock);
                model_compare(&md, &m);
            }
}

TEST(maple, one_range_over_others_in_every_way)
{
    on_both_kinds(overwrite);
}

/* From every leaf to every other, for both kinds of store: three levels, so whole subtrees go. */
static void span(void)
{
    enum { BLOCKS = 400 };
    for (unsigned from = 0; from < BLOCKS; from += 23)
        for (unsigned to = from + 15; to < BLOCKS; to += 37)
            for (int shape = 0; shape < 8; shape++) {
                md.n = 0;
                both_store(0, UINTPTR_MAX, NULL);
                build_blocks(&m, &md, BLOCKS);
                uintptr_t first = 100 * (uintptr_t)from + (shape & 1 ? 50 : 0);
                uintptr_t last = 100 * (uintptr_t)to + (shape & 2 ? 50 : 99);
                both_store(first, last, shape & 4 ? NULL : &m);
                model_compare(&md, &m);
            }
}

TEST(maple, stores_that_span_leaves)
{
    on_both_kinds(span);
}

/* A range that ends where a leaf ends, over all of that leaf, and over all that follows. */
static void whole_leaves(void)
{
    struct maple_path path;
    for (unsigned skip = 0; skip < 12; skip++)
        for (int shape = 0; shape < 4; shape++) {
            md.n = 0;
            both_store(0, UINTPTR_MAX, NULL);
            build_blocks(&m, &md, 300);
            maple_path_to(&m, 1500 * skip + 700, &path);
            uintptr_t min = path.step[0].min, max = path.step[0].max;
            both_store(shape & 1 ? min : min + 130, max, shape & 2 ? NULL : &m);
            both_store(shape & 1 ? min : min + 40, UINTPTR_MAX, shape & 2 ? &m : NULL);
            model_compare(&md, &m);
        }
}

TEST(maple, stores_that_swallow_leaves)
{
    on_both_kinds(whole_leaves);
}

static void gaps_merge(void)
{
    build_blocks(&m, &md, 200);
    for (uintptr_t i = 1; i < 200; i += 2)
        both_store(100 * i, 100 * i + 99, NULL);
    for (uintptr_t i = 2; i < 198; i += 4) {
        struct maple_range r;
        both_store(100 * i, 100 * i + 99, NULL);
        EXPECT_EQ(maple_at(&m, 100 * i, &r), 0);
        EXPECT_EQ(r.first, 100 * i - 100);
        EXPECT_EQ(r.last, 100 * i + 199);
    }
}

TEST(maple, gaps_merge_with_both_neighbours)
{
    on_both_kinds(gaps_merge);
}

/* From a tree of five levels to none, from the right, from the left and from the middle. */
static void erase_all(void)
{
    enum { BLOCKS = 4000 };
    for (int way = 0; way < 3; way++) {
        build_blocks(&m, &md, BLOCKS);
        EXPECT(maple_height(m.root) >= (m.gaps ? 4u : 3u));
        for (unsigned i = 0; i < BLOCKS; i++) {
            uintptr_t block = way == 0 ? BLOCKS - 1 - i : way == 1 ? i : (BLOCKS / 2 + i) % BLOCKS;
            struct maple_range r;
            EXPECT_EQ(maple_erase(&m, 100 * block + 50, &r), 0);
            EXPECT(r.first == 100 * block && r.last == 100 * block + 99 && r.entry == bounds_entry(r.first, r.last));
            model_store(&md, r.first, r.last, NULL);
            if (i % 16 == 0)
                maple_check(&m);
        }
        EXPECT(m.root == 0 && m.nodes == 0);
    }
}

TEST(maple, erasing_everything_takes_every_level_down)
{
    on_both_kinds(erase_all);
}

/* ---- searching ---- */

static void windows(void)
{
    struct maple_range r;
    for (uintptr_t i = 0; i < 100; i++)
        both_store(100 * i + 50, 100 * i + 59, bounds_entry(i, i));
    for (uintptr_t i = 1; i < 99; i++) {
        uintptr_t at = 100 * i + 50;
        EXPECT_EQ(maple_find(&m, at - 40, at - 1, &r), -ENOENT);
        EXPECT_EQ(maple_find(&m, at - 40, at, &r), 0);
        EXPECT_EQ(r.first, at);
        EXPECT_EQ(maple_find(&m, at + 9, at + 9, &r), 0);
        EXPECT_EQ(r.first, at);
        EXPECT_EQ(maple_find(&m, at + 10, at + 99, &r), -ENOENT);
        EXPECT_EQ(maple_find_last(&m, at + 10, at + 99, &r), -ENOENT);
        EXPECT_EQ(maple_find_last(&m, at + 9, at + 99, &r), 0);
        EXPECT_EQ(r.first, at);
        EXPECT_EQ(maple_find_last(&m, 0, at - 1, &r), 0);
        EXPECT_EQ(r.first, at - 100);
        EXPECT_EQ(maple_find(&m, at + 1, at, &r), -ENOENT);
        EXPECT_EQ(maple_find_last(&m, at + 1, at, &r), -ENOENT);
    }
    EXPECT_EQ(maple_find(&m, 9960, UINTPTR_MAX, &r), -ENOENT);
    EXPECT_EQ(maple_find_last(&m, 0, 49, &r), -ENOENT);
}

TEST(maple, finds_within_a_window)
{
    on_both_kinds(windows);
}

static void back_and_forth(void)
{
    struct maple_cursor c;
    struct maple_range r;
    build_blocks(&m, &md, 100);
    maple_cursor_init(&c, &m, 5050);
    EXPECT_EQ(maple_next(&c, &r), 0);
    EXPECT_EQ(r.first, 5000); /* the range that holds the start */
    EXPECT_EQ(maple_next(&c, &r), 0);
    EXPECT_EQ(r.first, 5100);
    EXPECT_EQ(maple_prev(&c, &r), 0);
    EXPECT_EQ(r.first, 5000);
    EXPECT_EQ(maple_prev(&c, &r), 0);
    EXPECT_EQ(r.first, 4900);
    maple_cursor_init(&c, &m, UINTPTR_MAX);
    EXPECT_EQ(maple_next(&c, &r), -ENOENT);
    EXPECT_EQ(maple_prev(&c, &r), 0); /* it has not moved at the end */
    EXPECT_EQ(r.first, 9900);
    EXPECT_EQ(maple_next(&c, &r), -ENOENT);
    EXPECT_EQ(maple_next(&c, &r), -ENOENT);
    maple_cursor_init(&c, &m, 0);
    EXPECT_EQ(maple_prev(&c, &r), 0);
    EXPECT_EQ(r.first, 0);
    EXPECT_EQ(maple_prev(&c, &r), -ENOENT);
}

TEST(maple, cursor_goes_back_and_forth)
{
    on_both_kinds(back_and_forth);
}

/* Erase what the cursor stands on, and what comes next, and store ahead of it and behind: it goes on from where it was. */
static void changes(void)
{
    struct maple_cursor c;
    struct maple_range r;
    uintptr_t expect = 0;
    build_blocks(&m, &md, 600);
    maple_cursor_init(&c, &m, 0);
    for (unsigned i = 0; maple_next(&c, &r) == 0; i++) {
        EXPECT_EQ(r.first, expect);
        EXPECT(r.entry == bounds_entry(r.first, r.last));
        expect += 100;
        both_store(r.first, r.last, NULL);
        if (i % 3 == 0 && expect < 59900) { /* the next one goes too */
            both_store(expect, expect + 99, NULL);
            expect += 100;
        }
        if (i % 5 == 0 && r.first > 5000) /* behind: not seen again */
            both_store(r.first - 4000, r.first - 3950, bounds_entry(r.first - 4000, r.first - 3950));
        if (i % 7 == 0 && expect < 59900) { /* ahead: seen */
            both_store(expect, expect + 9, bounds_entry(expect, expect + 9));
            both_store(expect + 10, expect + 99, bounds_entry(expect + 10, expect + 99));
            EXPECT_EQ(maple_next(&c, &r), 0);
            EXPECT_EQ(r.last, expect + 9);
            EXPECT_EQ(maple_next(&c, &r), 0);
            EXPECT_EQ(r.first, expect + 10);
            expect += 100;
        }
    }
    EXPECT_EQ(expect, 60000);
}

TEST(maple, iteration_survives_changes)
{
    on_both_kinds(changes);
}

static int count_to(void *arg, const struct maple_range *r)
{
    unsigned *left = arg;
    EXPECT(r->entry == bounds_entry(r->first, r->last));
    return --*left == 0 ? 42 : 0;
}

TEST(maple, walk_gives_all_until_told_to_stop)
{
    unsigned left = 50;
    start(true);
    build_blocks(&m, &md, 200);
    EXPECT_EQ(maple_walk(&m, count_to, &left), 42);
    left = 1000;
    EXPECT_EQ(maple_walk(&m, count_to, &left), 0);
    EXPECT_EQ(left, 800);
    finish();
}

TEST(maple, destroyed_tree_can_be_used_again)
{
    start(true);
    build_blocks(&m, NULL, 2000);
    maple_destroy(&m);
    EXPECT_EQ(ns.out, 0);
    EXPECT(maple_load(&m, 500) == NULL);
    build_blocks(&m, &md, 300);
    finish();
}

/* ---- the check itself ---- */

static void spoil(void *arg)
{
    struct maple_path path;
    start(true);
    build_blocks(&m, NULL, 300);
    maple_path_to(&m, 15000, &path);
    EXPECT_EQ(maple_store(&m, path.step[0].min, path.step[0].min + 399, &m), 0); /* the leaf is not full */
    maple_path_to(&m, 15000, &path);
    struct maple_step *leaf = &path.step[0], *up = &path.step[1];
    switch (*(int *)arg) {
    case 0:
        leaf->node->count = RANGE_MIN - 1;
        break;
    case 1:
        up->node->arange.slot[up->offset] = up->node->arange.slot[up->offset - 1];
        break;
    case 2:
        leaf->node->range.pivot[2] = leaf->node->range.pivot[1] - 1;
        break;
    case 3:
        leaf->node->range.pivot[leaf->node->count] = 5; /* behind the end */
        break;
    case 4:
        up->node->arange.gap[up->offset] = 7;
        break;
    case 5:
        leaf->node->range.slot[3] = leaf->node->range.slot[4] = NULL;
        break;
    case 6:
        leaf->node->range.slot[leaf->node->count - 1] = NULL;
        break;
    case 7:
        m.nodes++;
        break;
    default:
        up->node->arange.slot[0] = NULL;
        break;
    }
    maple_check(&m);
}

TEST(maple, check_sees_every_kind_of_damage)
{
    for (int what = 0; what < 9; what++)
        unit_dies_saying(spoil, &what, "sheaf: internal error: ");
}
