/* SPDX-License-Identifier: BSD-2-Clause */
/* Windows: how large, where they come from, places in them, and when they go. */
#include "compat/os/atomic.h"
#include "compat/os/bits.h"
#include "compat/os/numa.h"
#include "compat/os/vm.h"
#include "block.h"
#include "meta.h"
#include "opt.h"
#include "pmap.h"
#include "region_impl.h"
#include "thp.h"

#include <errno.h>

/* ---- lists and sums ---- */

static void window_link(struct region_window *w)
{
    struct region_window **head = &region_state.window[w->sort];
    w->prev = NULL;
    w->next = *head;
    if (w->next != NULL)
        w->next->prev = w;
    *head = w;
}

static void window_unlink(struct region_window *w)
{
    if (w->next != NULL)
        w->next->prev = w->prev;
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        region_state.window[w->sort] = w->next;
}

/* Who frees in a window looks there first for the next block, and who takes, too. */
static void window_first(struct region_window *w)
{
    if (w->prev != NULL) {
        window_unlink(w);
        window_link(w);
    }
}

static size_t window_gaps(const struct region_window *w)
{
    return w->size - w->live - w->stale;
}

/* A window comes, or goes as it is. */
static void window_account(const struct region_window *w, bool in)
{
    size_t sign = in ? 1 : (size_t)-1;
    region_state.stats.gaps += sign * window_gaps(w);
    if (w->sort == REGION_HUGE) {
        region_state.stats.windows += sign;
        region_state.stats.window_bytes += sign * w->size;
        if (w->live == 0)
            region_state.empty_bytes += sign * w->size;
    }
}

void region_window_take(struct region_window *w, size_t bytes)
{
    if (w->sort == REGION_HUGE && w->live == 0)
        region_state.empty_bytes -= w->size;
    w->live += bytes;
    region_state.stats.gaps -= bytes;
}

void region_window_stale(struct region_window *w, size_t bytes)
{
    w->live -= bytes;
    w->stale += bytes;
    if (w->live == 0)
        region_state.empty_bytes += w->size;
}

void region_window_clean(struct region_window *w, size_t bytes)
{
    w->stale -= bytes;
    region_state.stats.gaps += bytes;
    window_first(w);
}

/* ---- sizes ---- */

static size_t clamp_window(size_t x, size_t low, size_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Windows double what is mapped: few steps for a big program, little for a small one. Plain ones stay between two bounds;
 * of huge ones the first is what is needed, and from 1 GiB on they add a quarter, so that there are few of them however
 * much is mapped. */
static size_t wanted_size(enum region_sort sort)
{
    size_t mapped = region_state.stats.window_bytes;
    if (sort == REGION_PLAIN)
        return clamp_window(region_state.stats.bytes[REGION_ZONE], WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
    return region_state.scarce ? 0 : clamp_window(mapped, 0, HUGE_STEP_BYTES > mapped / 4 ? HUGE_STEP_BYTES : mapped / 4);
}

static bool several_nodes(void)
{
    return UNLIKELY(numa_count() > 1);
}

static size_t window_size(enum region_sort sort, size_t need)
{
    size_t size = load_relaxed(&region_state.locked) ? 0 : wanted_size(sort), most = load_relaxed(&region_state.window_most);
    if (most != 0 && size > most)
        size = most;
    return align_up(size < need ? need : size, several_nodes() ? BLOCK_BYTES : PAGE_BYTES);
}

/* A window of several blocks begins with a block, and all do where there are several nodes. Mapping so much more makes an aligned range fit wherever it comes. */
static size_t window_align(enum region_sort sort, size_t size)
{
    return sort == REGION_HUGE || size >= 4 * BLOCK_BYTES || several_nodes() ? BLOCK_BYTES : PAGE_BYTES;
}

static void note_refused(size_t size)
{
    meta_reserve(); /* before the last of the address space goes to the program */
    store_relaxed(&region_state.window_most, size / 2 < PAGE_BYTES ? PAGE_BYTES : size / 2);
}

/* ---- mapping ---- */

struct mapping {
    char *p;      /* all of it */
    size_t bytes;
    char *base;   /* aligned */
    size_t size;  /* at least what is needed */
};

/* Map size bytes, or fewer, down to the need, when they are refused. No lock held. Huge windows are for blocks that the
 * system may refuse for being larger than its memory, so they reserve; plain ones are used bit by bit. */
static bool map_window(enum region_sort sort, size_t size, size_t need, struct mapping *m)
{
    size_t slack, least = align_up(need, PAGE_BYTES);
    while ((m->p = vm_map(size + (slack = window_align(sort, size) - vm_page_size()), sort == REGION_HUGE)) == NULL) {
        note_refused(size);
        if (size <= least)
            return false;
        size = align_up(size / 2 < least ? least : size / 2, PAGE_BYTES);
    }
    if (load_relaxed(&region_state.window_most) != 0)
        store_relaxed(&region_state.window_most, size * 2);
    m->bytes = size + slack;
    m->base = (char *)align_up((uintptr_t)m->p, window_align(sort, size));
    m->size = size;
    return true;
}

/* A mapping that is in memory although nobody has touched it (mlockall): the system refuses to take its last page back.
 * Only asked about what is large, and larger than needed. */
static bool is_locked(const struct mapping *m, size_t need)
{
    static uint32_t looking; /* a shim's madvise may call malloc, which may come here again: one look at a time */
    uint32_t nobody = 0;
    size_t page = vm_page_size();
    if (m->bytes <= need + BLOCK_BYTES || m->bytes <= LOCKED_LOOK_BYTES || opt.purge != OPT_PURGE_ON ||
        !cas_acquire(&looking, &nobody, 1)) /* pairs with the release below */
        return false;
    bool locked = vm_purge_more(m->p + m->bytes - page, page) == -EINVAL;
    store_release(&looking, 0);
    return locked;
}

void region_advise(char *p, size_t size)
{
    if (opt.thp != OPT_THP_AUTO || opt.purge == OPT_PURGE_ON) /* purge:off means no madvise unless it is asked for */
        vm_huge_pages(p, size, opt.thp != OPT_THP_NEVER);
}

void region_punctured(const void *p)
{
    if (opt.thp != OPT_THP_AUTO)
        return;
    struct region *r = maple_load(&region_space, (uintptr_t)p);
    if (r == NULL || r == &region_foreign || r == MAPLE_BUSY || load_acquire(&r->kind) != REGION_ZONE || load_relaxed(&r->small))
        return;
    store_relaxed(&r->small, true); /* first: a shim's madvise may come here again */
    vm_huge_pages(r->base, r->size, false); /* the whole area: a flag on a part splits the mapping */
}

/* ---- huge windows ---- */

/* Map it with the lock open. */
static bool map_huge(size_t need, struct mapping *m)
{
    bool short_of = vm_space_is_limited();
    size_t size = window_size(REGION_HUGE, need);
    region_unlock();
    if (short_of)
        size = align_up(need, PAGE_BYTES);
    bool ok = map_window(REGION_HUGE, size, need, m);
    if (ok) {
        m->size = (size_t)(m->p + m->bytes - m->base); /* all of it can be used */
        region_advise(m->p, m->bytes);
        if (is_locked(m, need))
            store_relaxed(&region_state.locked, true);
    }
    region_lock();
    region_state.scarce |= short_of || (!ok && need <= HUGE_KEEP_BYTES);
    return ok;
}

static void unmap_open(const struct mapping *m)
{
    region_unlock();
    vm_unmap(m->p, m->bytes);
    region_lock();
}

bool region_add_huge(size_t need)
{
    struct mapping m;
    if (!map_huge(need, &m) && !(region_drop_empty() && map_huge(need, &m)))
        return false;
    region_unlock();
    bool covered = pmap_cover(m.base, m.size);
    struct region_window *w = covered ? meta_alloc(sizeof *w) : NULL;
    region_lock();
    if (w == NULL || !region_store(m.base, m.size, NULL)) {
        if (w != NULL)
            meta_free(w, sizeof *w);
        unmap_open(&m);
        return false;
    }
    *w = (struct region_window){.sort = REGION_HUGE, .base = m.base, .size = m.size, .map = m.p, .map_size = m.bytes};
    window_link(w);
    window_account(w, true);
    return true;
}

bool region_place(struct region *r, enum region_sort sort, size_t align)
{
again:
    for (struct region_window *w = region_state.window[sort]; w != NULL; w = w->next) {
        if (window_gaps(w) < r->size)
            continue;
        struct maple_want want = {
            .from = (uintptr_t)w->base, .to = (uintptr_t)w->base + w->size - 1, .size = r->size, .align = align};
        uintptr_t first;
        int error = maple_place(&region_space, &want, r, &first);
        if (error == -ENOMEM) {
            if (!region_refill())
                return false;
            goto again; /* the lock was open */
        }
        if (error != 0)
            continue;
        region_set(r, r->kind, (char *)first, r->size);
        r->window = w;
        region_window_take(w, r->size);
        window_first(w);
        region_account(r, true);
        return true;
    }
    return false;
}

/* ---- huge windows that are empty ---- */

static struct region *take_stale_of(const struct region_window *w)
{
    struct region *taken = NULL;
    for (struct region *r = region_state.stale, *next; r != NULL; r = next) {
        next = r->next;
        if (r->window == w) {
            region_stale_unlink(r);
            r->next = taken;
            taken = r;
        }
    }
    return taken;
}

static void put_all(struct region *list)
{
    for (struct region *r = list, *next; r != NULL; r = next) {
        next = r->next;
        region_account(r, false);
        region_put(r);
    }
}

static void link_all(struct region *list)
{
    for (struct region *r = list, *next; r != NULL; r = next) {
        next = r->next;
        region_stale_link(r);
    }
}

static void window_back(struct region_window *w)
{
    window_link(w);
    window_account(w, true);
}

/* The window is out of the lists, and then foreign, before it is unmapped: nobody finds a place in it, and afterwards its
 * addresses may be another thread's. The system may refuse: then it is a window again, unless it held stale regions. */
static bool unmap_window(struct region_window *w)
{
    window_unlink(w);
    window_account(w, false);
    struct region *stale = take_stale_of(w);
    if (!region_store_foreign(w->base, w->size)) {
        link_all(stale);
        window_back(w);
        return false;
    }
    bool clean = stale == NULL;
    put_all(stale);
    region_unlock();
    bool ok = vm_unmap(w->map, w->map_size) == 0;
    region_lock();
    if (!ok && clean && region_store(w->base, w->size, NULL)) {
        window_back(w);
        return false;
    }
    if (!ok)
        region_state.stats.lost += w->map_size;
    meta_free(w, sizeof *w);
    return ok;
}

static bool window_idle(const struct region_window *w)
{
    return w->live == 0 && w->purging == 0;
}

/* Unmap idle windows, the one that was used last at last, until at most keep bytes of them are left. */
static bool drop_idle(size_t keep)
{
    bool any = false;
    while (region_state.empty_bytes > keep) {
        struct region_window *last = NULL;
        for (struct region_window *w = region_state.window[REGION_HUGE]; w != NULL; w = w->next)
            last = window_idle(w) ? w : last;
        if (last == NULL || !unmap_window(last))
            return any;
        any = true;
    }
    return any;
}

void region_window_relax(struct region_window *w)
{
    size_t live = region_state.stats.bytes[REGION_LARGE];
    if (window_idle(w) && w->stale != 0)
        unmap_window(w);
    drop_idle(region_state.scarce ? 0 : live > HUGE_KEEP_BYTES ? live : HUGE_KEEP_BYTES);
}

bool region_drop_empty(void)
{
    return drop_idle(0);
}

/* ---- plain windows ---- */

static bool other_node(uintptr_t from, uintptr_t to, unsigned node)
{
    struct maple_range at;
    for (; from <= to && maple_find(&region_space, from, to, &at) == 0; from = at.last + 1) {
        const struct region *r = at.entry;
        if (r != &region_foreign && r->kind == REGION_ZONE && r->node != node)
            return true;
        if (at.last == UINTPTR_MAX)
            return false;
    }
    return false;
}

/* INV-REGION-4: cut off what shares a block of 2 MiB with another node's; where there are several nodes, with anything: a
 * huge page lies where its first touch was, and that may have been one of metadata. Result: does anything remain? */
static bool cut_to_node(char **base, size_t *size, unsigned node)
{
    uintptr_t first = (uintptr_t)*base, end = first + *size;
    uintptr_t low = align_down(first, BLOCK_BYTES), high = align_up(end, BLOCK_BYTES);
    if (low != first && (several_nodes() || other_node(low, first - 1, node)))
        first = low + BLOCK_BYTES;
    if (high != end && (several_nodes() || other_node(end, high - 1, node)))
        end = high - BLOCK_BYTES;
    *base = (char *)first;
    *size = end > first ? end - first : 0;
    return *size != 0;
}

/* The gap of a plain window that a place was found in, as much of it as is in the window and whole pages. */
static void gap_around(const struct region_window *w, uintptr_t at, char **base, size_t *size)
{
    struct maple_range gap = {.first = at, .last = at};
    maple_at(&region_space, at, &gap);
    uintptr_t first = gap.first > (uintptr_t)w->base ? gap.first : (uintptr_t)w->base;
    uintptr_t last = (uintptr_t)w->base + w->size - 1;
    last = gap.last < last ? gap.last : last;
    *base = (char *)align_up(first, PAGE_BYTES);
    *size = align_down(last + 1, PAGE_BYTES) - (uintptr_t)*base;
}

/* Full: its struct is of no more use. */
static void window_done(struct region_window *w)
{
    window_unlink(w);
    meta_free(w, sizeof *w);
}

bool region_take_plain(struct region *r, size_t need)
{
again:
    for (struct region_window *w = region_state.window[REGION_PLAIN]; w != NULL; w = w->next) {
        struct maple_want want = {.from = (uintptr_t)w->base, .to = (uintptr_t)w->base + w->size - 1, .size = need,
                                  .align = PAGE_BYTES};
        uintptr_t at;
        char *base;
        size_t size;
        if (window_gaps(w) < need || maple_gap(&region_space, &want, &at) != 0)
            continue;
        gap_around(w, at, &base, &size);
        if (!cut_to_node(&base, &size, r->node) || size < need)
            continue;
        if (maple_store(&region_space, (uintptr_t)base, (uintptr_t)base + size - 1, r) != 0) {
            if (!region_refill())
                return false;
            goto again; /* the lock was open */
        }
        region_set(r, REGION_ZONE, base, size);
        region_account(r, true);
        region_window_take(w, size);
        if (window_gaps(w) == 0)
            window_done(w);
        return true;
    }
    return false;
}

/* What a zone's window has left over at an end becomes a plain window, if there is a page of ours in it. */
static void add_rest(char *from, char *to)
{
    char *base = (char *)align_up((uintptr_t)from, PAGE_BYTES), *end = (char *)align_down((uintptr_t)to, PAGE_BYTES);
    if (base >= end)
        return;
    region_unlock();
    struct region_window *w = meta_alloc(sizeof *w);
    region_lock();
    if (w == NULL)
        return;
    *w = (struct region_window){.sort = REGION_PLAIN, .base = base, .size = (size_t)(end - base)};
    if (!region_store(base, w->size, NULL)) {
        meta_free(w, sizeof *w);
        return;
    }
    window_link(w);
    window_account(w, true);
}

static bool map_plain(size_t need, size_t extra, unsigned node, struct mapping *m)
{
    size_t size = window_size(REGION_PLAIN, need + extra);
    region_unlock();
    bool ok = map_window(REGION_PLAIN, size, need + extra, m);
    if (ok && is_locked(m, need))
        store_relaxed(&region_state.locked, true);
    if (ok && opt.thp != OPT_THP_AUTO)
        vm_huge_pages(m->p, m->bytes, opt.thp == OPT_THP_ALWAYS); /* the whole mapping: a flag on a part splits it */
    else if (ok && m->bytes < THP_WINDOW_BYTES && thp_may_refuse())
        vm_small_pages(m->p, m->bytes);
    if (ok && opt.numa != OPT_NUMA_LOCAL)
        numa_place(m->p, m->bytes, opt.numa == OPT_NUMA_BIND ? node : NUMA_NO_HOME); /* likewise */
    region_lock();
    return ok;
}

bool region_add_plain(struct region *r, size_t need)
{
    struct mapping m;
    for (size_t extra = 0; extra <= 2 * BLOCK_BYTES; extra += 2 * BLOCK_BYTES) {
        if (!map_plain(need, extra, r->node, &m) && !(region_drop_empty() && map_plain(need, extra, r->node, &m)))
            return false;
        region_unlock();
        bool covered = pmap_cover(m.base, m.size);
        region_lock();
        if (covered && cut_to_node(&m.base, &m.size, r->node) && m.size >= need) {
            region_set(r, REGION_ZONE, m.base, m.size);
            region_enter(r);
            add_rest(m.p, m.base);
            add_rest(m.base + m.size, m.p + m.bytes);
            return true;
        }
        unmap_open(&m);
        if (!covered)
            return false;
    }
    return false; /* not reached: with two blocks more the need is left over */
}
