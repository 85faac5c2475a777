/* SPDX-License-Identifier: BSD-2-Clause */
#include "clean.h"

static struct page *page_of_run(const struct page *run, size_t i)
{
    return pmap_page(page_address(run) + (i << PAGE_SHIFT));
}

bool clean_test(const struct page *run, unsigned unit)
{
    unsigned shift = PAGE_SHIFT - clean_shift();
    return (page_of_run(run, unit >> shift)->clean >> (unit & ((1u << shift) - 1)) & 1) != 0;
}

unsigned clean_count(const struct page *run)
{
    unsigned n = 0;
    for (size_t i = 0; i < run->npages; i++)
        n += (unsigned)__builtin_popcount(page_of_run(run, i)->clean);
    return n;
}

/* Set the masks of n os pages from `first` on to ones or zeroes, page by page. */
static unsigned change(struct page *run, unsigned first, unsigned n, uint16_t to)
{
    unsigned shift = PAGE_SHIFT - clean_shift(), per_page = 1u << shift, changed = 0;
    while (n > 0) {
        struct page *pg = page_of_run(run, first >> shift);
        unsigned bit = first & (per_page - 1), part = per_page - bit < n ? per_page - bit : n;
        uint16_t mask = (uint16_t)(((1u << part) - 1) << bit), now = (uint16_t)((pg->clean & ~mask) | (to & mask));
        changed += (unsigned)__builtin_popcount(pg->clean ^ now);
        pg->clean = now;
        first += part;
        n -= part;
    }
    return changed;
}

unsigned clean_set(struct page *run, unsigned first, unsigned n)
{
    return change(run, first, n, UINT16_MAX);
}

unsigned clean_clear(struct page *run, unsigned first, unsigned n)
{
    return change(run, first, n, 0);
}
