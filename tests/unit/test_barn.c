/* SPDX-License-Identifier: BSD-2-Clause */
/* core/barn.h: stacks of sheaves. barn_check (INV-BARN-1, INV-BARN-2) follows each step. */
#include "unit.h"

#include "core/barn.h"
#include "core/meta.h"
#include "core/opt.h"
#include "core/slab.h"

enum { C16 = 0, C48 = 2, C32K = SIZE_CLASSES - 1, CAP = 26, MANY = 1000 };

static struct sheaf *held[MANY];

static struct barn_stats fresh(class_t c)
{
    unit_fresh();
    barn_check(c, NODE);
    struct barn_stats s = barn_stats(c, NODE);
    EXPECT_EQ(s.full, 0);
    EXPECT_EQ(s.empty, 0);
    EXPECT_EQ(s.objs, 0);
    return s;
}

/* A sheaf of capacity cap with n objects of class c. */
static struct sheaf *filled(class_t c, uint32_t cap, uint32_t n)
{
    struct sheaf *s = barn_sheaf_new(cap);
    MUST(s != NULL && n <= cap);
    while (s->n < n)
        s->n += slab_alloc_bulk(c, NODE, s->slot + 1 + s->n, n - s->n, n - s->n);
    return s;
}

/* Its objects to the slabs, its array to meta. */
static void scrap(class_t c, struct sheaf *s)
{
    slab_free_bulk(c, NODE, s->slot + 1, s->n, "free");
    barn_sheaf_free(s);
}

static bool put(class_t c, struct sheaf *s)
{
    struct sheaf *empty;
    bool ok = barn_put_full(c, NODE, s, UINT32_MAX, &empty, "free");
    MUST(empty == NULL); /* none is that large */
    barn_check(c, NODE);
    return ok;
}

TEST(barn, full_sheaves_come_back_last_in_first_out)
{
    struct barn_stats start = fresh(C48);
    for (uint32_t i = 0; i < 5; i++) {
        held[i] = filled(C48, CAP, i + 1);
        EXPECT(put(C48, held[i]));
    }
    struct barn_stats s = barn_stats(C48, NODE);
    EXPECT_EQ(s.full, 5);
    EXPECT_EQ(s.objs, 1 + 2 + 3 + 4 + 5);
    EXPECT_EQ(s.put, start.put + 5);
    for (uint32_t i = 5; i > 0; i--) {
        EXPECT(barn_get_full(C48, NODE, NULL) == held[i - 1]);
        EXPECT_EQ(held[i - 1]->n, i);
        barn_check(C48, NODE);
        scrap(C48, held[i - 1]);
    }
    EXPECT(barn_get_full(C48, NODE, NULL) == NULL);
    s = barn_stats(C48, NODE);
    EXPECT_EQ(s.get, start.get + 5);
    EXPECT_EQ(s.get_fail, start.get_fail + 1);
}

TEST(barn, get_and_put_exchange_full_for_empty)
{
    struct sheaf *empty = barn_sheaf_new(CAP), *full = filled(C48, CAP, CAP), *back;
    fresh(C48);
    EXPECT(barn_get_full(C48, NODE, empty) == NULL); /* nothing moves */
    EXPECT_EQ(barn_stats(C48, NODE).empty, 0);
    EXPECT(put(C48, full));
    EXPECT(barn_get_full(C48, NODE, empty) == full);
    barn_check(C48, NODE);
    EXPECT_EQ(barn_stats(C48, NODE).empty, 1);
    EXPECT(barn_put_full(C48, NODE, full, CAP + 1, &back, "free"));
    EXPECT(back == NULL); /* too small for what is asked */
    EXPECT(barn_get_full(C48, NODE, NULL) == full);
    EXPECT(barn_put_full(C48, NODE, full, CAP, &back, "free"));
    EXPECT(back == empty);
    EXPECT_EQ(barn_stats(C48, NODE).empty, 0);
    barn_check(C48, NODE);
    barn_sheaf_free(back);
    EXPECT_EQ(barn_flush(C48, NODE, "free"), CAP);
}

TEST(barn, empty_sheaves_are_kept_to_a_number)
{
    fresh(C48);
    size_t used = meta_stats().used;
    for (int i = 0; i < BARN_EMPTY_MAX + 5; i++) {
        barn_put_empty(C48, NODE, barn_sheaf_new(CAP));
        barn_check(C48, NODE);
    }
    EXPECT_EQ(barn_stats(C48, NODE).empty, BARN_EMPTY_MAX);
    struct sheaf *s = barn_get_empty(C48, NODE, CAP);
    EXPECT_EQ(barn_stats(C48, NODE).empty, BARN_EMPTY_MAX - 1);
    EXPECT_EQ(s->cap, CAP);
    struct sheaf *larger = barn_get_empty(C48, NODE, CAP + 1); /* a new one */
    EXPECT_EQ(barn_stats(C48, NODE).empty, BARN_EMPTY_MAX - 1);
    EXPECT(larger->cap >= CAP + 1 && larger->n == 0);
    barn_sheaf_free(s);
    barn_sheaf_free(larger);
    barn_flush(C48, NODE, "free");
    EXPECT_EQ(barn_stats(C48, NODE).empty, 0);
    EXPECT_EQ(meta_stats().used, used);
}

/* ---- limits ---- */

/* Put full sheaves of n objects until one is refused. Result: how many were taken. */
static size_t fill(class_t c, uint32_t n)
{
    for (size_t i = 0; i < MANY; i++) {
        struct sheaf *s = filled(c, n, n);
        if (!put(c, s)) {
            scrap(c, s);
            return i;
        }
    }
    return MANY;
}

static size_t empty_out(class_t c)
{
    size_t n = 0;
    for (struct sheaf *s; (s = barn_get_full(c, NODE, NULL)) != NULL; n++)
        scrap(c, s);
    return n;
}

static void begin_small(void *arg)
{
    (void)arg;
    size_t fail = barn_stats(C16, NODE).put_fail;
    MUST(fill(C16, 26) == BARN_FULL_MIN); /* sheaves bound small objects */
    MUST(barn_stats(C16, NODE).limit == BARN_FULL_MIN);
    MUST(barn_stats(C16, NODE).put_fail == fail + 1);
    MUST(fill(C32K, 2) == BARN_BYTES_MIN / (2 * class_to_size(C32K))); /* bytes bound large ones */
}

/* The limit begins small in a fresh process; the plain runner's other tests do not touch these two classes' limits. */
TEST(barn, limits_are_sheaves_and_bytes)
{
    unit_alone(begin_small, NULL);
}

/* Full, then empty, then full again: only then was the limit to blame. */
TEST(barn, limit_doubles_only_after_full_and_empty_and_full)
{
    class_t c = 1;
    fresh(c);
    size_t limit = fill(c, 26);
    EXPECT(limit >= BARN_FULL_MIN);
    EXPECT_EQ(fill(c, 26), 0); /* full again, but never empty: no reason */
    EXPECT_EQ(empty_out(c), limit);
    EXPECT_EQ(fill(c, 26), 2 * limit);
    EXPECT_EQ(barn_stats(c, NODE).limit, 2 * limit);
    EXPECT_EQ(fill(c, 26), 0);
    EXPECT_EQ(empty_out(c), 2 * limit);
}

static void grow_for_ever(void *arg)
{
    (void)arg;
    size_t most = 0;
    for (int i = 0; i < 12; i++) {
        size_t n = fill(4, 10);
        MUST(n >= most);
        most = n;
        empty_out(4);
    }
    MUST(most == (size_t)BARN_FULL_MIN * BARN_LIMIT_MAX);
}

TEST(barn, limit_has_a_ceiling)
{
    unit_alone(grow_for_ever, NULL);
}

TEST(barn, emptying_without_a_failed_put_grows_nothing)
{
    class_t c = 5;
    fresh(c);
    size_t limit = fill(c, 4);
    empty_out(c); /* its last get failed: the wish is there */
    fill(c, 4);   /* ... and used */
    empty_out(c);
    limit = barn_stats(c, NODE).limit;
    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < limit / 2; i++)
            EXPECT(put(c, filled(c, 4, 4)));
        empty_out(c);
    }
    EXPECT_EQ(barn_stats(c, NODE).limit, limit);
}

TEST(barn, returned_sheaf_is_taken_whatever_the_limit)
{
    fresh(C48);
    size_t limit = fill(C48, 8);
    for (int i = 0; i < 5; i++) {
        barn_return_full(C48, NODE, filled(C48, 8, 3));
        barn_check(C48, NODE);
    }
    EXPECT_EQ(barn_stats(C48, NODE).full, limit + 5);
    EXPECT_EQ(barn_flush(C48, NODE, "free"), limit * 8 + 5 * 3);
}

TEST(barn, lab_option_fixes_the_limit)
{
    fresh(C48);
    opt.barn_max = 3;
    size_t n[2];
    n[0] = fill(C48, 8);
    empty_out(C48);
    n[1] = fill(C48, 8);
    opt.barn_max = 0;
    EXPECT_EQ(n[0], 3);
    EXPECT_EQ(n[1], 3);
    empty_out(C48);
}

TEST(barn, flush_gives_all_objects_back_to_the_slabs)
{
    scrap(C48, filled(C48, CAP, CAP)); /* the first window has its descriptor from now on */
    fresh(C48);
    size_t used = meta_stats().used;
    for (uint32_t i = 1; i <= 8; i++)
        EXPECT(put(C48, filled(C48, CAP, i)));
    barn_put_empty(C48, NODE, barn_sheaf_new(CAP));
    EXPECT_EQ(barn_flush(C48, NODE, "free"), 36);
    barn_check(C48, NODE);
    struct barn_stats s = barn_stats(C48, NODE);
    EXPECT_EQ(s.full + s.empty + s.objs, 0);
    struct slab_stats slabs = slab_stats(C48, NODE);
    EXPECT_EQ(slabs.free_objs, slabs.slabs * size_info[C48].objs);
    EXPECT_EQ(barn_flush(C48, NODE, "free"), 0);
    slab_trim(C48, NODE);
    EXPECT_EQ(meta_stats().used, used); /* the arrays too */
}

/* A class whose slabs are mostly free keeps nothing: each refused put also frees one sheaf that the barn has. */
TEST(barn, draining_class_refuses_and_lets_go)
{
    enum { N = 4096 };
    static void *objs[N];
    class_t c = 19; /* 1 KiB */
    fresh(c);
    for (unsigned got = 0; got < N;)
        got += slab_alloc_bulk(c, NODE, objs + got, N - got, N - got);
    for (int i = 0; i < 3; i++)
        EXPECT(put(c, filled(c, 8, 8)));
    for (unsigned i = 0; i < N; i++)
        if (i % 8 != 0)
            slab_free_bulk(c, NODE, &objs[i], 1, "free");
    EXPECT(slab_draining(c, NODE));
    struct sheaf *s = filled(c, 8, 8);
    size_t free_objs = slab_stats(c, NODE).free_objs;
    EXPECT(!put(c, s));
    EXPECT_EQ(barn_stats(c, NODE).full, 2);
    EXPECT_EQ(slab_stats(c, NODE).free_objs, free_objs + 8);
    EXPECT(!put(c, s));
    EXPECT(!put(c, s));
    EXPECT(!put(c, s));
    EXPECT_EQ(barn_stats(c, NODE).full, 0);
    scrap(c, s);
    for (unsigned i = 0; i < N; i += 8)
        slab_free_bulk(c, NODE, &objs[i], 1, "free");
}

TEST(barn, capacity_fills_the_allocation)
{
    for (uint32_t cap = 1; cap <= 500; cap++) {
        uint32_t c = barn_sheaf_capacity(cap, UINT32_MAX);
        size_t bytes = sheaf_bytes(c);
        EXPECT(c >= cap);
        EXPECT((bytes & (bytes - 1)) == 0);
        EXPECT(bytes / 2 < sheaf_bytes(cap));
        EXPECT_EQ(barn_sheaf_capacity(cap, cap), cap);
    }
}

/* ---- threads ---- */

static void exchange(unsigned thread)
{
    uint64_t seed = thread + 70;
    for (int step = 0; step < 1500; step++) {
        struct sheaf *s = barn_get_full(C48, NODE, NULL), *empty;
        if (s == NULL)
            s = filled(C48, CAP, 1 + (uint32_t)unit_below(&seed, CAP));
        for (uint32_t i = 1; i <= s->n; i++)
            unit_stamp(s->slot[i], 48, thread + i);
        for (uint32_t i = 1; i <= s->n; i++)
            MUST(unit_stamped(s->slot[i], 48, thread + i));
        if (!barn_put_full(C48, NODE, s, CAP, &empty, "free"))
            scrap(C48, s);
        else if (empty != NULL)
            barn_put_empty(C48, NODE, empty);
        if (step % 64 == 0) {
            barn_check(C48, NODE);
            barn_put_empty(C48, NODE, barn_get_empty(C48, NODE, CAP));
        }
    }
}

TEST(barn, threads_exchange_whole_sheaves)
{
    fresh(C48);
    unit_threads(UNIT_THREADS, exchange);
    barn_check(C48, NODE);
    barn_flush(C48, NODE, "free");
    struct slab_stats s = slab_stats(C48, NODE);
    EXPECT_EQ(s.free_objs, s.slabs * size_info[C48].objs);
}

/* ---- the check itself ---- */

static void foreign_objects(void *arg)
{
    (void)arg;
    barn_return_full(C48, NODE, filled(C16, CAP, CAP));
    barn_check(C48, NODE);
}

/* INV-BARN-2 */
TEST(barn, check_notices_objects_of_another_class)
{
    unit_dies_saying(foreign_objects, NULL, "sheaf: internal error: pmap_tag(s->slot[i]) == tag_make(c, node)");
}

static void wrong_sum(void *arg)
{
    (void)arg;
    struct sheaf *s = filled(C48, CAP, CAP);
    barn_return_full(C48, NODE, s);
    s->n--;
    barn_check(C48, NODE);
}

/* INV-BARN-1 */
TEST(barn, check_notices_a_wrong_sum)
{
    unit_dies_saying(wrong_sum, NULL, "sheaf: internal error: objs == b->objs");
}

/* ---- parts: a node with many cpus has a barn for each BARN_CPUS of them. For other cpus' parts: perf/sim ---- */

static void fork_once(void)
{
    barn_fork_hold();
    barn_fork_open();
}

static void make_parts(void *arg)
{
    (void)arg;
    fresh(C48);
    struct sheaf *before = filled(C48, CAP, 3);
    MUST(put(C48, before));
    MUST(barn_nodes(1, BARN_CPUS)); /* one part: nothing changes */
    MUST(barn_stats(C48, NODE).full == 1);
    MUST(barn_nodes(1, 3 * BARN_CPUS + 1));
    barn_check(C48, NODE);
    MUST(barn_stats(C48, NODE).objs == 3);
    MUST(barn_get_full(C48, NODE, NULL) == before); /* whatever cpu we are on */
    MUST(put(C48, before));
    struct sheaf *more = filled(C48, CAP, 4);
    MUST(put(C48, more));
    fork_once();
    struct barn_stats s = barn_stats(C48, NODE);
    MUST(s.full == 2 && s.objs == 7);
    MUST(barn_flush(C48, NODE, "free") == 7);
    barn_check(C48, NODE);
    s = barn_stats(C48, NODE);
    MUST(s.full == 0 && s.objs == 0 && barn_get_full(C48, NODE, NULL) == NULL);
}

TEST(barn, parts_keep_what_was_there_and_are_one_to_look_at)
{
    unit_alone(make_parts, NULL);
}
