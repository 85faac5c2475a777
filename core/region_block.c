/* SPDX-License-Identifier: BSD-2-Clause */
/* Areas for zones; blocks with mappings of their own and in huge windows; what could not be purged. */
#include "block.h"
#include "compat/os/atomic.h"
#include "compat/os/bits.h"
#include "compat/os/vm.h"
#include "opt.h"
#include "pmap.h"
#include "rank.h"
#include "region_impl.h"

#include <errno.h>

/* The end of a request for a region: it is the caller's, or, without a place for it, unused. Held; lets go of the lock. */
static struct region *hand_out(struct region *r, bool placed)
{
    if (r != NULL && placed) {
        region_enter_new(r->base, r->size);
    } else if (r != NULL) {
        region_put(r);
        r = NULL;
    }
    region_unlock();
    return r;
}

/* ---- areas for zones ---- */

struct region *region_map_window(size_t need, unsigned node)
{
    region_lock();
    region_ready();
    struct region *r = region_new(REGION_ZONE, NULL, 0, node);
    return hand_out(r, r != NULL && (region_take_plain(r, need) || region_add_plain(r, need)));
}

/* ---- mappings of their own ---- */

static char *map_alone(size_t size, size_t align)
{
    char *p = vm_map_aligned(size, align, true);
    if (p != NULL && !pmap_cover(p, size)) {
        vm_unmap(p, size);
        return NULL;
    }
    if (p != NULL)
        region_advise(p, size);
    return p;
}

static bool make_room(void)
{
    region_lock();
    bool any = region_drop_empty();
    region_unlock();
    return any;
}

struct region *region_map_own(size_t size, size_t align)
{
    char *p = map_alone(size, align);
    if (p == NULL && (!make_room() || (p = map_alone(size, align)) == NULL))
        return NULL;
    region_lock();
    region_ready();
    struct region *r = region_new(REGION_OWN, p, size, 0);
    if (r != NULL) {
        region_enter(r);
        region_enter_new(p, size);
    }
    region_unlock();
    if (r == NULL)
        vm_unmap(p, size);
    return r;
}

/* The range is foreign before the mapping moves or goes: afterwards it may be another thread's, who enters it then. */
static void take_own(struct region *r)
{
    region_lock();
    region_leave(r);
    region_unlock();
}

static void put_own(struct region *r, char *base, size_t size)
{
    region_lock();
    region_set(r, REGION_OWN, base, size);
    region_enter(r);
    region_enter_new(base, size);
    region_unlock();
}

static int unmap_alone(struct region *r)
{
    take_own(r);
    int error = vm_unmap(r->base, r->size);
    if (error != 0) {
        put_own(r, r->base, r->size);
        return error;
    }
    region_lock();
    region_put(r);
    region_unlock();
    return 0;
}

static bool remap_alone(struct region *r, size_t new_size)
{
    take_own(r);
    char *p = vm_remap(r->base, r->size, new_size);
    put_own(r, p != NULL ? p : r->base, p != NULL ? new_size : r->size);
    return p != NULL;
}

/* ---- stale regions: free, and being purged or refused ---- */

static unsigned stale_skip; /* so many blocks that find no gap do not try stale ones again. REGION lock */

void region_stale_link(struct region *r)
{
    r->prev = NULL;
    r->next = region_state.stale;
    if (r->next != NULL)
        r->next->prev = r;
    region_state.stale = r;
}

void region_stale_unlink(struct region *r)
{
    if (r->next != NULL)
        r->next->prev = r->prev;
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        region_state.stale = r->next;
}

/* The calling thread is going to purge it. Held. */
static void purge_begin(struct region *r)
{
    r->purger = region_self();
    r->window->purging++;
}

/* Held; opens the lock. A range that ends inside of 2 MiB is purged to their end: a huge page lies there, and nothing of
 * anybody else (INV-REGION-3). */
static bool purge_open(const struct region *r)
{
    char *end = (char *)align_up((uintptr_t)r->base + r->size, BLOCK_BYTES), *most = r->window->base + r->window->size;
    region_unlock();
    bool ok = r->zero || vm_purge(r->base, (size_t)((end < most ? end : most) - r->base)) == 0;
    region_lock();
    return ok;
}

/* A zeroed range becomes a gap. Held; may open the lock. Fails: no node: it stays an entry, marked as zero. */
static bool make_gap(struct region *r)
{
    store_release(&r->zero, true);
    while (maple_erase(&region_space, (uintptr_t)r->base, NULL) != 0)
        if (!region_refill())
            return false;
    region_window_clean(r->window, r->size);
    region_stale_unlink(r);
    region_account(r, false);
    region_put(r);
    return true;
}

/* Purge a stale region that purge_begin was called for. Held; opens the lock. Result: it is a gap, or its window is gone. */
static bool purge_and_end(struct region *r)
{
    struct region_window *w = r->window;
    bool ok = purge_open(r) && make_gap(r);
    if (!ok)
        r->purger = NULL;
    w->purging--;
    region_window_relax(w);
    return ok;
}

static struct region *idle_stale(void)
{
    struct region *r = region_state.stale;
    while (r != NULL && r->purger != NULL)
        r = r->next;
    return r;
}

/* Try a few stale regions again. Held; opens the lock. Result: did any become a gap? */
static bool retry_stale(void)
{
    bool any = false;
    if (region_state.stale == NULL || (stale_skip > 0 && stale_skip-- > 0))
        return false;
    for (int i = 0; i < STALE_TRIES; i++) {
        struct region *r = idle_stale();
        if (r == NULL)
            break;
        purge_begin(r);
        if (!purge_and_end(r)) {
            stale_skip = STALE_SKIP;
            break;
        }
        any = true;
    }
    return any;
}

/* ---- blocks in huge windows ---- */

static bool for_window(size_t size)
{
    return size >= BLOCK_BYTES && opt.purge == OPT_PURGE_ON; /* what is freed there cannot be unmapped, only purged */
}

/* A place for r. An alignment above 2 MiB takes a gap that has it, but no window is mapped for it. Held; may open the lock. */
static bool place_large(struct region *r, size_t align)
{
    for (;;) {
        if (region_place(r, REGION_HUGE, align > BLOCK_BYTES ? align : BLOCK_BYTES))
            return true;
        if (align > BLOCK_BYTES || (!retry_stale() && !region_add_huge(r->size)))
            return false;
    }
}

static struct region *new_large(size_t size, size_t align)
{
    region_lock();
    region_ready();
    struct region *r = region_new(REGION_LARGE, NULL, size, 0);
    return hand_out(r, r != NULL && place_large(r, align));
}

struct region *region_map_large(size_t size, size_t align)
{
    struct region *r = for_window(size) ? new_large(size, align) : NULL;
    return r != NULL ? r : region_map_own(size, align);
}

/* A range whose entry in the tree is r, of kind STALE, is free from now on, and the calling thread is going to purge it:
 * purge_and_end is to follow, and no other thread takes it up before. Held. */
static void stale_begin(struct region *r, struct region_window *w)
{
    r->window = w;
    region_account(r, true);
    region_stale_link(r);
    region_window_stale(w, r->size);
    purge_begin(r);
}

static void unmap_large(struct region *r)
{
    region_lock();
    region_account(r, false);
    region_set(r, REGION_STALE, r->base, r->size);
    stale_begin(r, r->window);
    purge_and_end(r);
    region_unlock();
}

int region_unmap_large(struct region *r)
{
    if (r->kind == REGION_OWN)
        return unmap_alone(r);
    unmap_large(r);
    return 0;
}

bool region_grow(struct region *r, size_t new_size)
{
    if (r->kind != REGION_LARGE || new_size < r->size)
        return false;
    if (new_size == r->size)
        return true;
    region_lock();
    struct region_window *w = r->window;
    int error = new_size > (size_t)(w->base + w->size - r->base) ? -EEXIST : -ENOMEM;
    while (error == -ENOMEM) {
        error = maple_grow(&region_space, (uintptr_t)r->base, (uintptr_t)r->base + new_size - 1);
        if (error == -ENOMEM && !region_refill())
            break;
    }
    if (error == 0) {
        region_window_take(w, new_size - r->size);
        region_account(r, false);
        region_set(r, REGION_LARGE, r->base, new_size);
        region_account(r, true);
    }
    region_unlock();
    return error == 0;
}

/* The tail becomes a stale region of its own, and is purged as one. */
static bool shrink_large(struct region *r, size_t new_size)
{
    size_t rest = r->size - new_size;
    region_lock();
    struct region *tail = region_new(REGION_STALE, r->base + new_size, rest, r->node);
    if (tail == NULL || !region_store(tail->base, rest, tail)) {
        if (tail != NULL)
            region_put(tail);
        region_unlock();
        return false;
    }
    region_account(r, false);
    region_set(r, REGION_LARGE, r->base, new_size);
    region_account(r, true);
    stale_begin(tail, r->window);
    purge_and_end(tail);
    region_unlock();
    return true;
}

bool region_shrink(struct region *r, size_t new_size)
{
    if (new_size >= r->size || new_size == 0)
        return new_size == r->size;
    return r->kind == REGION_OWN ? remap_alone(r, new_size) : shrink_large(r, new_size);
}

/* A block leaves its window for a mapping of its own, where it can grow. What it leaves behind reads as zero: a gap. */
static bool move_out(struct region *r, size_t new_size)
{
    region_lock();
    region_ready();
    struct region *old = region_new(REGION_STALE, r->base, r->size, r->node);
    region_unlock();
    char *p = old == NULL ? NULL : vm_move_out(r->base, r->size, new_size, BLOCK_BYTES);
    if (p != NULL)
        region_advise(p, new_size);
    region_lock();
    if (p != NULL) {
        store_release(&old->zero, true); /* pairs with copy_region */
        region_store(old->base, old->size, old); /* over exactly one range: never fails */
        region_account(r, false);
        stale_begin(old, r->window); /* before region_enter opens the lock: nobody else may make a gap of it */
        r->window = NULL;
        region_set(r, REGION_OWN, p, new_size);
        region_enter(r);
        purge_and_end(old);
    } else if (old != NULL) {
        region_put(old);
    }
    region_unlock();
    return p != NULL;
}

bool region_remap_large(struct region *r, size_t new_size)
{
    if (r->kind == REGION_OWN)
        return remap_alone(r, new_size);
    if (new_size <= r->size)
        return region_shrink(r, new_size);
    return region_grow(r, new_size) || move_out(r, new_size);
}

/* ---- fork ---- */

void region_fork_hold(void)
{
    lock_fork_hold(&region_state.lock, RANK_REGION);
    maple_fork_hold(&region_space);
}

void region_fork_open(bool child)
{
    for (struct region *r = region_state.stale; child && r != NULL; r = r->next)
        if (r->purger != NULL && r->purger != region_self()) {
            r->purger = NULL;
            r->window->purging--;
        }
    maple_fork_open(&region_space);
    lock_fork_open(&region_state.lock);
}
