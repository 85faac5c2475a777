/* SPDX-License-Identifier: BSD-2-Clause */
/* core/region.h: windows and mappings. A window has no end, so windows are made in children. */
#include "unit.h"

#include "compat/os/bits.h"
#include "compat/os/vm.h"
#include "core/block.h"
#include "core/maple.h"
#include "core/meta.h"
#include "core/opt.h"
#include "core/pmap.h"
#include "core/large.h"
#include "core/region.h"

#include <sys/mman.h>
#include <sys/resource.h>

extern void tsan_init_name(void) __asm__("__tsan_init") __attribute__((weak));

/* In a child that begins without the empty windows that other tests of the process have left: a request that cannot be
 * served lets go of them. */
static void region_alone(void (*body)(void *), void *arg)
{
    large_drain(false);
    MUST(region_map_window((size_t)1 << 47, NODE) == NULL);
    unit_alone(body, arg);
}

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

static size_t address_space(void)
{
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    MUST(f != NULL && fscanf(f, "%zu", &pages) == 1);
    fclose(f);
    return pages * vm_page_size();
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

#define MIB ((size_t)1 << 20)

static size_t seen_windows(void)
{
    return region_stats().windows;
}

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
    region_alone(short_of_space, NULL);
}

/* ---- refusals ---- */

static struct region *dirty_block(size_t size, uint64_t id)
{
    struct region *r = region_map_large(size, 1);
    MUST(r != NULL && r->kind == REGION_LARGE);
    unit_stamp(r->base, 4 * PAGE_BYTES, id);
    return r;
}

/* Blocks that find no gap try stale regions again: one of them comes to lie here, and is zero. */
static bool found_again(const char *base, size_t size)
{
    struct region *r = NULL;
    for (int i = 0; i <= 1000 && (r == NULL || r->base != base); i++)
        MUST((r = region_map_large(size, 1)) != NULL);
    return r->base == base && unit_is_zero(base, size);
}

static void purge_refused(void *arg)
{
    vm_use_libc(); /* the suite's madvise */
    struct region *keep = dirty_block(64 * MIB, 1), *r = dirty_block(8 * MIB, 2), copy;
    MUST(keep->window == r->window || seen_windows() == 2);
    struct region *beside = dirty_block(8 * MIB, 3);
    char *base = r->base;
    unit_madvise_fails(1, true, arg != NULL ? 22 : -1);
    MUST(region_unmap_large(r) == 0);
    MUST(!region_is_gap(base) && region_find(base, &copy) && copy.kind == REGION_STALE);
    region_check();
    struct region *next = region_map_large(8 * MIB, 1);
    MUST(next != NULL && next->base != base && unit_is_zero(next->base, next->size));
    unit_madvise_fails(0, false, 0);
    MUST(region_unmap_large(next) == 0);
    MUST(found_again(base, 8 * MIB));
    MUST(unit_stamped(beside->base, 4 * PAGE_BYTES, 3) && unit_stamped(keep->base, 4 * PAGE_BYTES, 1));
    MUST(region_stats().bytes[REGION_STALE] == 0);
    region_check();
}

TEST(region, what_cannot_be_purged_is_no_gap)
{
    region_alone(purge_refused, NULL);
    region_alone(purge_refused, "errno");
}

/* With nothing live in it, the window goes, stale or not. */
static void stale_window_goes(void *arg)
{
    (void)arg;
    vm_use_libc();
    size_t gaps = region_stats().gaps;
    struct region *r = dirty_block(64 * MIB, 1);
    char *base = r->base;
    unit_madvise_fails(1, true, 22);
    MUST(region_unmap_large(r) == 0);
    MUST(seen_windows() == 0 && !region_contains(base) && !region_is_gap(base) && !vm_is_mapped(base));
    MUST(region_stats().bytes[REGION_STALE] == 0 && region_stats().gaps == gaps);
    region_check();
}

TEST(region, a_stale_window_goes)
{
    region_alone(stale_window_goes, NULL);
}

/* ---- no memory for bookkeeping ---- */

/* Take all metadata there is, and let none be mapped; `nodes` blocks of 256 bytes are had before. Thread sanitizer needs memory
 * of its own all the time, so there the child ends well here. */
static void starve(unsigned nodes)
{
    if (tsan_init_name != NULL)
        _exit(0);
    static void *keep[64];
    for (unsigned i = 0; i < nodes; i++)
        MUST((keep[i] = meta_alloc(256)) != NULL);
    struct rlimit limit = {address_space(), RLIM_INFINITY};
    MUST(setrlimit(RLIMIT_AS, &limit) == 0);
    for (size_t size = 8192; size >= 64; size /= 2)
        while (meta_alloc(size) != NULL)
            continue;
    for (unsigned i = 0; i < nodes; i++)
        meta_free(keep[i], 256);
}

enum { CROWD = 400 };

/* Every second block goes, then all: with this many nodes to be had and no more. Freeing never fails, whatever the tree
 * can be told; afterwards, with memory again, everything is a gap. */
static void free_without_nodes(void *arg)
{
    static struct region *r[CROWD];
    unsigned nodes = *(unsigned *)arg;
    struct region *first = region_map_large(CROWD * 2 * MIB, 1);
    MUST(first != NULL && region_unmap_large(first) == 0);
    for (int i = 0; i < CROWD; i++)
        MUST((r[i] = region_map_large(2 * MIB, 1)) != NULL && r[i]->kind == REGION_LARGE);
    region_check();
    starve(nodes);
    uint64_t seed = nodes + 1;
    for (int i = 0; i < CROWD; i++) {
        size_t j = unit_below(&seed, CROWD);
        if (r[j] == NULL)
            continue;
        r[j]->base[5] = 1;
        if (i % 4 == 0) {
            region_shrink(r[j], MIB); /* may fail */
        } else {
            MUST(region_unmap_large(r[j]) == 0);
            r[j] = NULL;
        }
        if (i % 16 == 0)
            region_check();
    }
    struct region *more;
    while ((more = region_map_large(2 * MIB, 1)) != NULL && more->kind == REGION_LARGE)
        MUST(unit_is_zero(more->base, 4096));
    region_check();
}

TEST(region, every_node_may_be_refused)
{
    for (unsigned nodes = 0; nodes < 12; nodes++)
        region_alone(free_without_nodes, &nodes);
}

enum { MANY = 1200 };

static struct region *crowd[MANY];

/* Use up every node there is: each block that gets shorter adds a gap to the tree. Result: so many could not; from then on
 * the leaves are full. */
static int use_up_nodes(void)
{
    int refused = 0;
    struct region *first = region_map_large(MANY * 4 * MIB, 1);
    MUST(first != NULL && region_unmap_large(first) == 0);
    for (int i = 0; i < MANY; i++)
        MUST((crowd[i] = region_map_large(4 * MIB, 1)) != NULL && crowd[i]->kind == REGION_LARGE);
    struct region *own[20]; /* structs are not what is to be short */
    for (int i = 0; i < 20; i++)
        MUST((own[i] = region_map_own(PAGE_BYTES, 1)) != NULL);
    for (int i = 0; i < 20; i++)
        MUST(region_unmap_large(own[i]) == 0);
    starve(0);
    for (int i = 0; i < MANY; i++) {
        bool ok = region_shrink(crowd[i], 2 * MIB);
        MUST(crowd[i]->size == (ok ? 2 : 4) * MIB); /* unchanged if refused */
        refused += !ok;
    }
    region_check();
    MUST(refused > 0 && refused < MANY);
    return refused;
}

static void more_address_space(void)
{
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    MUST(setrlimit(RLIMIT_AS, &all) == 0);
}

enum { STAYED = 3 };

/* Freed, and zero, and no gap: it waits, and once there are nodes it is one. */
static void free_one(void *arg)
{
    struct region *r = arg, copy;
    char *base = r->base;
    *base = 1;
    MUST(region_unmap_large(r) == 0);
    region_check();
    if (region_is_gap(base))
        return;
    MUST(region_find(base, &copy) && copy.kind == REGION_STALE && copy.zero);
    more_address_space();
    MUST(found_again(base, 4 * MIB));
    region_check();
    _exit(STAYED);
}

/* Each in a child, since a free that can be entered gives nodes back. Two full leaves side by side, and the last range of
 * the left one goes: that erase needs nodes. */
static void erase_refused(void *arg)
{
    static struct unit_child c;
    int stayed = 0;
    (void)arg;
    use_up_nodes();
    for (int i = 0; i < MANY && stayed < 3; i++)
        if (crowd[i]->size == 4 * MIB) {
            unit_child(&c, free_one, crowd[i]);
            MUST(c.status == 0 || c.status == STAYED << 8);
            stayed += c.status != 0;
        }
    MUST(stayed > 0);
    for (int i = 0; i < MANY; i++)
        MUST(region_unmap_large(crowd[i]) == 0);
    region_check();
    MUST(region_stats().bytes[REGION_LARGE] == 0);
}

TEST(region, freeing_never_fails_for_want_of_nodes)
{
    region_alone(erase_refused, NULL);
}

/* A mapping that the tree has no node for is not listed yet, but is there, and may go. */
static void waiting(void *arg)
{
    enum { N = 14 };
    size_t own = region_stats().count[REGION_OWN]; /* other tests' */
    struct region *r[N], *room = region_map_own(PAGE_BYTES, 1), copy;
    int missing = 0;
    (void)arg;
    use_up_nodes();
    MUST(region_unmap_large(room) == 0); /* less than a chunk of metadata, when the first of these is mapped */
    for (int i = 0; i < N; i++) {
        MUST((r[i] = region_map_own(vm_page_size(), 1)) != NULL);
        missing += !region_find(r[i]->base, &copy);
    }
    MUST(missing > 0);
    MUST(region_stats().count[REGION_OWN] == own + N);
    region_check();
    for (int i = 0; i < N; i += 2)
        MUST(region_unmap_large(r[i]) == 0);
    MUST(region_stats().count[REGION_OWN] == own + N / 2);
    more_address_space();
    region_check();
    for (int i = 1; i < N; i += 2) {
        MUST(region_find(r[i]->base, &copy) && copy.kind == REGION_OWN);
        MUST(region_unmap_large(r[i]) == 0);
    }
    region_check();
}

TEST(region, a_mapping_without_a_node_waits)
{
    region_alone(waiting, NULL);
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

/* ---- in the middle of a purge: another thread's view, a fork ---- */

static struct region *purging;

static void look_and_fork(void)
{
    struct region copy;
    unit_madvise_hook = NULL;
    MUST(region_find(purging->base, &copy) && copy.kind == REGION_STALE && !region_is_gap(purging->base));
    struct region *r = region_map_large(8 * MIB, 1); /* no lock is held */
    MUST(r != NULL && r->base != copy.base && region_unmap_large(r) == 0);
    region_check();
}

static void from_a_shim(void *arg)
{
    (void)arg;
    vm_use_libc();
    struct region *keep = dirty_block(64 * MIB, 1);
    purging = dirty_block(8 * MIB, 2);
    char *base = purging->base;
    unit_madvise_hook = look_and_fork;
    MUST(region_unmap_large(purging) == 0);
    MUST(unit_madvise_hook == NULL && region_is_gap(base) && unit_is_zero(base, 8 * MIB));
    MUST(region_unmap_large(keep) == 0);
    region_check();
}

TEST(region, nothing_is_handed_out_while_it_is_purged)
{
    region_alone(from_a_shim, NULL);
}

static int at_purge; /* atomic: 1 the purger waits in madvise, 2 it may go on */

static void wait_in_purge(void)
{
    unit_madvise_hook = NULL;
    store_release(&at_purge, 1);
    while (load_acquire(&at_purge) != 2)
        cpu_relax();
}

static void purge_in_child(void *arg)
{
    struct region copy;
    char *base = arg;
    region_check();
    MUST(region_find(base, &copy) && copy.kind == REGION_STALE);
    MUST(found_again(base, 8 * MIB)); /* nobody's purge was ours to do again */
    region_check();
}

static void purger_or_forker(unsigned i)
{
    static char *base;
    if (i == 0) {
        base = purging->base;
        unit_madvise_hook = wait_in_purge;
        MUST(region_unmap_large(purging) == 0);
        MUST(region_is_gap(base));
        return;
    }
    while (load_acquire(&at_purge) != 1)
        cpu_relax();
    static struct unit_child c;
    unit_child(&c, purge_in_child, base);
    MUST(c.status == 0);
    store_release(&at_purge, 2);
}

static void fork_meanwhile(void *arg)
{
    (void)arg;
    unit_fork_handlers();
    vm_use_libc();
    struct region *keep = dirty_block(64 * MIB, 1);
    purging = dirty_block(8 * MIB, 2);
    unit_threads(2, purger_or_forker);
    MUST(region_unmap_large(keep) == 0);
    region_check();
}

TEST(region, a_fork_child_purges_what_was_being_purged)
{
    region_alone(fork_meanwhile, NULL);
}

/* ---- signal handlers ---- */

static struct region *found_in_handler;
static int handled, handled_found; /* atomic */

static void find_in_handler(int sig)
{
    struct region copy;
    (void)sig;
    bool found = region_find(found_in_handler->base + MIB, &copy);
    MUST(!found || (copy.base == found_in_handler->base && copy.size == 2 * MIB));
    add_relaxed(&handled, 1);
    add_relaxed(&handled_found, found);
}

static pthread_t changer;

static void send_signals(unsigned i)
{
    if (i == 0) {
        while (!load_acquire(&stop)) {
            pthread_kill(changer, SIGUSR1);
            for (int n = 0; n < 2000; n++)
                cpu_relax();
        }
        return;
    }
    for (int step = 0; step < 20000 && load_relaxed(&handled) < 3000; step++) {
        struct region *r[3];
        for (int k = 0; k < 3; k++)
            MUST((r[k] = region_map_large((2 + (size_t)k) * MIB, 1)) != NULL);
        region_grow(r[2], 6 * MIB);
        for (int k = 0; k < 3; k++)
            MUST(region_unmap_large(r[k]) == 0);
    }
    store_release(&stop, 1);
}

static void *change_thread(void *arg)
{
    (void)arg;
    send_signals(1);
    return NULL;
}

/* A handler that has interrupted a change of its own thread gets an answer: the right one, or "not ours"; never a wait. */
static void handlers(void *arg)
{
    (void)arg;
    struct sigaction act = {.sa_handler = find_in_handler, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &act, NULL) == 0);
    found_in_handler = region_map_large(2 * MIB, 1);
    MUST(found_in_handler != NULL);
    MUST(pthread_create(&changer, NULL, change_thread, NULL) == 0);
    send_signals(0);
    pthread_join(changer, NULL);
    MUST(handled > 0 && handled_found > 0);
    region_check();
}

TEST(region, found_in_a_handler_that_interrupts_a_change)
{
    region_alone(handlers, NULL);
}

/* ---- locked memory ---- */

/* What is mapped is resident at once, and cannot be purged: windows are as large as is needed, and go with their block. */
static void locked_memory(void *arg)
{
    enum { N = 16 };
    struct region *r[N];
    (void)arg;
    char *probe = mlockall(MCL_FUTURE) == 0 ? vm_map(vm_page_size(), false) : NULL;
    if (probe == NULL || vm_resident(probe, vm_page_size()) == 0)
        return; /* not allowed here, or a sanitizer is in the way */
    for (int i = 0; i < N; i++) {
        size_t before = region_stats().window_bytes;
        MUST((r[i] = region_map_large(4 * MIB, 1)) != NULL);
        MUST(i < N / 2 || region_stats().window_bytes <= before + 6 * MIB); /* one before was larger, which showed it */
    }
    struct region_stats s = region_stats();
    MUST(s.bytes[REGION_LARGE] + s.bytes[REGION_OWN] == N * 4 * MIB);
    for (int i = 0; i < N; i++)
        MUST(region_unmap_large(r[i]) == 0);
    MUST(region_stats().bytes[REGION_STALE] == 0 && region_stats().bytes[REGION_LARGE] == 0);
    region_check();
}

TEST(region, locked_memory_has_no_large_windows)
{
    region_alone(locked_memory, NULL);
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
