/* SPDX-License-Identifier: BSD-2-Clause */
/* core/size.h: every number of size.def and of the tables made from it, worked out again from the rule. */
#include "unit.h"

static const struct row {
    unsigned class, low, high, order;
} rows[] = {
#define SIZE(c, low, high, order) {c, low, high, order},
#include "core/size.def"
#undef SIZE
};

/* The rule of size.def in its own words: 16 to 128 in steps of 16, then four a doubling. */
static size_t rule_size(unsigned c)
{
    if (c < 8)
        return 16 * ((size_t)c + 1);
    size_t octave = (size_t)128 << (c - 8) / 4;
    return octave + octave / 4 * ((c - 8) % 4 + 1);
}

/* The lowest order that wastes at most 1/16 and holds at least 8 objects. */
static unsigned rule_order(size_t size)
{
    for (unsigned order = 0;; order++) {
        size_t slab = (size_t)65536 << order;
        if (slab / size >= 8 && slab % size * 16 <= slab)
            return order;
    }
}

TEST(size, every_row_follows_the_rule)
{
    EXPECT_EQ(sizeof rows / sizeof *rows, SIZE_CLASSES);
    unsigned next_low = 0;
    for (unsigned c = 0; c < SIZE_CLASSES; c++) {
        EXPECT_EQ(rows[c].class, c);
        EXPECT_EQ(rows[c].low, next_low);
        EXPECT_EQ(rows[c].high * 16, rule_size(c));
        EXPECT_EQ(rows[c].order, rule_order(rule_size(c)));
        next_low = rows[c].high + 1;
    }
    EXPECT_EQ(rule_size(SIZE_CLASSES - 1), SIZE_SMALL_MAX);
}

/* A request's class without a table. */
static unsigned formula(size_t size)
{
    if (size <= 128)
        return size == 0 ? 0 : (unsigned)(size - 1) / 16;
    unsigned k = 7;
    while (((size - 1) >> (k + 1)) != 0)
        k++;
    return 8 + (k - 7) * 4 + (unsigned)((size - 1) >> (k - 2) & 3);
}

TEST(size, table_matches_a_formula_for_every_request)
{
    for (size_t size = 0; size <= SIZE_SMALL_MAX; size++) {
        unsigned c = size_to_class(size);
        EXPECT_EQ(c, formula(size));
        EXPECT(class_to_size(c) >= size);
        EXPECT(c == 0 || class_to_size(c - 1) < size);
    }
}

TEST(size, info_follows_from_size_and_order)
{
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        const struct size_info *s = &size_info[c];
        unsigned group = 1;
        while (group * s->size % 64 != 0)
            group++;
        EXPECT_EQ(s->size, rule_size(c));
        EXPECT_EQ(s->order, rule_order(s->size));
        EXPECT_EQ(s->objs, ((size_t)65536 << s->order) / s->size);
        EXPECT_EQ(s->group, group);
    }
}

/* On the grid and off it: every byte of a slab belongs to the object that division finds. */
TEST(size, reciprocal_is_exact_for_every_offset)
{
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        size_t size = class_to_size(c), slab = PAGE_BYTES << size_info[c].order;
        size_t index = 0, within = 0;
        for (size_t offset = 0; offset < slab; offset++) {
            if (size_index(c, offset) != index)
                EXPECT_EQ(size_index(c, offset), offset / size);
            if (++within == size) {
                within = 0;
                index++;
            }
        }
    }
}

TEST(size, fullness_bucket_rises_and_stays_below_the_last)
{
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        unsigned objs = size_info[c].objs, before = 0;
        for (unsigned nfree = 1; nfree <= objs; nfree++) {
            unsigned b = nfree * size_info[c].bucket_recip >> 16;
            EXPECT(b >= before && b < SLAB_BUCKETS);
            before = b;
        }
        EXPECT(before > 0);
    }
}

TEST(size, aligned_class_is_the_smallest_that_does)
{
    for (size_t align = 1; align <= 2 * SIZE_SMALL_MAX; align *= 2)
        for (size_t size = 0; size <= SIZE_SMALL_MAX + 64; size += size < 600 ? 1 : 61) {
            class_t want = 0;
            while (want < SIZE_CLASSES && (rule_size(want) < size || rule_size(want) % align != 0))
                want++;
            EXPECT_EQ(size_aligned_class(size, align), want);
        }
    EXPECT_EQ(size_aligned_class(SIZE_MAX, 1), SIZE_CLASSES);
    EXPECT_EQ(size_aligned_class(1, (size_t)1 << 63), SIZE_CLASSES);
}
