/* SPDX-License-Identifier: BSD-2-Clause */
/* core/region.h: windows and mappings. A window has no end, so windows are made in children. */
#include "unit.h"

#include "compat/os/bits.h"
#include "compat/os/vm.h"
#include "core/opt.h"
#include "core/pmap.h"
#include "core/region.h"

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
        size_t need = i % 3 == 1 ? before.bytes[REGION_WINDOW] + 12345 : 1;
        struct region *r = region_map_window(need);
        MUST(r != NULL && r->kind == REGION_WINDOW);
        size_t usual = clamp(before.bytes[REGION_WINDOW], WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        MUST(r->size == align_up(need > usual ? need : usual, PAGE_BYTES));
        MUST((uintptr_t)r->base % PAGE_BYTES == 0);
        struct region_stats after = region_stats();
        MUST(after.bytes[REGION_WINDOW] == before.bytes[REGION_WINDOW] + r->size);
        MUST(after.count[REGION_WINDOW] == before.count[REGION_WINDOW] + 1);
        MUST(after.count[REGION_LARGE] == before.count[REGION_LARGE]);
        MUST(pmap_page(r->base) != NULL && pmap_page(r->base + r->size - 1) != NULL);
        MUST(region_contains(r->base) && region_contains(r->base + r->size - 1));
        MUST(r->base[0] == 0 && r->base[r->size - 1] == 0);
        r->base[0] = r->base[r->size - 1] = 1;
    }
}

TEST(region, windows_double_what_is_mapped_between_two_bounds)
{
    unit_alone(windows, NULL);
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
    MUST(region_map_window((size_t)128 << 20) != NULL);
    size_t usual = clamp(region_stats().bytes[REGION_WINDOW], WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
    size_t room = (size_t)24 << 20, need = (size_t)3 << 20;
    struct rlimit limit = {address_space() + room, RLIM_INFINITY};
    MUST(setrlimit(RLIMIT_AS, &limit) == 0);
    struct region *r = region_map_window(need);
    MUST(r != NULL);
    MUST(r->size >= need && r->size < room && r->size < usual);
    struct region_stats before = region_stats();
    MUST(region_map_window((size_t)64 << 20) == NULL); /* less than the need is of no use */
    MUST(region_stats().bytes[REGION_WINDOW] == before.bytes[REGION_WINDOW]);
    MUST(strcmp(vm_last_failure().call, "mmap") == 0);
}

TEST(region, window_shrinks_to_the_need_when_address_space_is_short)
{
    unit_alone(window_when_short, NULL);
}

static unsigned mappings(void)
{
    static char buf[1 << 20];
    FILE *f = fopen("/proc/self/maps", "r");
    MUST(f != NULL);
    size_t len = fread(buf, 1, sizeof buf, f);
    MUST(len < sizeof buf);
    fclose(f);
    unsigned n = 0;
    for (size_t i = 0; i < len; i++)
        n += buf[i] == '\n';
    return n;
}

/* The policy is for the whole mapping, what the alignment leaves over at its ends as well: one mapping a window. */
static void windows_are_one_mapping_each(void *arg)
{
    static const uintptr_t policies[] = {OPT_THP_ALWAYS, OPT_THP_NEVER};
    (void)arg;
    MUST(region_map_window(1) != NULL); /* whatever the first one maps beside it */
    unsigned before = mappings();
    before = mappings();
    for (int i = 0; i < 6; i++) {
        opt.thp = policies[i % 2];
        MUST(region_map_window(24 << 20) != NULL);
    }
    MUST(mappings() <= before + 9); /* and a leaf or two; with a seam in each it were twelve */
}

TEST(region, a_flag_splits_no_window)
{
    unit_alone(windows_are_one_mapping_each, NULL);
}

TEST(region, large_mapping_comes_and_goes)
{
    size_t os = vm_page_size(), size = (size_t)40 * PAGE_BYTES + 3 * os;
    struct region_stats before = region_stats();
    struct region *r = region_map_large(size, os);
    EXPECT(r != NULL && r->kind == REGION_LARGE);
    EXPECT_EQ(r->size, size);
    char *base = r->base;
    EXPECT(unit_is_zero(base, size));
    EXPECT_EQ(region_stats().bytes[REGION_LARGE], before.bytes[REGION_LARGE] + size);
    EXPECT_EQ(region_stats().count[REGION_LARGE], before.count[REGION_LARGE] + 1);
    EXPECT(region_contains(base) && region_contains(base + size - 1));
    EXPECT(pmap_page(base) != NULL && pmap_page(base + size - 1) != NULL);
    unit_stamp(base, size, 5);
    EXPECT_EQ(region_unmap_large(r), 0);
    EXPECT(!region_contains(base) && !region_contains(base + size - 1));
    EXPECT_EQ(region_stats().bytes[REGION_LARGE], before.bytes[REGION_LARGE]);
    EXPECT_EQ(region_stats().count[REGION_LARGE], before.count[REGION_LARGE]);
}

TEST(region, large_mapping_is_aligned_as_asked_and_maps_no_more)
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
    size_t before = region_stats().bytes[REGION_LARGE];
    struct region *r = region_map_large(size, os);
    EXPECT(r != NULL);
    unit_stamp(r->base, small, 9);
    for (int i = 1; i < 20; i++) {
        size = i % 5 == 4 ? small : size + (size_t)i * 16 * PAGE_BYTES + os;
        EXPECT(region_remap_large(r, size));
        EXPECT_EQ(r->size, size);
        EXPECT(unit_stamped(r->base, small, 9));
        EXPECT(region_contains(r->base + size - 1));
        EXPECT_EQ(region_stats().bytes[REGION_LARGE], before + size);
        if (size > small)
            r->base[size - 1] = 1;
    }
    EXPECT(!region_remap_large(r, (size_t)1 << 60)); /* refused: as it was */
    EXPECT_EQ(r->size, size);
    EXPECT(unit_stamped(r->base, small, 9));
    EXPECT_EQ(region_stats().bytes[REGION_LARGE], before + size);
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
