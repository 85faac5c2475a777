/* SPDX-License-Identifier: BSD-2-Clause */
/* core/slab.h: slabs. INV-SLAB-1 to 4 are slab_check's, which follows each step of the traces here. */
#include "unit.h"

#include "core/pcp.h"
#include "core/reclaim.h"
#include "core/slab.h"
#include "core/zone.h"

enum { C48 = 2, C64 = 3, C1024 = 19, MOST = 8192 };

static void *objs[MOST];

static struct slab_stats fresh(class_t c)
{
    unit_fresh();
    struct slab_stats s = slab_stats(c, NODE);
    EXPECT_EQ(s.slabs, 0);
    EXPECT_EQ(s.free_objs, 0);
    return s;
}

/* Exactly n objects into out. */
static void take(class_t c, void **out, unsigned n)
{
    for (unsigned got = 0; got < n;) {
        unsigned part = slab_alloc_bulk(c, NODE, out + got, n - got, n - got);
        MUST(part > 0 && part <= n - got);
        got += part;
    }
}

static void give(class_t c, void *const *from, unsigned n)
{
    slab_free_bulk(c, NODE, from, n, "free");
}

static void *page_of(const void *p)
{
    return (void *)((uintptr_t)p & ~(uintptr_t)(PAGE_BYTES - 1));
}

static struct page *head(const void *p)
{
    struct page *pg = pmap_page(p);
    return pg->kind == PAGE_SLAB_TAIL ? pg->head : pg;
}

/* Empty slabs that may be kept; the count is taken before a hold of at most 128 objects, which may retire 16 slabs. */
static size_t allowed_empty(const struct slab_stats *s)
{
    return SLAB_EMPTY_KEEP + ((s->slabs + SLAB_HOLD_OBJS / 8) >> SLAB_EMPTY_SHIFT);
}

/* ---- what a refill gets ---- */

TEST(slab, fresh_slab_fills_in_ascending_order)
{
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        unsigned n = size_info[c].objs;
        fresh(c);
        take(c, objs, n);
        EXPECT_EQ(slab_stats(c, NODE).slabs, 1);
        EXPECT(objs[0] == page_address(head(objs[0])));
        for (unsigned i = 1; i < n; i++)
            EXPECT((char *)objs[i] == (char *)objs[i - 1] + class_to_size(c));
        slab_check(c, NODE);
        give(c, objs, n);
        slab_check(c, NODE);
    }
}

TEST(slab, holes_fill_in_ascending_order)
{
    void *again[64];
    fresh(C48);
    take(C48, objs, 1000);
    for (unsigned i = 0; i < 64; i++)
        give(C48, &objs[(i * 37 + 5) % 64 * 15], 1);
    take(C48, again, 64);
    for (unsigned i = 0; i < 64; i++)
        EXPECT(again[i] == objs[i * 15]);
    give(C48, objs, 1000);
    slab_check(C48, NODE);
}

/* No cache line is split between two refills as long as there is room. */
TEST(slab, refill_takes_whole_cache_lines)
{
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        size_t size = class_to_size(c);
        unsigned n = 0, got;
        fresh(c);
        for (unsigned want = 1; n + want + SLAB_GROUP_EXTRA < size_info[c].objs; want = want % 9 + 1) {
            got = slab_alloc_bulk(c, NODE, objs + n, want, want + SLAB_GROUP_EXTRA);
            EXPECT(got >= want && got <= want + SLAB_GROUP_EXTRA);
            EXPECT(got - want < size_info[c].group);
            n += got;
            EXPECT_EQ(((uintptr_t)objs[n - 1] + size) % CACHE_LINE, 0);
        }
        give(c, objs, n);
        slab_check(c, NODE);
    }
}

TEST(slab, room_bounds_the_result)
{
    fresh(0);
    for (unsigned room = 1; room <= 6; room++) {
        objs[room] = NULL;
        unsigned got = slab_alloc_bulk(0, NODE, objs, 5, room);
        EXPECT(got >= 1 && got <= room);
        EXPECT(objs[room] == NULL);
        give(0, objs, got);
    }
}

TEST(slab, group_stops_at_objects_in_use)
{
    fresh(0); /* 16 bytes: four to a line */
    take(0, objs, 12);
    void *hole[2] = {objs[4], objs[7]}; /* the same line, but 5 and 6 are in use */
    give(0, hole, 2);
    void *out[4];
    EXPECT_EQ(slab_alloc_bulk(0, NODE, out, 1, 4), 1);
    EXPECT(out[0] == objs[4]);
    EXPECT_EQ(slab_alloc_bulk(0, NODE, out, 1, 4), 1);
    EXPECT(out[0] == objs[7]);
    give(0, objs, 12);
    slab_check(0, NODE);
}

TEST(slab, fullest_slab_serves_first)
{
    class_t c = C1024;
    unsigned n = size_info[c].objs;
    fresh(c);
    take(c, objs, 3 * n);
    struct page *slab[3] = {head(objs[0]), head(objs[n]), head(objs[2 * n])};
    EXPECT(slab[0] != slab[1] && slab[1] != slab[2] && slab[0] != slab[2]);
    unsigned holes[3] = {n / 2, 3, n - 2}; /* free objects each */
    for (int s = 0; s < 3; s++)
        give(c, objs + (unsigned)s * n, holes[s]);
    slab_check(c, NODE);
    static const int order[] = {1, 0, 2}; /* fewest free first */
    for (int i = 0; i < 3; i++)
        for (unsigned k = 0; k < holes[order[i]]; k++) {
            void *p;
            take(c, &p, 1);
            EXPECT(head(p) == slab[order[i]]);
        }
    EXPECT_EQ(slab_stats(c, NODE).slabs, 3);
    give(c, objs, 3 * n);
    slab_check(c, NODE);
}

/* ---- traces ---- */

static void stamp(class_t c, void *p)
{
    unit_stamp(p, class_to_size(c), (uintptr_t)p);
}

static bool stamped(class_t c, const void *p)
{
    return unit_stamped(p, class_to_size(c), (uintptr_t)p);
}

static void shuffle(void **p, unsigned n, uint64_t *seed)
{
    for (unsigned i = n; i > 1; i--) {
        size_t j = unit_below(seed, i);
        void *t = p[i - 1];
        p[i - 1] = p[j];
        p[j] = t;
    }
}

/* One alloc or free of up to 200 objects; the stamps show objects handed out twice. */
static unsigned trace_step(class_t c, unsigned live, unsigned most, bool up, uint64_t *seed)
{
    unsigned n = 1 + (unsigned)unit_below(seed, 200);
    if (up && live + n + SLAB_GROUP_EXTRA <= most) {
        unsigned got = slab_alloc_bulk(c, NODE, objs + live, n, n + SLAB_GROUP_EXTRA);
        MUST(got >= 1 && got <= n + SLAB_GROUP_EXTRA);
        for (unsigned i = 0; i < got; i++) {
            MUST((uintptr_t)objs[live + i] % 16 == 0 && pmap_tag(objs[live + i]) == tag_make(c, NODE));
            stamp(c, objs[live + i]);
        }
        return live + got;
    }
    n = n < live ? n : live;
    shuffle(objs, live, seed);
    for (unsigned i = live - n; i < live; i++) {
        MUST(stamped(c, objs[i]));
        memset(objs[i], 0xdd, class_to_size(c));
    }
    give(c, objs + live - n, n);
    return live - n;
}

/* INV-SLAB-1, INV-SLAB-2, INV-SLAB-4 */
TEST(slab, random_trace_keeps_invariants_and_contents)
{
    for (class_t c = 0; c < SIZE_CLASSES; c += c < 9 ? 1 : 3) {
        uint64_t seed = c + 40;
        unsigned live = 0, most = (4 << 20) / (unsigned)class_to_size(c);
        most = most < MOST ? most : MOST;
        fresh(c);
        for (int step = 0; step < 300; step++) {
            bool up = unit_below(&seed, 10) < (step / 60 % 2 == 0 ? 7u : 3u);
            live = trace_step(c, live, most, up, &seed);
            slab_check(c, NODE);
            struct slab_stats s = slab_stats(c, NODE);
            EXPECT_EQ(s.slabs * size_info[c].objs, s.free_objs + live);
            EXPECT(s.empty <= allowed_empty(&s));
            EXPECT_EQ(s.made - s.released, s.slabs);
        }
        while (live > 0)
            live = trace_step(c, live, most, false, &seed);
        slab_check(c, NODE);
    }
}

/* INV-SLAB-3, INV-PMAP-1 */
TEST(slab, every_page_of_a_slab_leads_to_its_head)
{
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        void *p;
        size_t npages = (size_t)1 << size_info[c].order;
        fresh(c);
        take(c, &p, 1);
        struct page *pg = head(p);
        char *base = page_address(pg);
        EXPECT_EQ(pg->kind, PAGE_SLAB);
        EXPECT_EQ(pg->npages, npages);
        for (size_t i = 0; i < npages; i++) {
            EXPECT(head(base + i * PAGE_BYTES) == pg);
            EXPECT_EQ(pmap_tag(base + (i + 1) * PAGE_BYTES - 1), tag_make(c, NODE));
        }
        give(c, &p, 1);
        EXPECT_EQ(slab_trim(c, NODE), 1);
        for (size_t i = 0; i < npages; i++)
            EXPECT_EQ(pmap_tag(base + i * PAGE_BYTES), 0);
    }
}

TEST(slab, some_empty_slabs_are_kept_and_trim_gives_them_back)
{
    class_t c = C1024;
    unsigned per = size_info[c].objs, n = 100 * per;
    struct slab_stats start = fresh(c);
    size_t out = zone_stats(NODE).out - pcp_stats().bytes;
    take(c, objs, n);
    EXPECT(slab_stats(c, NODE).slabs >= 100);
    for (unsigned i = 0; i < n; i += per) {
        give(c, objs + i, per);
        struct slab_stats s = slab_stats(c, NODE);
        EXPECT(s.empty <= allowed_empty(&s));
        EXPECT(s.empty >= 1);
    }
    struct slab_stats s = slab_stats(c, NODE);
    EXPECT_EQ(s.slabs, s.empty);
    EXPECT_EQ(s.slabs, SLAB_EMPTY_KEEP); /* of so few */
    EXPECT_EQ(slab_trim(c, NODE), s.slabs);
    s = slab_stats(c, NODE);
    EXPECT_EQ(s.slabs, 0);
    EXPECT_EQ(s.made - start.made, s.released - start.released);
    EXPECT_EQ(zone_stats(NODE).out - pcp_stats().bytes, out);
    EXPECT_EQ(slab_trim(c, NODE), 0);
    slab_check(c, NODE);
}

TEST(slab, large_class_takes_several_slabs_in_one_run)
{
    class_t c = C1024;
    unsigned per = size_info[c].objs, n = 80 * per;
    fresh(c);
    take(c, objs, n);
    unsigned neighbours = 0;
    for (unsigned i = 65 * per; i < n; i += per) {
        char *slab = page_address(head(objs[i])), *before = page_address(head(objs[i - per]));
        neighbours += slab == before + PAGE_BYTES || slab == before - PAGE_BYTES;
    }
    EXPECT(neighbours >= 8);
    give(c, objs, n);
    slab_check(c, NODE);
}

TEST(slab, class_drains_when_more_is_free_than_in_use)
{
    class_t c = C1024;
    unsigned n = 4096; /* 4 MiB */
    fresh(c);
    EXPECT(!slab_draining(c, NODE));
    take(c, objs, n);
    EXPECT(!slab_draining(c, NODE));
    for (unsigned i = 0; i < n; i++)
        if (i % 8 < 3)
            give(c, &objs[i], 1);
    EXPECT(!slab_draining(c, NODE)); /* more than a megabyte, but less than half */
    for (unsigned i = 0; i < n; i++)
        if (i % 8 == 3 || i % 8 == 4)
            give(c, &objs[i], 1);
    EXPECT(slab_draining(c, NODE));
    for (unsigned i = 0; i < n; i++)
        if (i % 8 > 4)
            give(c, &objs[i], 1);
    EXPECT(!slab_draining(c, NODE)); /* all given back: nothing worth a megabyte is left */
}

/* ---- threads ---- */

static void churn(unsigned thread)
{
    enum { N = 300 };
    void *mine[N + SLAB_GROUP_EXTRA];
    uint64_t seed = thread + 60;
    unsigned live = 0;
    for (int step = 0; step < 2000; step++) {
        unsigned n = 1 + (unsigned)unit_below(&seed, 60);
        if (live + n <= N && unit_below(&seed, 2) != 0) {
            unsigned got = slab_alloc_bulk(C64, NODE, mine + live, n, n + SLAB_GROUP_EXTRA);
            MUST(got > 0);
            for (unsigned i = live; i < live + got; i++)
                unit_stamp(mine[i], 64, (uintptr_t)mine[i] + thread);
            live += got;
        } else {
            n = n < live ? n : live;
            shuffle(mine, live, &seed);
            for (unsigned i = live - n; i < live; i++)
                MUST(unit_stamped(mine[i], 64, (uintptr_t)mine[i] + thread));
            slab_free_bulk(C64, NODE, mine + live - n, n, "free");
            live -= n;
        }
    }
    slab_free_bulk(C64, NODE, mine, live, "free");
}

TEST(slab, threads_never_share_an_object)
{
    fresh(C64);
    unit_threads(UNIT_THREADS, churn);
    slab_check(C64, NODE);
    struct slab_stats s = slab_stats(C64, NODE);
    EXPECT_EQ(s.free_objs, s.slabs * size_info[C64].objs);
    fresh(C64);
}

/* ---- misuse: the exact lines ---- */

struct wrong {
    class_t c;
    void *p;
    const char *func;
};

static void free_it(void *arg)
{
    struct wrong *w = arg;
    slab_free_bulk(w->c, NODE, &w->p, 1, w->func);
}

static void verify_it(void *arg)
{
    struct wrong *w = arg;
    slab_verify(w->p, w->func);
}

/* The line for w, and that both ways of finding out (at the free, and at once) say it, where they can. */
static void both_die(struct wrong *w, const char *line)
{
    unit_dies(free_it, w, line);
    unit_dies(verify_it, w, line);
}

TEST(slab, double_free_says_so)
{
    char line[256];
    fresh(C48);
    take(C48, objs, 10);
    struct wrong w = {C48, objs[3], "free"};
    slab_verify(objs[3], "free"); /* in use: nothing to say */
    give(C48, &objs[3], 1);
    snprintf(line, sizeof line, "sheaf: free(%p): double free: class 48, region slab %p, already free", objs[3],
             page_of(objs[3]));
    both_die(&w, line);
    w.func = "realloc";
    snprintf(line, sizeof line, "sheaf: realloc(%p): double free: class 48, region slab %p, already free", objs[3],
             page_of(objs[3]));
    both_die(&w, line);
    give(C48, objs, 3);
    give(C48, objs + 4, 6);
}

static void free_twice_in_one(void *arg)
{
    void *twice[100];
    (void)arg;
    memcpy(twice, objs, 99 * sizeof *twice);
    twice[99] = objs[7];
    slab_free_bulk(C48, NODE, twice, 100, "thread exit");
}

TEST(slab, double_free_inside_one_bulk_says_so)
{
    char line[256];
    fresh(C48);
    take(C48, objs, 100);
    snprintf(line, sizeof line, "sheaf: thread exit(%p): double free: class 48, region slab %p, already free", objs[7],
             page_of(objs[7]));
    unit_dies(free_twice_in_one, NULL, line);
    give(C48, objs, 100);
}

TEST(slab, interior_pointer_says_its_offset)
{
    char line[256];
    class_t c = SIZE_CLASSES - 1; /* 32 KiB in slabs of four pages */
    fresh(c);
    take(c, objs, 8);
    char *base = page_address(head(objs[0]));
    static const size_t offsets[] = {1, 8, 16, 32767, 65536 + 24, 3 * 65536 + 1, 4 * 65536 - 1};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        struct wrong w = {c, base + offsets[i], "free"};
        snprintf(line, sizeof line, "sheaf: free(%p): not the start of a block: class 32768, region slab %p, offset %zu",
                 w.p, (void *)base, offsets[i]);
        both_die(&w, line);
    }
    give(c, objs, 8);
}

TEST(slab, pointer_into_the_waste_at_the_end_is_no_block)
{
    char line[256];
    fresh(C48);
    take(C48, objs, 1);
    char *base = page_address(head(objs[0]));
    size_t offset = (size_t)size_info[C48].objs * 48;
    EXPECT(offset < PAGE_BYTES);
    struct wrong w = {C48, base + offset, "free"};
    snprintf(line, sizeof line, "sheaf: free(%p): not the start of a block: class 48, region slab %p, offset %zu", w.p,
             (void *)base, offset);
    both_die(&w, line);
    give(C48, objs, 1);
}

TEST(slab, free_into_a_slab_that_is_gone_says_double_free)
{
    char line[256];
    fresh(C48);
    take(C48, objs, 1);
    struct wrong w = {C48, objs[0], "free"};
    give(C48, objs, 1);
    EXPECT_EQ(slab_trim(C48, NODE), 1);
    snprintf(line, sizeof line, "sheaf: free(%p): double free: class 48, region slab %p, already free", w.p,
             page_of(w.p));
    unit_dies(free_it, &w, line);
}

/* A pointer that was freed, whose slab went and came back as one of another class, while a sheaf still held it. */
TEST(slab, wrong_class_says_double_free)
{
    char line[256];
    fresh(C64);
    take(C64, objs, 1);
    struct wrong w = {C48, objs[0], "malloc_trim"};
    snprintf(line, sizeof line, "sheaf: malloc_trim(%p): double free: class 48, region slab %p, already free", w.p,
             page_of(w.p));
    unit_dies(free_it, &w, line);
    give(C64, objs, 1);
}

/* The check itself: a bit that is wrong does not pass. */
static void break_a_bit(void *arg)
{
    (void)arg;
    take(C48, objs, 5);
    head(objs[0])->bits[0] |= 1;
    slab_check(C48, NODE);
}

/* INV-SLAB-1 */
TEST(slab, check_notices_a_wrong_bit)
{
    fresh(C48);
    unit_dies_saying(break_a_bit, NULL, "sheaf: internal error: set == pg->nfree");
}
