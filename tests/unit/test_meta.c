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
    static const size_t sizes[] = {1, 8, 63, 64, 65, 127, 128, 129, 500, 512, 1000, 1025, 2048, 4095, 4097, 8191, 8192, 16384};
    enum { N = sizeof sizes / sizeof *sizes };
    char *p[N];
    for (int i = 0; i < N; i++) {
        meta_free(meta_alloc(sizes[i]), sizes[i]); /* a new chunk also uses a block for itself */
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
    for (size_t size = 64; size <= 16384; size *= 2) {
        void *p = meta_alloc(size);
        memset(p, 0xee, size);
        meta_free(p, size);
        void *q = meta_zalloc(size);
        EXPECT(q == p);
        EXPECT(unit_is_zero(q, size));
        meta_free(q, size);
    }
}

/* Allocate one size until a chunk is mapped for it. Result: what the counters said just before. */
static struct meta_stats use_up(size_t size)
{
    struct meta_stats before, s = meta_stats();
    do {
        before = s;
        MUST(meta_alloc(size) != NULL);
        s = meta_stats();
    } while (s.mapped == before.mapped);
    MUST(s.mapped - before.mapped >= 64 << 10);
    return before;
}

/* From the largest size down, so that no list is left with anything: at the end every byte that was mapped is in use,
 * although each new chunk found a rest of the old that was too small for what was asked. */
static void chunks(void *arg)
{
    (void)arg;
    MUST(meta_alloc(64) != NULL); /* the static first chunk counts from now on */
    for (size_t size = 16384; size > 64; size /= 2)
        use_up(size);
    struct meta_stats last = use_up(64);
    MUST(last.used == last.mapped);
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

/* Without the blocks that describe the chunks. */
static size_t handed_out(void)
{
    size_t used = meta_stats().used;
    for (const struct meta_chunk *c = meta_chunks(); c != NULL; c = c->next)
        used -= 64;
    return used;
}

TEST(meta, threads_share_it)
{
    size_t used = handed_out();
    unit_threads(UNIT_THREADS, churn);
    EXPECT_EQ(handed_out(), used);
}

static void too_large(void *arg)
{
    (void)arg;
    meta_alloc(16385);
}

static void listed(void *arg)
{
    (void)arg;
    size_t sum = 0, before = meta_stats().mapped;
    while (meta_stats().mapped < before + (4 << 20))
        MUST(meta_alloc(8192) != NULL);
    for (const struct meta_chunk *c = meta_chunks(); c != NULL; c = c->next)
        sum += c->size;
    MUST(sum == meta_stats().mapped - meta_stats().in_library);
}

TEST(meta, mapped_chunks_are_listed)
{
    unit_alone(listed, NULL);
}

TEST(meta, more_than_a_block_is_an_internal_error)
{
    unit_dies_saying(too_large, NULL, "sheaf: internal error: size <= ");
}
