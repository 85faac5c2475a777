/* SPDX-License-Identifier: BSD-2-Clause */
#include "region.h"

#include "compat/os/atomic.h"
#include "compat/os/bits.h"
#include "compat/os/lock.h"
#include "compat/os/vm.h"
#include "block.h"
#include "meta.h"
#include "opt.h"
#include "pmap.h"
#include "rank.h"

static struct {
    struct lock lock;
    struct region *list;       /* REGION lock */
    struct region_stats stats; /* REGION lock */
    size_t window_most;        /* largest window worth trying after a refusal, 0: any; relaxed, a hint */
} regions;

static void account_locked(const struct region *r, bool in)
{
    regions.stats.bytes[r->kind] += in ? r->size : -r->size;
    regions.stats.count[r->kind] += in ? 1 : (size_t)-1;
}

static void link_region(struct region *r)
{
    lock_acquire(&regions.lock, RANK_REGION);
    r->prev = NULL;
    r->next = regions.list;
    if (r->next != NULL)
        r->next->prev = r;
    regions.list = r;
    account_locked(r, true);
    lock_release(&regions.lock);
}

/* Before the mapping moves or goes: afterwards its address may be another thread's, whose link_region comes after this. */
static void unlink_region(struct region *r)
{
    lock_acquire(&regions.lock, RANK_REGION);
    if (r->next != NULL)
        r->next->prev = r->prev;
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        regions.list = r->next;
    account_locked(r, false);
    lock_release(&regions.lock);
}

static struct region *add(enum region_kind kind, char *base, size_t size)
{
    struct region *r = meta_alloc(sizeof *r);
    if (r == NULL)
        return NULL;
    *r = (struct region){.base = base, .size = size, .kind = kind};
    link_region(r);
    return r;
}

/* Windows double what is mapped, between two bounds: few steps for a big program, little for a small one. */
static size_t window_size(size_t need)
{
    size_t size = region_stats().bytes[REGION_WINDOW];
    if (size < WINDOW_BYTES_MIN)
        size = WINDOW_BYTES_MIN;
    if (size > WINDOW_BYTES_MAX)
        size = WINDOW_BYTES_MAX;
    size_t most = load_relaxed(&regions.window_most);
    if (most != 0 && size > most)
        size = most;
    return align_up(size < need ? need : size, PAGE_BYTES);
}

/* A window of several blocks begins with a block. Mapping so much more makes an aligned range fit wherever it comes. */
static size_t window_align(size_t size)
{
    return size >= 4 * BLOCK_BYTES ? BLOCK_BYTES : PAGE_BYTES;
}

struct region *region_map_window(size_t need)
{
    size_t size = window_size(need), slack;
    char *p;
    while ((p = vm_map(size + (slack = window_align(size) - vm_page_size()), false)) == NULL) {
        meta_reserve(); /* before the last of the address space goes to the program */
        store_relaxed(&regions.window_most, size / 2 < PAGE_BYTES ? PAGE_BYTES : size / 2);
        if (size <= need)
            return NULL;
        size = align_up(size / 2 < need ? need : size / 2, PAGE_BYTES);
    }
    if (load_relaxed(&regions.window_most) != 0)
        store_relaxed(&regions.window_most, size * 2);
    char *base = (char *)align_up((uintptr_t)p, window_align(size));
    struct region *r = pmap_cover(base, size) ? add(REGION_WINDOW, base, size) : NULL;
    if (r == NULL)
        vm_unmap(p, size + slack);
    else if (opt.thp != OPT_THP_AUTO)
        vm_huge_pages(p, size + slack, opt.thp == OPT_THP_ALWAYS); /* the whole mapping: a flag on a part splits it */
    return r;
}

struct region *region_map_large(size_t size, size_t align)
{
    char *p = vm_map_aligned(size, align, true);
    if (p == NULL)
        return NULL;
    struct region *r = pmap_cover(p, size) ? add(REGION_LARGE, p, size) : NULL;
    if (r == NULL)
        vm_unmap(p, size);
    else if (opt.thp != OPT_THP_AUTO || opt.purge == OPT_PURGE_ON) /* purge:off means no madvise unless it is asked for */
        vm_huge_pages(p, size, opt.thp != OPT_THP_NEVER);
    return r;
}

int region_unmap_large(struct region *r)
{
    unlink_region(r);
    int error = vm_unmap(r->base, r->size);
    if (error == 0)
        meta_free(r, sizeof *r);
    else
        link_region(r);
    return error;
}

bool region_remap_large(struct region *r, size_t new_size)
{
    unlink_region(r);
    char *p = vm_remap(r->base, r->size, new_size);
    if (p != NULL) {
        r->base = p;
        r->size = new_size;
    }
    link_region(r);
    return p != NULL;
}

struct region_stats region_stats(void)
{
    lock_acquire(&regions.lock, RANK_REGION);
    struct region_stats s = regions.stats;
    lock_release(&regions.lock);
    return s;
}

bool region_find(const void *p, struct region *copy)
{
    const char *a = p;
    lock_acquire(&regions.lock, RANK_REGION);
    struct region *r = regions.list;
    while (r != NULL && (a < r->base || a >= r->base + r->size))
        r = r->next;
    if (r != NULL)
        *copy = *r;
    lock_release(&regions.lock);
    return r != NULL;
}

void region_fork_hold(void)
{
    lock_fork_hold(&regions.lock, RANK_REGION);
}

void region_fork_open(void)
{
    lock_fork_open(&regions.lock);
}
