/* SPDX-License-Identifier: BSD-2-Clause */
/* core/pcp.h: page runs in front of the zone. Pinned to one cpu, a test meets one shard. */
#include "unit.h"

#include "compat/os/bits.h"
#include "compat/os/cpu.h"
#include "compat/os/lock.h"
#include "compat/os/vm.h"
#include "core/opt.h"
#include "core/pcp.h"
#include "core/pcp_tune.h"
#include "core/rank.h"
#include "core/zone.h"
#include "core/zone_impl.h"

#include <sched.h>

static struct pcp_limits limits; /* as pcp_init has them */
static size_t shards;

/* Every shard is empty and has counted nothing; no page is dirty and no spike under way, whatever other tests left. */
static void begin(void)
{
    shards = pow2_up(cpu_count());
    limits = pcp_limits_for(shards);
    unit_pin();
    pcp_drain();
    pcp_spike_over();
    zone_purge(NODE, 0);
    zone_of(NODE)->give.spiking = false;
    store_relaxed(&zone_of(NODE)->spiking, 0);
}

static void end(void)
{
    opt.pcp_free_count = PCP_EXACT;
    pcp_check();
    zone_check(NODE);
    unit_unpin();
}

/* The zone has a run to cut so many pages from. */
static void lay_in(size_t npages)
{
    struct page *ahead = zone_alloc(NODE, npages, 1);
    EXPECT(ahead != NULL);
    zone_free(ahead, npages, false);
}

static size_t listed_pages(void)
{
    return pcp_stats().bytes >> PAGE_SHIFT;
}

/* n runs for a test that frees them one by one. */
static void take(struct page **pg, size_t n, unsigned order)
{
    for (size_t i = 0; i < n; i++)
        EXPECT((pg[i] = pcp_alloc(NODE, order)) != NULL);
}

static void give(struct page **pg, size_t n, unsigned order)
{
    for (size_t i = 0; i < n; i++)
        pcp_free(pg[i], order, false);
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
    zone_purge(NODE, 0); /* no dirty scraps, which would come first */
    lay_in(64);
    take(pg, 1, 0);
    size_t rest = listed_pages(); /* of one run of the zone's */
    EXPECT(rest > 0 && rest < limits.batch);
    take(pg + 1, rest, 0);
    EXPECT_EQ(listed_pages(), 0);
    for (size_t i = 1; i <= rest; i++)
        EXPECT(page_address(pg[i]) == page_address(pg[i - 1]) + PAGE_BYTES);
    give(pg, rest + 1, 0);
    end();
}

/* INV-PCP-2, INV-PCP-3 */
TEST(pcp, gives_back_above_its_limit)
{
    enum { N = 127 };
    static struct page *pg[N];
    begin();
    for (unsigned order = 0; order <= RUN_ORDER_MAX; order++) {
        size_t n = N >> order; /* below the first mark of a run */
        take(pg, n, order);
        struct pcp_stats before = pcp_stats();
        for (size_t i = 0; i < n; i++) {
            pcp_free(pg[i], order, false);
            pcp_check();
            EXPECT(listed_pages() <= limits.high_max);
        }
        struct pcp_stats after = pcp_stats();
        size_t holds = after.drain_holds - before.drain_holds, pages = after.drain_pages - before.drain_pages;
        EXPECT(after.drain > before.drain);
        EXPECT_EQ(before.bytes + (n << order << PAGE_SHIFT), after.bytes + (pages << PAGE_SHIFT));
        EXPECT(holds > 0 && pages <= holds * PCP_HOLD_PAGES);
        EXPECT_EQ(after.mark, before.mark);
        pcp_drain();
    }
    end();
}

/* INV-PCP-2: the batches of several orders on top of lists that are full already. */
TEST(pcp, batches_do_not_pass_the_limit)
{
    enum { N = 64 };
    static struct page *one[N], *pg[RUN_ORDER_MAX + 1];
    begin();
    lay_in(256);
    take(one, N, 0);
    for (size_t i = 0; i < N && listed_pages() + 1 < limits.high_max; i++) {
        pcp_free(one[i], 0, false);
        one[i] = NULL;
    }
    for (unsigned order = 1; order <= RUN_ORDER_MAX; order++) {
        take(&pg[order], 1, order);
        EXPECT(listed_pages() <= limits.high_max);
        pcp_check();
    }
    for (unsigned order = 1; order <= RUN_ORDER_MAX; order++)
        pcp_free(pg[order], order, false);
    for (size_t i = 0; i < N; i++)
        if (one[i] != NULL)
            pcp_free(one[i], 0, false);
    end();
}

/* Allocations in a row take more each time, one run of the zone's a hold. */
TEST(pcp, refills_grow)
{
    enum { N = 100 };
    static struct page *pg[N];
    begin();
    lay_in(256);
    struct pcp_stats before = pcp_stats();
    take(pg, N, 0);
    struct pcp_stats after = pcp_stats();
    size_t holds = after.refill_holds - before.refill_holds, pages = after.refill_pages - before.refill_pages;
    EXPECT_EQ(after.refill - before.refill, holds); /* none was refused */
    EXPECT_EQ(pages, N + listed_pages());
    EXPECT(holds < N / limits.batch);
    EXPECT(pages <= holds * PCP_REFILL_PAGES);
    give(pg, N, 0);
    end();
}

/* An older run goes down before a newer one, the order just freed first. */
TEST(pcp, gives_back_the_oldest)
{
    enum { N = 64 };
    struct page *pg[N];
    begin();
    take(pg, N, 0);
    pcp_drain();
    size_t n = 0;
    for (size_t drains = pcp_stats().drain; pcp_stats().drain == drains; n++)
        pcp_free(pg[n], 0, false);
    size_t left = listed_pages();
    EXPECT(left < n);
    for (size_t i = 0; i < left; i++)
        EXPECT(pcp_alloc(NODE, 0) == pg[n - 1 - i]); /* the newest are here, in order */
    give(pg + n - left, N - n + left, 0);
    end();
}

/* INV-PCP-1: what costs no memory is taken off. */
TEST(pcp, adds_up_what_is_resident)
{
    size_t os = vm_page_size(), each = PAGE_BYTES / os; /* os pages in one of ours */
    uint16_t all = (uint16_t)((1u << each) - 1);
    struct page *pg[2];
    begin();
    take(pg, 2, 1);
    pcp_drain();
    struct page *second = pmap_page(page_address(pg[0]) + PAGE_BYTES);
    pg[0]->clean = all;
    second->clean = 1;
    pcp_free(pg[0], 1, false);
    struct pcp_stats st = pcp_stats();
    EXPECT_EQ(st.bytes, 2 * PAGE_BYTES);
    EXPECT_EQ(st.resident, PAGE_BYTES - os);
    pg[1]->clean = 0;
    pmap_page(page_address(pg[1]) + PAGE_BYTES)->clean = 0;
    pcp_free(pg[1], 1, false);
    EXPECT_EQ(pcp_stats().resident, 3 * PAGE_BYTES - os);
    pcp_check();
    EXPECT(pcp_alloc(NODE, 1) == pg[1]);
    EXPECT(pcp_alloc(NODE, 1) == pg[0]);
    EXPECT_EQ(pg[0]->clean, all); /* as it was given */
    EXPECT_EQ(second->clean, 1);
    EXPECT_EQ(pcp_stats().resident + pcp_stats().bytes, 0);
    pg[0]->clean = second->clean = 0;
    give(pg, 2, 1);
    end();
}

/* ---- the run of frees ---- */

/* Shards of one cpu: marks at 128, 144, ... pages without an allocation; a spike at 128 and 256. */
TEST(pcp, a_run_of_frees_is_told)
{
    enum { N = 272 };
    static struct page *pg[N];
    begin();
    take(pg, N, 0);
    pcp_drain();
    size_t marks = pcp_stats().mark, spikes = pcp_stats().spike;
    for (unsigned i = 1; i <= N; i++) {
        pcp_free(pg[i - 1], 0, false);
        bool mark = i >= 128 && (i - 128) % 16 == 0;
        marks += mark;
        EXPECT_EQ(pcp_stats().mark, marks);
        if (mark)
            EXPECT_EQ(pcp_stats().bytes, 0);
        EXPECT_EQ(pcp_spike_over(), i == 128 || i == 256);
        EXPECT(!pcp_spike_over()); /* who asks takes the answer */
    }
    EXPECT_EQ(pcp_stats().spike, spikes + 2);
    end();
}

TEST(pcp, an_allocation_ends_the_run)
{
    enum { N = 256 };
    static struct page *pg[N];
    begin();
    take(pg, N, 0);
    pcp_drain();
    size_t marks = pcp_stats().mark;
    give(pg, 127, 0);
    pg[0] = pcp_alloc(NODE, 3); /* by a refill, too */
    give(pg + 127, 127, 0);
    pg[1] = pcp_alloc(NODE, 0);
    pcp_free(pg[1], 0, false);
    EXPECT_EQ(pcp_stats().mark, marks);
    pcp_free(pg[0], 3, false);
    give(pg + 254, 2, 0);
    EXPECT_EQ(pcp_stats().mark, marks);
    EXPECT(!pcp_spike_over());
    end();
}

/* A consumer's cpu sees nothing but frees, while a producer elsewhere takes as much from the zone. */
TEST(pcp, frees_of_what_others_allocate_are_no_spike)
{
    enum { N = 256 };
    static struct page *pg[N];
    begin();
    take(pg, N, 0);
    pcp_drain();
    size_t marks = pcp_stats().mark;
    for (unsigned i = 0; i < 2000; i++)
        pcp_free(zone_alloc(NODE, 1, 1), 0, false);
    EXPECT_EQ(pcp_stats().mark, marks);
    EXPECT(!pcp_spike_over());
    give(pg, N, 0); /* now memory in use does fall */
    EXPECT(pcp_stats().mark > marks);
    EXPECT(pcp_spike_over());
    end();
}

/* Blocks that bypass the lists. */
TEST(pcp, large_blocks_count_for_the_run)
{
    struct page *pg[100];
    begin();
    take(pg, 100, 0);
    pcp_drain();
    size_t marks = pcp_stats().mark;
    give(pg, 20, 0);
    pcp_note_free(100);
    EXPECT(listed_pages() > 0);
    EXPECT_EQ(pcp_stats().mark, marks);
    pcp_note_free(8); /* 128 */
    EXPECT_EQ(pcp_stats().mark, marks + 1);
    EXPECT_EQ(listed_pages(), 0);
    EXPECT(pcp_spike_over());
    pcp_note_alloc();
    pcp_note_free(127);
    pcp_note_alloc();
    pcp_note_free(127);
    EXPECT_EQ(pcp_stats().mark, marks + 1);
    pcp_free(pg[20], 0, false);
    EXPECT_EQ(pcp_stats().mark, marks + 2);
    EXPECT(pcp_spike_over());
    give(pg + 21, 79, 0);
    end();
}

enum { FAR_PAGES = 14 };
static uint32_t far_has_freed, near_is_done;

static void free_and_stay(void *cpus)
{
    struct page *pg[FAR_PAGES];
    MUST(sched_setaffinity(0, sizeof(cpu_set_t), cpus) == 0);
    for (size_t i = 0; i < FAR_PAGES; i++)
        MUST((pg[i] = pcp_alloc(NODE, 0)) != NULL);
    for (size_t i = 0; i < FAR_PAGES; i++)
        pcp_free(pg[i], 0, false);
    store_release(&far_has_freed, 1);        /* pairs with the acquire of the test */
    while (load_acquire(&near_is_done) == 0) /* stays on its cpu, so that its shard is its own */
        cpu_relax();
}

static void *start_far(void *cpus)
{
    unit_thread(free_and_stay, cpus);
    return NULL;
}

/* A run that began on another cpu leaves nothing there: each mark empties one other shard whose last operation was a free. */
TEST(pcp, marks_empty_other_shards_too)
{
    cpu_set_t all, other;
    size_t cpu = 0, n = 128 + 16 * pow2_up(cpu_count());
    struct page **pg = malloc(n * sizeof *pg);
    pthread_t helper;
    sched_getaffinity(0, sizeof all, &all);
    if (CPU_COUNT(&all) < 2) {
        free(pg);
        return;
    }
    begin();
    sched_getaffinity(0, sizeof other, &other);
    while (!CPU_ISSET(cpu, &all) || CPU_ISSET(cpu, &other))
        cpu++;
    CPU_ZERO(&other);
    CPU_SET(cpu, &other);
    take(pg, n, 0);
    pcp_drain();
    EXPECT_EQ(pthread_create(&helper, NULL, start_far, &other), 0);
    while (load_acquire(&far_has_freed) == 0)
        sched_yield();
    EXPECT(listed_pages() > 0); /* it has some */
    give(pg, n, 0);             /* the last one is a mark, unless another program made us change shards in between */
    for (int i = 0; i < 50 && listed_pages() > 0; i++) {
        take(pg, n, 0);
        give(pg, n, 0);
    }
    size_t left = listed_pages();
    store_release(&near_is_done, 1);
    pthread_join(helper, NULL);
    free(pg);
    EXPECT_EQ(left, 0);
    end();
}

/* ---- modes, ageing, taken shards ---- */

/* Two runs of order 3 in a row: the second empties the shard where 8 net pages are enough for that. */
TEST(pcp, the_option_picks_the_mode)
{
    static const bool enough[] = {[PCP_EXACT] = false, [PCP_HALVE] = true};
    for (unsigned mode = PCP_EXACT; mode <= PCP_THRESHOLD; mode++) {
        struct page *pg[2];
        begin();
        opt.pcp_free_count = mode;
        take(pg, 2, 3);
        pcp_drain();
        size_t before = pcp_stats().free_high;
        give(pg, 2, 3);
        bool expect = mode == PCP_THRESHOLD ? 8 >= limits.batch + limits.high_min / 2u : enough[mode];
        EXPECT_EQ(pcp_stats().free_high - before, expect);
        if (expect)
            EXPECT_EQ(listed_pages(), 0);
        end();
    }
}

/* On two cpus, the trace of test_pcp_sim.c gives here what was worked out there: the lists obey the rules. */
TEST(pcp, bursts_of_runs_as_in_the_simulator)
{
    static const size_t drains[] = {0, 9, 6};
    for (unsigned mode = PCP_EXACT; mode <= PCP_THRESHOLD; mode++) {
        begin();
        opt.pcp_free_count = mode;
        lay_in(256);
        size_t before = pcp_stats().drain;
        for (int round = 0; round < 3; round++) {
            struct page *pg[4];
            take(pg, 4, 3);
            give(pg, 4, 3);
            EXPECT(shards != 2 ||
                   (listed_pages() >= 32) == (mode == PCP_EXACT)); /* a refill may have brought one more */
        }
        if (shards == 2)
            EXPECT_EQ(pcp_stats().drain - before, drains[mode]);
        end();
    }
}

/* Idleness: down to this shard's part of 2 MiB, in about ten steps, some at a time. */
TEST(pcp, age_takes_from_idle_shards)
{
    enum { N = 120 };
    static struct page *pg[N];
    begin();
    take(pg, N, 0); /* earns it all that a shard may hold */
    size_t freed = 0;
    while (listed_pages() + 1 < limits.high_max)
        pcp_free(pg[freed++], 0, false);
    size_t full = listed_pages();
    EXPECT(full > limits.high_min);
    pcp_age(0);
    EXPECT_EQ(listed_pages(), full);
    pcp_age(1);
    size_t some = listed_pages();
    EXPECT(some <= limits.high_max - limits.high_max / 8u);
    for (int i = 0; i < 12; i++) {
        pcp_age(1);
        pcp_check();
    }
    EXPECT(listed_pages() <= limits.high_min);
    give(pg + freed, N - freed, 0);
    pcp_age(12); /* all at once */
    EXPECT(listed_pages() <= limits.high_min);
    end();
}

static void use_taken_shards(void *arg)
{
    (void)arg;
    struct page *pg = pcp_alloc(NODE, 2);
    MUST(pg != NULL && pg->npages == 4 && pg->order == 2);
    pcp_note_alloc();
    pcp_note_free(10000);
    MUST(!pcp_spike_over());
    pcp_age(5);
    pcp_free(pg, 2, false);
}

/* Nobody waits for a shard: with all of them held, pages come from the zone and go there. */
TEST(pcp, taken_shards_are_passed_by)
{
    begin();
    struct pcp_stats before = pcp_stats();
    size_t out = zone_stats(NODE).out;
    lock_fork_begin(); /* holds them for this thread, whatever the others want */
    pcp_fork_hold();
    unit_thread(use_taken_shards, NULL);
    pcp_fork_open();
    lock_fork_end();
    struct pcp_stats after = pcp_stats();
    EXPECT_EQ(after.alloc_busy, before.alloc_busy + 1);
    EXPECT_EQ(after.free_busy, before.free_busy + 1);
    EXPECT_EQ(after.alloc, before.alloc);
    EXPECT_EQ(after.free, before.free);
    EXPECT_EQ(after.mark, before.mark);
    EXPECT_EQ(zone_stats(NODE).out, out);
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
    begin();
    unit_unpin();
    size_t out = zone_stats(NODE).out;
    unit_threads(UNIT_THREADS, churn);
    pcp_check();
    pcp_drain();
    zone_check(NODE);
    EXPECT_EQ(zone_stats(NODE).out, out);
}

/* ---- nobody is kept from a shard by the zone ---- */

static uint32_t zone_held, zone_let_go;

static void *hold_zone(void *arg)
{
    (void)arg;
    lock_acquire(&zone_of(NODE)->lock, RANK_ZONE);
    store_release(&zone_held, 1);
    while (load_acquire(&zone_let_go) == 0)
        sched_yield();
    lock_release(&zone_of(NODE)->lock);
    return NULL;
}

static bool zone_is_waited_for(void)
{
    return load_relaxed(&zone_of(NODE)->lock.word) == 2;
}

/* Run body in a thread while another has the zone's lock; when it waits for that, run meanwhile and let go. */
static void beside_the_zone(void *(*body)(void *), void *arg, void (*meanwhile)(void))
{
    pthread_t holder, waiter;
    store_relaxed(&zone_held, 0);
    store_relaxed(&zone_let_go, 0);
    EXPECT_EQ(pthread_create(&holder, NULL, hold_zone, NULL), 0);
    while (load_acquire(&zone_held) == 0)
        sched_yield();
    EXPECT_EQ(pthread_create(&waiter, NULL, body, arg), 0);
    while (!zone_is_waited_for())
        sched_yield();
    meanwhile();
    store_release(&zone_let_go, 1);
    pthread_join(waiter, NULL);
    pthread_join(holder, NULL);
}

static void *alloc_one(void *pg)
{
    *(struct page **)pg = pcp_alloc(NODE, 0);
    return NULL;
}

static void *free_one(void *pg)
{
    pcp_free(*(struct page **)pg, 0, false);
    return NULL;
}

static void *drain_all(void *arg)
{
    (void)arg;
    pcp_drain();
    return NULL;
}

/* What others took of the shards' locks while body was kept waiting: what it takes itself and our own look are taken off. */
static size_t taken_beside(void *(*body)(void *), void *arg, size_t own)
{
    size_t before = pcp_stats().lock_acquired;
    beside_the_zone(body, arg, pcp_note_alloc); /* a try that says nothing where it fails */
    return pcp_stats().lock_acquired - before - shards - own;
}

TEST(pcp, the_zone_is_waited_for_with_the_shard_free)
{
    enum { N = 200 };
    struct page *pg[N], *one = NULL;
    begin();
    lay_in(2 * N);
    EXPECT_EQ(taken_beside(alloc_one, &one, 2), 1); /* a refill: a hold to find nothing there, one for the rest of the run */
    EXPECT(one != NULL && listed_pages() > 0);
    EXPECT_EQ(taken_beside(drain_all, NULL, shards), 1);
    take(pg, N, 0);
    pcp_drain();
    pcp_drain(); /* back to what it may hold when idle */
    unsigned fill = limits.high_min == 0 ? 0 : limits.high_min - 1u;
    give(pg, fill, 0);
    EXPECT_EQ(listed_pages(), fill);
    EXPECT_EQ(taken_beside(free_one, &pg[fill], 1), 1);
    EXPECT(listed_pages() <= fill);
    give(pg + fill + 1, N - fill - 1, 0);
    pcp_free(one, 0, false);
    end();
}

static struct page *ahead[PCP_HIGH_PAGES];

/* One page less than the shard may hold; none of these frees drains. */
static void fill_the_shard(void)
{
    for (unsigned i = 0; i + 1 < limits.high_max; i++) {
        pcp_free(ahead[i], 0, false);
        pcp_note_alloc();
    }
}

/* INV-PCP-2: what a refill brings does not count on the room that it saw before. */
TEST(pcp, a_refill_that_finds_the_shard_full_goes_back)
{
    enum { N = 200 };
    struct page *pg[N], *one = NULL;
    begin();
    lay_in(4 * N);
    take(pg, N, 0); /* refills are as large as they get, and so is what the shard may hold */
    size_t n = 0;
    for (; listed_pages() > 0 && n < PCP_HIGH_PAGES; n++)
        EXPECT((ahead[n] = pcp_alloc(NODE, 0)) != NULL);
    for (size_t i = 0; n + 1 < limits.high_max; i++) {
        ahead[n++] = pg[i];
        pg[i] = NULL;
    }
    size_t out = zone_stats(NODE).out >> PAGE_SHIFT, pages = pcp_stats().refill_pages;
    beside_the_zone(alloc_one, &one, fill_the_shard);
    pages = pcp_stats().refill_pages - pages;
    EXPECT(pages > 2);
    EXPECT_EQ(listed_pages(), limits.high_max - 1);
    pcp_check();
    EXPECT_EQ(zone_stats(NODE).out >> PAGE_SHIFT, out + 1);
    for (unsigned i = 0; i < N; i++)
        if (pg[i] != NULL)
            pcp_free(pg[i], 0, false);
    pcp_free(one, 0, false);
    end();
}

static void take_the_shards(void)
{
    lock_fork_begin();
    pcp_fork_hold();
}

TEST(pcp, a_refill_that_finds_the_shard_taken_goes_back)
{
    struct page *one = NULL;
    begin();
    lay_in(64);
    size_t out = zone_stats(NODE).out >> PAGE_SHIFT, pages = pcp_stats().refill_pages;
    beside_the_zone(alloc_one, &one, take_the_shards);
    pcp_fork_open();
    lock_fork_end();
    EXPECT(one != NULL);
    EXPECT(pcp_stats().refill_pages - pages > 1);
    EXPECT_EQ(listed_pages(), 0);
    EXPECT_EQ(zone_stats(NODE).out >> PAGE_SHIFT, out + 1);
    pcp_free(one, 0, false);
    end();
}
