/* SPDX-License-Identifier: BSD-2-Clause */
/* core/clean.h: the masks of a run against a list of truths, and of slabs as objects come and go. */
#include "unit.h"

#include "core/clean.h"
#include "core/pcp.h"
#include "core/slab.h"
#include "core/zone.h"

enum { PAGES = 8, UNITS_MOST = PAGES * 16, OBJS_MOST = 4096 };

static bool truth[UNITS_MOST];
static void *objs[OBJS_MOST];

static unsigned change_truth(unsigned first, unsigned n, bool to)
{
    unsigned changed = 0;
    for (unsigned i = first; i < first + n; i++) {
        changed += truth[i] != to;
        truth[i] = to;
    }
    return changed;
}

static unsigned count_truth(unsigned n)
{
    unsigned count = 0;
    for (unsigned i = 0; i < n; i++)
        count += truth[i];
    return count;
}

TEST(clean, masks_of_a_run_are_what_was_set)
{
    uint64_t seed = 5;
    for (size_t npages = 1; npages <= PAGES; npages++) {
        struct page *run = zone_alloc(NODE, npages, 1);
        EXPECT(run != NULL);
        unsigned units = clean_units(npages);
        EXPECT_EQ((size_t)units << clean_shift(), npages * PAGE_BYTES);
        clean_clear(run, 0, units);
        EXPECT_EQ(clean_count(run), 0);
        memset(truth, 0, sizeof truth);
        for (int step = 0; step < 400; step++) {
            unsigned first = (unsigned)unit_below(&seed, units), n = (unsigned)unit_below(&seed, units - first + 1);
            bool to = unit_below(&seed, 2) != 0;
            EXPECT_EQ(to ? clean_set(run, first, n) : clean_clear(run, first, n), change_truth(first, n, to));
            EXPECT_EQ(clean_count(run), count_truth(units));
            for (unsigned i = 0; i < units; i++)
                EXPECT_EQ(clean_test(run, i), truth[i]);
        }
        clean_set(run, 0, units);
        for (size_t i = 0; i < npages; i++)
            EXPECT_EQ(pmap_page(page_address(run) + i * PAGE_BYTES)->clean, clean_all());
        clean_clear(run, 0, units);
        zone_free(run, npages, false);
    }
}

static void one_page_is_the_masks_own(size_t npages, unsigned at)
{
    struct page *run = zone_alloc(NODE, npages, 1);
    clean_clear(run, 0, clean_units(npages));
    clean_set(run, at * clean_units(1), clean_units(1));
    for (unsigned i = 0; i < npages; i++)
        EXPECT_EQ(pmap_page(page_address(run) + i * PAGE_BYTES)->clean, i == at ? clean_all() : 0);
    clean_clear(run, 0, clean_units(npages));
    zone_free(run, npages, false);
}

TEST(clean, every_page_has_its_own_mask)
{
    for (unsigned at = 0; at < 3; at++)
        one_page_is_the_masks_own(3, at);
}

/* ---- slabs: INV-SLAB-5 is slab_check's ---- */

static struct page *head(const void *p)
{
    struct page *pg = pmap_page(p);
    return pg->kind == PAGE_SLAB_TAIL ? pg->head : pg;
}

static void take_n(class_t c, unsigned from, unsigned n)
{
    for (unsigned got = 0; got < n;) {
        unsigned part = slab_alloc_bulk(c, NODE, objs + from + got, n - got, n - got);
        MUST(part > 0);
        got += part;
    }
}

/* All that is in the zone is clean: what comes from it next is, too. */
static void clean_heap(void)
{
    unit_fresh();
    EXPECT_EQ(zone_stats(NODE).dirty, 0);
}

TEST(clean, objects_handed_out_touch_their_os_pages_and_no_others)
{
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        size_t size = class_to_size(c), os = vm_page_size();
        unsigned per = size_info[c].objs, units = clean_units((size_t)1 << size_info[c].order);
        clean_heap();
        for (unsigned n = 0, part; n < per; n += part) {
            part = (per + 6) / 7 < per - n ? (per + 6) / 7 : per - n;
            take_n(c, n, part);
            const struct page *pg = head(objs[0]);
            unsigned touched = (unsigned)(((n + part) * size + os - 1) / os);
            EXPECT_EQ(pg->nclean, units - touched);
            EXPECT_EQ(slab_stats(c, NODE).clean, (units - touched) * os);
            for (unsigned u = 0; u < units; u++)
                EXPECT_EQ(clean_test(pg, u), u >= touched);
            slab_check(c, NODE);
        }
        EXPECT_EQ(slab_stats(c, NODE).slabs, 1);
        slab_free_bulk(c, NODE, objs, per, "free");
        slab_check(c, NODE);
    }
}

TEST(clean, a_gap_between_objects_handed_out_stays_clean_only_if_none_lies_in_it)
{
    class_t c = size_to_class(1024);
    size_t os = vm_page_size();
    clean_heap();
    take_n(c, 0, 1);
    const struct page *pg = head(objs[0]);
    unsigned units = clean_units(pg->npages), first = (unsigned)((1024 + os - 1) / os);
    EXPECT_EQ(pg->nclean, units - first);
    take_n(c, 1, 1); /* its neighbour, in an os page that is dirty already where os pages are larger than it */
    EXPECT_EQ(pg->nclean, units - (2048 + os - 1) / os);
    slab_free_bulk(c, NODE, objs, 2, "free");
    EXPECT_EQ(pg->nclean, units - (2048 + os - 1) / os); /* freed, but still resident */
    slab_check(c, NODE);
}

TEST(clean, retired_slabs_leave_their_masks_with_the_pages)
{
    class_t c = size_to_class(64);
    clean_heap();
    unit_pin();
    take_n(c, 0, 3);
    struct page *pg = head(objs[0]);
    uint16_t mask = pg->clean;
    EXPECT_EQ(pg->nclean, clean_units(1) - 1);
    slab_free_bulk(c, NODE, objs, 3, "free");
    EXPECT_EQ(slab_trim(c, NODE), 1);
    EXPECT_EQ(slab_stats(c, NODE).clean, 0);
    EXPECT(!pg->zeroed);
    EXPECT_EQ(pg->clean, mask);
    take_n(c, 0, 1); /* the same page, last in first out */
    EXPECT(head(objs[0]) == pg);
    EXPECT_EQ(pg->nclean, clean_units(1) - 1);
    slab_check(c, NODE);
    slab_free_bulk(c, NODE, objs, 1, "free");
    unit_unpin();
}

/* A class with many slabs takes several at once; those that nobody used go back as they came. */
TEST(clean, slabs_never_used_go_back_as_zero)
{
    class_t c = size_to_class(32 << 10);
    unsigned per = size_info[c].objs, n = 40 * per + 1, npages = 1u << size_info[c].order;
    clean_heap();
    take_n(c, 0, n);
    struct slab_stats s = slab_stats(c, NODE);
    EXPECT(s.empty >= 1);
    size_t touched = (n * class_to_size(c) + vm_page_size() - 1) / vm_page_size();
    EXPECT_EQ(s.clean, s.slabs * npages * PAGE_BYTES - touched * vm_page_size());
    pcp_drain();
    struct zone_stats before = zone_stats(NODE);
    EXPECT_EQ(slab_trim(c, NODE), s.empty);
    pcp_drain();
    struct zone_stats after = zone_stats(NODE);
    EXPECT_EQ(after.clean, before.clean + s.empty * npages * PAGE_BYTES);
    EXPECT_EQ(after.purge_calls, before.purge_calls); /* as they came, not made clean again */
    slab_check(c, NODE);
    slab_free_bulk(c, NODE, objs, n, "free");
    slab_check(c, NODE);
}
