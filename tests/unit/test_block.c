/* SPDX-License-Identifier: BSD-2-Clause */
/* core/block.h against a model that looks at one page at a time. */
#include "unit.h"

#include "core/block.h"

static bool has(uint32_t mask, unsigned page)
{
    return (mask >> page & 1) != 0;
}

/* Is the piece of 2^order pages that begins at `first` aligned, inside the block and wholly in the mask? */
static bool model_piece(uint32_t mask, unsigned first, unsigned order)
{
    unsigned n = 1u << order;
    if (first % n != 0)
        return false;
    for (unsigned i = first; i < first + n; i++)
        if (i >= BLOCK_PAGES || !has(mask, i))
            return false;
    return true;
}

static uint32_t model_pieces(uint32_t mask, unsigned order)
{
    uint32_t all = 0;
    for (unsigned first = 0; first < BLOCK_PAGES; first++)
        if (model_piece(mask, first, order))
            all |= (uint32_t)1 << first;
    return all;
}

/* As a textbook's buddy: of the free pieces that are no half of a larger free one, the smallest that is large enough. */
static unsigned model_pick(uint32_t mask, unsigned order)
{
    for (unsigned k = order; k <= BLOCK_ORDER; k++)
        for (unsigned first = 0; first < BLOCK_PAGES; first += 1u << k) {
            unsigned parent = first & ~((2u << k) - 1);
            bool half = k < BLOCK_ORDER && model_piece(mask, parent, k + 1);
            if (model_piece(mask, first, k) && !half)
                return first;
        }
    return BLOCK_PAGES;
}

static void compare(uint32_t mask)
{
    unsigned largest = NO_ORDER, count = 0, first = 99, begin = 0, run = 0;
    for (unsigned order = 0; order < BLOCK_ORDERS; order++) {
        EXPECT_EQ(block_pieces(mask, order), model_pieces(mask, order));
        EXPECT_EQ(block_pick(mask, order), model_pick(mask, order));
        if (model_pieces(mask, order) != 0)
            largest = order;
    }
    EXPECT_EQ(block_order(mask), largest);
    for (unsigned i = 0; i < BLOCK_PAGES; i++)
        count += has(mask, i);
    EXPECT_EQ(block_count(mask), count);
    while (begin < BLOCK_PAGES && !has(mask, begin))
        begin++;
    while (begin + run < BLOCK_PAGES && has(mask, begin + run))
        run++;
    EXPECT_EQ(block_run(mask, &first), run);
    EXPECT_EQ(first, run == 0 ? 99u : begin); /* an empty mask leaves it alone */
}

TEST(block, mask_of_every_range)
{
    for (unsigned first = 0; first < BLOCK_PAGES; first++)
        for (unsigned n = 1; first + n <= BLOCK_PAGES; n++)
            for (unsigned i = 0; i < BLOCK_PAGES; i++)
                EXPECT_EQ(has(block_mask(first, n), i), i >= first && i < first + n);
}

/* All masks of twelve pages, where each of the other pages is free, or none is, or the twelve stand twice. */
TEST(block, every_small_mask)
{
    for (uint32_t m = 0; m < 1u << 12; m++) {
        compare(m);
        compare(m << 20);
        compare(m | 0xfffff000u);
        compare(m << 10 | m >> 2);
    }
}

/* All masks whose pages come in pairs of sixteen: the larger orders. */
TEST(block, every_mask_of_pairs)
{
    for (uint32_t m = 0; m < 1u << 16; m += 3) {
        uint32_t wide = 0;
        for (unsigned i = 0; i < 16; i++)
            if (has(m, i))
                wide |= 3u << (2 * i);
        compare(wide);
    }
}

TEST(block, random_masks)
{
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        uint32_t a = (uint32_t)unit_random(&seed), b = (uint32_t)unit_random(&seed);
        compare(a);
        compare(a & b); /* sparse */
        compare(a | b); /* dense */
    }
}

/* A buddy that splits and merges: taking what pick says and putting all back ends with the whole block, and no pick
 * breaks a larger piece while a smaller one would do. */
TEST(block, picks_break_no_larger_piece)
{
    uint64_t seed = 2;
    for (int round = 0; round < 200; round++) {
        uint32_t mask = BLOCK_ALL, taken = 0;
        for (;;) {
            unsigned order = (unsigned)unit_below(&seed, BLOCK_ORDERS), page = block_pick(mask, order), before;
            if (page == BLOCK_PAGES)
                break;
            before = block_order(mask);
            uint32_t piece = block_mask(page, 1u << order);
            EXPECT_EQ(mask & piece, piece);
            mask &= ~piece;
            taken |= piece;
            EXPECT_EQ(mask & taken, 0);
            if (order < before && block_count(block_pieces(mask | piece, before)) > 1)
                EXPECT_EQ(block_order(mask), before);
        }
        EXPECT_EQ(mask | taken, BLOCK_ALL);
        EXPECT_EQ(block_pick(mask | taken, BLOCK_ORDER), 0);
    }
}
