/* SPDX-License-Identifier: BSD-2-Clause */
/* core/slab.h, slab_holes: which os pages go, and that nothing else does. What happens meanwhile: test_slab_sweep.c. */
#include "unit.h"

#include "core/clean.h"
#include "core/limit.h"
#include "core/opt.h"
#include "core/pcp.h"
#include "core/region.h"
#include "core/slab.h"
#include "core/zone.h"

#include <sys/mman.h>

enum { MOST = 40000, SLABS = 4 };

static void *objs[MOST];
static bool live[MOST];

static struct page *head(const void *p)
{
    struct page *pg = pmap_page(p);
    return pg->kind == PAGE_SLAB_TAIL ? pg->head : pg;
}

static void stamp(class_t c, void *p)
{
    unit_stamp(p, class_to_size(c), (uintptr_t)p);
}

/* Some slabs, full to the last object. Result: objects. */
static unsigned take_slabs(class_t c, unsigned nslabs)
{
    unsigned n = nslabs * size_info[c].objs;
    MUST(n <= MOST);
    unit_fresh();
    for (unsigned got = 0; got < n;) {
        unsigned part = slab_alloc_bulk(c, NODE, objs + got, n - got, n - got);
        MUST(part > 0);
        got += part;
    }
    struct slab_stats s = slab_stats(c, NODE);
    EXPECT_EQ(s.slabs - s.empty, nslabs);
    return n;
}

/* The same, and all of it is written. */
static unsigned fill(class_t c, unsigned nslabs)
{
    unsigned n = take_slabs(c, nslabs);
    for (unsigned i = 0; i < n; i++) {
        stamp(c, objs[i]);
        live[i] = true;
    }
    return n;
}

static void drop(class_t c, unsigned i)
{
    slab_free_bulk(c, NODE, &objs[i], 1, "free");
    live[i] = false;
}

/* Free all but `percent`; each slab keeps one object at least. */
static void thin_out(class_t c, unsigned n, unsigned percent, uint64_t *seed)
{
    for (unsigned s = 0; s < n; s += size_info[c].objs) {
        unsigned keep = s + (unsigned)unit_below(seed, size_info[c].objs);
        for (unsigned i = s; i < s + size_info[c].objs; i++)
            if (i != keep && unit_below(seed, 100) >= percent)
                drop(c, i);
    }
}

static void free_rest(class_t c, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (live[i])
            drop(c, i);
    slab_check(c, NODE);
}

/* Does a live object touch the os page? */
static bool used(class_t c, const char *os_page, unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++) {
        const char *p = objs[i];
        if (live[i] && p < os_page + vm_page_size() && p + class_to_size(c) > os_page)
            return true;
    }
    return false;
}

static bool resident(char *os_page)
{
    unsigned char in = 1;
    MUST(mincore(os_page, vm_page_size(), &in) == 0);
    return (in & 1) != 0;
}

/* os pages that have to go: wholly free, and resident as far as the slab knows. */
static size_t want_holes(class_t c, unsigned n)
{
    size_t want = 0;
    for (unsigned s = 0; s < n; s += size_info[c].objs) {
        const struct page *pg = head(objs[s]);
        for (unsigned u = 0; u < clean_units(pg->npages); u++)
            want += !clean_test(pg, u) && !used(c, page_address(pg) + u * vm_page_size(), s, size_info[c].objs);
    }
    return want;
}

/* After a whole sweep: what is wholly free is clean and gone, and all else is as it was. */
static void expect_swept(class_t c, unsigned n)
{
    for (unsigned s = 0; s < n; s += size_info[c].objs) {
        const struct page *pg = head(objs[s]);
        for (unsigned u = 0; u < clean_units(pg->npages); u++) {
            char *os_page = page_address(pg) + u * vm_page_size();
            bool in_use = used(c, os_page, s, size_info[c].objs);
            EXPECT_EQ(clean_test(pg, u), !in_use);
            EXPECT_EQ(resident(os_page), in_use);
        }
    }
    for (unsigned i = 0; i < n; i++)
        EXPECT(!live[i] || unit_stamped(objs[i], class_to_size(c), (uintptr_t)objs[i]));
    slab_check(c, NODE);
}

static void sweep_once(class_t c, unsigned percent)
{
    uint64_t seed = c * 100 + percent;
    unsigned n = fill(c, SLABS);
    thin_out(c, n, percent, &seed);
    size_t want = want_holes(c, n) * vm_page_size();
    struct slab_stats before = slab_stats(c, NODE);
    EXPECT_EQ(slab_holes(c, NODE, SIZE_MAX), want);
    struct slab_stats s = slab_stats(c, NODE);
    EXPECT_EQ(s.clean - before.clean, want);
    EXPECT_EQ(s.hole_bytes - before.hole_bytes, want);
    EXPECT_EQ(s.free_objs, before.free_objs);
    EXPECT_EQ(s.slabs, before.slabs);
    EXPECT_EQ(s.hole_failures, before.hole_failures);
    expect_swept(c, n);
    EXPECT_EQ(slab_holes(c, NODE, SIZE_MAX), 0); /* nothing has changed */
    free_rest(c, n);
}

TEST(slab_holes, wholly_free_os_pages_go_and_no_others)
{
    for (class_t c = 0; c < SIZE_CLASSES; c++)
        for (unsigned percent = 0; percent <= 30; percent += 10)
            sweep_once(c, percent);
}

/* All free objects of the slabs are taken again: they are the ones that were dropped. */
static void fill_again(class_t c, unsigned n)
{
    static void *out[MOST];
    unsigned nfree = 0;
    for (unsigned i = 0; i < n; i++)
        nfree += !live[i];
    for (unsigned got = 0; got < nfree;) {
        unsigned part = slab_alloc_bulk(c, NODE, out + got, nfree - got, nfree - got);
        MUST(part > 0);
        got += part;
    }
    for (unsigned i = 0; i < n; i++)
        if (!live[i]) {
            stamp(c, objs[i]);
            live[i] = true;
        }
    EXPECT_EQ(slab_stats(c, NODE).free_objs, 0);
    EXPECT_EQ(slab_stats(c, NODE).slabs, n / size_info[c].objs);
}

static void sweep_and_fill(class_t c)
{
    uint64_t seed = c;
    unsigned n = fill(c, SLABS);
    for (int round = 0; round < 8; round++) {
        thin_out(c, n, 15, &seed);
        size_t want = want_holes(c, n) * vm_page_size();
        EXPECT_EQ(slab_holes(c, NODE, SIZE_MAX), want);
        expect_swept(c, n);
        fill_again(c, n);
        slab_check(c, NODE);
    }
    free_rest(c, n);
}

TEST(slab_holes, holes_fill_and_open_again)
{
    static const size_t sizes[] = {16, 48, 500, 1024, 3000, 5000, 20000, 32768};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        sweep_and_fill(size_to_class(sizes[i]));
}

/* One object of 4 KiB goes and comes back, in a slab that is full otherwise. Result: bytes that a sweep gave back. */
static size_t sweep_one(class_t c, unsigned n, unsigned i)
{
    drop(c, i);
    size_t given = slab_holes(c, NODE, SIZE_MAX);
    fill_again(c, n);
    return given;
}

/* Epochs are a byte: a slab that was last looked at 255 sweeps ago is skipped once, and no more. */
TEST(slab_holes, epochs_may_wrap)
{
    class_t c = size_to_class(PAGE_BYTES / 8);
    size_t hole = vm_page_size() <= class_to_size(c) ? class_to_size(c) : 0;
    unsigned n = fill(c, 2), per = size_info[c].objs, skipped = 0;
    for (int away = 252; away <= 257; away++) {
        EXPECT_EQ(sweep_one(c, n, 0), hole);
        for (int k = 0; k < away; k++)
            EXPECT_EQ(sweep_one(c, n, per), hole);
        drop(c, 0);
        size_t given = slab_holes(c, NODE, SIZE_MAX);
        skipped += given == 0;
        EXPECT_EQ(given + slab_holes(c, NODE, SIZE_MAX), hole);
        fill_again(c, n);
    }
    EXPECT(skipped <= 1 || hole == 0);
    free_rest(c, n);
}

/* ---- what is merged, what is the least ---- */

/* The class whose objects are the kernel's pages, in a slab filled but for none. */
static unsigned fill_with_os_pages(class_t *c)
{
    MUST(vm_page_size() <= SIZE_SMALL_MAX);
    *c = size_to_class(vm_page_size());
    return fill(*c, 1);
}

TEST(slab_holes, one_os_page_is_a_hole)
{
    class_t c;
    if (vm_page_size() > SIZE_SMALL_MAX)
        return;
    unsigned n = fill_with_os_pages(&c);
    drop(c, 3);
    EXPECT_EQ(slab_holes(c, NODE, SIZE_MAX), vm_page_size());
    expect_swept(c, n);
    free_rest(c, n);
}

/* Neighbours go in one call, also over a clean page between them, which is not counted as given back. */
TEST(slab_holes, neighbours_go_in_one_call)
{
    class_t c;
    if (vm_page_size() > SIZE_SMALL_MAX)
        return;
    unsigned n = fill_with_os_pages(&c);
    drop(c, 3);
    EXPECT_EQ(slab_holes(c, NODE, SIZE_MAX), vm_page_size());
    drop(c, 2);
    drop(c, 4);
    drop(c, 6);
    struct slab_stats s = slab_stats(c, NODE);
    EXPECT_EQ(slab_holes(c, NODE, SIZE_MAX), 3 * vm_page_size());
    EXPECT_EQ(slab_stats(c, NODE).hole_calls - s.hole_calls, 2);
    expect_swept(c, n);
    drop(c, 5); /* between clean ones */
    s = slab_stats(c, NODE);
    EXPECT_EQ(slab_holes(c, NODE, SIZE_MAX), vm_page_size());
    EXPECT_EQ(slab_stats(c, NODE).hole_calls - s.hole_calls, 1);
    expect_swept(c, n);
    free_rest(c, n);
}

/* ---- bounds ---- */

TEST(slab_holes, no_more_is_given_than_asked_for)
{
    class_t c = size_to_class(2048);
    size_t os = vm_page_size(), total = 0, all;
    uint64_t seed = 4;
    unsigned n = fill(c, SLABS);
    thin_out(c, n, 10, &seed);
    all = want_holes(c, n) * os;
    EXPECT_EQ(slab_holes(c, NODE, 0), 0);
    EXPECT_EQ(slab_holes(c, NODE, os - 1), 0);
    for (size_t most = os, given; total < all; most += os) {
        given = slab_holes(c, NODE, most + os / 2);
        EXPECT_EQ(given, most < all - total ? most : all - total);
        total += given;
        slab_check(c, NODE);
    }
    EXPECT_EQ(slab_holes(c, NODE, SIZE_MAX), 0);
    expect_swept(c, n);
    free_rest(c, n);
}

/* More slabs than one hold looks at, and more holes than can be in flight. */
TEST(slab_holes, a_sweep_is_many_short_holds)
{
    class_t c = size_to_class(4096);
    unsigned nslabs = 4 * HOLE_SCAN_SLABS + 5, per = size_info[c].objs;
    unsigned n = fill(c, nslabs);
    for (unsigned i = 0; i < n; i += 2) /* as many holes as there can be, if os pages are of 4 KiB */
        drop(c, i);
    size_t want = want_holes(c, n);
    struct slab_stats before = slab_stats(c, NODE);
    EXPECT_EQ(slab_holes(c, NODE, SIZE_MAX), want * vm_page_size());
    struct slab_stats s = slab_stats(c, NODE);
    size_t holds = s.lock_acquired - before.lock_acquired;
    EXPECT(holds >= nslabs / HOLE_SCAN_SLABS);
    EXPECT(holds >= (s.hole_calls - before.hole_calls) / HOLE_FLIGHT);
    EXPECT(holds <= 10 + 2 * (nslabs / HOLE_SCAN_SLABS + want / (HOLE_FLIGHT - per)));
    expect_swept(c, n);
    free_rest(c, n);
}

/* As many slabs, with a free object each and no hole. */
TEST(slab_holes, slabs_without_holes_are_looked_at_in_short_holds)
{
    class_t c = size_to_class(1024);
    unsigned nslabs = 4 * HOLE_SCAN_SLABS, per = size_info[c].objs, n = fill(c, nslabs);
    for (unsigned i = 0; i < n; i += per)
        drop(c, i);
    struct slab_stats before = slab_stats(c, NODE);
    EXPECT_EQ(slab_holes(c, NODE, SIZE_MAX), 0);
    EXPECT(slab_stats(c, NODE).lock_acquired - before.lock_acquired >= nslabs / HOLE_SCAN_SLABS + 2);
    free_rest(c, n);
}

TEST(slab_holes, a_trim_takes_few_slabs_a_hold)
{
    class_t c = size_to_class(4096);
    unsigned per = size_info[c].objs, n = take_slabs(c, (SLAB_HOLD_SLABS + 8) << SLAB_EMPTY_SHIFT);
    for (unsigned i = 0; i < (SLAB_HOLD_SLABS + 4) * per; i += per)
        slab_free_bulk(c, NODE, objs + i, per, "free");
    struct slab_stats s = slab_stats(c, NODE);
    EXPECT(s.empty > SLAB_HOLD_SLABS && s.empty <= 2 * SLAB_HOLD_SLABS);
    size_t holds = slab_stats(c, NODE).lock_acquired - s.lock_acquired; /* by looking alone */
    EXPECT_EQ(slab_trim(c, NODE), s.empty);
    EXPECT_EQ(slab_stats(c, NODE).lock_acquired - s.lock_acquired, 2 * holds + 2);
    EXPECT_EQ(slab_stats(c, NODE).empty, 0);
    slab_free_bulk(c, NODE, objs + (SLAB_HOLD_SLABS + 4) * per, n - (SLAB_HOLD_SLABS + 4) * per, "free");
    slab_check(c, NODE);
}

/* ---- INV-SLAB-6 ---- */

/* Pages are charged while they are out of the zone or dirty in it, but for what the slabs know to be clean. */
static void expect_charged(void)
{
    struct zone_stats z = zone_stats(NODE);
    EXPECT_EQ(unit_charged_whole(), z.out + z.dirty + region_stats().bytes[REGION_OWN]);
}

TEST(slab_holes, what_was_given_back_is_not_charged)
{
    static const size_t sizes[] = {16, 500, 4096, 20000};
    uint64_t seed = 77;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        class_t c = size_to_class(sizes[i]);
        unit_fresh();
        expect_charged();
        unsigned n = fill(c, SLABS);
        expect_charged();
        thin_out(c, n, 10, &seed);
        size_t before = limit_stats().charged, given = slab_holes(c, NODE, SIZE_MAX);
        EXPECT(given > 0 || vm_page_size() > class_to_size(c));
        EXPECT_EQ(limit_stats().charged, before - given);
        expect_charged();
        fill_again(c, n);
        expect_charged();
        EXPECT(limit_stats().charged >= before); /* all of it is in use again */
        free_rest(c, n);
        slab_trim(c, NODE);
        expect_charged();
    }
}

/* A slab that nobody has written to costs nothing yet. */
TEST(slab_holes, fresh_slabs_are_charged_as_they_are_used)
{
    class_t c = size_to_class(32768);
    unit_fresh();
    zone_purge(NODE, 0);
    size_t before = limit_stats().charged;
    void *p;
    EXPECT_EQ(slab_alloc_bulk(c, NODE, &p, 1, 1), 1);
    before += pcp_stats().bytes; /* of a refill; nothing was there before */
    EXPECT_EQ(limit_stats().charged - before, class_to_size(c) > vm_page_size() ? class_to_size(c) : vm_page_size());
    slab_free_bulk(c, NODE, &p, 1, "free");
    slab_trim(c, NODE);
    expect_charged();
}

/* Under a hard limit no hole is filled that does not fit, and free objects that cost nothing are still to be had. */
static void holes_under_a_limit(void *arg)
{
    (void)arg;
    class_t c = size_to_class(PAGE_BYTES / 2);
    unsigned per = size_info[c].objs;
    void *p;
    fill(c, 3);
    drop(c, 1); /* the first slab, the fullest, has a hole ... */
    drop(c, 2);
    MUST(slab_holes(c, NODE, SIZE_MAX) > 0);
    for (unsigned i = 0; i < 6; i++)
        drop(c, per + i / 3 * per + i % 3); /* ... the other two have free objects that are charged */
    pcp_drain();
    zone_purge(NODE, 0); /* no pages that are charged already for another slab */
    opt.hard_limit = limit_stats().charged;
    for (int i = 0; i < 6; i++) {
        MUST(slab_alloc_bulk(c, NODE, &p, 1, 1) == 1);
        MUST(p != objs[1] && p != objs[2]);
    }
    MUST(slab_alloc_bulk(c, NODE, &p, 1, 1) == 0);
    MUST(limit_stats().charged <= opt.hard_limit);
    slab_check(c, NODE);
    opt.hard_limit += head(objs[0])->nclean * vm_page_size();
    MUST(slab_alloc_bulk(c, NODE, &p, 1, 1) == 1);
    MUST(p == objs[1] || p == objs[2]);
    MUST(limit_stats().charged <= opt.hard_limit);
}

TEST(slab_holes, a_hard_limit_keeps_holes_empty)
{
    if (vm_page_size() > PAGE_BYTES / 2) /* no hole without two of them in one of our pages */
        return;
    unit_alone(holes_under_a_limit, NULL);
}
