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

#include <errno.h>

enum {
    RELAX_SKIP = 256, /* where madvise is refused, one call in so many tries again */
    RELAX_PAGES = 64, /* most pages given back by one call that no pure run asked for: it may be a malloc */
    RUN_STEP = 16,    /* a pure run is not worth a purge of fewer pages than these */
    AWAIT_NS = 100000, /* looks at another thread's purge are so far apart ... */
    AWAIT_LOOKS = 200, /* ... and at most so many: a round takes a few milliseconds */
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
    owner_add(&z->flight_pages, n);
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

/* Put these of one block's pages back, those in `gone` as purged. */
static void put_back_block(struct zone *z, struct block *b, uint32_t mask, uint32_t gone)
{
    size_t n = block_count(mask), ngone = block_count(gone);
    b->flight &= ~mask;
    block_detach(z, b);
    b->free |= mask;
    b->dirty |= mask & ~gone;
    b->coarse |= (mask & ~gone) != 0; /* a purge that fails may have written to them */
    if (opt.madv_free)
        b->lazy |= gone;
    block_attach(z, b);
    owner_add(&z->dirty_pages, n - ngone);
    *(opt.madv_free ? &z->lazy_pages : &z->clean_pages) += ngone;
    owner_add(&z->out_pages, -n);
    owner_add(&z->flight_pages, -n);
}

/* What became of the pages in flight, by the block's place in the list. */
struct outcome {
    uint32_t gone[ZONE_HOLD_BLOCKS], refused[ZONE_HOLD_BLOCKS];
};

/* Put everything in flight back, but park what was refused. No outcome: all of it is dirty. */
static void put_back(struct zone *z, const struct outcome *o)
{
    struct block *b = z->flight, *next;
    z->flight = NULL;
    for (unsigned i = 0; b != NULL; b = next, i++) {
        next = b->flight_next;
        uint32_t gone = o == NULL ? 0 : o->gone[i], stay = o == NULL || z->nparked == ZONE_HOLD_BLOCKS ? 0 : o->refused[i];
        put_back_block(z, b, b->flight & ~stay, gone);
        if (stay == 0)
            continue;
        b->flight_next = z->parked;
        z->parked = b;
        z->nparked++;
    }
}

/* Put what is parked back, dirty. */
static void unpark(struct zone *z)
{
    for (struct block *b = z->parked; b != NULL; b = b->flight_next)
        put_back_block(z, b, b->flight, 0);
    z->parked = NULL;
    z->nparked = 0;
}

static size_t count_all(const uint32_t *mask)
{
    size_t n = 0;
    for (unsigned i = 0; i < ZONE_HOLD_BLOCKS; i++)
        n += block_count(mask[i]);
    return n;
}

/* ---- purging, no lock held ---- */

enum { PURGE_TRIES = 8 }; /* refusals in a row after which ranges are passed by: 2, then 4, 8 ..., until one is not refused */

struct purge {
    char *a; /* the range to be purged next: within ... */
    size_t size;
    struct block *from; /* ... this block and those that follow it in the flight list */
    unsigned from_place;
    size_t calls, refused;
    unsigned row, skip; /* refusals in a row; ranges to pass by */
    struct outcome outcome;
};

/* The pages of a block that lie in a range. */
static uint32_t pages_within(const struct block *b, const char *a, size_t size)
{
    char *begin = block_address(b);
    unsigned first = a > begin ? (unsigned)((size_t)(a - begin) >> PAGE_SHIFT) : 0;
    size_t last = (size_t)(a + size - begin) >> PAGE_SHIFT;
    return block_mask(first, (last < BLOCK_PAGES ? (unsigned)last : BLOCK_PAGES) - first);
}

static bool purge_range(struct purge *p, char *a, size_t size)
{
    p->calls++;
    bool ok = (opt.madv_free ? vm_purge_lazily(a, size) : vm_purge(a, size)) == 0;
    p->refused += !ok;
    p->row = ok ? 0 : p->row + 1;
    if (p->row > PURGE_TRIES)
        p->skip = 1u << (p->row - PURGE_TRIES);
    return ok;
}

static bool pass_by(struct purge *p)
{
    if (p->skip == 0)
        return false;
    p->skip--;
    return true;
}

/* Purge the part of the range in one block, if it was not all of the range that was refused. */
static void purge_part(struct purge *p, const struct block *b, unsigned place, bool again)
{
    uint32_t mask = pages_within(b, p->a, p->size);
    unsigned first = 0, n = block_run(mask, &first);
    if (again && pass_by(p))
        return;
    bool ok = again && purge_range(p, block_address(b) + first * PAGE_BYTES, n * PAGE_BYTES);
    *(ok ? &p->outcome.gone[place] : &p->outcome.refused[place]) |= mask;
}

/* Purge the range in one call. If it is refused, a part of it may be to blame (locked, say): then block by block. */
static void purge_flush(struct purge *p)
{
    if (p->size != 0 && !pass_by(p)) { /* with no range, a is NULL */
        struct block *b = p->from;
        char *end = p->a + p->size;
        bool all = purge_range(p, p->a, p->size), several = block_address(b) + BLOCK_BYTES < end;
        for (unsigned i = p->from_place; b != NULL && block_address(b) < end; b = b->flight_next, i++)
            if (all)
                p->outcome.gone[i] |= pages_within(b, p->a, p->size);
            else
                purge_part(p, b, i, several);
    }
    p->size = 0;
}

static void purge_add(struct purge *p, struct block *b, unsigned place, unsigned first, unsigned n)
{
    char *a = block_address(b) + first * PAGE_BYTES;
    if (p->size == 0 || p->a + p->size != a) {
        purge_flush(p);
        p->a = a;
        p->size = 0;
        p->from = b;
        p->from_place = place;
    }
    p->size += n * PAGE_BYTES;
}

/* Purge what is in flight; only the one purge that is running reads these masks. */
static void purge_isolated(const struct zone *z, struct purge *p)
{
    unsigned first = 0, n, place = 0;
    for (struct block *b = z->flight; b != NULL; b = b->flight_next, place++)
        for (uint32_t mask = b->flight; (n = block_run(mask, &first)) != 0; mask &= ~block_mask(first, n))
            purge_add(p, b, place, first, n);
    purge_flush(p);
}

/* The thread's own address of errno is a name that no other live thread has. */
static void *this_thread(void)
{
    return &errno;
}

static size_t begin_round(struct zone *z, size_t keep, size_t most)
{
    size_t max = ZONE_PURGE_MAX >> PAGE_SHIFT, n = 0;
    lock_acquire(&z->lock, RANK_ZONE);
    if (z->purger == NULL && z->dirty_pages > keep) {
        size_t above = z->dirty_pages - keep;
        above = above < most ? above : most;
        z->purger = this_thread();
        n = isolate(z, above < max ? above : max);
    }
    lock_release(&z->lock);
    return n;
}

/* Result: pages purged. */
static size_t end_round(struct zone *z, const struct purge *p, enum give_cause cause, uint64_t now)
{
    lock_acquire(&z->lock, RANK_ZONE);
    z->purge_calls += p->calls;
    z->purge_failures += p->refused;
    size_t n = count_all(p->outcome.gone);
    put_back(z, &p->outcome);
    if (n != 0) {
        struct give_view v = zone_view(z, now);
        z->purged_pages += n;
        giveback_purged(&z->give, cause, n, &v);
        store_relaxed(&z->spiking, z->give.spiking);
        limit_uncharge(n << PAGE_SHIFT); /* under the lock: a fork child finds what is charged and what is there agree */
    }
    z->purger = NULL;
    z->rounds++;
    lock_release(&z->lock);
    return n;
}

/* Purge round by round down to `keep` pages, but no more than there were too many at first. Result: pages purged;
 * *failed: the system refused all of a round. */
static size_t purge_down(struct zone *z, size_t keep, enum give_cause cause, uint64_t now, bool *failed)
{
    size_t total = 0, dirty = load_relaxed(&z->dirty_pages), left = dirty > keep ? dirty - keep : 0;
    bool parked = false;
    *failed = false;
    while (!*failed && left > 0 && begin_round(z, keep, left) != 0) {
        struct purge p = {0};
        purge_isolated(z, &p);
        size_t gone = end_round(z, &p, cause, now);
        *failed = gone == 0;
        parked |= p.refused > 0;
        total += gone;
        left -= gone + count_all(p.outcome.refused); /* those passed by come again */
    }
    if (parked) {
        lock_acquire(&z->lock, RANK_ZONE);
        unpark(z);
        lock_release(&z->lock);
    }
    return total;
}

size_t zone_purge(unsigned node, size_t keep)
{
    bool failed;
    if (opt.purge == OPT_PURGE_OFF)
        return 0;
    return purge_down(zone_of(node), keep >> PAGE_SHIFT, GIVE_AGE, clock_coarse_ms(), &failed) << PAGE_SHIFT;
}

/* Is another thread at a round of purging? *round: which. */
static bool others_purge(struct zone *z, uint32_t *round)
{
    lock_acquire(&z->lock, RANK_ZONE);
    bool under_way = z->purger != NULL && z->purger != this_thread();
    *round = z->rounds;
    lock_release(&z->lock);
    return under_way;
}

bool zone_await_purge(unsigned node)
{
    struct zone *z = zone_of(node);
    uint32_t first, now;
    bool any = others_purge(z, &first), still = any;
    for (unsigned i = 0; still && i < AWAIT_LOOKS; i++) {
        lock_doze(&z->rounds, first, AWAIT_NS);
        still = others_purge(z, &now) && now == first;
    }
    return any;
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
        if (v.dirty > keep + RELAX_PAGES)
            keep = v.dirty - RELAX_PAGES;
    }
    store_relaxed(&z->spiking, z->give.spiking);
    store_relaxed(&z->owes, z->give.owed != 0);
    lock_release(&z->lock);
    return keep;
}

void zone_relax(unsigned node, bool run)
{
    struct zone *z = zone_of(node);
    bool little = load_relaxed(&z->dirty_pages) <= opt.keep >> PAGE_SHIFT && !run;
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
    return load_relaxed(&zone_of(node)->spiking) != 0;
}

bool zone_owes(unsigned node)
{
    return load_relaxed(&zone_of(node)->owes) != 0;
}

/* ---- fork ---- */

void zone_fork_hold(void)
{
    for (unsigned n = 0; n < numa_count(); n++)
        lock_fork_hold(&zone_of(n)->lock, RANK_ZONE);
}

/* A fork inside our own purge (a shim's madvise may do anything): the child goes on with it where we are. */
void zone_fork_open(bool child)
{
    for (unsigned n = 0; n < numa_count(); n++) {
        struct zone *z = zone_of(n);
        if (child && z->purger != NULL && z->purger != this_thread()) {
            put_back(z, NULL);
            z->purger = NULL;
        }
        if (child)
            unpark(z);
        lock_fork_open(&z->lock);
    }
}
