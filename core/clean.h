/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Clean masks: which os pages of a run read as zero and cost no memory. Level 4, over pmap.
 *
 *     page descriptor:  clean = bit 0..n-1, one for each os page of 64 KiB     n: 16, 4 or 1, by the kernel's page size
 *
 * Clean means never touched since it was mapped, or given back since. The mask belongs to whoever owns the page. Here an
 * os page has its number in the run: number / n is the page, number % n the bit.
 */
#ifndef CORE_CLEAN_H
#define CORE_CLEAN_H

#include "compat/os/vm.h"
#include "pmap.h"

/* What: log2 of the bytes of an os page, at most PAGE_SHIFT. */
static inline unsigned clean_shift(void)
{
    return (unsigned)__builtin_ctzl(vm_page_size());
}

/* What: os pages in a run of npages pages. */
static inline unsigned clean_units(size_t npages)
{
    return (unsigned)(npages << (PAGE_SHIFT - clean_shift()));
}

/* What: the mask of a page that is clean as a whole. */
static inline uint16_t clean_all(void)
{
    return (uint16_t)((1u << clean_units(1)) - 1);
}

/* What: is an os page clean? Units: its number in the run. Locks: the owner's, as for all here. */
bool clean_test(const struct page *run, unsigned unit);

/* What: clean os pages in the whole run. */
unsigned clean_count(const struct page *run);

/* What: mark n os pages from `first` on as clean, or as not clean. Result: how many changed. Cost: O(pages). */
unsigned clean_set(struct page *run, unsigned first, unsigned n);
unsigned clean_clear(struct page *run, unsigned first, unsigned n);

#endif
