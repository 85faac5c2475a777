/* SPDX-License-Identifier: BSD-2-Clause */
/* core/alloc.h: the calls below the public names. */
#include "unit.h"

#include "compat/os/vm.h"
#include "core/alloc.h"
#include "core/reclaim.h"
#include "core/barn.h"
#include "core/large.h"
#include "core/misuse.h"
#include "core/opt.h"
#include "core/pcp.h"
#include "core/slab.h"
#include "core/tcache.h"
#include "core/zone.h"

#include <errno.h>

#define MIB ((size_t)1 << 20)

/* Sizes around every edge of the layers. */
static const size_t edges[] = {
    0,         1,         15,          16,          17,          24,          127,         128,       129,
    1023,      1024,      1025,        4095,        4097,        16384,       20000,       32767,     32768,
    32769,     65535,     65536,       65537,       131072,      200000,      524287,      524288,    524289,
    1000000,   3 << 20,   17 << 20,    (64 << 20) - 1, 64 << 20, (64 << 20) + 1, 90 << 20,
};
enum { EDGES = sizeof edges / sizeof *edges };

/* Contents: whole for small blocks, one byte in 997 for the others. */
static size_t stride(size_t size)
{
    return size <= 70000 ? 1 : 997;
}

static void fill(char *p, size_t size, unsigned id)
{
    for (size_t i = 0; i < size; i += stride(size))
        p[i] = (char)(i * 31 + id);
}

static bool filled(const char *p, size_t upto, size_t size, unsigned id)
{
    for (size_t i = 0; i < upto; i += stride(size))
        if (p[i] != (char)(i * 31 + id))
            return false;
    return true;
}

static void *resize(void *p, size_t size)
{
    return alloc_resize(p, size, "realloc");
}

TEST(alloc, usable_is_the_good_size_and_no_less_than_asked)
{
    for (int i = 0; i < EDGES; i++) {
        char *p = unit_malloc(edges[i]);
        EXPECT(p != NULL);
        EXPECT(alloc_usable(p) >= edges[i] && alloc_usable(p) > 0);
        EXPECT_EQ(alloc_usable(p), alloc_good_size(edges[i], 1));
        p[0] = p[alloc_usable(p) - 1] = 1;
        unit_free(p);
    }
    EXPECT_EQ(alloc_usable(NULL), 0);
    EXPECT_EQ(alloc_usable(&errno), 0);
}

TEST(alloc, good_size_is_usable_for_every_alignment)
{
    for (size_t align = 1; align <= 4 * MIB; align *= 2)
        for (int i = 0; i < EDGES; i++) {
            char *p = alloc_aligned(align, edges[i], false);
            EXPECT(p != NULL);
            EXPECT_EQ((uintptr_t)p % align, 0);
            EXPECT_EQ(alloc_usable(p), alloc_good_size(edges[i], align));
            EXPECT(alloc_usable(p) >= edges[i]);
            unit_free(p);
        }
}

TEST(alloc, what_cannot_be_served_has_no_good_size)
{
    EXPECT_EQ(alloc_good_size(SIZE_MAX, 1), 0);
    EXPECT_EQ(alloc_good_size((size_t)PTRDIFF_MAX + 1, 1), 0);
    EXPECT_EQ(alloc_good_size(PTRDIFF_MAX, 1), 0); /* rounding passes the bound */
    EXPECT_EQ(alloc_good_size(1, (size_t)1 << 48), 0);
    EXPECT(alloc_good_size(1, 1) == 16);
}

TEST(alloc, impossible_requests_fail_and_leave_errno_alone)
{
    errno = EDOM;
    EXPECT(alloc_slow((size_t)PTRDIFF_MAX + 1) == NULL);
    EXPECT(alloc_slow(SIZE_MAX) == NULL);
    EXPECT(alloc_slow(PTRDIFF_MAX) == NULL);
    EXPECT(alloc_zeroed(SIZE_MAX) == NULL);
    EXPECT(alloc_aligned(16, SIZE_MAX, false) == NULL);
    EXPECT(alloc_aligned((size_t)1 << 62, 1, false) == NULL);
    char *p = unit_malloc(100);
    fill(p, 100, 1);
    EXPECT(resize(p, SIZE_MAX) == NULL);
    EXPECT(resize(p, PTRDIFF_MAX) == NULL);
    EXPECT(filled(p, 100, 100, 1));
    unit_free(p);
    unit_free(NULL);
    alloc_free_slow(NULL, "free");
    EXPECT_EQ(errno, EDOM);
}

TEST(alloc, zeroed_memory_is_zero_after_dirty_use)
{
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < EDGES; i++) {
            if (edges[i] > 20 * MIB)
                continue;
            char *p = unit_malloc(edges[i]);
            memset(p, 0xee, alloc_usable(p));
            unit_free(p);
            p = i % 2 == 0 ? alloc_zeroed(edges[i]) : alloc_aligned(64, edges[i], true);
            EXPECT(p != NULL);
            EXPECT(unit_is_zero(p, edges[i]));
            memset(p, 0xdd, alloc_usable(p));
            unit_free(p);
        }
}

/* ---- realloc ---- */

TEST(alloc, realloc_between_all_layers_keeps_contents)
{
    for (int from = 1; from < EDGES; from++)
        for (int to = 1; to < EDGES; to += 1 + 4 * (edges[from] > MIB)) {
            size_t a = edges[from], b = edges[to], common = a < b ? a : b;
            char *p = unit_malloc(a);
            EXPECT(p != NULL);
            for (size_t i = 0; i < common; i += 61 + common / 300)
                p[i] = (char)(i * 7 + 1);
            p[common - 1] = 'z';
            char *q = resize(p, b);
            EXPECT(q != NULL);
            EXPECT(alloc_usable(q) >= b);
            EXPECT_EQ(q[common - 1], 'z');
            for (size_t i = 0; i < common - 1; i += 61 + common / 300)
                EXPECT_EQ(q[i], (char)(i * 7 + 1));
            unit_free(q);
        }
}

TEST(alloc, realloc_within_the_class_moves_nothing)
{
    for (size_t size = 1; size <= SIZE_SMALL_MAX; size = size * 3 / 2 + 1) {
        char *p = unit_malloc(size);
        EXPECT(resize(p, alloc_usable(p)) == p);
        EXPECT(resize(p, alloc_usable(p) / 2 + 1) == p);
        unit_free(p);
    }
}

TEST(alloc, realloc_to_half_or_less_takes_a_smaller_block)
{
    for (size_t size = 64; size <= 128 << 10; size *= 2) {
        char *p = unit_malloc(size), *q;
        fill(p, size, 2);
        q = resize(p, size / 4);
        EXPECT(q != NULL && alloc_usable(q) <= size / 2);
        EXPECT(filled(q, size / 4, size, 2));
        unit_free(q);
    }
}

TEST(alloc, block_that_grows_step_by_step_keeps_contents)
{
    size_t size = 1, moves = 0;
    char *p = unit_malloc(size);
    fill(p, size, 3);
    while (size < 70 * MIB) {
        size_t more = size + size / 3 + 1;
        char *q = resize(p, more);
        EXPECT(q != NULL);
        for (size_t i = 0; i < size; i += size / 50 + 1)
            EXPECT_EQ(q[i], (char)(i * 31 + 3));
        moves += q != p;
        p = q;
        for (size_t i = size; i < more; i++)
            p[i] = (char)(i * 31 + 3);
        size = more;
    }
    EXPECT(moves > 5);
    unit_free(p);
}

TEST(alloc, resize_in_place_never_moves_or_lies)
{
    char *small = unit_malloc(100), *run = unit_malloc(100000), *own = unit_malloc(70 * MIB);
    EXPECT(alloc_resize_in_place(small, 112));
    EXPECT(alloc_resize_in_place(small, 1));
    EXPECT(!alloc_resize_in_place(small, 113));
    EXPECT(alloc_resize_in_place(run, 131072));
    EXPECT_EQ(alloc_usable(run), 131072);
    EXPECT(!alloc_resize_in_place(run, 131073));
    EXPECT(alloc_resize_in_place(own, 60 * MIB));
    EXPECT(!alloc_resize_in_place(own, 200 * MIB));
    EXPECT(!alloc_resize_in_place(own, SIZE_MAX));
    EXPECT(!alloc_resize_in_place(&errno, 1));
    unit_free(small);
    unit_free(run);
    unit_free(own);
}

/* ---- a mixed trace ---- */

enum { SLOTS = 300 };

struct slot {
    char *p;
    size_t size;
    unsigned id;
};

static size_t any_size(uint64_t *seed)
{
    size_t scale = unit_below(seed, 100);
    unsigned shift = scale < 70 ? 9 : scale < 90 ? 15 : scale < 98 ? 18 : 22;
    return unit_below(seed, (size_t)1 << unit_below(seed, shift + 1));
}

static void trace_step(struct slot *s, uint64_t *seed, unsigned id)
{
    size_t size = any_size(seed), what = unit_below(seed, 10);
    if (s->p == NULL) {
        size_t align = (size_t)1 << unit_below(seed, 14);
        s->p = what < 6 ? unit_malloc(size) : what < 8 ? alloc_zeroed(size) : alloc_aligned(align, size, false);
        MUST(s->p != NULL);
        MUST(what < 8 || (uintptr_t)s->p % align == 0);
        MUST(what < 6 || what >= 8 || unit_is_zero(s->p, size));
    } else if (what < 4) {
        char *q = size == 0 ? s->p : resize(s->p, size);
        MUST(q != NULL);
        size_t common = size == 0 || s->size < size ? s->size : size;
        MUST(filled(q, common, s->size, s->id));
        s->p = q;
        size = size == 0 ? s->size : size;
    } else {
        MUST(filled(s->p, s->size, s->size, s->id));
        unit_free(s->p);
        s->p = NULL;
        return;
    }
    s->size = size;
    s->id = id;
    MUST(alloc_usable(s->p) >= size);
    fill(s->p, size, id);
}

static void check_heap(void)
{
    tcache_check();
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        barn_check(c, NODE);
        slab_check(c, NODE);
    }
    pcp_check();
    zone_check(NODE);
}

static void mixed(unsigned thread)
{
    struct slot *slots = calloc(SLOTS, sizeof *slots);
    uint64_t seed = thread + 150;
    MUST(slots != NULL);
    for (unsigned step = 1; step <= 15000; step++) {
        trace_step(&slots[unit_below(&seed, SLOTS)], &seed, step);
        if (step % 1500 == 0)
            check_heap();
        if (step % 4000 == 0)
            reclaim_trim(0);
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].p != NULL) {
            MUST(filled(slots[i].p, slots[i].size, slots[i].size, slots[i].id));
            unit_free(slots[i].p);
        }
    free(slots);
}

TEST(alloc, random_trace_of_all_calls)
{
    unit_threads(1, mixed);
    check_heap();
}

TEST(alloc, random_traces_side_by_side)
{
    unit_threads(UNIT_THREADS, mixed);
    check_heap();
}

/* Blocks go from thread to thread and are freed where they were not allocated. */
static void *mailbox[256];

static void pass_on(unsigned thread)
{
    uint64_t seed = thread + 170;
    for (int i = 0; i < 20000; i++) {
        size_t size = 8 + unit_below(&seed, 600);
        size_t *p = unit_malloc(size);
        MUST(p != NULL);
        *p = size;
        memset(p + 1, (int)(size & 0xff), size - sizeof *p);
        size_t *q = __atomic_exchange_n(&mailbox[unit_below(&seed, 256)], p, __ATOMIC_ACQ_REL);
        if (q != NULL) {
            MUST(alloc_usable(q) >= *q);
            MUST(*q < 9 || ((unsigned char *)q)[*q - 1] == (*q & 0xff));
            unit_free(q);
        }
    }
}

TEST(alloc, blocks_are_freed_by_other_threads)
{
    unit_threads(UNIT_THREADS, pass_on);
    for (int i = 0; i < 256; i++) {
        unit_free(mailbox[i]);
        mailbox[i] = NULL;
    }
    check_heap();
}

/* ---- sized frees ---- */

static bool size_counts(void *p, size_t size, size_t align)
{
    size_t before = misuse_wrong_size_count();
    alloc_check_size(p, size, align, "free_sized");
    return misuse_wrong_size_count() != before;
}

TEST(alloc, right_sizes_are_never_counted)
{
    for (size_t align = 1; align <= 2 * MIB; align *= 4)
        for (int i = 0; i < EDGES; i++) {
            void *p = alloc_aligned(align, edges[i], false);
            EXPECT(!size_counts(p, edges[i], align));
            unit_free(p);
        }
    for (int from = 1; from < EDGES; from++) /* whatever realloc left where it was */
        for (int to = 1; to < EDGES; to++) {
            if (edges[from] > 3 * MIB || edges[to] > 3 * MIB)
                continue;
            void *p = resize(unit_malloc(edges[from]), edges[to]);
            EXPECT(!size_counts(p, edges[to], 1));
            unit_free(p);
        }
}

TEST(alloc, wrong_sizes_are_counted)
{
    char *small = unit_malloc(100), *run = unit_malloc(100000), *window = unit_malloc(3 * MIB);
    EXPECT(size_counts(small, 113, 1));
    EXPECT(size_counts(small, 50, 1));
    EXPECT(size_counts(small, 40000, 1));
    EXPECT(size_counts(run, 100, 1));
    EXPECT(size_counts(run, 200000, 1));
    EXPECT(size_counts(window, 1, 1));
    EXPECT(size_counts(window, 3 * MIB + 4097, 1));
    EXPECT(!size_counts(&errno, 4, 1));
    EXPECT(!size_counts(NULL, 4, 1));
    unit_free(small);
    unit_free(run);
    unit_free(window);
}

struct sized {
    void *p;
    size_t size;
};

static void strict_sized(void *arg)
{
    struct sized *s = arg;
    opt.strict = 1;
    alloc_check_size(s->p, s->size, 1, "free_sized");
}

TEST(alloc, strict_aborts_on_a_wrong_size)
{
    char line[256];
    struct sized s = {unit_malloc(100), 200};
    snprintf(line, sizeof line, "sheaf: free_sized(%p): wrong size: class 112, region slab %p, in use", s.p,
             (void *)((uintptr_t)s.p & ~(PAGE_BYTES - 1)));
    unit_dies(strict_sized, &s, line);
    s.size = 112;
    unit_alone(strict_sized, &s);
    unit_free(s.p);
    s = (struct sized){unit_malloc(3 * MIB), 10};
    snprintf(line, sizeof line, "sheaf: free_sized(%p): wrong size: class 0, region large %p, in use", s.p, s.p);
    unit_dies(strict_sized, &s, line);
    unit_free(s.p);
}

/* ---- misuse through the calls ---- */

static void *block;

static void free_block(void *offset)
{
    alloc_free_slow((char *)block + (size_t)offset, "free");
}

static void resize_block(void *offset)
{
    resize((char *)block + (size_t)offset, 100000);
}

TEST(alloc, free_and_realloc_name_a_wrong_large_pointer)
{
    char line[256];
    block = unit_malloc(3 * MIB);
    snprintf(line, sizeof line, "sheaf: free(%p): not the start of a block: class 0, region large %p, offset 4096",
             (void *)((char *)block + 4096), block);
    unit_dies(free_block, (void *)4096, line);
    snprintf(line, sizeof line, "sheaf: realloc(%p): not the start of a block: class 0, region large %p, offset 16",
             (void *)((char *)block + 16), block);
    unit_dies(resize_block, (void *)16, line);
    unit_free(block);
    snprintf(line, sizeof line, "sheaf: free(%p): double free: class 0, region large %p, already free", block, block);
    unit_dies(free_block, NULL, line);
}

static void foreign(void *arg)
{
    (void)arg;
    char local[16] = "";
    size_t before = misuse_foreign_count();
    alloc_free_slow(local, "free");
    MUST(resize(local, 100) == NULL);
    MUST(misuse_foreign_count() == before + 2);
}

TEST(alloc, foreign_pointers_are_counted_and_left_alone)
{
    unit_alone(foreign, NULL);
}

/* ---- trim ---- */

TEST(alloc, trim_empties_every_layer)
{
    enum { N = 5000 };
    static void *p[N];
    uint64_t seed = 190;
    for (int i = 0; i < N; i++) {
        p[i] = unit_malloc(1 + unit_below(&seed, 5000));
        *(char *)p[i] = 1;
    }
    void *run = unit_malloc(300000), *window = unit_malloc(5 * MIB);
    memset(run, 1, 300000);
    memset(window, 1, 5 * MIB);
    for (int i = 0; i < N; i++)
        unit_free(p[i]);
    unit_free(run);
    unit_free(window);
    size_t purged = zone_stats(NODE).purged;
    EXPECT(reclaim_trim(0));
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        EXPECT_EQ(slab_stats(c, NODE).slabs, 0);
        EXPECT_EQ(barn_stats(c, NODE).full, 0);
    }
    EXPECT_EQ(pcp_stats().bytes, 0);
    EXPECT_EQ(zone_stats(NODE).dirty, 0);
    EXPECT_EQ(zone_stats(NODE).out, 0);
    EXPECT(zone_stats(NODE).purged > purged);
    EXPECT(!reclaim_trim(0)); /* nothing left to give */
    check_heap();
}

TEST(alloc, trim_keeps_what_it_is_told_to)
{
    reclaim_trim(0);
    unit_pin(); /* on another cpu the free would go on with another run of frees */
    char *p = unit_malloc(6 * MIB);
    memset(p, 1, 6 * MIB);
    unit_free(p);
    large_drain(false); /* it may wait for the next request */
    unit_unpin();
    EXPECT(zone_stats(NODE).dirty >= 6 * MIB);
    EXPECT(reclaim_trim(2 * MIB));
    EXPECT_EQ(zone_stats(NODE).dirty, 2 * MIB);
    EXPECT(!reclaim_trim(2 * MIB));
    reclaim_trim(0);
}

TEST(alloc, trim_leaves_live_blocks_alone)
{
    enum { N = 500 };
    static struct slot s[N];
    uint64_t seed = 210;
    for (unsigned i = 0; i < N; i++) {
        s[i] = (struct slot){.size = 1 + unit_below(&seed, i % 50 == 0 ? MIB : 3000), .id = i};
        s[i].p = unit_malloc(s[i].size);
        fill(s[i].p, s[i].size, i);
    }
    for (unsigned i = 0; i < N; i += 2)
        unit_free(s[i].p);
    reclaim_trim(0);
    check_heap();
    for (unsigned i = 1; i < N; i += 2) {
        EXPECT(filled(s[i].p, s[i].size, s[i].size, i));
        unit_free(s[i].p);
    }
}
