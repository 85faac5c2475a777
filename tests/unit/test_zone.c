/* SPDX-License-Identifier: BSD-2-Clause */
/* core/zone.h: runs of pages. INV-ZONE-1 to 3 are zone_check's; INV-ZONE-4 is seen from another thread. */
#include "unit.h"

#include "compat/os/vm.h"
#include "core/clean.h"
#include "core/limit.h"
#include "core/opt.h"
#include "core/region.h"
#include "core/zone.h"
#include "core/zone_impl.h"

#include <sched.h>

enum { RUNS = 48, STEP = 512 };

/* A run that the test holds. Words at every STEP bytes tell which run and place they belong to, or are zero. */
struct held {
    struct page *pg;
    size_t npages;
    uint64_t id; /* 0: still reads as zero */
};

static uint64_t word_for(uint64_t id, const char *at)
{
    return id == 0 ? 0 : id * 0x9e3779b97f4a7c15u ^ (uintptr_t)at;
}

static void mark(struct held *h, uint64_t id)
{
    char *a = page_address(h->pg);
    h->id = id;
    for (size_t i = 0; i < h->npages * PAGE_BYTES; i += STEP)
        *(uint64_t *)(a + i) = word_for(id, a + i);
}

static bool intact(const struct held *h)
{
    const char *a = page_address(h->pg);
    for (size_t i = 0; i < h->npages * PAGE_BYTES; i += STEP)
        if (*(const uint64_t *)(a + i) != word_for(h->id, a + i))
            return false;
    return true;
}

static bool take(struct held *h, uint64_t *seed, size_t npages, size_t align, uint64_t id)
{
    h->pg = unit_below(seed, 4) == 0 ? zone_try_alloc(NODE, npages, align) : zone_alloc(NODE, npages, align);
    if (h->pg == NULL)
        return false;
    h->npages = npages;
    MUST(h->pg->npages == npages && h->pg->kind == PAGE_CACHED);
    MUST((uintptr_t)page_address(h->pg) % (align * PAGE_BYTES) == 0);
    if (h->pg->zeroed) {
        h->id = 0;
        MUST(unit_is_zero(page_address(h->pg), npages * PAGE_BYTES)); /* clean runs read as zero, each byte */
        if (unit_below(seed, 4) == 0)
            return true; /* stays clean */
    }
    mark(h, id);
    return true;
}

static void give(struct held *h)
{
    MUST(intact(h));
    zone_free(h->pg, h->npages, h->id == 0);
    h->pg = NULL;
}

static void cut(struct held *h, struct held *rest, uint64_t *seed)
{
    size_t first = 1 + unit_below(seed, h->npages - 1);
    rest->pg = zone_split(h->pg, first);
    rest->npages = h->npages - first;
    rest->id = h->id;
    h->npages = first;
    MUST(h->pg->npages == first && rest->pg->npages == rest->npages);
    MUST(page_address(rest->pg) == page_address(h->pg) + first * PAGE_BYTES);
}

static bool overlap(const struct held *a, const struct held *b)
{
    return a->pg->pfn < b->pg->pfn + b->npages && b->pg->pfn < a->pg->pfn + a->npages;
}

static void no_overlap(const struct held *all, const struct held *h)
{
    for (int i = 0; i < RUNS; i++)
        MUST(all[i].pg == NULL || &all[i] == h || !overlap(&all[i], h));
}

static size_t pages_of(const struct held *all)
{
    size_t n = 0;
    for (int i = 0; i < RUNS; i++)
        n += all[i].pg != NULL ? all[i].npages : 0;
    return n;
}

static void step(struct held *all, uint64_t *seed, uint64_t id)
{
    struct held *h = &all[unit_below(seed, RUNS)], *free_slot = NULL;
    size_t what = unit_below(seed, 100);
    for (int i = 0; i < RUNS; i++)
        if (all[i].pg == NULL)
            free_slot = &all[i];
    if (h->pg == NULL) {
        size_t npages = 1 + unit_below(seed, what < 5 ? 150 : 12), align = (size_t)1 << unit_below(seed, 5);
        if (take(h, seed, npages, what < 70 ? 1 : align, id))
            no_overlap(all, h);
    } else if (what < 50) {
        give(h);
    } else if (what < 65 && h->npages > 1 && free_slot != NULL) {
        cut(h, free_slot, seed);
    } else if (what < 80 && h->npages > 1) {
        size_t keep = 1 + unit_below(seed, h->npages);
        MUST(intact(h));
        zone_shrink(h->pg, keep);
        h->npages = keep;
        MUST(h->pg->npages == keep && intact(h));
    } else if (what < 98) {
        size_t more = h->npages + 1 + unit_below(seed, 4);
        bool grown = zone_grow(h->pg, more);
        MUST(intact(h)); /* the old part is as it was */
        if (grown)
            h->npages = more;
        MUST(h->pg->npages == h->npages);
        no_overlap(all, h);
        mark(h, id);
    } else {
        size_t dirty = zone_stats(NODE).dirty, keep = unit_below(seed, 3) * (4 << 20);
        size_t given = zone_purge(NODE, keep);
        MUST(zone_stats(NODE).dirty == dirty - given);
        MUST(zone_stats(NODE).dirty <= (keep < dirty ? keep : dirty));
    }
}

/* INV-ZONE-1, INV-ZONE-2, INV-ZONE-3 */
TEST(zone, random_trace_keeps_invariants_contents_and_bounds)
{
    static struct held all[RUNS];
    uint64_t seed = 20;
    size_t others = zone_stats(NODE).out >> PAGE_SHIFT;
    memset(all, 0, sizeof all);
    for (uint64_t i = 1; i <= 2500; i++) {
        step(all, &seed, i);
        zone_check(NODE);
        struct zone_stats z = zone_stats(NODE);
        EXPECT_EQ(z.out >> PAGE_SHIFT, others + pages_of(all));
        EXPECT_EQ(z.dirty + z.clean + z.out, region_stats().bytes[REGION_ZONE]);
    }
    for (int i = 0; i < RUNS; i++)
        if (all[i].pg != NULL)
            give(&all[i]);
    zone_check(NODE);
    EXPECT_EQ(zone_stats(NODE).out >> PAGE_SHIFT, others);
}

/* INV-ZONE-1: pieces that come back in any order are one run again, so the same request gets the same place. */
TEST(zone, neighbours_of_one_state_merge)
{
    static const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}, {0, 2, 1, 3}};
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        zone_purge(NODE, 0); /* from here on the only dirty pages are ours */
        struct page *whole = zone_alloc(NODE, 41, 1), *piece[4];
        EXPECT(whole != NULL);
        char *at = page_address(whole);
        piece[0] = whole;
        for (int i = 1; i < 4; i++)
            piece[i] = zone_split(piece[i - 1], 10);
        EXPECT_EQ(piece[3]->npages, 11);
        for (int i = 0; i < 4; i++) {
            struct page *pg = piece[orders[o][i]];
            zone_free(pg, pg->npages, false);
            zone_check(NODE);
        }
        struct page *again = zone_try_alloc(NODE, 41, 1);
        EXPECT(again != NULL);
        EXPECT(page_address(again) == at);
        zone_free(again, 41, false);
    }
}

/* Pages keep their state beside pages of the other, and dirty ones, which are resident, come first. */
TEST(zone, states_do_not_mix)
{
    zone_purge(NODE, 0);
    struct page *clean = zone_alloc(NODE, 32, 1);
    EXPECT(clean != NULL && clean->zeroed);
    struct page *dirty = zone_split(clean, 16);
    memset(page_address(dirty), 0xff, 16 * PAGE_BYTES);
    struct zone_stats before = zone_stats(NODE);
    zone_free(clean, 16, true);
    zone_free(dirty, 16, false);
    zone_check(NODE);
    struct zone_stats after = zone_stats(NODE);
    EXPECT_EQ(after.clean - before.clean, 16 * PAGE_BYTES);
    EXPECT_EQ(after.dirty - before.dirty, 16 * PAGE_BYTES);
    struct page *pg = zone_try_alloc(NODE, 16, 1);
    EXPECT(pg == dirty && !pg->zeroed);
    zone_free(pg, 16, false);
    pg = zone_try_alloc(NODE, 11, 1); /* a length that is no power of two finds them as well */
    EXPECT(pg == dirty && !pg->zeroed);
    zone_free(pg, 11, false);
}

/* A long block that was purged in part is taken again as it was: dirty pages first, clean neighbours for the rest. */
TEST(zone, long_requests_join_dirty_and_clean_neighbours)
{
    zone_purge(NODE, 0);
    struct page *pg = zone_alloc(NODE, 320, 1), *again;
    EXPECT(pg != NULL);
    zone_free(pg, 320, false);
    EXPECT_EQ(zone_purge(NODE, 96 * PAGE_BYTES), 224 * PAGE_BYTES);
    again = zone_try_alloc(NODE, 320, 1);
    EXPECT(again == pg && !again->zeroed);
    EXPECT_EQ(zone_stats(NODE).dirty, 0);
    zone_free(again, 320, false);
    zone_check(NODE);
}

/* Of two blocks in use the fuller one serves, so that the emptier one can become whole. */
TEST(zone, fullest_block_first)
{
    zone_purge(NODE, 0);
    struct page *a = zone_alloc(NODE, 64, 32), *b;
    EXPECT(a != NULL);
    b = zone_split(a, 32);
    struct page *a_free = zone_split(a, 8), *b_free = zone_split(b, 28);
    zone_free(a_free, 24, true); /* 8 of 32 in use */
    zone_free(b_free, 4, true);  /* 28 of 32 in use */
    struct page *pg = zone_try_alloc(NODE, 4, 1);
    EXPECT(pg == b_free);
    zone_free(pg, 4, true);
    zone_free(b, 28, true);
    zone_free(a, 8, true);
    zone_check(NODE);
}

TEST(zone, a_batch_is_what_the_dirty_piece_offers)
{
    zone_purge(NODE, 0);
    struct page *pg = zone_alloc(NODE, 8, 1), *tail;
    EXPECT(pg != NULL);
    tail = zone_split(pg, 3);
    zone_free(tail, 5, true);
    zone_free(pg, 3, false);
    struct page *some = zone_try_alloc_some(NODE, 0, 7);
    EXPECT(some != NULL && !some->zeroed && some->npages <= 3);
    struct page *more = zone_try_alloc_some(NODE, 1, 7);
    EXPECT(more != NULL && more->npages % 2 == 0 && more->npages <= 7);
    EXPECT_EQ(page_address(more)[0], 0);
    for (unsigned i = 0; i < more->npages; i++)
        EXPECT_EQ(more[i].clean, more->zeroed ? clean_all() : more[i].clean);
    zone_free(some, some->npages, false);
    zone_free(more, more->npages, more->zeroed);
    zone_check(NODE);
}

TEST(zone, purged_pages_read_as_zero)
{
    struct page *pg = zone_alloc(NODE, 64, 1);
    EXPECT(pg != NULL);
    memset(page_address(pg), 0xaa, 64 * PAGE_BYTES);
    zone_free(pg, 64, false);
    struct zone_stats before = zone_stats(NODE);
    EXPECT(before.dirty >= 64 * PAGE_BYTES);
    EXPECT_EQ(zone_purge(NODE, 0), before.dirty);
    struct zone_stats after = zone_stats(NODE);
    EXPECT_EQ(after.dirty, 0);
    EXPECT_EQ(after.clean, before.clean + before.dirty);
    EXPECT_EQ(after.purged, before.purged + before.dirty);
    EXPECT(after.purge_calls > before.purge_calls);
    zone_check(NODE);
    pg = zone_alloc(NODE, 64, 1);
    EXPECT(pg->zeroed);
    EXPECT(unit_is_zero(page_address(pg), 64 * PAGE_BYTES));
    zone_free(pg, 64, true);
}

TEST(zone, purge_leaves_what_may_stay_dirty)
{
    struct page *a = zone_alloc(NODE, 40, 1), *gap = zone_alloc(NODE, 1, 1), *b = zone_alloc(NODE, 40, 1);
    zone_free(a, 40, false);
    zone_free(b, 40, false);
    size_t dirty = zone_stats(NODE).dirty, keep = dirty - 33 * PAGE_BYTES;
    EXPECT_EQ(zone_purge(NODE, keep), 33 * PAGE_BYTES);
    EXPECT_EQ(zone_stats(NODE).dirty, keep);
    EXPECT_EQ(zone_purge(NODE, keep), 0);
    zone_check(NODE);
    zone_free(gap, 1, false);
}

TEST(zone, purge_off_means_no_madvise)
{
    struct page *pg = zone_alloc(NODE, 32, 1);
    char *a = page_address(pg);
    memset(a, 0x55, 32 * PAGE_BYTES);
    zone_free(pg, 32, false);
    struct zone_stats before = zone_stats(NODE);
    opt.purge = OPT_PURGE_OFF;
    EXPECT_EQ(zone_purge(NODE, 0), 0);
    zone_relax(NODE, false);
    opt.purge = OPT_PURGE_ON;
    struct zone_stats after = zone_stats(NODE);
    EXPECT_EQ(after.dirty, before.dirty);
    EXPECT_EQ(after.purge_calls, before.purge_calls);
    for (size_t i = 0; i < 32 * PAGE_BYTES; i += STEP)
        EXPECT_EQ(a[i], 0x55);
}

/* A pure run leaves the floor, once it is worth a purge; mixed traffic may leave a quarter of what is out. */
TEST(zone, relax_purges_what_the_rules_say)
{
    uintptr_t keep = opt.keep;
    zone_purge(NODE, 0);
    zones[NODE].give = (struct giveback){0}; /* what other tests have regretted */
    opt.keep = 4 << 20;
    struct page *pg = zone_alloc(NODE, 1200, 1); /* 75 MiB */
    EXPECT(pg != NULL);
    struct page *rest = zone_split(pg, 400), *tail = zone_split(rest, 22);
    zone_free(tail, tail->npages, true);
    zone_free(rest, 22, false); /* six pages above a quarter of the floor */
    zone_relax(NODE, true);
    EXPECT_EQ(zone_stats(NODE).dirty, 22 * PAGE_BYTES);
    rest = zone_alloc(NODE, 100, 1);
    zone_free(rest, 100, false);
    size_t dirty = zone_stats(NODE).dirty;
    EXPECT(dirty >= 100 * PAGE_BYTES);
    zone_relax(NODE, false);
    EXPECT_EQ(zone_stats(NODE).dirty, dirty);
    EXPECT(!zone_spiking(NODE));
    zone_relax(NODE, true);
    EXPECT_EQ(zone_stats(NODE).dirty, opt.keep / 4);
    EXPECT(zone_spiking(NODE));
    rest = zone_alloc(NODE, 200, 1); /* wanted again at once: regretted */
    EXPECT(!zone_spiking(NODE));
    EXPECT(zone_stats(NODE).credit > 0);
    zone_free(rest, 200, false);
    zone_free(pg, 400, false);
    opt.keep = keep;
    zone_purge(NODE, 0);
    zone_check(NODE);
}

TEST(zone, shrink_gives_back_the_tail_and_grow_takes_it_again)
{
    struct page *pg = zone_alloc(NODE, 50, 1);
    size_t out = zone_stats(NODE).out;
    zone_shrink(pg, 50);
    EXPECT_EQ(zone_stats(NODE).out, out);
    zone_shrink(pg, 20);
    EXPECT_EQ(zone_stats(NODE).out, out - 30 * PAGE_BYTES);
    EXPECT(zone_grow(pg, 45));
    EXPECT_EQ(pg->npages, 45);
    EXPECT_EQ(zone_stats(NODE).out, out - 5 * PAGE_BYTES);
    struct page *wall = zone_split(pg, 30);
    EXPECT(!zone_grow(pg, 31)); /* somebody else's pages follow */
    EXPECT_EQ(pg->npages, 30);
    zone_free(wall, 15, false);
    EXPECT(zone_grow(pg, 31));
    zone_free(pg, 31, false);
    zone_check(NODE);
}

TEST(zone, impossible_sizes_fail)
{
    EXPECT(zone_try_alloc(NODE, (size_t)1 << 31, 1) == NULL);
    EXPECT(zone_alloc(NODE, (size_t)1 << 31, 1) == NULL); /* 128 TiB */
    zone_check(NODE);
}

/* ---- beside a purge ---- */

static uint32_t stop;

static void purge_or_use(unsigned thread)
{
    uint64_t seed = thread + 100;
    if (thread == 0) {
        while (load_relaxed(&stop) < UNIT_THREADS - 1) {
            zone_purge(NODE, 0);
            sched_yield();
        }
        return;
    }
    for (uint64_t i = 1; i <= 500; i++) {
        struct held a = {0}, b = {0};
        bool have = take(&a, &seed, 1 + unit_below(&seed, 24), 1, i << 8 | thread);
        take(&b, &seed, 1 + unit_below(&seed, 24), 1, i << 8 | 0x80 | thread);
        if (have)
            give(&a);
        if (b.pg != NULL)
            give(&b);
    }
    add_relaxed(&stop, 1);
}

/* INV-ZONE-4: pages that are being zeroed are handed out to nobody. */
TEST(zone, purge_never_touches_pages_in_use)
{
    size_t out = zone_stats(NODE).out;
    stop = 0;
    unit_threads(UNIT_THREADS, purge_or_use);
    zone_check(NODE);
    EXPECT_EQ(zone_stats(NODE).out, out);
}

/* ---- fork in the middle of a purge ---- */

static struct zone_stats at_rest;
static uint32_t stage;

static void wait_for_stage(uint32_t n)
{
    while (load_acquire(&stage) < n)
        sched_yield();
}

/* Called where the purging thread has isolated its runs and let go of the lock. */
static void purging_now(void)
{
    unit_madvise_hook = NULL;
    store_release(&stage, 1);
    wait_for_stage(2);
}

static void child_of_a_purge(void *arg)
{
    (void)arg;
    zone_check(NODE);
    struct zone_stats z = zone_stats(NODE);
    MUST(z.out == at_rest.out && z.dirty == at_rest.dirty && z.clean == at_rest.clean);
    MUST(unit_charged_whole() == z.out + z.dirty + region_stats().bytes[REGION_OWN]);
    MUST(zone_purge(NODE, 0) == at_rest.dirty); /* nobody else is at it here */
    MUST(zone_stats(NODE).dirty == 0);
    zone_check(NODE);
}

static void purge_beside_a_fork(unsigned thread)
{
    if (thread != 0) {
        unit_madvise_hook = purging_now;
        zone_purge(NODE, 0);
        return;
    }
    struct unit_child c;
    wait_for_stage(1);
    MUST(zone_stats(NODE).dirty < at_rest.dirty);
    unit_child(&c, child_of_a_purge, NULL);
    if (c.status != 0)
        fprintf(stderr, "%s", c.text);
    MUST(c.status == 0);
    store_release(&stage, 2);
}

static void fork_in_a_purge(void *arg)
{
    (void)arg;
    vm_use_libc(); /* madvise is this suite's from now on */
    struct page *pg = zone_alloc(NODE, 64, 1);
    MUST(pg != NULL);
    memset(page_address(pg), 1, 64 * PAGE_BYTES);
    zone_free(pg, 64, false);
    at_rest = zone_stats(NODE);
    stage = 0;
    unit_threads(2, purge_beside_a_fork);
    MUST(zone_stats(NODE).dirty == 0);
    zone_check(NODE);
}

/* In the child, runs that another thread was purging are free and dirty again, and purging works. */
TEST(zone, fork_child_gets_back_what_was_being_purged)
{
    unit_fork_handlers();
    unit_alone(fork_in_a_purge, NULL);
}

/* Bytes of descriptors that no page fault is ahead of. Units: address space, one step a call. */
static bool described(const char *a)
{
    size_t os_page = vm_page_size();
    uintptr_t pg = (uintptr_t)pmap_page(a) & ~(os_page - 1), b = (uintptr_t)pmap_block(a) & ~(os_page - 1);
    return vm_resident((void *)pg, os_page) == os_page && vm_resident((void *)b, os_page) == os_page;
}

/* Holds take no page fault: a window's descriptors are touched before it is entered. */
TEST(zone, descriptors_of_a_window_are_there_before_they_are_used)
{
    enum { PAGES = 1024 };
    struct region r;
    /* A new window in a fresh process, and so long that only the first page's descriptor is written for it. */
    struct page *pg = zone_alloc(NODE, PAGES, 1);
    EXPECT(pg != NULL && region_find(page_address(pg), &r));
    for (size_t at = 0; at < r.size; at += PAGE_BYTES)
        EXPECT(described(r.base + at));
    zone_free(pg, PAGES, true);
}
