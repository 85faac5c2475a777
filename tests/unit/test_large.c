/* SPDX-License-Identifier: BSD-2-Clause */
/* core/large.h: runs, blocks in windows, own mappings. */
#include "unit.h"

#include "compat/os/bits.h"
#include "compat/os/vm.h"
#include "core/large.h"
#include "core/opt.h"
#include "core/pcp.h"
#include "core/region.h"
#include "core/zone.h"

#define MIB ((size_t)1 << 20)

static size_t os_round(size_t size)
{
    return align_up(size, vm_page_size());
}

static void *get(size_t size, size_t align)
{
    void *p = large_alloc(NODE, size, align, false);
    MUST(p != NULL && large_page(p) != NULL);
    return p;
}

static void put(void *p)
{
    struct page *pg = large_page(p);
    MUST(pg != NULL);
    large_free(pg);
}

/* The live blocks are the same; free ones may wait. */
static bool same_stats(struct large_stats a, struct large_stats b)
{
    a.hot_bytes = a.hot_own_bytes = b.hot_bytes = b.hot_own_bytes = 0;
    return memcmp(&a, &b, sizeof a) == 0;
}

/* Both ends and one byte in each page. */
static void touch(char *p, size_t size, unsigned char v)
{
    for (size_t i = 0; i < size; i += 4096)
        p[i] = (char)(v + i / 4096);
    p[size - 1] = (char)v;
}

static bool touched(const char *p, size_t size, unsigned char v, size_t was)
{
    for (size_t i = 0; i < size && i < was - 1; i += 4096)
        if (p[i] != (char)(v + i / 4096))
            return false;
    return size < was || p[was - 1] == (char)v;
}

/* ---- kinds ---- */

TEST(large, size_and_alignment_choose_the_kind)
{
    static const struct {
        size_t size, align;
        enum page_kind kind;
        size_t pages;
    } cases[] = {
        {1, 1, PAGE_RUN, 1},
        {32769, 1, PAGE_RUN, 1},
        {65536, 65536, PAGE_RUN, 1},
        {65537, 1, PAGE_RUN, 2},
        {196608, 1, PAGE_RUN, 4},
        {524288, 65536, PAGE_RUN, 8},
        {524289, 1, PAGE_LARGE, 9},
        {100, 131072, PAGE_LARGE, 1},
        {(size_t)3 << 20, 1 << 20, PAGE_LARGE, 48},
        {(size_t)64 << 20, 1, PAGE_LARGE, 1024},
        {((size_t)64 << 20) + 1, 1, PAGE_OWN, 1},
        {1, (size_t)128 << 20, PAGE_OWN, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct large_stats before = large_stats(), now;
        char *p = get(cases[i].size, cases[i].align);
        struct page *pg = large_page(p);
        EXPECT_EQ(pg->kind, cases[i].kind);
        EXPECT_EQ(pg->npages, cases[i].pages);
        EXPECT_EQ(pg->usable, os_round(cases[i].size));
        EXPECT_EQ((uintptr_t)p % cases[i].align, 0);
        EXPECT_EQ((uintptr_t)p % vm_page_size(), 0);
        EXPECT_EQ(pmap_tag(p), TAG_BLOCK);
        EXPECT_EQ(pmap_tag(p + PAGE_BYTES), pg->usable > PAGE_BYTES ? 0 : pmap_tag(p + PAGE_BYTES));
        EXPECT(large_page(p + 1) == NULL);
        EXPECT(large_page(p + 4096) == NULL);
        now = large_stats();
        EXPECT_EQ(now.run_count - before.run_count, cases[i].kind == PAGE_RUN);
        EXPECT_EQ(now.large_count - before.large_count, cases[i].kind == PAGE_LARGE);
        EXPECT_EQ(now.own_count - before.own_count, cases[i].kind == PAGE_OWN);
        EXPECT_EQ(now.run_bytes + now.large_bytes + now.own_bytes,
                  before.run_bytes + before.large_bytes + before.own_bytes + pg->usable);
        EXPECT_EQ(now.run_pages + now.large_pages + now.own_pages,
                  before.run_pages + before.large_pages + before.own_pages + cases[i].pages);
        touch(p, pg->usable < 2 * MIB ? pg->usable : 2 * MIB, 1);
        p[pg->usable - 1] = 1;
        large_free(pg);
        EXPECT_EQ(pmap_tag(p), 0);
        EXPECT(large_page(p) == NULL);
        EXPECT(same_stats(large_stats(), before));
    }
    zone_check(NODE);
    pcp_check();
}

TEST(large, every_alignment_is_kept)
{
    for (size_t align = 1; align <= 256 * MIB; align *= 2)
        for (size_t size = 1; size <= 80 * MIB; size = size * 9 + 1) {
            char *p = get(size, align), *q = get(size, align);
            EXPECT_EQ((uintptr_t)p % align, 0);
            EXPECT_EQ((uintptr_t)q % align, 0);
            EXPECT(p + size <= q || q + size <= p);
            put(p);
            put(q);
        }
    zone_check(NODE);
}

TEST(large, zeroed_blocks_read_as_zero)
{
    static const size_t sizes[] = {40000, 65536, 300000, 524288, 700000, 5 * MIB};
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            char *p = get(sizes[i], 1);
            memset(p, 0xee, large_page(p)->usable);
            put(p);
            p = large_alloc(NODE, sizes[i], 1, true);
            EXPECT(p != NULL);
            EXPECT(unit_is_zero(p, sizes[i]));
            memset(p, 0xee, large_page(p)->usable);
            put(p);
        }
    char *p = large_alloc(NODE, 70 * MIB, 1, true);
    EXPECT(p != NULL && unit_is_zero(p, 70 * MIB));
    put(p);
}

/* Bytes of blocks above the windows' of the zone, and how many. */
static size_t own_regions(size_t *count)
{
    struct region_stats s = region_stats();
    *count = s.count[REGION_LARGE] + s.count[REGION_OWN];
    return s.bytes[REGION_LARGE] + s.bytes[REGION_OWN];
}

TEST(large, longest_blocks_wait_empty_and_go_back_when_drained)
{
    size_t count, now;
    put(get(100 * MIB, 1)); /* leaves a window and leaves of the page map */
    large_drain(false);
    size_t mapped = vm_mapped_bytes(), own = own_regions(&count);
    char *p = get(100 * MIB - 5000, 1);
    EXPECT(region_contains(p) && region_contains(p + 99 * MIB));
    EXPECT_EQ(own_regions(&now) - own, os_round(100 * MIB - 5000));
    EXPECT_EQ(now, count + 1);
    touch(p, 99 * MIB, 1); /* takes longer than a step of the clock */
    put(p);
    EXPECT(region_contains(p));
    EXPECT_EQ(vm_resident(p, os_round(100 * MIB - 5000)), 0);
    large_drain(false);
    EXPECT_EQ(vm_mapped_bytes(), mapped);
    EXPECT_EQ(own_regions(&now), own);
    EXPECT_EQ(now, count);
    EXPECT(!region_contains(p) && region_is_gap(p));
}

TEST(large, impossible_sizes_fail_without_a_trace)
{
    put(get(100 * MIB, 1));
    struct large_stats before = large_stats();
    size_t count, now, own = own_regions(&count), mapped = vm_mapped_bytes();
    EXPECT(large_alloc(NODE, PTRDIFF_MAX, 1, false) == NULL);
    EXPECT(large_alloc(NODE, (size_t)1 << 60, 1, true) == NULL);
    EXPECT(large_alloc(NODE, 1, (size_t)1 << 47, false) == NULL);
    EXPECT(same_stats(large_stats(), before));
    EXPECT(vm_mapped_bytes() <= mapped); /* what waited is gone */
    EXPECT(own_regions(&now) <= own && now <= count);
}

/* ---- resize ---- */

TEST(large, run_resizes_in_place_within_its_pages)
{
    struct large_stats before = large_stats();
    char *p = get(150000, 1); /* four pages */
    struct page *pg = large_page(p);
    touch(p, 150000, 3);
    EXPECT(large_resize(pg, 262144) == p);
    EXPECT_EQ(pg->usable, 262144);
    EXPECT(large_resize(pg, 262145) == NULL); /* more than it has */
    EXPECT_EQ(pg->usable, 262144);
    EXPECT(large_resize(pg, 131071) == NULL); /* less than half: worth a move */
    EXPECT(large_resize(pg, 131073) == p);
    EXPECT_EQ(pg->usable, os_round(131073));
    EXPECT(touched(p, 131073, 3, 150000));
    EXPECT_EQ(large_stats().run_bytes - before.run_bytes, pg->usable);
    EXPECT(large_resize(pg, SIZE_SMALL_MAX) == NULL); /* a small object's size */
    put(p);
    EXPECT(same_stats(large_stats(), before));
}

TEST(large, window_block_gives_back_its_tail_and_grows_into_free_pages)
{
    struct large_stats before = large_stats();
    char *p = get(3 * MIB, 1);
    struct page *pg = large_page(p);
    touch(p, 3 * MIB, 7);
    size_t out = zone_stats(NODE).out;
    EXPECT(large_resize(pg, 1 * MIB) == p);
    EXPECT_EQ(pg->npages, 16);
    EXPECT_EQ(zone_stats(NODE).out, out - 2 * MIB);
    EXPECT(touched(p, 1 * MIB, 7, 3 * MIB));
    zone_check(NODE);
    EXPECT(large_resize(pg, 2 * MIB + 5) == p);
    EXPECT_EQ(pg->npages, 33);
    EXPECT_EQ(pg->usable, os_round(2 * MIB + 5));
    EXPECT(touched(p, 1 * MIB, 7, 3 * MIB));
    touch(p, pg->usable, 8);
    zone_check(NODE);
    EXPECT_EQ(large_stats().large_pages - before.large_pages, 33);
    EXPECT(large_resize(pg, 512 << 10) == NULL); /* a run's size */
    EXPECT(large_resize(pg, 65 * MIB) == NULL);  /* a mapping's size */
    EXPECT_EQ(pg->npages, 33);
    put(p);
    EXPECT(same_stats(large_stats(), before));
}

TEST(large, window_block_does_not_grow_over_a_neighbour)
{
    zone_purge(NODE, 0); /* from here on the only dirty pages are the tail that p gives back */
    char *p = get(32 * PAGE_BYTES, 1);
    struct page *pg = large_page(p);
    EXPECT(large_resize(pg, 16 * PAGE_BYTES) == p);
    char *q = get(16 * PAGE_BYTES, 1);
    EXPECT(q == p + 16 * PAGE_BYTES);
    touch(q, 16 * PAGE_BYTES, 1);
    EXPECT(large_resize(pg, 17 * PAGE_BYTES) == NULL);
    EXPECT_EQ(pg->npages, 16);
    EXPECT_EQ(pg->usable, 16 * PAGE_BYTES);
    EXPECT(touched(q, 16 * PAGE_BYTES, 1, 16 * PAGE_BYTES));
    put(p);
    put(q);
    zone_check(NODE);
}

TEST(large, growing_block_has_room_to_grow)
{
    char *p = large_alloc_growing(NODE, 2 * MIB);
    struct page *pg = large_page(p);
    size_t pages = pg->npages, out = zone_stats(NODE).out;
    EXPECT_EQ(pages * PAGE_BYTES, 4 * MIB);
    EXPECT_EQ(pg->usable, 2 * MIB);
    EXPECT(large_resize(pg, 2 * MIB + MIB / 2) == p);
    EXPECT_EQ(pg->npages, pages);
    EXPECT_EQ(zone_stats(NODE).out, out);
    EXPECT_EQ(pg->usable, 2 * MIB + MIB / 2);
    put(p);
    p = large_alloc_growing(NODE, 40 * MIB);
    pg = large_page(p);
    EXPECT_EQ(pg->kind, PAGE_OWN);
    EXPECT_EQ(pg->usable, 40 * MIB);
    EXPECT_EQ(pg->region->size, 60 * MIB);
    EXPECT(large_resize(pg, 60 * MIB) == p);
    EXPECT_EQ(pg->usable, 60 * MIB);
    put(p);
}

TEST(large, own_mapping_resizes_and_keeps_its_contents)
{
    struct large_stats before = large_stats();
    char *p = get(70 * MIB, 1);
    touch(p, 4 * MIB, 5);
    for (size_t size = 80 * MIB; size <= 400 * MIB; size += 53 * MIB + 1) {
        char *q = large_resize(large_page(p), size);
        EXPECT(q != NULL);
        if (q != p) {
            EXPECT_EQ(pmap_tag(p), 0);
            EXPECT(large_page(p) == NULL);
        }
        p = q;
        struct page *pg = large_page(p);
        EXPECT(pg != NULL && pg->kind == PAGE_OWN);
        EXPECT_EQ(pg->usable, os_round(size));
        EXPECT_EQ(pmap_tag(p), TAG_BLOCK);
        EXPECT(touched(p, 4 * MIB - 4096, 5, 4 * MIB));
        EXPECT_EQ(large_stats().own_bytes - before.own_bytes, os_round(size));
        p[size - 1] = 1;
    }
    char *q = large_resize(large_page(p), 40 * MIB); /* shrinks while it is worth a mapping */
    EXPECT(q != NULL);
    EXPECT_EQ(large_page(q)->usable, 40 * MIB);
    EXPECT(touched(q, 4 * MIB - 4096, 5, 4 * MIB));
    EXPECT(large_resize(large_page(q), 16 * MIB) == NULL);
    EXPECT(large_resize(large_page(q), (size_t)1 << 60) == NULL);
    EXPECT_EQ(large_page(q)->usable, 40 * MIB);
    put(q);
    EXPECT(same_stats(large_stats(), before));
}

/* ---- threads ---- */

static void churn(unsigned thread)
{
    enum { SLOTS = 12 };
    struct {
        char *p;
        size_t size;
    } s[SLOTS] = {{0}};
    uint64_t seed = thread + 110;
    for (int step = 0; step < 1200; step++) {
        size_t i = unit_below(&seed, SLOTS);
        unsigned char v = (unsigned char)(thread * 16 + i);
        if (s[i].p != NULL && unit_below(&seed, 3) == 0) {
            size_t size = 40000 + unit_below(&seed, (size_t)1 << (16 + unit_below(&seed, 6)));
            char *q = large_resize(large_page(s[i].p), size);
            if (q != NULL) {
                MUST(touched(q, size, v, s[i].size));
                s[i].p = q;
                s[i].size = size;
                touch(q, size, v);
            }
        } else if (s[i].p != NULL) {
            MUST(touched(s[i].p, s[i].size, v, s[i].size));
            put(s[i].p);
            s[i].p = NULL;
        } else {
            s[i].size = 40000 + unit_below(&seed, (size_t)1 << (16 + unit_below(&seed, 6)));
            s[i].p = large_alloc(NODE, s[i].size, 1, step % 4 == 0);
            MUST(s[i].p != NULL);
            MUST(step % 4 != 0 || unit_is_zero(s[i].p, s[i].size));
            touch(s[i].p, s[i].size, v);
        }
    }
    for (int i = 0; i < SLOTS; i++)
        if (s[i].p != NULL)
            put(s[i].p);
}

TEST(large, threads_never_share_a_block)
{
    struct large_stats before = large_stats();
    unit_threads(UNIT_THREADS, churn);
    large_drain(false);
    EXPECT(same_stats(large_stats(), before));
    zone_check(NODE);
    pcp_check();
}

static void move_mappings(unsigned thread)
{
    uint64_t seed = thread + 130;
    for (int round = 0; round < 60; round++) {
        char *p = get(65 * MIB + unit_below(&seed, 100) * PAGE_BYTES, 1);
        p[0] = (char)thread;
        for (int i = 0; i < 4; i++) {
            p = large_resize(large_page(p), 66 * MIB + unit_below(&seed, 1000) * 5 * 4096);
            MUST(p != NULL && p[0] == (char)thread);
            MUST(large_page(p) != NULL); /* nobody who took our old place touched the descriptor of the new */
        }
        put(p);
    }
}

/* A mapping that moves leaves an address that another thread may get at once. */
TEST(large, threads_move_mappings_without_losing_one)
{
    struct large_stats before = large_stats();
    large_drain(false);
    size_t own = region_stats().count[REGION_OWN];
    unit_threads(UNIT_THREADS, move_mappings);
    large_drain(false);
    EXPECT(same_stats(large_stats(), before));
    EXPECT_EQ(region_stats().count[REGION_OWN], own);
}

/* ---- blocks that wait ---- */

/* Free, ask, free again: from then on the block waits. */
static char *made_hot(size_t size)
{
    large_drain(false);
    for (int i = 0; i < 3; i++)
        put(get(size, 1));
    char *p = get(size, 1);
    put(p);
    return p;
}

TEST(large, block_of_a_habit_waits_outside_of_the_zone)
{
    unit_pin();
    char *p = made_hot(3 * MIB);
    size_t locks = zone_stats(NODE).lock_acquired;
    EXPECT_EQ(large_stats().hot_bytes, 3 * MIB);
    EXPECT_EQ(pmap_tag(p), 0);
    for (int i = 0; i < 100; i++) {
        EXPECT(get(3 * MIB, 1) == p);
        EXPECT_EQ(pmap_tag(p), TAG_BLOCK);
        put(p);
    }
    EXPECT(get(3 * MIB - 5 * 65536, 1) == p); /* a little shorter will do */
    EXPECT_EQ(large_page(p)->usable, 3 * MIB - 5 * 65536);
    put(p);
    EXPECT_EQ(zone_stats(NODE).lock_acquired - locks, 1); /* that of zone_stats */
    EXPECT(large_drain(true) == 0);                       /* has been asked for */
    EXPECT(large_drain(true) == 1);                       /* but not since */
    EXPECT_EQ(large_stats().hot_bytes, 0);
    zone_check(NODE);
    unit_unpin();
}

TEST(large, waiting_block_is_cleared_for_calloc)
{
    unit_pin();
    char *p = made_hot(2 * MIB);
    p = get(2 * MIB, 1);
    memset(p, 0xee, 2 * MIB);
    put(p);
    char *q = large_alloc(NODE, 2 * MIB, 1, true);
    EXPECT(q == p && unit_is_zero(q, 2 * MIB));
    put(q);
    p = get(70 * MIB, 1);
    memset(p, 0xee, 2 * MIB);
    put(p);
    q = large_alloc(NODE, 70 * MIB, 1, true);
    EXPECT(q == p && unit_is_zero(q, 2 * MIB));
    put(q);
    unit_unpin();
}

TEST(large, block_that_is_freed_once_does_not_wait)
{
    unit_pin();
    large_drain(false);
    char *p = get(5 * MIB + 3, 1), *q = get(7 * MIB + 3, 1);
    put(p);
    put(q);
    EXPECT_EQ(large_stats().hot_bytes, 0);
    unit_unpin();
}

/* ---- misuse ---- */

static void complain(void *p)
{
    large_complain(p, "free");
}

static void interior_says(char *base, size_t offset, const char *kind)
{
    char line[256];
    snprintf(line, sizeof line, "sheaf: free(%p): not the start of a block: class 0, region %s %p, offset %zu",
             (void *)(base + offset), kind, (void *)base, offset);
    unit_dies(complain, base + offset, line);
}

TEST(large, interior_pointers_say_their_offset)
{
    char *run = get(200000, 1), *window = get(3 * MIB, 1), *own = get(70 * MIB, 1);
    interior_says(run, 16, "run");
    interior_says(run, 65536 + 8, "run");
    interior_says(run, 199999, "run");
    interior_says(window, 1, "large");
    interior_says(window, 2 * MIB, "large");
    interior_says(own, 16, "large");
    interior_says(own, 5 * MIB + 8, "large");
    interior_says(own, 70 * MIB - 1, "large");
    put(run);
    put(window);
    put(own);
}

TEST(large, freed_blocks_say_double_free)
{
    char line[256];
    unit_pin();
    char *run = get(100000, 1), *window = get(3 * MIB, 1);
    put(run);
    put(window);
    snprintf(line, sizeof line, "sheaf: free(%p): double free: class 0, region run %p, already free", (void *)run,
             (void *)run);
    unit_dies(complain, run, line);
    snprintf(line, sizeof line, "sheaf: free(%p): double free: class 0, region large %p, already free", (void *)window,
             (void *)window);
    unit_dies(complain, window, line);
    window = made_hot(3 * MIB);
    snprintf(line, sizeof line, "sheaf: free(%p): double free: class 0, region large %p, already free", (void *)window,
             (void *)window);
    unit_dies(complain, window, line);
    char *own = get(70 * MIB, 1);
    put(own);
    snprintf(line, sizeof line, "sheaf: free(%p): double free: class 0, region large %p, already free", (void *)own,
             (void *)own);
    unit_dies(complain, own, line);
    unit_unpin();
}

TEST(large, strangers_are_left_to_the_caller)
{
    char local = 0;
    static char fixed;
    large_complain(&local, "free");
    large_complain(&fixed, "free");
    large_complain((void *)1, "free");
    large_complain((void *)-1, "free");
    large_complain((void *)((uintptr_t)1 << 47), "free");
}

/* Own mappings begin at os pages: whoever lies in the rest of their first 64 KiB is no block of ours. */
TEST(large, stranger_beside_an_own_mapping_is_a_stranger)
{
    if (vm_page_size() == PAGE_BYTES)
        return;
    char *p = NULL, *held[32];
    int n = 0;
    opt.purge = OPT_PURGE_OFF; /* so that blocks have mappings of their own */
    for (; n < 32; n++) { /* until one does not begin at a 64 KiB page: the kernel's choice */
        p = held[n] = get(65 * MIB + (size_t)n * vm_page_size(), 1);
        if ((uintptr_t)p % PAGE_BYTES != 0)
            break;
    }
    EXPECT(n < 32);
    char *beside = p - (uintptr_t)p % PAGE_BYTES;
    if (!region_contains(beside))
        large_complain(beside, "free");
    for (int i = 0; i <= n; i++)
        put(held[i]);
    opt.purge = OPT_PURGE_ON;
}
