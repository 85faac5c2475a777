/* SPDX-License-Identifier: BSD-2-Clause */
/* core/maple.h: places in gaps, by tables and against the model. */
#include "maple_model.h"

#include <errno.h>

static struct nodes ns;
static struct maple m;
static struct model md;

static void start(void)
{
    nodes_init(&ns);
    maple_init(&m, true, RANK_REGION, &ns.source);
    md.n = 0;
}

static void finish(void)
{
    maple_check(&m);
    maple_destroy(&m);
    nodes_fini(&ns);
}

static void both_store(uintptr_t first, uintptr_t last, void *entry)
{
    EXPECT_EQ(maple_store(&m, first, last, entry), 0);
    model_store(&md, first, last, entry);
}

struct row {
    struct maple_want want;
    int error;
    uintptr_t first;
};

static void table(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uintptr_t first = 12345;
        int error = maple_gap(&m, &rows[i].want, &first);
        if (error != rows[i].error || (error == 0 && first != rows[i].first))
            TEST_FAIL("row %zu: %d, first %#lx", i, error, (unsigned long)first);
    }
}

TEST(maple_gap, places_in_an_empty_tree)
{
    static const struct row rows[] = {
        {{.from = 0, .to = UINTPTR_MAX, .size = 1, .align = 1}, 0, 0},
        {{.from = 0, .to = UINTPTR_MAX, .size = 1, .align = 1, .high = true}, 0, UINTPTR_MAX},
        {{.from = 0, .to = UINTPTR_MAX, .size = UINTPTR_MAX, .align = 1, .high = true}, 0, 1},
        {{.from = 1, .to = UINTPTR_MAX, .size = UINTPTR_MAX, .align = 2}, -EBUSY, 0},
        {{.from = 5, .to = 9, .size = 5, .align = 1}, 0, 5},
        {{.from = 5, .to = 9, .size = 6, .align = 1}, -EBUSY, 0},
        {{.from = 5, .to = 20, .size = 5, .align = 8}, 0, 8},
        {{.from = 5, .to = 20, .size = 5, .align = 8, .high = true}, 0, 16},
        {{.from = 9, .to = 20, .size = 6, .align = 8, .high = true}, -EBUSY, 0},
        {{.from = UINTPTR_MAX - 3, .to = UINTPTR_MAX, .size = 2, .align = 16}, -EBUSY, 0}, /* aligning would wrap */
        {{.from = 0, .to = 9, .size = 0, .align = 1}, -EINVAL, 0},
        {{.from = 9, .to = 0, .size = 1, .align = 1}, -EINVAL, 0},
        {{.from = 0, .to = 9, .size = 1, .align = 3}, -EINVAL, 0},
        {{.from = 0, .to = 9, .size = 1, .align = 0}, -EINVAL, 0},
    };
    start();
    table(rows, sizeof rows / sizeof *rows);
    finish();
}

TEST(maple_gap, places_between_ranges)
{
    static const struct row rows[] = {
        {{.from = 0, .to = 1000, .size = 100, .align = 1}, 0, 0},
        {{.from = 0, .to = 1000, .size = 101, .align = 1}, 0, 500},
        {{.from = 0, .to = 799, .size = 301, .align = 1}, -EBUSY, 0},
        {{.from = 0, .to = 999, .size = 100, .align = 1, .high = true}, 0, 900},
        {{.from = 0, .to = 899, .size = 100, .align = 1, .high = true}, 0, 700},
        {{.from = 50, .to = 999, .size = 100, .align = 1}, 0, 500},
        {{.from = 0, .to = 599, .size = 100, .align = 1, .high = true}, 0, 500},
        {{.from = 0, .to = 598, .size = 100, .align = 1, .high = true}, 0, 0},
        {{.from = 1, .to = 598, .size = 100, .align = 1, .high = true}, -EBUSY, 0},
        {{.from = 1, .to = 999, .size = 60, .align = 64}, 0, 512},
        {{.from = 1, .to = 999, .size = 36, .align = 64}, 0, 64},
        {{.from = 1, .to = 899, .size = 60, .align = 64, .high = true}, 0, 704},
        {{.from = 1, .to = 899, .size = 160, .align = 256, .high = true}, 0, 512},
    };
    start();
    both_store(100, 499, &m);
    both_store(800, 899, &m);
    table(rows, sizeof rows / sizeof *rows);
    finish();
}

TEST(maple_gap, plain_tree_has_none)
{
    uintptr_t first;
    const struct maple_want w = {.to = 9, .size = 1, .align = 1};
    nodes_init(&ns);
    maple_init(&m, false, RANK_REGION, &ns.source);
    EXPECT_EQ(maple_gap(&m, &w, &first), -EINVAL);
    EXPECT_EQ(maple_place(&m, &w, &m, &first), -EINVAL);
    EXPECT_EQ(maple_place(&m, &w, NULL, &first), -EINVAL);
    finish();
}

static void compare(const struct maple_want *w)
{
    uintptr_t want = 0, got = 0;
    int error = model_gap(&md, w, &want) ? 0 : -EBUSY;
    EXPECT_EQ(maple_gap(&m, w, &got), error);
    EXPECT(error != 0 || got == want);
}

/* Gaps of every size, at every alignment, in every window: the ends of a window cut gaps that the tree shows whole. */
TEST(maple_gap, every_window)
{
    start();
    for (uintptr_t i = 0; i < 120; i++)
        both_store(64 * i + i % 40, 64 * i + 63, &m);
    both_store(64 * 120, UINTPTR_MAX, &m);
    maple_check(&m);
    for (uintptr_t from = 0; from < 64 * 120; from += 61)
        for (uintptr_t to = from; to < 64 * 121; to += 403)
            for (unsigned i = 0; i < 40; i++)
                compare(&(struct maple_want){.from = from, .to = to, .size = 1 + i * 7 % 41,
                                             .align = (uintptr_t)1 << i % 7, .high = i & 1});
    finish();
}

/* Fill a window from below and from above until nothing fits, and find out so. */
static void fill(bool high)
{
    const struct maple_want w = {.from = 1000, .to = 1000 + 3 * 2000 - 1, .size = 3, .align = 1, .high = high};
    uintptr_t first;
    start();
    for (uintptr_t i = 0; i < 2000; i++) {
        EXPECT_EQ(maple_place(&m, &w, bounds_entry(i, 0), &first), 0);
        EXPECT_EQ(first, high ? w.to - 3 * i - 2 : w.from + 3 * i);
        if (i % 64 == 0)
            maple_check(&m);
    }
    EXPECT_EQ(maple_place(&m, &w, &m, &first), -EBUSY);
    EXPECT_EQ(maple_erase(&m, 1000 + 3 * 777, NULL), 0);
    EXPECT_EQ(maple_place(&m, &w, &m, &first), 0);
    EXPECT_EQ(first, 1000 + 3 * 777);
    finish();
}

TEST(maple_gap, window_fills_up)
{
    fill(false);
    fill(true);
}

/* Gaps come together from their neighbours, whatever leaf these are in; the tree knows the sum at once. */
TEST(maple_gap, erased_neighbours_make_one_gap)
{
    start();
    build_blocks(&m, &md, 500);
    both_store(50000, UINTPTR_MAX, &m);
    for (uintptr_t i = 3; i + 3 < 500; i += 5) {
        uintptr_t first;
        EXPECT_EQ(maple_erase(&m, 100 * i, NULL), 0);
        EXPECT_EQ(maple_erase(&m, 100 * i + 200, NULL), 0);
        EXPECT_EQ(maple_gap(&m, &(struct maple_want){.to = UINTPTR_MAX, .size = 101, .align = 1}, &first), -EBUSY);
        EXPECT_EQ(maple_erase(&m, 100 * i + 100, NULL), 0);
        EXPECT_EQ(maple_gap(&m, &(struct maple_want){.to = UINTPTR_MAX, .size = 300, .align = 1}, &first), 0);
        EXPECT_EQ(first, 100 * i);
        maple_check(&m);
        EXPECT_EQ(maple_store(&m, 100 * i, 100 * i + 299, &m), 0);
        EXPECT_EQ(maple_gap(&m, &(struct maple_want){.to = UINTPTR_MAX, .size = 1, .align = 1}, &first), -EBUSY);
        maple_check(&m);
    }
    finish();
}

/* One range goes that had no gap beside it: longer than any gap of its leaf, and of the tree, or shorter. */
TEST(maple_gap, erased_range_counts_at_once)
{
    start();
    for (uintptr_t i = 0; i < 300; i++) { /* a gap of 5 in each leaf */
        both_store(100 * i, 100 * i + 49, &m);
        both_store(100 * i + 50, 100 * i + (i % 6 == 0 ? 94 : 99), &md);
    }
    both_store(30000, UINTPTR_MAX, &m);
    for (uintptr_t i = 2; i < 298; i++) {
        uintptr_t first, at = 100 * i + i % 2 * 50;
        EXPECT_EQ(maple_erase(&m, at, NULL), 0);
        EXPECT_EQ(maple_gap(&m, &(struct maple_want){.to = UINTPTR_MAX, .size = 40, .align = 1}, &first), 0);
        EXPECT(first == at || first == at - 5);
        maple_check(&m);
        EXPECT_EQ(maple_store(&m, at, at + 39, &m), 0);
        EXPECT_EQ(maple_gap(&m, &(struct maple_want){.to = UINTPTR_MAX, .size = 40, .align = 1}, &first), -EBUSY);
        EXPECT_EQ(maple_gap(&m, &(struct maple_want){.from = at, .to = UINTPTR_MAX, .size = 5, .align = 1}, &first), 0);
        maple_check(&m);
        EXPECT_EQ(maple_store(&m, at, at + 44 + (i % 6 || i % 2 == 0 ? 5 : 0), &m), 0);
    }
    finish();
}
