/* SPDX-License-Identifier: BSD-2-Clause */
#include "large.h"

#include "clean.h"
#include "compat/os/bits.h"
#include "compat/os/vm.h"
#include "limit.h"
#include "misuse.h"
#include "pcp.h"
#include "region.h"
#include "zone.h"

#include <string.h>

static struct large_stats stats; /* relaxed counters */

/* The counters of the block's kind; they follow each other in struct large_stats. */
static size_t *counters(const struct page *pg)
{
    return pg->kind == PAGE_RUN ? &stats.run_bytes : pg->kind == PAGE_LARGE ? &stats.large_bytes : &stats.own_bytes;
}

static void account(const struct page *pg, bool in)
{
    size_t *sum = counters(pg), sign = in ? 1 : (size_t)-1;
    add_relaxed(&sum[0], sign * pg->usable);
    add_relaxed(&sum[1], sign);
    add_relaxed(&sum[2], sign * pg->npages);
    add_relaxed(&sum[3], sign * pg->stale);
}

static size_t os_round(size_t size)
{
    size_t page = vm_page_size();
    return align_up(size == 0 ? 1 : size, page);
}

/* Bytes behind the usable ones that are resident all the same, from the pages' last use. */
static size_t stale_bytes(struct page *pg, bool zeroed)
{
    if (pg->kind == PAGE_RUN) {
        unsigned used = (unsigned)(pg->usable >> clean_shift());
        clean_clear(pg, 0, used);
        return (size_t)(clean_units(pg->npages) - used - clean_count(pg)) << clean_shift();
    }
    return zeroed ? 0 : pg->npages * PAGE_BYTES - pg->usable;
}

/* Make a run of pages a block. */
static void *dress_block(struct page *pg, enum page_kind kind, size_t size, bool zero)
{
    void *p = page_address(pg);
    bool zeroed = pg->zeroed;
    if (zero && !zeroed)
        memset(p, 0, size);
    pg->zeroed = false;
    page_set_kind(pg, kind);
    pg->usable = os_round(size);
    pg->base = p;
    pg->region = NULL;
    pg->stale = stale_bytes(pg, zeroed);
    pmap_set_tags(pg, 1, TAG_BLOCK);
    account(pg, true);
    return p;
}

static void *alloc_run(unsigned node, size_t size, bool zero)
{
    unsigned order = size <= PAGE_BYTES ? 0 : ilog2_up(size) - PAGE_SHIFT;
    struct page *pg = pcp_alloc(node, order);
    return pg == NULL ? NULL : dress_block(pg, PAGE_RUN, size, zero);
}

static void *alloc_in_window(unsigned node, size_t size, size_t room, size_t align, bool zero)
{
    size_t npages = (room + PAGE_BYTES - 1) >> PAGE_SHIFT;
    size_t align_pages = align <= PAGE_BYTES ? 1 : align >> PAGE_SHIFT;
    struct page *pg = zone_alloc(node, npages, align_pages);
    pcp_note_alloc();
    return pg == NULL ? NULL : dress_block(pg, PAGE_LARGE, size, zero);
}

/* Make a mapping a block. */
static void *dress_own(struct region *r, size_t usable)
{
    struct page *pg = pmap_page_init(r->base);
    page_set_kind(pg, PAGE_OWN);
    pg->zeroed = false;
    pg->npages = 1;
    pg->usable = usable;
    pg->base = r->base;
    pg->region = r;
    pg->stale = 0;
    pmap_set_tags(pg, 1, TAG_BLOCK);
    account(pg, true);
    return r->base;
}

/* Before the address range may go: as soon as it has, another thread's mapping may begin there and own the descriptor. */
static struct region *undress_own(struct page *pg)
{
    account(pg, false);
    pmap_set_tags(pg, 1, 0);
    page_set_kind(pg, PAGE_GONE);
    return pg->region;
}

/* A mapping covers one of our pages at least, however small the block: else a second one could begin in the same page,
 * which has one descriptor. */
static void *alloc_own(size_t size, size_t align)
{
    size_t page = vm_page_size(), bytes = os_round(size < PAGE_BYTES ? PAGE_BYTES : size);
    if (!limit_charge(bytes))
        return NULL;
    struct region *r = region_map_large(bytes, align < page ? page : align);
    if (r == NULL)
        limit_uncharge(bytes);
    return r == NULL ? NULL : dress_own(r, os_round(size));
}

void *large_alloc(unsigned node, size_t size, size_t align, bool zero)
{
    if (size == 0)
        size = 1;
    if (size <= RUN_BYTES_MAX && align <= PAGE_BYTES)
        return alloc_run(node, size, zero);
    if (size <= LARGE_OWN_BYTES && align <= LARGE_OWN_BYTES)
        return alloc_in_window(node, size, size, align, zero);
    return alloc_own(size, align);
}

void *large_alloc_growing(unsigned node, size_t size)
{
    if (size <= RUN_BYTES_MAX || size > LARGE_OWN_BYTES)
        return large_alloc(node, size, 1, false);
    size_t room = size + size / 4;
    void *p = alloc_in_window(node, size, room > LARGE_OWN_BYTES ? LARGE_OWN_BYTES : room, 1, false);
    return p != NULL ? p : large_alloc(node, size, 1, false); /* the room is a wish */
}

struct page *large_page(const void *p)
{
    struct page *pg = pmap_page(p);
    bool block = pg != NULL && (pg->kind == PAGE_RUN || pg->kind == PAGE_LARGE || pg->kind == PAGE_OWN);
    return block && (uintptr_t)pg->base == pmap_strip(p) ? pg : NULL;
}

void large_free(struct page *pg)
{
    unsigned node = pg->node;
    if (pg->kind == PAGE_OWN) {
        struct region *r = undress_own(pg);
        limit_uncharge(r->size);
        if (region_unmap_large(r) != 0) /* too many mappings: address space is lost, and stays in the account */
            vm_purge(r->base, r->size);
        return;
    }
    account(pg, false);
    pmap_set_tags(pg, 1, 0);
    if (pg->kind == PAGE_RUN) {
        pcp_free(pg, pg->order, false);
    } else {
        size_t npages = pg->npages;
        zone_free(pg, npages, false);
        pcp_note_free(npages);
        zone_relax(node, false);
    }
}

static bool resize_large(struct page *pg, size_t size)
{
    size_t npages = (size + PAGE_BYTES - 1) >> PAGE_SHIFT;
    if (size <= RUN_BYTES_MAX || size > LARGE_OWN_BYTES)
        return false;
    account(pg, false);
    bool ok = npages <= pg->npages || zone_grow(pg, npages);
    bool shrunk = ok && os_round(size) < pg->usable; /* on purpose: give the tail back */
    if (shrunk)
        zone_shrink(pg, npages);
    if (ok) {
        pg->usable = os_round(size);
        size_t room = pg->npages * PAGE_BYTES - pg->usable;
        pg->stale = pg->stale < room ? pg->stale : room;
    }
    account(pg, true);
    if (shrunk)
        zone_relax(pg->node, false);
    return ok;
}

/* Resize an own mapping, which may move it; its descriptor moves with it. */
static void *resize_own(struct page *pg, size_t size)
{
    size_t new_size = os_round(size), usable = pg->usable, old_size = pg->region->size;
    if (size <= LARGE_OWN_BYTES / 2)
        return NULL;
    if (new_size > old_size && (!pmap_prepare() || !limit_charge(new_size - old_size)))
        return NULL;
    struct region *r = undress_own(pg); /* pg may be another block's from here on */
    bool ok = new_size == old_size || region_remap_large(r, new_size);
    if (ok == (new_size < old_size)) /* shrunk, or not grown */
        limit_uncharge(ok ? old_size - new_size : new_size - old_size);
    if (!pmap_cover(r->base, PAGE_BYTES)) /* moved, and another thread took the spare leaf: free will call it foreign */
        return r->base;
    pmap_cover(r->base, r->size); /* the other leaves only serve messages */
    dress_own(r, ok ? new_size : usable);
    return ok ? r->base : NULL;
}

void *large_resize(struct page *pg, size_t size)
{
    void *p = pg->base;
    if (pg->kind == PAGE_OWN)
        return resize_own(pg, size);
    if (pg->kind == PAGE_LARGE)
        return resize_large(pg, size) ? p : NULL;
    if (size > PAGE_BYTES << pg->order || size <= SIZE_SMALL_MAX || size < pg->usable / 2)
        return NULL;
    account(pg, false);
    pg->usable = os_round(size);
    pg->stale = stale_bytes(pg, false);
    account(pg, true);
    return p;
}

/* ---- wrong pointers ---- */

/* The run or large block that covers an inner page of a window: walk back to the first descriptor that says what it is. */
static const struct page *covering(const void *p)
{
    uintptr_t a = pmap_strip(p) & ~(PAGE_BYTES - 1);
    for (size_t back = 0; back <= LARGE_OWN_BYTES >> PAGE_SHIFT; back++, a -= PAGE_BYTES) {
        const struct page *pg = pmap_page((void *)a);
        if (pg == NULL)
            return NULL;
        if (page_kind(pg) == PAGE_RUN || page_kind(pg) == PAGE_LARGE)
            return pg->npages > back ? pg : NULL;
        if (page_kind(pg) != PAGE_NONE && page_kind(pg) != PAGE_GONE)
            return NULL;
    }
    return NULL;
}

/* What a wrong pointer into a window is about. */
static void describe_in_window(struct misuse *m, const void *p)
{
    const struct page *block = covering(p);
    if (block != NULL) {
        m->what = "not the start of a block";
        m->state = NULL;
        m->base = block->base;
        m->kind = block->kind == PAGE_RUN ? "run" : "large";
    } else {
        m->base = (void *)(pmap_strip(p) & ~(PAGE_BYTES - 1));
        m->kind = pmap_page(p)->kind == PAGE_CACHED ? "run" : "large";
    }
}

void large_complain(const void *p, const char *func)
{
    const void *plain = (void *)pmap_strip(p);
    const struct page *pg = pmap_page(p);
    struct misuse m = {.func = func, .p = p, .what = "double free", .state = "already free", .kind = "large"};
    struct region r;
    if (pg == NULL)
        return;
    if (region_find(plain, &r)) {
        if (r.kind == REGION_LARGE) {
            m.what = "not the start of a block";
            m.state = NULL;
            m.base = r.base;
        } else {
            describe_in_window(&m, p);
        }
        misuse_abort(&m);
    }
    if (pg->kind == PAGE_GONE && pg->base == plain && !vm_is_mapped(plain)) { /* mapped again: a stranger's */
        m.base = plain;
        misuse_abort(&m);
    }
}

struct large_stats large_stats(void)
{
    const size_t *from = (const size_t *)&stats;
    struct large_stats st;
    size_t *to = (size_t *)&st;
    for (size_t i = 0; i < sizeof st / sizeof *to; i++)
        to[i] = load_relaxed(&from[i]);
    return st;
}
