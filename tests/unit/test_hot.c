/* SPDX-License-Identifier: BSD-2-Clause */
/* core/hot.h alone, with descriptors that stand for blocks. */
#include "unit.h"

#include "compat/os/clock.h"
#include "core/hot.h"
#include "core/large.h"
#include "core/region.h"

enum { BLOCKS = 8 };

static CACHE_ALIGNED struct page block[BLOCKS];
static struct region mapping[BLOCKS];
static unsigned released[BLOCKS], purges;
static size_t room;

static void released_one(struct page *pg)
{
    __atomic_fetch_add(&released[pg - block], 1, __ATOMIC_RELAXED);
}

static size_t all_room(unsigned node)
{
    (void)node;
    return room;
}

static bool purged(struct page *pg)
{
    (void)pg;
    purges++;
    return true;
}

/* Another length than those of the tests: what was freed and wanted before is forgotten. */
static void forget(void)
{
    struct page other = {.npages = 7};
    MUST(!hot_put_new(&other, all_room, released_one));
}

static void begin(size_t pages)
{
    unit_pin();
    large_drain(false); /* what other tests have left */
    memset(block, 0, sizeof block);
    memset(released, 0, sizeof released);
    purges = 0;
    room = pages;
    forget();
}

static void end(void)
{
    hot_drain(false, released_one);
    unit_unpin();
}

static struct page *of(unsigned i, uint32_t npages)
{
    block[i] = (struct page){.npages = npages, .usable = npages * PAGE_BYTES - 4096, .stale = 4096};
    return &block[i];
}

static bool put_new(struct page *pg)
{
    return hot_put_new(pg, all_room, released_one);
}

/* The third free of a length that has been asked for in between. */
static void grant(struct page *pg)
{
    EXPECT(!hot_put(pg));
    EXPECT(!put_new(pg));
    EXPECT(hot_take(0, pg->npages) == NULL);
    EXPECT(!hot_put(pg));
    EXPECT(put_new(pg));
}

TEST(hot, only_a_length_freed_and_asked_for_is_granted)
{
    begin(1000);
    struct page *a = of(0, 100);
    EXPECT(!put_new(a));
    EXPECT(!put_new(a)); /* freed twice, not asked for */
    EXPECT(hot_take(0, 99) == NULL);
    EXPECT(!put_new(a)); /* another was asked for */
    EXPECT(hot_take(0, 100) == NULL);
    EXPECT(put_new(a));
    EXPECT(hot_take(0, 100) == a);
    EXPECT(hot_put(a));
    end();
    EXPECT_EQ(released[0], 1);
}

TEST(hot, block_fits_up_to_an_eighth_and_its_own_node)
{
    begin(1000);
    struct page *a = of(0, 90);
    a->node = 777;
    EXPECT(!put_new(a));
    EXPECT(hot_take(777, 90) == NULL);
    EXPECT(put_new(a));
    EXPECT(hot_take(776, 90) == NULL);
    EXPECT(hot_take(777 & 63, 90) == NULL);
    EXPECT(hot_take(777, 91) == NULL);
    EXPECT(hot_take(777, 79) == NULL);
    EXPECT(hot_take(777, 80) == a);
    end();
    EXPECT_EQ(released[0], 0);
}

TEST(hot, longest_block_and_last_node_fit_the_word)
{
    begin(5000);
    struct page *a = of(0, LARGE_OWN_BYTES >> PAGE_SHIFT);
    a->node = 1023;
    EXPECT(!put_new(a));
    EXPECT(hot_take(1023, a->npages) == NULL);
    EXPECT(put_new(a));
    EXPECT(hot_take(1023, a->npages) == a);
    end();
}

TEST(hot, slot_holds_one_and_a_longer_one_needs_a_grant)
{
    begin(1000);
    struct page *a = of(0, 100), *b = of(1, 100), *c = of(2, 101);
    grant(a);
    EXPECT(!hot_put(b));
    EXPECT(!put_new(b));
    EXPECT(hot_take(0, 100) == a);
    EXPECT(!hot_put(c));
    EXPECT(hot_put(b));
    EXPECT(hot_take(0, 100) == b);
    end();
}

TEST(hot, grants_stay_within_the_room_they_are_given)
{
    begin(100);
    struct page *a = of(0, 101), *b = of(1, 100);
    EXPECT(!put_new(a));
    EXPECT(hot_take(0, 101) == NULL);
    EXPECT(!put_new(a));
    grant(b);
    room = 50;
    EXPECT(hot_take(0, 100) == b);
    EXPECT(hot_put(b)); /* what is granted is */
    end();
    EXPECT_EQ(released[1], 1);
}

TEST(hot, idle_slots_are_emptied_and_lose_their_grant)
{
    begin(1000);
    struct page *a = of(0, 100);
    grant(a);
    EXPECT(hot_take(0, 100) == a && hot_put(a));
    EXPECT_EQ(hot_drain(true, released_one), 0);
    EXPECT_EQ(hot_stats().count, 1);
    EXPECT_EQ(hot_stats().bytes, 100 * PAGE_BYTES);
    EXPECT_EQ(hot_stats().usable, 100 * PAGE_BYTES - 4096);
    EXPECT_EQ(hot_stats().stale, 4096);
    EXPECT_EQ(hot_drain(true, released_one), 1);
    EXPECT_EQ(released[0], 1);
    EXPECT_EQ(hot_stats().count, 0);
    EXPECT(!hot_put(a));
    end();
}

TEST(hot, own_mapping_is_purged_once_a_step_of_the_clock)
{
    begin(0);
    struct page *a = of(0, 1), *stray;
    mapping[0] = (struct region){.size = 90 << 20};
    a->region = &mapping[0];
    a->base = (void *)((uintptr_t)1 << 32);
    uint64_t ms = clock_coarse_ms();
    unsigned rounds = 0;
    for (; clock_coarse_ms() == ms || rounds < 100; rounds++) {
        EXPECT(hot_put_own(a, purged) == NULL);
        EXPECT(hot_take_own(90 << 20, 4096, &stray) == a && stray == NULL);
        if (purges > 100)
            break;
    }
    EXPECT(purges < rounds || rounds < 3); /* a round takes far less than a step */
    a->purged_ms = ms - 1;
    unsigned had = purges;
    hot_put_own(a, purged);
    EXPECT_EQ(purges, had + 1);
    EXPECT(a->zeroed);
    end();
    EXPECT_EQ(released[0], 1);
}

static bool refused(struct page *pg)
{
    (void)pg;
    return false;
}

TEST(hot, own_mapping_whose_purge_was_refused_is_not_zeroed)
{
    begin(0);
    struct page *a = of(0, 1);
    mapping[0] = (struct region){.size = 90 << 20};
    a->region = &mapping[0];
    a->base = (void *)((uintptr_t)1 << 32);
    a->purged_ms = clock_coarse_ms() - 1;
    a->zeroed = true;
    EXPECT(hot_put_own(a, refused) == NULL);
    EXPECT(!a->zeroed);
    end();
}

TEST(hot, own_mapping_of_another_length_or_alignment_must_go)
{
    begin(0);
    struct page *a = of(0, 1), *b = of(1, 1), *stray;
    mapping[0] = mapping[1] = (struct region){.size = 90 << 20};
    a->region = &mapping[0];
    b->region = &mapping[1];
    a->base = b->base = (void *)(((uintptr_t)1 << 32) + (64 << 10));
    EXPECT(hot_put_own(a, purged) == NULL);
    EXPECT(hot_put_own(b, purged) == a);
    EXPECT(hot_take_own(91 << 20, 4096, &stray) == NULL);
    EXPECT(stray == b);
    EXPECT(hot_put_own(b, purged) == NULL);
    EXPECT(hot_take_own(90 << 20, 128 << 10, &stray) == NULL);
    EXPECT(stray == b);
    EXPECT(hot_take_own(90 << 20, 4096, &stray) == NULL && stray == NULL);
    end();
}

/* Each block is in one hand at a time: whoever has it marks it. */
static void swap_blocks(unsigned thread)
{
    struct page *mine = of(thread, 100);
    for (int i = 0; i < 20000; i++) {
        if (mine != NULL) {
            MUST(__atomic_exchange_n(&mine->class, 1, __ATOMIC_RELAXED) == 0);
            __atomic_store_n(&mine->class, 0, __ATOMIC_RELAXED);
            if (hot_put(mine) || put_new(mine))
                mine = NULL;
        } else {
            mine = hot_take(0, 100);
        }
        if (i % 1000 == 0 && thread == 0)
            hot_drain(false, released_one);
    }
    if (mine != NULL)
        released_one(mine);
}

TEST(hot, threads_never_take_one_block_twice)
{
    begin(100000);
    unit_unpin();
    unit_threads(BLOCKS, swap_blocks);
    hot_drain(false, released_one);
    unsigned n = 0;
    for (unsigned i = 0; i < BLOCKS; i++)
        n += released[i];
    EXPECT(n >= BLOCKS); /* a drained one is gone from its thread; all that are left came back once */
    for (unsigned i = 0; i < BLOCKS; i++)
        EXPECT_EQ(released[i], 1);
}
