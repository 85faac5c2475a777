/* SPDX-License-Identifier: BSD-2-Clause */
/* core/pcp.h: page runs in front of the zone. Pinned to one cpu, a test meets one shard. */
#include "unit.h"

#include "core/pcp.h"
#include "core/zone.h"

enum { MOST_PAGES = PCP_HIGH_PAGES + (1 << RUN_ORDER_MAX) };

static void begin(void)
{
    unit_pin();
    pcp_drain();
}

static void end(void)
{
    pcp_check();
    zone_check(NODE);
    unit_unpin();
}

/* INV-PCP-1 */
TEST(pcp, counts_what_lies_on_the_lists)
{
    begin();
    EXPECT_EQ(pcp_stats().bytes, 0);
    for (unsigned order = 0; order <= RUN_ORDER_MAX; order++) {
        struct page *pg = pcp_alloc(NODE, order);
        EXPECT(pg != NULL);
        EXPECT_EQ(pg->kind, PAGE_CACHED);
        EXPECT_EQ(pg->npages, 1 << order);
        EXPECT_EQ(pg->order, order);
        struct pcp_stats before = pcp_stats();
        pcp_free(pg, order, false);
        pcp_check();
        EXPECT_EQ(pcp_stats().bytes, before.bytes + (PAGE_BYTES << order));
        EXPECT_EQ(pcp_stats().free, before.free + 1);
        EXPECT(pcp_alloc(NODE, order) == pg); /* last in, first out */
        EXPECT_EQ(pcp_stats().bytes, before.bytes);
        EXPECT_EQ(pcp_stats().alloc, before.alloc + 1);
        pcp_free(pg, order, false);
    }
    end();
}

TEST(pcp, runs_keep_their_zero_mark)
{
    begin();
    for (int zeroed = 0; zeroed < 2; zeroed++) {
        struct page *pg = pcp_alloc(NODE, 1);
        memset(page_address(pg), zeroed ? 0 : 1, 2 * PAGE_BYTES);
        pcp_free(pg, 1, zeroed != 0);
        struct page *again = pcp_alloc(NODE, 1);
        EXPECT(again == pg);
        EXPECT_EQ(again->zeroed, zeroed);
        pcp_free(again, 1, zeroed != 0);
    }
    end();
}

TEST(pcp, batch_comes_as_neighbours)
{
    struct page *pg[PCP_BATCH_PAGES];
    begin();
    struct page *ahead = zone_alloc(NODE, 64, 1); /* makes sure that the zone has a run to cut from */
    zone_free(ahead, 64, false);
    for (int i = 0; i < PCP_BATCH_PAGES; i++)
        pg[i] = pcp_alloc(NODE, 0);
    EXPECT_EQ(pcp_stats().bytes, 0); /* one batch, used up */
    for (int i = 1; i < PCP_BATCH_PAGES; i++)
        EXPECT(page_address(pg[i]) == page_address(pg[i - 1]) + PAGE_BYTES);
    for (int i = 0; i < PCP_BATCH_PAGES; i++)
        pcp_free(pg[i], 0, false);
    end();
}

/* INV-PCP-2 */
TEST(pcp, gives_back_above_its_limit)
{
    enum { N = 100 };
    static struct page *pg[N];
    begin();
    for (unsigned order = 0; order <= RUN_ORDER_MAX; order++) {
        for (int i = 0; i < N; i++)
            EXPECT((pg[i] = pcp_alloc(NODE, order)) != NULL);
        size_t drains = pcp_stats().drain;
        for (int i = 0; i < N; i++) {
            pcp_free(pg[i], order, false);
            pcp_check();
            EXPECT(pcp_stats().bytes <= MOST_PAGES * PAGE_BYTES);
        }
        EXPECT(pcp_stats().drain > drains);
        EXPECT(pcp_stats().bytes > 0);
    }
    end();
}

/* INV-PCP-2: the batches of several orders on top of lists that are full already. */
TEST(pcp, batches_do_not_pass_the_limit)
{
    struct page *large[PCP_HIGH_PAGES / 8], *pg[3];
    begin();
    struct page *ahead = zone_alloc(NODE, 256, 1);
    zone_free(ahead, 256, false);
    for (int i = 0; i < PCP_HIGH_PAGES / 8; i++)
        large[i] = pcp_alloc(NODE, 3);
    for (int i = 0; i < PCP_HIGH_PAGES / 8; i++)
        pcp_free(large[i], 3, false);
    EXPECT_EQ(pcp_stats().bytes, PCP_HIGH_PAGES * PAGE_BYTES);
    for (unsigned order = 0; order < 3; order++) {
        pg[order] = pcp_alloc(NODE, order);
        EXPECT(pcp_stats().bytes <= MOST_PAGES * PAGE_BYTES);
    }
    for (unsigned order = 0; order < 3; order++)
        pcp_free(pg[order], order, false);
    end();
}

TEST(pcp, drain_empties_every_shard)
{
    begin();
    size_t out = zone_stats(NODE).out;
    struct page *a = pcp_alloc(NODE, 0), *b = pcp_alloc(NODE, 2);
    pcp_free(a, 0, false);
    pcp_free(b, 2, false);
    EXPECT(pcp_stats().bytes > 0);
    pcp_drain();
    EXPECT_EQ(pcp_stats().bytes, 0);
    EXPECT_EQ(zone_stats(NODE).out, out);
    end();
}

static void churn(unsigned thread)
{
    enum { SLOTS = 24 };
    struct {
        struct page *pg;
        unsigned order;
        uint64_t id;
    } s[SLOTS] = {{0}};
    uint64_t seed = thread + 30;
    for (int step = 0; step < 6000; step++) {
        size_t i = unit_below(&seed, SLOTS);
        if (s[i].pg != NULL) {
            MUST(unit_stamped(page_address(s[i].pg), 256, s[i].id));
            MUST(unit_stamped(page_address(s[i].pg) + (PAGE_BYTES << s[i].order) - 256, 256, s[i].id));
            pcp_free(s[i].pg, s[i].order, false);
            s[i].pg = NULL;
            continue;
        }
        s[i].order = (unsigned)unit_below(&seed, RUN_ORDER_MAX + 1);
        s[i].id = unit_random(&seed);
        s[i].pg = pcp_alloc(NODE, s[i].order);
        MUST(s[i].pg != NULL && s[i].pg->npages == 1u << s[i].order);
        unit_stamp(page_address(s[i].pg), 256, s[i].id);
        unit_stamp(page_address(s[i].pg) + (PAGE_BYTES << s[i].order) - 256, 256, s[i].id);
    }
    for (int i = 0; i < SLOTS; i++)
        if (s[i].pg != NULL)
            pcp_free(s[i].pg, s[i].order, false);
}

/* INV-PCP-1, INV-PCP-2 */
TEST(pcp, threads_never_share_a_run)
{
    pcp_drain();
    size_t out = zone_stats(NODE).out;
    unit_threads(UNIT_THREADS, churn);
    pcp_check();
    pcp_drain();
    zone_check(NODE);
    EXPECT_EQ(zone_stats(NODE).out, out);
}
