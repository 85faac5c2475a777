/* SPDX-License-Identifier: BSD-2-Clause */
/* core/meta.h: power-of-two blocks for our own bookkeeping. */
#include "unit.h"

#include "core/meta.h"

static size_t block_bytes(size_t size)
{
    size_t b = 64;
    while (b < size)
        b *= 2;
    return b;
}

TEST(meta, every_size_gets_a_block_of_its_power_of_two)
{
    static const size_t sizes[] = {1, 8, 63, 64, 65, 127, 128, 129, 500, 512, 1000, 1025, 2048, 4095, 4097, 8191, 8192};
    enum { N = sizeof sizes / sizeof *sizes };
    char *p[N];
    for (int i = 0; i < N; i++) {
        size_t used = meta_stats().used;
        p[i] = meta_alloc(sizes[i]);
        EXPECT(p[i] != NULL);
        EXPECT_EQ((uintptr_t)p[i] % 64, 0);
        EXPECT_EQ(meta_stats().used - used, block_bytes(sizes[i]));
        unit_stamp(p[i], block_bytes(sizes[i]), (uint64_t)i);
    }
    for (int i = 0; i < N; i++) {
        size_t used = meta_stats().used;
        EXPECT(unit_stamped(p[i], block_bytes(sizes[i]), (uint64_t)i)); /* none overlaps another */
        meta_free(p[i], sizes[i]);
        EXPECT_EQ(used - meta_stats().used, block_bytes(sizes[i]));
    }
}

TEST(meta, freed_block_serves_the_next_request_of_its_size)
{
    void *a = meta_alloc(300), *b = meta_alloc(300);
    struct meta_stats before = meta_stats();
    meta_free(a, 300);
    EXPECT(meta_alloc(512) == a);
    meta_free(b, 400);
    meta_free(a, 257);
    EXPECT(meta_alloc(300) == a);
    EXPECT(meta_alloc(300) == b);
    EXPECT_EQ(meta_stats().used, before.used);
    EXPECT_EQ(meta_stats().mapped, before.mapped);
    meta_free(a, 300);
    meta_free(b, 300);
}

TEST(meta, zalloc_clears_what_was_there)
{
    for (size_t size = 64; size <= 8192; size *= 2) {
        void *p = meta_alloc(size);
        memset(p, 0xee, size);
        meta_free(p, size);
        void *q = meta_zalloc(size);
        EXPECT(q == p);
        EXPECT(unit_is_zero(q, size));
        meta_free(q, size);
    }
}

/* A new chunk is mapped only for want of room, and what was left of the old one still serves small requests. */
static void chunks(void *arg)
{
    (void)arg;
    MUST(meta_alloc(64) != NULL); /* the static first chunk counts from now on */
    struct meta_stats s = meta_stats();
    size_t start = s.mapped, big = 0;
    while (s.mapped == start) {
        MUST(meta_alloc(8192) != NULL);
        big++;
        s = meta_stats();
    }
    MUST(s.mapped - start >= 64 << 10);
    MUST(s.used <= s.mapped);
    size_t mapped = s.mapped, room = s.mapped - s.used, got = 0;
    while (meta_stats().mapped == mapped) {
        MUST(meta_alloc(64) != NULL);
        got++;
    }
    /* Blocks of other sizes that earlier tests freed stay on their lists; all else must have been used up. */
    MUST((got - 1) * 64 <= room);
    MUST((got - 1) * 64 + (48 << 10) >= room);
}

TEST(meta, grows_by_chunks_and_wastes_nothing)
{
    unit_alone(chunks, NULL);
}

static void churn(unsigned thread)
{
    enum { SLOTS = 50 };
    struct {
        void *p;
        size_t size;
        uint64_t id;
    } slot[SLOTS] = {{0}};
    uint64_t seed = thread + 10;
    for (int step = 0; step < 5000; step++) {
        size_t i = unit_below(&seed, SLOTS);
        if (slot[i].p != NULL) {
            MUST(unit_stamped(slot[i].p, slot[i].size, slot[i].id));
            meta_free(slot[i].p, slot[i].size);
        }
        slot[i].size = 1 + unit_below(&seed, (size_t)64 << unit_below(&seed, 8));
        slot[i].id = unit_random(&seed);
        slot[i].p = meta_alloc(slot[i].size);
        MUST(slot[i].p != NULL);
        unit_stamp(slot[i].p, slot[i].size, slot[i].id);
    }
    for (int i = 0; i < SLOTS; i++)
        if (slot[i].p != NULL) {
            MUST(unit_stamped(slot[i].p, slot[i].size, slot[i].id));
            meta_free(slot[i].p, slot[i].size);
        }
}

TEST(meta, threads_share_it)
{
    size_t used = meta_stats().used;
    unit_threads(UNIT_THREADS, churn);
    EXPECT_EQ(meta_stats().used, used);
}

static void too_large(void *arg)
{
    (void)arg;
    meta_alloc(8193);
}

TEST(meta, more_than_a_block_is_an_internal_error)
{
    unit_dies_saying(too_large, NULL, "sheaf: internal error: size <= ");
}
