/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A buddy allocator in one word: the 32 pages of a 2 MiB block as a mask. Level 4, pure functions.
 *
 * A buddy splits by clearing bits and merges by setting them; there are no lists of pieces to keep and no descriptor of a
 * free piece to write. An aligned piece of 2^order pages is free when all of its bits are; the pieces of all orders
 * follow from the mask by a few shifts, since a piece is free when both of its halves are.
 */
#ifndef CORE_BLOCK_H
#define CORE_BLOCK_H

#include "compat/os/bits.h"
#include "tunables.h"

enum {
    BLOCK_ORDER = BLOCK_SHIFT - PAGE_SHIFT, /* the whole block */
    BLOCK_ORDERS = BLOCK_ORDER + 1,
    NO_ORDER = BLOCK_ORDERS,
};
_Static_assert(BLOCK_PAGES == 32, "one word a block");
#define BLOCK_BYTES ((size_t)1 << BLOCK_SHIFT)
#define BLOCK_ALL (~(uint32_t)0)

/* What: mask of n pages from `first` on. Units: pages; first + n <= BLOCK_PAGES, n > 0. */
static inline uint32_t block_mask(unsigned first, unsigned n)
{
    return (BLOCK_ALL >> (BLOCK_PAGES - n)) << first;
}

/* What: the first pages of all aligned pieces of 2^order pages that lie wholly in the mask. */
static inline uint32_t block_pieces(uint32_t mask, unsigned order)
{
    static const uint32_t aligned[BLOCK_ORDERS] = {BLOCK_ALL, 0x55555555, 0x11111111, 0x01010101, 0x00010001, 1};
    for (unsigned k = 0; k < order; k++)
        mask &= mask >> (1u << k) & aligned[k + 1];
    return mask;
}

/* What: order of the largest aligned piece in the mask; NO_ORDER for an empty mask. */
static inline unsigned block_order(uint32_t mask)
{
    unsigned order = NO_ORDER;
    for (unsigned k = 0; k < BLOCK_ORDERS && block_pieces(mask, k) != 0; k++)
        order = k;
    return order;
}

/* What: where a buddy takes a piece of 2^order pages: the lowest one of the smallest free piece that holds it, so that
 * larger pieces stay whole. Fails: BLOCK_PAGES, there is none. */
static inline unsigned block_pick(uint32_t mask, unsigned order)
{
    for (unsigned k = order; k < BLOCK_ORDERS; k++) {
        uint32_t alone = block_pieces(mask, k), whole = k < BLOCK_ORDER ? block_pieces(mask, k + 1) : 0;
        if (whole != 0)
            alone &= ~(whole | whole << (1u << k)); /* not a half of a larger one */
        if (alone != 0)
            return (unsigned)__builtin_ctz(alone);
    }
    return BLOCK_PAGES;
}

/* What: number of pages in a mask. */
static inline unsigned block_count(uint32_t mask)
{
    return (unsigned)__builtin_popcount(mask);
}

/* What: the first run of neighbouring pages in a mask. Result: its length, 0 for an empty mask; *first where it begins. */
static inline unsigned block_run(uint32_t mask, unsigned *first)
{
    if (mask == 0)
        return 0;
    *first = (unsigned)__builtin_ctz(mask);
    uint32_t rest = ~(mask >> *first);
    return rest == 0 ? BLOCK_PAGES : (unsigned)__builtin_ctz(rest);
}

#endif
