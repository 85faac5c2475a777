/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs of pages that a target holds: what the zone and the page lists promise of them, and what was written there. */
#ifndef TESTS_FUZZ_PAGES_H
#define TESTS_FUZZ_PAGES_H

#include "fuzz.h"

#include "core/pmap.h"

enum { PAGES_HELD = 48 };

struct pages {
    struct page *pg;  /* NULL: unused */
    size_t npages;
    uint64_t id;      /* of the stamps; 0: all of it reads as zero */
};

extern struct pages pages_held[PAGES_HELD];

/* What: forget all. */
void pages_begin(void);

/* What: a place for another run; NULL: none. One that the input names; NULL if there is nothing there. */
struct pages *pages_unused(void);
struct pages *pages_any(struct fuzz *f);

/* What: pages held. */
size_t pages_sum(void);

/* What: a run has come out: is it nobody's, does it read as zero where it says so, are its clean masks true? */
void pages_took(struct pages *h, struct page *pg, size_t npages);

/* What: write to a run: to all of it, or to some of its os pages (short runs only), whose bits in the masks go. Does it
 * still hold what was written, and zeroes elsewhere? */
void pages_write(struct pages *h, struct fuzz *f);
void pages_write_all(struct pages *h);
void pages_intact(const struct pages *h);

/* What: do the masks of all its pages say what is so? Only runs of up to BLOCK_PAGES have any. */
bool pages_masked(const struct pages *h);

#endif
