/* SPDX-License-Identifier: BSD-2-Clause */
#include "pmap.h"

#include "compat/os/bits.h"
#include "compat/os/vm.h"
#include "thp.h"

intptr_t pmap_root[1 << PMAP_ROOT_BITS];
uint16_t pmap_zero_tags[PMAP_LEAF_PAGES];
static size_t mapped_bytes; /* relaxed counter */
static struct pmap_leaf *spare_leaf; /* for whoever must not fail; atomic, zero-filled */

static struct pmap_leaf *leaf_of(uintptr_t a)
{
    if (a >> PMAP_LEAF_SHIFT >> PMAP_ROOT_BITS != 0)
        return NULL;
    intptr_t distance = load_acquire(&pmap_root[a >> PMAP_LEAF_SHIFT]); /* pairs with the release in add_leaf */
    return distance == 0 ? NULL : (struct pmap_leaf *)((uintptr_t)pmap_zero_tags + (uintptr_t)distance);
}

struct page *pmap_page(const void *p)
{
    uintptr_t a = pmap_strip(p);
    struct pmap_leaf *leaf = leaf_of(a);
    return leaf == NULL ? NULL : &leaf->page[(a >> PAGE_SHIFT) & (PMAP_LEAF_PAGES - 1)];
}

struct block *pmap_block(const void *p)
{
    uintptr_t a = pmap_strip(p);
    struct pmap_leaf *leaf = leaf_of(a);
    return leaf == NULL ? NULL : &leaf->block[(a >> BLOCK_SHIFT) & (PMAP_LEAF_BLOCKS - 1)];
}

struct page *pmap_page_init(void *p)
{
    struct page *pg = pmap_page(p);
    pg->pfn = (uint32_t)((uintptr_t)p >> PAGE_SHIFT);
    return pg;
}

void pmap_set_tags(struct page *pg, size_t npages, unsigned tag)
{
    uintptr_t a = (uintptr_t)page_address(pg);
    for (size_t i = 0; i < npages; i++, a += PAGE_BYTES) {
        struct pmap_leaf *leaf = leaf_of(a);
        store_relaxed(&leaf->tag[(a >> PAGE_SHIFT) & (PMAP_LEAF_PAGES - 1)], (uint16_t)tag);
    }
}

size_t pmap_leaf_bytes(void)
{
    return align_up(sizeof(struct pmap_leaf), vm_page_size());
}

bool pmap_prepare(void)
{
    if (load_relaxed(&spare_leaf) != NULL)
        return true;
    struct pmap_leaf *leaf = thp_map_small(pmap_leaf_bytes()), *none = NULL;
    if (leaf != NULL && !cas_acq_rel(&spare_leaf, &none, leaf)) /* pairs with add_leaf's exchange */
        vm_unmap(leaf, pmap_leaf_bytes());
    return leaf != NULL;
}

/* Map the leaf for one 4 GiB stretch. Two threads may race: one leaf wins, the other goes back. */
static bool add_leaf(uintptr_t a)
{
    size_t size = pmap_leaf_bytes();
    struct pmap_leaf *leaf = thp_map_small(size);
    if (leaf == NULL)
        leaf = exchange_acquire(&spare_leaf, NULL); /* pairs with pmap_prepare's release */
    if (leaf == NULL)
        return false;
    intptr_t none = 0;
    intptr_t distance = (intptr_t)((uintptr_t)leaf - (uintptr_t)pmap_zero_tags);
    /* release; pairs with leaf_of's acquire and with the address dependency of pmap_tag */
    if (cas_acq_rel(&pmap_root[a >> PMAP_LEAF_SHIFT], &none, distance))
        add_relaxed(&mapped_bytes, size);
    else
        vm_unmap(leaf, size);
    return true;
}

bool pmap_cover(void *base, size_t size)
{
    uintptr_t a = align_down((uintptr_t)base, PAGE_BYTES), end = (uintptr_t)base + size;
    if ((end - 1) >> PMAP_LEAF_SHIFT >> PMAP_ROOT_BITS != 0)
        return false;
    for (; a < end; a = (a | (((uintptr_t)1 << PMAP_LEAF_SHIFT) - 1)) + 1)
        if (leaf_of(a) == NULL && !add_leaf(a))
            return false;
    return true;
}

void *pmap_leaf(uintptr_t a)
{
    return leaf_of(a);
}

size_t pmap_resident_bytes(void)
{
    size_t sum = 0;
    for (size_t i = 0; i < (size_t)1 << PMAP_ROOT_BITS; i++) {
        struct pmap_leaf *leaf = leaf_of(i << PMAP_LEAF_SHIFT);
        sum += leaf == NULL ? 0 : vm_resident(leaf, pmap_leaf_bytes());
    }
    return sum;
}

size_t pmap_mapped_bytes(void)
{
    return load_relaxed(&mapped_bytes);
}
