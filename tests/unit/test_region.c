/* SPDX-License-Identifier: BSD-2-Clause */
/* core/region.h: windows and mappings. A window has no end, so windows are made in children. */
#include "region_util.h"

#include "compat/os/bits.h"
#include "core/block.h"
#include "core/maple.h"
#include "core/meta.h"
#include "core/opt.h"
#include "core/pmap.h"

#include <sys/mman.h>
#include <sys/resource.h>

static size_t clamp(size_t x, size_t low, size_t high)
{
    return x < low ? low : x > high ? high : x;
}

static void windows(void *arg)
{
    (void)arg;
    for (int i = 0; i < 12; i++) {
        struct region_stats before = region_stats();
        size_t need = i % 3 == 1 ? before.bytes[REGION_ZONE] + 12345 : WINDOW_BYTES_MIN; /* more than is left over beside one */
        struct region *r = region_map_window(need, NODE);
        MUST(r != NULL && r->kind == REGION_ZONE);
        size_t usual = clamp(before.bytes[REGION_ZONE], WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        MUST(r->size == align_up(need > usual ? need : usual, PAGE_BYTES));
        MUST((uintptr_t)r->base % PAGE_BYTES == 0);
        struct region_stats after = region_stats();
        MUST(after.bytes[REGION_ZONE] == before.bytes[REGION_ZONE] + r->size);
        MUST(after.count[REGION_ZONE] == before.count[REGION_ZONE] + 1);
        MUST(after.count[REGION_OWN] == before.count[REGION_OWN]);
        MUST(pmap_page(r->base) != NULL && pmap_page(r->base + r->size - 1) != NULL);
        MUST(region_contains(r->base) && region_contains(r->base + r->size - 1));
        MUST(r->base[0] == 0 && r->base[r->size - 1] == 0);
        r->base[0] = r->base[r->size - 1] = 1;
    }
}

TEST(region, windows_double_what_is_mapped_between_two_bounds)
{
    region_alone(windows, NULL);
}

static void window_when_short(void *arg)
{
    (void)arg;
    MUST(region_map_window((size_t)128 << 20, NODE) != NULL);
    size_t usual = clamp(region_stats().bytes[REGION_ZONE], WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
    size_t room = (size_t)24 << 20, need = (size_t)3 << 20;
    struct rlimit limit = {address_space() + room, RLIM_INFINITY};
    MUST(setrlimit(RLIMIT_AS, &limit) == 0);
    struct region *r = region_map_window(need, NODE);
    MUST(r != NULL);
    MUST(r->size >= need && r->size < room && r->size < usual);
    struct region_stats before = region_stats();
    MUST(region_map_window((size_t)64 << 20, NODE) == NULL); /* less than the need is of no use */
    MUST(region_stats().bytes[REGION_ZONE] == before.bytes[REGION_ZONE]);
    MUST(strcmp(vm_last_failure().call, "mmap") == 0);
}

TEST(region, window_shrinks_to_the_need_when_address_space_is_short)
{
    if (unit_limits_hold())
        region_alone(window_when_short, NULL);
}

/* Where mappings end that touch, inside a range. */
static unsigned seams(const char *from, const char *to)
{
    FILE *f = fopen("/proc/self/maps", "r");
    unsigned n = 0;
    unsigned long begin, end, last = 0;
    MUST(f != NULL);
    for (char line[512]; fgets(line, sizeof line, f) != NULL; last = end) {
        MUST(sscanf(line, "%lx-%lx", &begin, &end) == 2);
        n += begin == last && begin > (unsigned long)from && begin < (unsigned long)to;
    }
    fclose(f);
    return n;
}

/* The policy is for the whole mapping, what the alignment leaves over at its ends as well: one mapping a window. */
static void window_is_one_mapping(void *arg)
{
    static const uintptr_t policies[] = {OPT_THP_ALWAYS, OPT_THP_NEVER};
    (void)arg;
    for (int i = 0; i < 2; i++) {
        opt.thp = policies[i];
        struct region *r = region_map_window(24 << 20, NODE);
        MUST(r != NULL);
        MUST(seams(r->base, r->base + r->size) == 0);
    }
}

TEST(region, a_flag_splits_no_window)
{
    region_alone(window_is_one_mapping, NULL);
}

TEST(region, own_mapping_comes_and_goes)
{
    size_t os = vm_page_size(), size = (size_t)40 * PAGE_BYTES + 3 * os;
    struct region_stats before = region_stats();
    struct region *r = region_map_own(size, 1);
    EXPECT(r != NULL && r->kind == REGION_OWN);
    EXPECT_EQ(r->size, size);
    char *base = r->base;
    EXPECT(unit_is_zero(base, size));
    EXPECT_EQ(region_stats().bytes[REGION_OWN], before.bytes[REGION_OWN] + size);
    EXPECT_EQ(region_stats().count[REGION_OWN], before.count[REGION_OWN] + 1);
    EXPECT(region_contains(base) && region_contains(base + size - 1));
    EXPECT(pmap_page(base) != NULL && pmap_page(base + size - 1) != NULL);
    unit_stamp(base, size, 5);
    EXPECT_EQ(region_unmap_large(r), 0);
    EXPECT(!region_contains(base) && !region_contains(base + size - 1));
    EXPECT_EQ(region_stats().bytes[REGION_OWN], before.bytes[REGION_OWN]);
    EXPECT_EQ(region_stats().count[REGION_OWN], before.count[REGION_OWN]);
}

TEST(region, own_mapping_is_aligned_as_asked_and_maps_no_more)
{
    for (size_t align = vm_page_size(); align <= (size_t)64 << 20; align *= 4) {
        size_t mapped = vm_mapped_bytes(), leaves = pmap_mapped_bytes();
        struct region *r = region_map_large(5 * PAGE_BYTES, align);
        EXPECT(r != NULL);
        EXPECT_EQ((uintptr_t)r->base % align, 0);
        EXPECT_EQ(vm_mapped_bytes() - mapped - (pmap_mapped_bytes() - leaves), 5 * PAGE_BYTES);
        EXPECT_EQ(region_unmap_large(r), 0);
    }
}

TEST(region, remap_keeps_contents_and_the_account_follows)
{
    size_t os = vm_page_size(), small = 64 * PAGE_BYTES, size = small;
    size_t before = region_stats().bytes[REGION_OWN];
    struct region *r = region_map_own(size, 1);
    EXPECT(r != NULL);
    unit_stamp(r->base, small, 9);
    for (int i = 1; i < 20; i++) {
        size = i % 5 == 4 ? small : size + (size_t)i * 16 * PAGE_BYTES + os;
        EXPECT(region_remap_large(r, size));
        EXPECT_EQ(r->size, size);
        EXPECT(unit_stamped(r->base, small, 9));
        EXPECT(region_contains(r->base + size - 1));
        EXPECT_EQ(region_stats().bytes[REGION_OWN], before + size);
        if (size > small)
            r->base[size - 1] = 1;
    }
    EXPECT(!region_remap_large(r, (size_t)1 << 60)); /* refused: as it was */
    EXPECT_EQ(r->size, size);
    EXPECT(unit_stamped(r->base, small, 9));
    EXPECT_EQ(region_stats().bytes[REGION_OWN], before + size);
    EXPECT_EQ(region_unmap_large(r), 0);
}

TEST(region, what_is_not_mapped_is_in_no_region)
{
    char local = 0;
    static char fixed;
    EXPECT(!region_contains(NULL));
    EXPECT(!region_contains(&local));
    EXPECT(!region_contains(&fixed));
    EXPECT(!region_contains((void *)-1));
    EXPECT(region_map_large((size_t)1 << 60, vm_page_size()) == NULL);
}

/* ---- blocks in huge windows: in children, so that other tests' windows are not in the way ---- */

static void block_in_a_window(void *arg)
{
    (void)arg;
    size_t size = 100 * MIB + 3 * vm_page_size();
    struct region *r = region_map_large(size, 1), copy;
    MUST(r != NULL && r->kind == REGION_LARGE && r->size == size);
    MUST((uintptr_t)r->base % BLOCK_BYTES == 0);
    MUST(region_find(r->base + size - 1, &copy) && copy.base == r->base && copy.size == size);
    MUST(copy.kind == REGION_LARGE && !region_is_gap(r->base));
    MUST(unit_is_zero(r->base, size));
    MUST(pmap_page(r->base) != NULL && pmap_page(r->base + size - 1) != NULL);
    MUST(seen_windows() == 1);
    MUST(seams(r->base, r->base + size) == 0);
    region_check();
    unit_stamp(r->base, size, 3);
    char *base = r->base;
    size_t mapped = vm_mapped_bytes();
    MUST(region_unmap_large(r) == 0);
    MUST(!region_contains(base) && region_is_gap(base) && region_is_gap(base + size - 1));
    MUST(vm_mapped_bytes() == mapped); /* address space stays */
    MUST(region_stats().bytes[REGION_LARGE] == 0 && region_stats().bytes[REGION_STALE] == 0);
    region_check();
    r = region_map_large(size, 1);
    MUST(r != NULL && r->base == base && vm_mapped_bytes() == mapped);
    MUST(unit_is_zero(base, size)); /* memory does not */
    region_check();
}

TEST(region, block_in_a_window_comes_and_goes_without_a_mapping)
{
    region_alone(block_in_a_window, NULL);
}

/* The window's end and the next block's beginning lie in one huge page: whoever purges must leave the other alone. */
static void neighbours(void *arg)
{
    (void)arg;
    size_t os = vm_page_size();
    struct region *hold = region_map_large(64 * MIB, 1); /* later windows have room for several */
    struct region *r[3];
    for (int i = 0; i < 3; i++) {
        r[i] = region_map_large(10 * MIB + os, 1);
        MUST(r[i] != NULL && r[i]->kind == REGION_LARGE);
        unit_stamp(r[i]->base, r[i]->size, (uint64_t)i);
    }
    MUST(r[1]->base == r[0]->base + 12 * MIB && r[2]->base == r[1]->base + 12 * MIB);
    MUST(region_unmap_large(r[1]) == 0);
    MUST(unit_stamped(r[0]->base, r[0]->size, 0) && unit_stamped(r[2]->base, r[2]->size, 2));
    MUST(!region_grow(r[0], 24 * MIB + os)); /* over the next one */
    MUST(region_grow(r[0], 24 * MIB) && r[0]->size == 24 * MIB);
    MUST(unit_is_zero(r[0]->base + 10 * MIB + os, 14 * MIB - os));
    MUST(unit_stamped(r[0]->base, 10 * MIB + os, 0) && unit_stamped(r[2]->base, r[2]->size, 2));
    MUST(!region_grow(r[0], 24 * MIB + os));
    region_check();
    unit_stamp(r[0]->base, 24 * MIB, 7);
    MUST(region_shrink(r[0], 5 * MIB) && r[0]->size == 5 * MIB);
    MUST(unit_stamped(r[0]->base, 5 * MIB, 7));
    MUST(region_is_gap(r[0]->base + 5 * MIB) && region_is_gap(r[2]->base - 1));
    region_check();
    MUST(region_remap_large(r[0], 8 * MIB) && unit_is_zero(r[0]->base + 5 * MIB, 3 * MIB));
    MUST(region_remap_large(r[0], 2 * MIB) && r[0]->size == 2 * MIB);
    char *was = r[0]->base;
    struct region *big = region_map_large(22 * MIB, 1); /* exactly what lies between */
    MUST(big != NULL && big->base == was + 2 * MIB && unit_is_zero(big->base, big->size));
    region_check();
    if (region_remap_large(r[0], 512 * MIB)) { /* not here: it moves out; an emulator may not be able to */
        MUST(r[0]->size == 512 * MIB && r[0]->kind == REGION_OWN && unit_stamped(r[0]->base, 2 * MIB, 7));
        MUST(unit_is_zero(r[0]->base + 2 * MIB, 8 * MIB));
        MUST(region_is_gap(was) && region_is_gap(was + 2 * MIB - 1) && unit_is_zero(was, 2 * MIB));
        MUST(region_remap_large(r[0], 3 * MIB) && unit_stamped(r[0]->base, 2 * MIB, 7));
    }
    region_check();
    MUST(unit_stamped(r[2]->base, r[2]->size, 2));
    MUST(region_unmap_large(big) == 0 && region_unmap_large(r[0]) == 0 && region_unmap_large(r[2]) == 0);
    MUST(region_unmap_large(hold) == 0);
    region_check();
}

/* More than there is, and not a whole number of our pages: refused once, not for ever. */
static void too_long(void *arg)
{
    (void)arg;
    alarm(20);
    MUST(region_map_large(((size_t)1 << 46) + vm_page_size(), 1) == NULL);
    MUST(region_map_large((size_t)PTRDIFF_MAX + 1 - vm_page_size(), 1) == NULL);
    region_check();
}

TEST(region, what_the_system_has_not_is_refused)
{
    region_alone(too_long, NULL);
}

TEST(region, blocks_grow_and_shrink_beside_others)
{
    region_alone(neighbours, NULL);
}

static void aligned_blocks(void *arg)
{
    (void)arg;
    struct region *first = region_map_large(600 * MIB, 1);
    MUST(first != NULL && region_unmap_large(first) == 0);
    struct region *in = region_map_large(3 * MIB, 64 * MIB); /* a gap has it */
    MUST(in != NULL && in->kind == REGION_LARGE && (uintptr_t)in->base % (64 * MIB) == 0);
    struct region *out = region_map_large(3 * MIB, (size_t)8 << 30); /* none has, so it is a mapping */
    MUST(out != NULL && (uintptr_t)out->base % ((size_t)8 << 30) == 0);
    struct region *small = region_map_large(PAGE_BYTES, 1);
    MUST(small != NULL && small->kind == REGION_OWN);
    MUST(!region_grow(small, 2 * PAGE_BYTES) && region_shrink(small, vm_page_size()) && small->size == vm_page_size());
    region_check();
    MUST(region_unmap_large(in) == 0 && region_unmap_large(out) == 0 && region_unmap_large(small) == 0);
    MUST(seen_windows() == 1);
    region_check();
}

TEST(region, any_alignment)
{
    region_alone(aligned_blocks, NULL);
}

static void without_purging(void *arg)
{
    (void)arg;
    opt.purge = OPT_PURGE_OFF;
    struct region *r = region_map_large(100 * MIB, 1);
    MUST(r != NULL && r->kind == REGION_OWN && region_unmap_large(r) == 0);
    MUST(seen_windows() == 0);
}

TEST(region, no_windows_where_nothing_is_purged)
{
    region_alone(without_purging, NULL);
}

/* Windows grow with what is mapped, so there are few; empty ones go once they are more than what is in use and 1 GiB. */
static void many_windows(void *arg)
{
    enum { N = 200 };
    struct region *r[N];
    (void)arg;
    for (int i = 0; i < N; i++)
        MUST((r[i] = region_map_large(70 * MIB, 1)) != NULL && r[i]->kind == REGION_LARGE);
    struct region_stats s = region_stats();
    MUST(s.windows <= 20 && s.bytes[REGION_LARGE] == N * 70 * MIB);
    MUST(s.gaps <= s.bytes[REGION_LARGE] / 3 + HUGE_STEP_BYTES);
    region_check();
    for (int i = 0; i < N; i++) {
        MUST(region_unmap_large(r[i]) == 0);
        s = region_stats();
        size_t most = s.bytes[REGION_LARGE] > HUGE_KEEP_BYTES ? s.bytes[REGION_LARGE] : HUGE_KEEP_BYTES;
        MUST(i < N - 1 || s.window_bytes <= most);
    }
    MUST(s.bytes[REGION_LARGE] == 0 && s.window_bytes <= HUGE_KEEP_BYTES);
    region_check();
}

TEST(region, few_windows_and_a_bounded_rest)
{
    region_alone(many_windows, NULL);
}

static void empty_windows_when_limited(void *arg)
{
    (void)arg;
    struct rlimit limit = {address_space() + 600 * MIB, RLIM_INFINITY};
    MUST(setrlimit(RLIMIT_AS, &limit) == 0);
    vm_read_limits();
    struct region *a = region_map_large(100 * MIB, 1), *b = region_map_large(100 * MIB, 1);
    MUST(a != NULL && b != NULL && b->kind == REGION_LARGE);
    MUST(region_stats().window_bytes < 205 * MIB); /* as much as is needed */
    MUST(region_unmap_large(a) == 0 && region_unmap_large(b) == 0);
    MUST(seen_windows() == 0);
    region_check();
}

TEST(region, nothing_empty_is_kept_where_address_space_is_limited)
{
    if (unit_limits_hold())
        region_alone(empty_windows_when_limited, NULL);
}

/* What was kept goes when something else needs the room, and a block that fits without a window's edges is served. */
static void short_of_space(void *arg)
{
    (void)arg;
    struct region *a = region_map_large(300 * MIB, 1);
    MUST(a != NULL && region_unmap_large(a) == 0 && seen_windows() == 1);
    struct rlimit limit = {address_space() + 32 * MIB, RLIM_INFINITY};
    MUST(setrlimit(RLIMIT_AS, &limit) == 0);
    struct region *own = region_map_own(200 * MIB, 1);
    MUST(own != NULL && seen_windows() == 0);
    MUST(region_unmap_large(own) == 0);
    limit.rlim_cur = address_space() + 71 * MIB; /* a window needs 2 MiB more than the block */
    MUST(setrlimit(RLIMIT_AS, &limit) == 0);
    struct region *tight = region_map_large(70 * MIB, 1);
    MUST(tight != NULL && tight->kind == REGION_OWN);
    region_check();
}

TEST(region, empty_windows_make_room)
{
    if (unit_limits_hold())
        region_alone(short_of_space, NULL);
}

/* ---- a model ---- */

enum { SLOTS = 60 };

struct slot {
    struct region *r;
    uint64_t id;
    size_t stamped; /* bytes at its beginning, and as many at its end */
};

static void slot_fill(struct slot *s, uint64_t id)
{
    s->id = id;
    s->stamped = s->r->size < 8192 ? s->r->size / 2 : 4096;
    unit_stamp(s->r->base, s->stamped, id);
    unit_stamp(s->r->base + s->r->size - s->stamped, s->stamped, id);
}

static void slot_check(const struct slot *s)
{
    struct region copy;
    MUST(unit_stamped(s->r->base, s->stamped, s->id));
    MUST(unit_stamped(s->r->base + s->r->size - s->stamped, s->stamped, s->id));
    MUST(region_find(s->r->base + s->r->size / 2, &copy) && copy.base == s->r->base && copy.size == s->r->size);
}

static size_t some_size(uint64_t *seed)
{
    size_t os = vm_page_size(), order = unit_below(seed, 8);
    return os * (1 + unit_below(seed, ((size_t)64 << order) * 8));
}

static void slot_new(struct slot *s, uint64_t *seed)
{
    size_t size = some_size(seed), align = unit_below(seed, 8) == 0 ? MIB << unit_below(seed, 6) : 1;
    s->r = unit_below(seed, 4) == 0 ? region_map_own(size, 1) : region_map_large(size, align);
    MUST(s->r != NULL && s->r->size == size && (s->r->kind == REGION_OWN || (uintptr_t)s->r->base % align == 0));
    size_t look = size < 16384 ? size : 16384;
    MUST(unit_is_zero(s->r->base, look) && unit_is_zero(s->r->base + size - look, look));
    slot_fill(s, unit_random(seed));
}

static void slot_resize(struct slot *s, uint64_t *seed)
{
    size_t old = s->r->size, size = some_size(seed);
    bool ok = region_remap_large(s->r, size);
    MUST(ok || s->r->kind != REGION_OWN);
    MUST(s->r->size == (ok ? size : old));
    MUST(unit_stamped(s->r->base, s->stamped < s->r->size ? s->stamped : s->r->size, s->id));
    if (ok && size > old)
        MUST(unit_is_zero(s->r->base + old, size - old < 16384 ? size - old : 16384));
    slot_fill(s, unit_random(seed));
}

static int count_bytes(void *arg, const struct region *copy)
{
    size_t *sum = arg;
    sum[copy->kind] += copy->size;
    return 0;
}

static void model_sums(const struct slot *slot)
{
    size_t want = 0, sum[REGION_KINDS] = {0};
    for (int i = 0; i < SLOTS; i++)
        want += slot[i].r == NULL ? 0 : slot[i].r->size;
    struct region_stats s = region_stats();
    MUST(s.bytes[REGION_LARGE] + s.bytes[REGION_OWN] == want);
    MUST(region_walk(count_bytes, sum) == 0);
    MUST(memcmp(sum, s.bytes, sizeof sum) == 0);
}

static void model(void *arg)
{
    static struct slot slot[SLOTS];
    uint64_t seed = *(uint64_t *)arg;
    opt.maple_prealloc = seed % 2 == 0 ? OPT_MAPLE_PREALLOC_EXACT : OPT_MAPLE_PREALLOC_WORST;
    opt.maple_zero = seed % 3 == 0;
    for (int step = 0; step < 3000; step++) {
        struct slot *s = &slot[unit_below(&seed, SLOTS)];
        if (s->r == NULL) {
            slot_new(s, &seed);
        } else {
            slot_check(s);
            if (unit_below(&seed, 3) == 0)
                slot_resize(s, &seed);
            else
                MUST((region_unmap_large(s->r) == 0 && (s->r = NULL) == NULL));
        }
        region_check();
        if (step % 50 == 0)
            model_sums(slot);
        if (step % 500 == 499)
            MUST(region_map_window(1 + unit_below(&seed, 4 * MIB), NODE) != NULL);
    }
    struct region_stats end = region_stats();
    if (end.gaps == 0 || end.windows >= 24)
        fprintf(stderr, "gaps %zu windows %zu large %zu\n", end.gaps, end.windows, end.bytes[REGION_LARGE]);
    MUST(end.gaps > 0 && end.windows < 24); /* blocks that move out leave gaps for others: 12 were seen */
}

TEST(region, random_operations_against_an_array)
{
    for (uint64_t seed = 1; seed <= 4; seed++)
        region_alone(model, &seed);
}

/* ---- many threads ---- */

static struct region *stable[8];
static int stop; /* atomic */

static void writer(uint64_t seed)
{
    struct region *r[10] = {NULL};
    for (int step = 0; step < 1500; step++) {
        size_t i = unit_below(&seed, 10);
        if (r[i] == NULL)
            MUST((r[i] = unit_below(&seed, 4) == 0 ? region_map_own(MIB, 1) : region_map_large(some_size(&seed), 1)) != NULL);
        else if (unit_below(&seed, 2) == 0)
            region_remap_large(r[i], some_size(&seed));
        else
            MUST((region_unmap_large(r[i]) == 0 && (r[i] = NULL) == NULL));
        if (r[i] != NULL)
            r[i]->base[r[i]->size - 1] = 1;
    }
    for (int i = 0; i < 10; i++)
        if (r[i] != NULL)
            MUST(region_unmap_large(r[i]) == 0);
}

static int in_order(void *arg, const struct region *copy)
{
    char **end = arg;
    MUST(copy->base >= *end && copy->size > 0 && copy->kind < REGION_KINDS);
    *end = copy->base + copy->size;
    return 0;
}

static void reader(uint64_t seed)
{
    while (!load_acquire(&stop)) {
        struct region copy, *r = stable[unit_below(&seed, 8)];
        char *p = r->base + unit_below(&seed, r->size), *end = NULL;
        MUST(region_find(p, &copy) && copy.base == r->base && copy.size == r->size && copy.kind == r->kind);
        if (region_find(r->base + r->size + unit_below(&seed, 64 * MIB), &copy))
            MUST(copy.size > 0 && copy.kind < REGION_KINDS);
        if (unit_below(&seed, 32) == 0)
            MUST(region_walk(in_order, &end) == 0);
    }
}

static int writers_left; /* atomic */

static void reader_or_writer(unsigned i)
{
    if (i % 2 == 0)
        reader(i + 1);
    else
        writer(i + 1);
    if (i % 2 == 1 && sub_relaxed(&writers_left, 1) == 1)
        store_release(&stop, 1);
}

static void readers_and_writers(void *arg)
{
    (void)arg;
    for (int i = 0; i < 8; i++)
        MUST((stable[i] = i % 2 == 0 ? region_map_large(6 * MIB, 1) : region_map_own(MIB, 1)) != NULL);
    writers_left = 2;
    unit_threads(4, reader_or_writer);
    region_check();
    for (int i = 0; i < 8; i++)
        MUST(region_unmap_large(stable[i]) == 0);
    region_check();
    struct region_stats s = region_stats();
    MUST(s.bytes[REGION_LARGE] + s.bytes[REGION_OWN] + s.bytes[REGION_STALE] == 0);
}

TEST(region, found_without_a_lock_while_others_change)
{
    region_alone(readers_and_writers, NULL);
}

/* ---- the rest ---- */

static int count_kinds(void *arg, const struct region *copy)
{
    size_t *count = arg;
    count[copy->kind]++;
    return copy->kind == REGION_OWN ? 77 : 0;
}

/* One walk explains all that is mapped: windows of the zone, blocks, gaps, metadata, leaves; and small ends. */
static void walk_explains(void *arg)
{
    (void)arg;
    MUST(region_map_window(1, NODE) != NULL && region_map_window(64 * MIB, NODE) != NULL);
    MUST(region_map_large(100 * MIB, 1) != NULL && region_map_large(80 * MIB, 1) != NULL);
    size_t used = meta_stats().mapped;
    while (meta_stats().mapped < used + 3 * MIB)
        MUST(meta_alloc(8192) != NULL);
    size_t sum[REGION_KINDS] = {0}, all = 0;
    MUST(region_walk(count_bytes, sum) == 0);
    struct region_stats s = region_stats();
    for (int i = 0; i < REGION_KINDS; i++)
        all += sum[i];
    MUST(sum[REGION_META] == meta_stats().mapped - meta_stats().in_library);
    MUST(sum[REGION_LEAF] == pmap_mapped_bytes());
    MUST(all + s.gaps <= vm_mapped_bytes());
    MUST(all + s.gaps + (s.windows * 2 + s.count[REGION_ZONE]) * BLOCK_BYTES > vm_mapped_bytes());
    struct region *own = region_map_own(MIB, 1);
    size_t count[REGION_KINDS] = {0};
    MUST(own != NULL && region_walk(count_kinds, count) == 77); /* ends where it is told to */
    MUST(count[REGION_OWN] == 1);
}

TEST(region, one_walk_explains_what_is_mapped)
{
    region_alone(walk_explains, NULL);
}

TEST(region, kinds_have_names)
{
    EXPECT(strcmp(region_kind_name(REGION_ZONE), "zone") == 0);
    EXPECT(strcmp(region_kind_name(REGION_META), "metadata") == 0);
    EXPECT(strcmp(region_kind_name(REGION_STALE), "stale") == 0);
}

/* What a large window of the zone leaves over at its ends serves later ones, and costs no mapping. */
static void ends_are_used(void *arg)
{
    (void)arg;
    for (int i = 0; i < 4; i++)
        MUST(region_map_window(16 * MIB, NODE) != NULL);
    size_t gaps = region_stats().gaps, mapped = vm_mapped_bytes();
    MUST(gaps >= PAGE_BYTES);
    struct region *r = region_map_window(PAGE_BYTES, NODE);
    MUST(r != NULL && vm_mapped_bytes() == mapped);
    MUST(r->size < BLOCK_BYTES && r->size % PAGE_BYTES == 0 && (uintptr_t)r->base % PAGE_BYTES == 0);
    MUST(unit_is_zero(r->base, r->size));
    MUST(region_stats().gaps == gaps - r->size);
    region_check();
}

TEST(region, ends_of_windows_are_used)
{
    region_alone(ends_are_used, NULL);
}

/* Areas of two nodes never share a block of 2 MiB. */
static void nodes_apart(void *arg)
{
    static struct region *r[300];
    (void)arg;
    for (unsigned i = 0; i < 300; i++) {
        MUST((r[i] = region_map_window(PAGE_BYTES * (1 + i % 7), i * 7 % 3)) != NULL);
        region_check();
    }
    for (unsigned i = 0; i < 300; i++)
        for (unsigned j = 0; j < i; j++) {
            uintptr_t a = (uintptr_t)r[i]->base >> BLOCK_SHIFT, a2 = (uintptr_t)(r[i]->base + r[i]->size - 1) >> BLOCK_SHIFT;
            uintptr_t b = (uintptr_t)r[j]->base >> BLOCK_SHIFT, b2 = (uintptr_t)(r[j]->base + r[j]->size - 1) >> BLOCK_SHIFT;
            MUST(r[i]->node == r[j]->node || a2 < b || b2 < a);
        }
}

TEST(region, a_block_of_2_mib_has_one_node)
{
    region_alone(nodes_apart, NULL);
}
