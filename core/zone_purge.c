/* SPDX-License-Identifier: BSD-2-Clause */
/* The other half of zone.h: giving memory back. Isolate, let go of the lock, purge, put back. */
#include "zone.h"

#include "compat/os/clock.h"
#include "compat/os/numa.h"
#include "compat/os/vm.h"
#include "limit.h"
#include "opt.h"
#include "rank.h"
#include "zone_impl.h"

enum {
    RELAX_SKIP = 256, /* where madvise is refused, one call in so many tries again */
    RUN_STEP = 16,    /* a pure run is not worth a purge of fewer pages than these */
};

/* ---- isolation ---- */

/* Enter a block among those in flight, by address, so that neighbours are purged in one call. */
static void flight_add(struct zone *z, struct block *b)
{
    struct block **at = &z->flight;
    while (*at != NULL && (*at)->number < b->number)
        at = &(*at)->flight_next;
    b->flight_next = *at;
    *at = b;
}

/* The n highest pages of a mask. */
static uint32_t highest(uint32_t mask, size_t n)
{
    while (block_count(mask) > n)
        mask &= mask - 1;
    return mask;
}

/* Take up to `want` dirty pages of a block out of the lists (INV-ZONE-4). Result: pages taken. */
static size_t isolate_block(struct zone *z, struct block *b, size_t want)
{
    uint32_t mask = highest(b->dirty, want);
    size_t n = block_count(mask);
    block_detach(z, b);
    b->free &= ~mask;
    b->dirty &= ~mask;
    if (b->flight == 0)
        flight_add(z, b);
    b->flight |= mask;
    block_attach(z, b);
    owner_add(&z->dirty_pages, -n);
    owner_add(&z->out_pages, n);
    return n;
}

/* Long extents first, from their ends; then the emptiest blocks: what is left is where the next requests look. */
static struct block *next_to_purge(const struct zone *z)
{
    uint64_t bins = z->extent_used[EXTENT_DIRTY], lists = z->dirty.used;
    if (bins != 0) {
        struct block *first = z->extent[EXTENT_DIRTY][63 - __builtin_clzll(bins)];
        return pmap_block(block_address(first) + (first->nblocks - 1) * BLOCK_BYTES);
    }
    return lists == 0 ? NULL : z->dirty.head[63 - __builtin_clzll(lists)];
}

static size_t isolate(struct zone *z, size_t want)
{
    size_t taken = 0;
    struct block *b;
    for (unsigned n = 0; n < ZONE_HOLD_BLOCKS && taken < want && (b = next_to_purge(z)) != NULL; n++)
        taken += isolate_block(z, b, want - taken);
    return taken;
}

/* Put everything in flight back, as what it is now. */
static void put_back(struct zone *z, bool purged)
{
    struct block *b = z->flight, *next;
    z->flight = NULL;
    for (; b != NULL; b = next) {
        next = b->flight_next;
        uint32_t mask = b->flight;
        size_t n = block_count(mask);
        b->flight = 0;
        block_detach(z, b);
        b->free |= mask;
        if (!purged)
            b->dirty |= mask;
        else if (opt.madv_free)
            b->lazy |= mask;
        block_attach(z, b);
        if (!purged)
            owner_add(&z->dirty_pages, n);
        else if (opt.madv_free)
            z->lazy_pages += n;
        else
            z->clean_pages += n;
        owner_add(&z->out_pages, -n);
    }
}

/* ---- purging, no lock held ---- */

struct purge {
    char *a;
    size_t size, calls;
    bool failed;
};

static void purge_flush(struct purge *p)
{
    if (p->size != 0 && !p->failed) {
        p->failed = (opt.madv_free ? vm_purge_lazily(p->a, p->size) : vm_purge(p->a, p->size)) != 0;
        p->calls++;
    }
    p->size = 0;
}

static void purge_add(struct purge *p, char *a, size_t size)
{
    if (p->size == 0 || p->a + p->size != a) {
        purge_flush(p);
        p->a = a;
    }
    p->size += size;
}

/* Purge what is in flight; only the one purge that is running reads these masks. */
static struct purge purge_flight(const struct zone *z)
{
    struct purge p = {0};
    unsigned first = 0, n;
    for (struct block *b = z->flight; b != NULL && !p.failed; b = b->flight_next)
        for (uint32_t mask = b->flight; (n = block_run(mask, &first)) != 0; mask &= ~block_mask(first, n))
            purge_add(&p, block_address(b) + first * PAGE_BYTES, n * PAGE_BYTES);
    purge_flush(&p);
    return p;
}

static size_t begin_round(struct zone *z, size_t keep)
{
    size_t max = ZONE_PURGE_MAX >> PAGE_SHIFT, n = 0;
    lock_acquire(&z->lock, RANK_ZONE);
    if (!z->purge_running && z->dirty_pages > keep) {
        size_t above = z->dirty_pages - keep;
        z->purge_running = true;
        n = isolate(z, above < max ? above : max);
    }
    lock_release(&z->lock);
    return n;
}

static void end_round(struct zone *z, const struct purge *p, size_t n, enum give_cause cause, uint64_t now)
{
    lock_acquire(&z->lock, RANK_ZONE);
    z->purge_calls += p->calls;
    z->purge_failures += p->failed;
    put_back(z, !p->failed); /* after a failure nothing is known: all of them are dirty */
    if (!p->failed) {
        struct give_view v = zone_view(z, now);
        z->purged_pages += n;
        giveback_purged(&z->give, cause, n, &v);
        store_relaxed(&z->spiking, z->give.spiking);
    }
    z->purge_running = false;
    lock_release(&z->lock);
    if (!p->failed)
        limit_uncharge(n << PAGE_SHIFT);
}

/* Purge round by round down to `keep` pages. Result: pages purged; *failed: the system refused. */
static size_t purge_down(struct zone *z, size_t keep, enum give_cause cause, uint64_t now, bool *failed)
{
    size_t total = 0, n;
    *failed = false;
    while (!*failed && (n = begin_round(z, keep)) != 0) {
        struct purge p = purge_flight(z);
        end_round(z, &p, n, cause, now);
        *failed = p.failed;
        total += p.failed ? 0 : n;
    }
    return total;
}

size_t zone_purge(unsigned node, size_t keep)
{
    bool failed;
    if (opt.purge == OPT_PURGE_OFF)
        return 0;
    return purge_down(&zones[node], keep >> PAGE_SHIFT, GIVE_AGE, clock_coarse_ms(), &failed) << PAGE_SHIFT;
}

/* ---- when and how much ---- */

static size_t pages_to_keep(struct zone *z, bool run, uint64_t now)
{
    lock_acquire(&z->lock, RANK_ZONE);
    struct give_view v = zone_view(z, now);
    size_t keep;
    if (run) {
        keep = giveback_keep(&z->give, GIVE_RUN, &v);
        keep = v.dirty < keep + RUN_STEP ? v.dirty : keep;
    } else {
        size_t aged = giveback_keep(&z->give, GIVE_AGE, &v), cap = giveback_keep(&z->give, GIVE_CAP, &v);
        keep = aged < cap ? aged : cap;
    }
    store_relaxed(&z->spiking, z->give.spiking);
    lock_release(&z->lock);
    return keep;
}

void zone_relax(unsigned node, bool run)
{
    struct zone *z = &zones[node];
    bool little = load_relaxed(&z->dirty_pages) <= opt.keep >> PAGE_SHIFT;
    if (LIKELY(little && load_relaxed(&z->spiking) == 0) || opt.purge == OPT_PURGE_OFF)
        return;
    uint32_t skip = load_relaxed(&z->relax_skip);
    if (skip > 0) {
        store_relaxed(&z->relax_skip, skip - 1);
        return;
    }
    bool failed;
    uint64_t now = clock_coarse_ms();
    purge_down(z, pages_to_keep(z, run, now), run ? GIVE_RUN : GIVE_AGE, now, &failed);
    if (failed)
        store_relaxed(&z->relax_skip, RELAX_SKIP);
}

bool zone_spiking(unsigned node)
{
    return load_relaxed(&zones[node].spiking) != 0;
}

/* ---- fork ---- */

void zone_fork_hold(void)
{
    for (unsigned n = 0; n < numa_count(); n++)
        lock_fork_hold(&zones[n].lock, RANK_ZONE);
}

void zone_fork_open(bool child)
{
    for (unsigned n = 0; n < numa_count(); n++) {
        struct zone *z = &zones[n];
        if (child) {
            put_back(z, false);
            z->purge_running = false;
        }
        lock_fork_open(&z->lock);
    }
}
