/* SPDX-License-Identifier: BSD-2-Clause */
#include "large.h"

#include "block.h"
#include "clean.h"
#include "compat/os/bits.h"
#include "compat/os/clock.h"
#include "compat/os/vm.h"
#include "hot.h"
#include "limit.h"
#include "misuse.h"
#include "opt.h"
#include "pcp.h"
#include "region.h"
#include "zone.h"

#include <string.h>

static struct large_stats stats; /* relaxed counters; blocks that wait (hot.h) are in them, and large_stats takes them out */

/* The counters of the block's kind; they follow each other in struct large_stats. */
static size_t *counters(const struct page *pg)
{
    return pg->kind == PAGE_RUN ? &stats.run_bytes : pg->region == NULL ? &stats.large_bytes : &stats.own_bytes;
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

/* ---- blocks that wait for the next request (hot.h) ---- */

static void set_usable(struct page *pg, size_t usable)
{
    if (usable == pg->usable)
        return;
    account(pg, false);
    pg->usable = usable;
    pg->stale = pg->region != NULL ? 0 : stale_bytes(pg, false);
    account(pg, true);
}

/* A block that has waited is the program's again. */
static void *wake(struct page *pg, enum page_kind kind, size_t size, bool zero)
{
    if (zero)
        memset(pg->base, 0, size);
    pg->zeroed = false;
    set_usable(pg, os_round(size));
    page_set_kind(pg, kind);
    pmap_set_tags(pg, 1, TAG_BLOCK);
    return pg->base;
}

/* Before others may find it, or its address range goes: then another mapping may begin there and own the descriptor. */
static void undress(struct page *pg, enum page_kind kind)
{
    pmap_set_tags(pg, 1, 0);
    page_set_kind(pg, kind);
}

static void release_large(struct page *pg)
{
    size_t npages = pg->npages;
    unsigned node = pg->node;
    account(pg, false);
    zone_free(pg, npages, false);
    pcp_note_free(npages);
    zone_relax(node, false);
}

/* Too many mappings: then address space is lost, and stays in the account. */
static void release_own(struct page *pg)
{
    struct region *r = pg->region;
    account(pg, false);
    limit_uncharge(pg->usable);
    page_set_kind(pg, PAGE_GONE);
    if (region_unmap_large(r) != 0)
        vm_purge(r->base, r->size);
}

static void release(struct page *pg)
{
    if (pg->region == NULL)
        release_large(pg);
    else
        release_own(pg);
}

size_t large_drain(bool idle)
{
    return hot_drain(idle, release);
}

/* Pages that may wait. What was freed and at once asked for again is a regret that needs no purge to be seen: as much as
 * regrets may add to what the zone keeps (giveback.h). */
static size_t most_waiting(unsigned node)
{
    return (GIVE_CREDIT_MAX + zone_stats(node).out / GIVE_CREDIT_SHARE) >> PAGE_SHIFT;
}

static bool let_wait(struct page *pg)
{
    if (opt.hardened)
        return false;
    undress(pg, PAGE_HOT);
    return hot_put(pg) || hot_put_new(pg, most_waiting, release);
}

/* ---- large: pages of a window ---- */

static void *alloc_in_window(unsigned node, size_t size, size_t room, size_t align, bool zero)
{
    size_t npages = (room + PAGE_BYTES - 1) >> PAGE_SHIFT;
    size_t align_pages = align <= PAGE_BYTES ? 1 : align >> PAGE_SHIFT;
    struct page *pg = align_pages == 1 ? hot_take(node, npages) : NULL;
    if (pg != NULL)
        return wake(pg, PAGE_LARGE, size, zero);
    pg = zone_alloc(node, npages, align_pages);
    pcp_note_alloc();
    return pg == NULL ? NULL : dress_block(pg, PAGE_LARGE, size, zero);
}

/* ---- own: a mapping a block ---- */

/* Make a mapping a block. */
static void *dress_own(struct region *r, size_t usable, uint64_t now)
{
    struct page *pg = pmap_page_init(r->base);
    page_set_kind(pg, PAGE_OWN);
    pg->zeroed = false;
    pg->npages = 1;
    pg->usable = usable;
    pg->base = r->base;
    pg->region = r;
    pg->stale = 0;
    pg->purged_ms = now;
    pmap_set_tags(pg, 1, TAG_BLOCK);
    account(pg, true);
    return r->base;
}

static bool purge_own(struct page *pg)
{
    return vm_purge(pg->base, pg->region->size) == 0;
}

/* Give a block that waited to the program, if the limit allows for its size. Fails: false, and it is gone. */
static bool recharge(struct page *pg, size_t usable)
{
    if (usable > pg->usable && !limit_charge(usable - pg->usable)) {
        release_own(pg);
        return false;
    }
    if (usable < pg->usable)
        limit_uncharge(pg->usable - usable);
    return true;
}

static void *wake_own(struct page *pg, size_t size, bool zero)
{
    if (!recharge(pg, os_round(size)))
        return NULL;
    bool clear = zero && !pg->zeroed && !purge_own(pg); /* most of it has never been touched: not memset */
    return wake(pg, PAGE_OWN, size, clear);
}

typedef struct region *map_region(size_t size, size_t align);

/* A range with room behind the block: address space only. */
static void *map_own(map_region *map, size_t size, size_t room, size_t align)
{
    size_t page = vm_page_size(), usable = os_round(size);
    if (!limit_charge(usable))
        return NULL;
    struct region *r = map(os_round(room), align < page ? page : align);
    if (r == NULL && large_drain(false) > 0)
        r = map(os_round(room), align < page ? page : align);
    if (r == NULL)
        limit_uncharge(usable);
    return r == NULL ? NULL : dress_own(r, usable, clock_coarse_ms());
}

/* A mapping covers one of our pages at least, however small the block: else a second one could begin in the same page,
 * which has one descriptor. */
static void *alloc_own(size_t size, size_t align, bool zero)
{
    size_t bytes = os_round(size < PAGE_BYTES ? PAGE_BYTES : size);
    struct page *stray, *pg = hot_take_own(bytes, align, &stray);
    if (pg != NULL)
        return wake_own(pg, size, zero);
    if (stray != NULL)
        release_own(stray);
    return map_own(region_map_large, size, bytes, align);
}

/* ---- the interface ---- */

void *large_alloc(unsigned node, size_t size, size_t align, bool zero)
{
    if (size == 0)
        size = 1;
    if (size <= RUN_BYTES_MAX && align <= PAGE_BYTES)
        return alloc_run(node, size, zero);
    if (size <= LARGE_OWN_BYTES && align <= LARGE_OWN_BYTES)
        return alloc_in_window(node, size, size, align, zero);
    return alloc_own(size, align, zero);
}

/* Room to grow in place, in whole huge pages. */
static size_t own_room(size_t size)
{
    return align_up(size + size / 2, BLOCK_BYTES);
}

void *large_alloc_growing(unsigned node, size_t size)
{
    void *p = NULL;
    if (size > RUN_BYTES_MAX && opt.hard_limit == 0) {
        if (size > LARGE_GROW_BYTES)
            p = map_own(region_map_own, size, own_room(size), BLOCK_BYTES);
        else
            p = alloc_in_window(node, size, 2 * size, 1, false);
    }
    return p != NULL ? p : large_alloc(node, size, 1, false); /* the room is a wish */
}

struct page *large_page(const void *p)
{
    struct page *pg = pmap_page(p);
    bool block = pg != NULL && (pg->kind == PAGE_RUN || pg->kind == PAGE_LARGE || pg->kind == PAGE_OWN);
    return block && (uintptr_t)pg->base == pmap_strip(p) ? pg : NULL;
}

static void free_own(struct page *pg)
{
    struct page *stray = pg;
    undress(pg, PAGE_HOT);
    if (pg->region->size <= HOT_OWN_MAX && opt.purge == OPT_PURGE_ON && !opt.hardened)
        stray = hot_put_own(pg, purge_own);
    if (stray != NULL)
        release_own(stray);
}

void large_free(struct page *pg)
{
    if (pg->kind == PAGE_LARGE) {
        if (!let_wait(pg)) {
            undress(pg, PAGE_CACHED);
            release_large(pg);
        }
    } else if (pg->kind == PAGE_OWN) {
        free_own(pg);
    } else {
        account(pg, false);
        pmap_set_tags(pg, 1, 0);
        pcp_free(pg, pg->order, false);
    }
}

static bool resize_large(struct page *pg, size_t size)
{
    size_t npages = (size + PAGE_BYTES - 1) >> PAGE_SHIFT;
    if (size <= RUN_BYTES_MAX || (size > LARGE_GROW_BYTES && npages > pg->npages))
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

/* Resize the mapping itself, which may move it; the descriptor moves with it. */
static void *remap_own(struct page *pg, size_t usable, size_t room)
{
    struct region *r = pg->region;
    size_t old = pg->usable;
    account(pg, false);
    undress(pg, PAGE_GONE); /* pg may be another block's from here on */
    bool ok = region_remap_large(r, room) || (room != usable && region_remap_large(r, usable));
    if (!pmap_cover(r->base, PAGE_BYTES)) /* moved, and another thread took the spare leaf: free will call it foreign */
        return r->base;
    pmap_cover(r->base, r->size); /* the other leaves only serve messages */
    dress_own(r, ok ? usable : old, 0);
    return ok ? r->base : NULL;
}

static void *resize_own(struct page *pg, size_t size)
{
    size_t usable = os_round(size), old = pg->usable;
    void *p = pg->base;
    if (size <= LARGE_GROW_BYTES / 2)
        return NULL;
    if (usable > old && (!pmap_prepare() || !limit_charge(usable - old)))
        return NULL;
    if (usable < old)
        p = remap_own(pg, usable, usable);
    else if (usable > pg->region->size)
        p = remap_own(pg, usable, own_room(usable));
    else
        set_usable(pg, usable);
    if ((p != NULL) == (usable < old)) /* shrunk, or not grown */
        limit_uncharge(p != NULL ? old - usable : usable - old);
    return p;
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
    if (page_kind(pg) == PAGE_HOT && pg->base == plain) {
        m.base = plain;
        misuse_abort(&m);
    }
    if (region_find(plain, &r) && region_of_program(&r)) {
        if (r.kind == REGION_LARGE || r.kind == REGION_OWN) {
            m.what = "not the start of a block";
            m.state = NULL;
            m.base = r.base;
        } else {
            describe_in_window(&m, p);
        }
        misuse_abort(&m);
    }
    if (pg->kind == PAGE_GONE && pg->base == plain && (region_is_gap(plain) || !vm_is_mapped(plain))) { /* mapped again: a stranger's */
        m.base = plain;
        misuse_abort(&m);
    }
}

struct large_stats large_stats(void)
{
    const size_t *from = (const size_t *)&stats;
    struct large_stats st = {0};
    size_t *to = (size_t *)&st;
    for (size_t i = 0; i < offsetof(struct large_stats, hot_bytes) / sizeof *to; i++)
        to[i] = load_relaxed(&from[i]);
    struct hot_stats hot = hot_stats();
    st.hot_bytes = hot.bytes;
    st.hot_own_bytes = hot.own_usable;
    st.large_bytes -= hot.usable;
    st.large_count -= hot.count;
    st.large_pages -= hot.bytes >> PAGE_SHIFT;
    st.large_stale -= hot.stale;
    st.own_bytes -= hot.own_usable;
    st.own_count -= hot.own_count;
    st.own_pages -= hot.own_count; /* one descriptor each */
    return st;
}
