/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Holes: os pages wholly free inside partly used slabs are given back. Level 7, beside slab.c.
 *
 *     slab    |##..|....|....|.#..|....|    # allocated, . free object; | the kernel's pages
 *     hole         [---------]    [----]    marked allocated, on the flight list, purged, put back as clean
 *
 * A hole is isolated by marking its objects as allocated: nothing is handed out while it is being zeroed. What is out
 * while the lock is dropped stands on the flight list; a free of such an object is a double free and is seen at once.
 *   INV-HOLE-1 while a hole is in flight the bits of all objects that touch it are clear, its slab is not retired, and
 *              none of its os pages is clean.
 *   INV-HOLE-2 the flight list changes only under the list lock of the class and node that is being swept, and by the
 *              one thread that sweeps; that thread is named in flight.owner.
 * Lock: the list lock. A hold looks at HOLE_SCAN_SLABS slabs at most and takes HOLE_FLIGHT holes at most.
 */
#include "slab.h"

#include "dbg.h"
#include "limit.h"
#include "opt.h"
#include "rank.h"
#include "region.h"
#include "slab_impl.h"

#include <errno.h>

struct hole {
    struct page *slab;
    uint16_t first, count;   /* os pages of the slab */
    uint16_t dirty;          /* of those, not clean */
    uint16_t obj, obj_count; /* objects that touch them; none where the hole lies in the waste at the end */
};
_Static_assert((PAGE_BYTES << RUN_ORDER_MAX) >> 12 <= UINT8_MAX, "os pages of a slab fit nclean");
_Static_assert(HOLE_FLIGHT <= UINT8_MAX, "holes of a slab fit flight");

static struct {
    void *owner;         /* who sweeps, or NULL; atomic */
    struct slabs *slabs; /* their list lock guards the rest */
    unsigned n;
    struct hole hole[HOLE_FLIGHT];
} flight;

bool slab_holes_swapped;

static bool swapped(void)
{
    return cfg_debug && slab_holes_swapped;
}

/* ---- bits ---- */

/* The bits of word w that belong to first..last. */
static uint64_t word_mask(unsigned w, unsigned first, unsigned last)
{
    unsigned from = w == first / 64 ? first % 64 : 0, to = w == last / 64 ? last % 64 : 63;
    return ~(uint64_t)0 >> (63 - (to - from)) << from;
}

static bool all_free(const uint64_t *bits, unsigned first, unsigned last)
{
    for (unsigned w = first / 64; w <= last / 64; w++)
        if (~bits[w] & word_mask(w, first, last))
            return false;
    return true;
}

static bool any_free(const uint64_t *bits, unsigned first, unsigned last)
{
    for (unsigned w = first / 64; w <= last / 64; w++)
        if (bits[w] & word_mask(w, first, last))
            return true;
    return false;
}

/* ---- where the holes are ---- */

/* Objects that touch n os pages from `first` on. Result: their number. */
static unsigned objs_at(class_t c, unsigned first, unsigned n, unsigned *obj)
{
    unsigned shift = clean_shift(), objs = size_info[c].objs;
    unsigned from = size_index(c, (size_t)first << shift), last = size_index(c, ((size_t)(first + n) << shift) - 1);
    *obj = from;
    return from >= objs ? 0 : (last < objs ? last + 1 : objs) - from;
}

static bool page_is_free(const struct page *pg, unsigned unit)
{
    unsigned obj, n = objs_at(pg->class, unit, 1, &obj);
    return n == 0 || all_free(pg->bits, obj, obj + n - 1);
}

/* Can there be a hole at all? Clean pages are wholly free, so they count among those that the free bytes can make up. */
static bool may_have_holes(const struct page *pg)
{
    class_t c = pg->class;
    size_t used = (size_t)(size_info[c].objs - pg->nfree) * class_to_size(c);
    return ((pg->npages << PAGE_SHIFT) - used) >> clean_shift() > pg->nclean;
}

/* The next run of wholly free os pages from `from` on, without clean ones at its ends. Result: its length, 0: no more. */
static unsigned next_hole(const struct page *pg, unsigned from, unsigned *first)
{
    unsigned units = clean_units(pg->npages), end;
    while (from < units && (clean_test(pg, from) || !page_is_free(pg, from)))
        from++;
    if (from == units)
        return 0;
    *first = from;
    for (end = from + 1; from + 1 < units && page_is_free(pg, from + 1); from++)
        if (!clean_test(pg, from + 1))
            end = from + 2;
    return end - *first;
}

/* ---- in flight ---- */

/* The hole's objects from free to allocated, or back. */
static void flip_locked(struct slabs *s, const struct hole *h, bool to_free)
{
    struct page *pg = h->slab;
    unsigned n = h->obj_count, last = h->obj + n - 1;
    for (unsigned w = h->obj / 64; n != 0 && w <= last / 64; w++)
        pg->bits[w] ^= word_mask(w, h->obj, last);
    pg->nfree = (uint16_t)(to_free ? pg->nfree + n : pg->nfree - n);
    s->flight_objs += to_free ? -n : n;
    owner_add(&s->free_objs, to_free ? n : -(size_t)n);
}

static void isolate_locked(struct slabs *s, struct hole *h)
{
    struct page *pg = h->slab;
    unsigned cleared = clean_clear(pg, h->first, h->count);
    pg->nclean = (uint8_t)(pg->nclean - cleared);
    s->clean -= cleared;
    h->dirty = (uint16_t)(h->count - cleared);
    pg->flight++;
    if (!swapped())
        flip_locked(s, h, false);
}

/* Swapped order, for a test: too late. Result: false where an object was handed out meanwhile. */
static bool mark_late(struct slabs *s, const struct hole *h)
{
    if (h->obj_count != 0 && !all_free(h->slab->bits, h->obj, h->obj + h->obj_count - 1u))
        return false;
    flip_locked(s, h, false);
    return true;
}

static void put_back_locked(struct slabs *s, const struct hole *h, bool given)
{
    struct page *pg = h->slab;
    bool landed = false;
    pg->flight--;
    if (!swapped() || mark_late(s, h)) {
        if (h->obj_count != 0)
            CHECK(!any_free(pg->bits, h->obj, h->obj + h->obj_count - 1u)); /* else freed twice, past slab_hole_covers */
        flip_locked(s, h, true);
        unsigned clean = given ? clean_set(pg, h->first, h->count) : 0;
        pg->nclean = (uint8_t)(pg->nclean + clean);
        s->clean += clean;
        landed = clean != 0;
    }
    if (landed) /* INV-SLAB-6; what was clean before was not charged */
        limit_uncharge((size_t)h->dirty << clean_shift());
    else
        limit_charge_anyway((size_t)(h->count - h->dirty) << clean_shift());
    slab_relist(s, pg);
}

/* The first `given` holes have been purged. */
static void land_locked(struct slabs *s, unsigned given)
{
    for (unsigned i = 0; i < flight.n; i++)
        put_back_locked(s, &flight.hole[i], i < given);
    flight.n = 0;
}

bool slab_hole_covers(const struct page *pg, unsigned obj)
{
    for (unsigned i = 0; i < flight.n && !swapped(); i++)
        if (flight.hole[i].slab == pg && obj - flight.hole[i].obj < flight.hole[i].obj_count)
            return true;
    return false;
}

/* ---- the sweep ---- */

struct sweep {
    struct slabs *s;
    class_t c;
    size_t slabs_left; /* still to look at; slabs that others make meanwhile do not prolong it */
    size_t bytes_left;
    size_t given;
};

/* The thread's own address of errno is a name that no other live thread has. */
static void *sweeper_self(void)
{
    return &errno;
}

/* The emptiest slab that has not been looked at. */
static struct page *next_slab(const struct slabs *s)
{
    for (int b = SLAB_BUCKETS - 1; b >= 0; b--)
        if (s->list[b].head != NULL && !slab_swept(s, s->list[b].head))
            return s->list[b].head;
    return NULL;
}

/* Put the slab's holes in flight. Result: false, there may be more of them. */
static bool isolate_holes(struct sweep *w, struct page *pg)
{
    unsigned shift = clean_shift(), first, obj;
    for (unsigned n, from = 0; (n = next_hole(pg, from, &first)) != 0; from = first + n) {
        if (w->bytes_left >> shift < n)
            n = (unsigned)(w->bytes_left >> shift);
        if (n == 0 || flight.n == HOLE_FLIGHT)
            return false;
        unsigned objs = objs_at(w->c, first, n, &obj);
        struct hole *h = &flight.hole[flight.n++];
        *h = (struct hole){.slab = pg, .first = (uint16_t)first, .count = (uint16_t)n};
        h->obj = (uint16_t)obj;
        h->obj_count = (uint16_t)objs;
        isolate_locked(w->s, h);
        w->bytes_left -= (size_t)n << shift;
    }
    return true;
}

static void mark_swept(struct slabs *s, struct page *pg)
{
    unsigned before = pg->bucket;
    pg->epoch = s->epoch;
    slab_relist(s, pg);
    if (pg->bucket == before) { /* it has not moved; else it went to the end of its new list */
        slab_list_remove(&s->list[before], pg);
        slab_list_add_tail(&s->list[before], pg);
    }
}

/* One hold: look at some slabs. Result: false, the sweep is over. */
static bool scan_locked(struct sweep *w)
{
    for (unsigned i = 0; i < HOLE_SCAN_SLABS; i++) {
        struct page *pg = w->slabs_left == 0 ? NULL : next_slab(w->s);
        if (pg == NULL)
            return false;
        if (may_have_holes(pg) && !isolate_holes(w, pg)) {
            slab_relist(w->s, pg);
            return w->bytes_left >> clean_shift() != 0;
        }
        mark_swept(w->s, pg);
        w->slabs_left--;
    }
    return true;
}

/* The one place that gives a hole back to the system; the first of a batch is looked at. */
static bool purge_hole(const struct hole *h, bool look)
{
    char *p = page_address(h->slab) + ((size_t)h->first << clean_shift());
    size_t size = (size_t)h->count << clean_shift();
    return (look ? vm_purge(p, size) : vm_purge_more(p, size)) == 0;
}

/* Give the holes in flight back, in order, up to the first refusal. No lock held. Result: how many. */
static unsigned purge_flight(struct sweep *w)
{
    unsigned i = 0;
    for (; i < flight.n; i++) {
        if (i == 0 || flight.hole[i].slab != flight.hole[i - 1].slab)
            region_punctured(page_address(flight.hole[i].slab));
        if (!purge_hole(&flight.hole[i], i == 0))
            break;
        w->given += (size_t)flight.hole[i].dirty << clean_shift();
    }
    return i;
}

/* Result: false, the sweep is over. */
static bool sweep_round(struct sweep *w)
{
    struct slabs *s = w->s;
    lock_acquire(&s->lock, RANK_SLAB);
    bool more = scan_locked(w);
    lock_release(&s->lock);
    if (flight.n == 0)
        return more;
    size_t before = w->given;
    unsigned n = flight.n, given = purge_flight(w);
    lock_acquire(&s->lock, RANK_SLAB);
    land_locked(s, given);
    s->hole_calls += given;
    s->hole_bytes += w->given - before;
    s->hole_failures += given < n;
    s->hole_skip = given < n ? HOLE_SKIP : 0;
    struct page *empty = slab_collect_locked(s, slab_allowance(s));
    lock_release(&s->lock);
    slab_release(empty);
    return more && given == n;
}

static bool begin(struct sweep *w)
{
    struct slabs *s = w->s;
    void *nobody = NULL;
    if (opt.purge == OPT_PURGE_OFF || load_relaxed(&s->nslabs) == 0)
        return false;
    if (!cas_acquire(&flight.owner, &nobody, sweeper_self())) /* pairs with the release in end */
        return false;
    lock_acquire(&s->lock, RANK_SLAB);
    bool go = s->hole_skip == 0;
    if (go) {
        s->epoch = s->epoch == UINT8_MAX ? 1 : s->epoch + 1;
        s->sweeping = true;
        flight.slabs = s;
        w->slabs_left = s->nslabs;
    } else {
        s->hole_skip--;
    }
    lock_release(&s->lock);
    if (!go)
        store_release(&flight.owner, NULL);
    return go;
}

static void end(struct slabs *s)
{
    lock_acquire(&s->lock, RANK_SLAB);
    s->sweeping = false;
    lock_release(&s->lock);
    store_release(&flight.owner, NULL); /* pairs with the acquire in begin */
}

void slab_holes_retry(class_t c, unsigned node)
{
    struct slabs *s = slabs_of(node, c);
    lock_acquire(&s->lock, RANK_SLAB);
    s->hole_skip = 0;
    lock_release(&s->lock);
}

size_t slab_holes(class_t c, unsigned node, size_t max_bytes)
{
    struct sweep w = {.s = slabs_of(node, c), .c = c, .bytes_left = max_bytes};
    if (!begin(&w))
        return 0;
    while (sweep_round(&w))
        ;
    end(w.s);
    return w.given;
}

/* A fork inside our own purge (a shim's madvise may do anything): the child goes on with it where we are. */
void slab_holes_fork_child(void)
{
    void *owner = load_relaxed(&flight.owner);
    if (owner == NULL || owner == sweeper_self())
        return;
    if (flight.slabs != NULL) {
        land_locked(flight.slabs, 0);
        flight.slabs->sweeping = false;
    }
    store_relaxed(&flight.owner, NULL);
}
