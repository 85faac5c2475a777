/* SPDX-License-Identifier: BSD-2-Clause */
/* core/pmap.h: tags and descriptors, for any address at all. */
#include "unit.h"

#include "../fault/fault.h"

#include "compat/os/bits.h"
#include "compat/os/vm.h"
#include "core/alloc.h"
#include "core/pmap.h"

#include <errno.h>

#define ADDRESS(a) ((void *)(uintptr_t)(a))

static const uintptr_t border = (uintptr_t)0x12 << PMAP_LEAF_SHIFT; /* far below what the kernel hands out */

TEST(pmap, foreign_addresses_have_no_tag)
{
    char local = 0;
    static char fixed;
    void *ours = unit_malloc(100);
    uintptr_t ours_n = (uintptr_t)ours;
    const uintptr_t foreign[] = {
        0, 1, 0xffff, 0x10000, (uintptr_t)&local, (uintptr_t)&fixed, ((uintptr_t)1 << 47) - 1, (uintptr_t)1 << 47,
        ((uintptr_t)1 << 48) - 1, (uintptr_t)1 << 48, ((uintptr_t)1 << 48) + ours_n, ((uintptr_t)1 << 55) + ours_n,
        ((uintptr_t)1 << 63), (uintptr_t)-1, (uintptr_t)-65536,
    };
    EXPECT(pmap_tag(ours) != 0);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        EXPECT_EQ(pmap_tag(ADDRESS(foreign[i])), 0);
        if (foreign[i] >> 48 != 0)
            EXPECT(pmap_page(ADDRESS(foreign[i])) == NULL || pmap_strip(ADDRESS(foreign[i])) != foreign[i]);
        EXPECT_EQ(alloc_usable(ADDRESS(foreign[i])), 0);
    }
    unit_free(ours);
}

/* Where the top byte is the program's (arm64), a tagged pointer is the same block; elsewhere it is foreign. */
TEST(pmap, top_byte_counts_unless_the_machine_ignores_it)
{
    void *ours = unit_malloc(100), *tagged = ADDRESS((uintptr_t)ours + ((uintptr_t)1 << 56));
    bool ignored = pmap_strip(ADDRESS((uintptr_t)1 << 56)) == 0;
    EXPECT_EQ(pmap_tag(tagged), ignored ? pmap_tag(ours) : 0);
    EXPECT(pmap_page(tagged) == (ignored ? pmap_page(ours) : NULL));
    unit_free(ours);
}

static void cover_a_border(void *arg)
{
    (void)arg;
    char *base = ADDRESS(border - PAGE_BYTES);
    size_t mapped = pmap_mapped_bytes(), leaf = align_up(sizeof(struct pmap_leaf), vm_page_size());
    MUST(pmap_page(base) == NULL && pmap_page(base + PAGE_BYTES) == NULL);
    MUST(pmap_tag(base) == 0);
    MUST(pmap_cover(base, 2 * PAGE_BYTES));
    MUST(pmap_mapped_bytes() == mapped + 2 * leaf);
    MUST(pmap_cover(base, 2 * PAGE_BYTES) && pmap_cover(base + 5, 1));
    MUST(pmap_mapped_bytes() == mapped + 2 * leaf);

    struct page *first = pmap_page_init(base), *second = pmap_page(base + PAGE_BYTES);
    MUST(first != NULL && second != NULL && first != second);
    MUST(page_address(first) == base);
    MUST(pmap_page(base + PAGE_BYTES - 1) == first && pmap_page(base + 2 * PAGE_BYTES - 1) == second);
    MUST(second->kind == PAGE_NONE && second->pfn == 0); /* INV-PMAP-2: in place and zero before it is seen */

    unsigned tag = tag_make(7, 3);
    pmap_set_tags(first, 2, tag);
    MUST(pmap_tag(base) == tag && pmap_tag(base + PAGE_BYTES) == tag);
    MUST(pmap_tag(base - 1) == 0 && pmap_tag(base + 2 * PAGE_BYTES) == 0);
    MUST(pmap_tag(base + 2 * PAGE_BYTES - 1) == tag);
    pmap_set_tags(first, 1, 0);
    MUST(pmap_tag(base) == 0 && pmap_tag(base + PAGE_BYTES) == tag);
}

TEST(pmap, leaves_come_with_the_range_and_join_at_their_border)
{
    unit_alone(cover_a_border, NULL);
}

TEST(pmap, nothing_beyond_48_bits_can_be_covered)
{
    size_t mapped = pmap_mapped_bytes();
    EXPECT(!pmap_cover(ADDRESS(((uintptr_t)1 << 48) - PAGE_BYTES), 2 * PAGE_BYTES));
    EXPECT(!pmap_cover(ADDRESS((uintptr_t)1 << 48), PAGE_BYTES));
    EXPECT_EQ(pmap_mapped_bytes(), mapped);
}

enum { LEAVES = 400, RACERS = 2 };

static uint32_t gate;
static bool in_use[LEAVES]; /* by others: an emulator hands out low addresses */

static void cover_together(unsigned thread)
{
    char *base = ADDRESS(border);
    for (uintptr_t leaf = 0; leaf < LEAVES; leaf++) {
        add_relaxed(&gate, 1);
        while (load_relaxed(&gate) < (leaf + 1) * RACERS) /* all at once, for each leaf anew */
            cpu_relax();
        char *a = base + (leaf << PMAP_LEAF_SHIFT) + thread * PAGE_BYTES;
        MUST(pmap_cover(a, PAGE_BYTES));
        if (in_use[leaf])
            continue;
        struct page *pg = pmap_page_init(a); /* INV-PMAP-2 */
        MUST(pg->kind == PAGE_NONE && pg->nfree == 0);
        pg->nfree = (uint16_t)(thread + 1);
    }
}

static void race(void *arg)
{
    (void)arg;
    size_t mapped = pmap_mapped_bytes(), leaf = align_up(sizeof(struct pmap_leaf), vm_page_size()), there = 0;
    for (uintptr_t i = 0; i < LEAVES; i++)
        there += in_use[i] = pmap_leaf(border + (i << PMAP_LEAF_SHIFT)) != NULL;
    MUST(there < LEAVES / 2);
    unit_threads(RACERS, cover_together);
    MUST(pmap_mapped_bytes() == mapped + (LEAVES - there) * leaf);
    for (uintptr_t i = 0; i < LEAVES; i++)
        for (unsigned t = 0; t < RACERS; t++)
            MUST(in_use[i] || pmap_page((char *)ADDRESS(border) + (i << PMAP_LEAF_SHIFT) + t * PAGE_BYTES)->nfree == t + 1);
}

/* INV-PMAP-2 */
TEST(pmap, threads_that_cover_one_range_get_one_leaf)
{
    unit_alone(race, NULL);
}

TEST(pmap, tags_keep_class_and_node_apart)
{
    for (unsigned node = 0; node < 1 << (16 - TAG_NODE_SHIFT); node += node < 4 ? 1 : 37)
        for (class_t c = 0; c < SIZE_CLASSES; c++) {
            unsigned tag = tag_make(c, node);
            EXPECT(tag != 0 && tag <= UINT16_MAX && (tag & TAG_CLASS_MASK) != TAG_BLOCK);
            EXPECT_EQ(tag_class(tag), c);
            EXPECT_EQ(tag >> TAG_NODE_SHIFT, node);
            EXPECT_EQ((tag ^ node << TAG_NODE_SHIFT) - 1, c); /* what the hit path does */
        }
    EXPECT(tag_class(0) >= SIZE_CLASSES);
    EXPECT(tag_class(TAG_BLOCK) >= SIZE_CLASSES);
}

/* INV-PMAP-1: whoever holds a pointer finds its tag; once the slab has gone down nobody does. */
TEST(pmap, tags_live_as_long_as_their_slab)
{
    enum { N = 300 };
    static void *p[N];
    unit_fresh();
    for (size_t i = 0; i < N; i++) {
        p[i] = unit_malloc(1000 + i * 100);
        class_t c = size_to_class(1000 + i * 100);
        EXPECT_EQ(pmap_tag(p[i]), tag_make(c, 0));
        EXPECT_EQ(pmap_tag((char *)p[i] + class_to_size(c) - 1), tag_make(c, 0));
    }
    for (size_t i = 0; i < N; i++)
        unit_free(p[i]);
    unit_fresh();
    for (size_t i = 0; i < N; i++)
        EXPECT_EQ(pmap_tag(p[i]), 0);
}

/* The leaf that was set aside serves when no other can be mapped, once. */
static void cover_without_memory(void *arg)
{
    char *far = (char *)((uintptr_t)0x1230 << PMAP_LEAF_SHIFT);
    (void)arg;
    MUST(pmap_prepare());
    fault_set(FAULT_MMAP, 1, true, -ENOMEM);
    MUST(pmap_page(far) == NULL);
    MUST(pmap_cover(far, PAGE_BYTES) && pmap_page(far) != NULL);
    MUST(!pmap_cover(far + ((size_t)1 << PMAP_LEAF_SHIFT), PAGE_BYTES) && !pmap_prepare());
}

TEST(pmap, a_leaf_set_aside_serves_when_none_can_be_mapped)
{
    unit_alone(cover_without_memory, NULL);
}
