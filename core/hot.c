/* SPDX-License-Identifier: BSD-2-Clause */
#include "hot.h"

#include "compat/os/clock.h"
#include "compat/os/cpu.h"
#include "opt.h"
#include "region.h"

enum { HOT_SLOTS = 64 }; /* a power of two; machines with more cpus share slots, which costs a miss now and then */

/* A block inside windows is one word: its descriptor's address and, in the bits that an address leaves, length and node.
 * So what was looked at is what is taken: the descriptor itself may be another's at any time but then. */
enum { LENGTH_SHIFT = 48, LENGTH_BITS = 11, NODE_LOW_BITS = 6, NODE_HIGH_SHIFT = LENGTH_SHIFT + LENGTH_BITS };
_Static_assert(LARGE_OWN_BYTES >> PAGE_SHIFT < 1 << LENGTH_BITS, "a block's length must fit its word");
_Static_assert(sizeof(struct page) == 1 << NODE_LOW_BITS && offsetof(struct pmap_leaf, page) % sizeof(struct page) == 0,
               "descriptors lie at multiples of 64");

struct hot_slot {
    uint64_t block;   /* INV-HOT-1; 0: none */
    struct page *own; /* likewise */
    size_t usable, stale, own_usable; /* of what waits; this and what follows: relaxed, hints */
    uint32_t granted; /* pages; INV-HOT-2 */
    uint16_t freed;   /* length that was last freed and had no grant ... */
    uint16_t wanted;  /* ... and the same, once it has been asked for again, within decay_ms of ... */
    uint64_t freed_ms;
    uint32_t uses;    /* blocks taken ... */
    uint32_t looked;  /* ... and what that was at the last look for idle slots */
} CACHE_ALIGNED;

static struct hot_slot slots[HOT_SLOTS];

static struct hot_slot *own_slot(void)
{
    return &slots[cpu_shard() % HOT_SLOTS];
}

/* ---- the word ---- */

static uint64_t pack(const struct page *pg)
{
    uint64_t node = pg->node, low = node & ((1 << NODE_LOW_BITS) - 1), high = node >> NODE_LOW_BITS;
    return (uintptr_t)pg | low | (uint64_t)pg->npages << LENGTH_SHIFT | high << NODE_HIGH_SHIFT;
}

static struct page *packed_page(uint64_t word)
{
    return (struct page *)(uintptr_t)(word << (64 - LENGTH_SHIFT) >> (64 - LENGTH_SHIFT) >> NODE_LOW_BITS << NODE_LOW_BITS);
}

static size_t packed_length(uint64_t word)
{
    return word >> LENGTH_SHIFT & ((1 << LENGTH_BITS) - 1);
}

static unsigned packed_node(uint64_t word)
{
    return (unsigned)(word & ((1 << NODE_LOW_BITS) - 1)) | (unsigned)(word >> NODE_HIGH_SHIFT << NODE_LOW_BITS);
}

static bool length_fits(size_t have, size_t want)
{
    return have - want <= want / 8; /* have < want: a very large difference */
}

/* ---- blocks inside windows ---- */

struct page *hot_take(unsigned node, size_t npages)
{
    struct hot_slot *s = own_slot();
    uint64_t word = load_relaxed(&s->block);
    if (length_fits(packed_length(word), npages) && packed_node(word) == node &&
        cas_acquire(&s->block, &word, 0)) { /* pairs with enter_slot */
        owner_add(&s->uses, 1);
        return packed_page(word);
    }
    if (load_relaxed(&s->freed) == npages && clock_coarse_ms() - load_relaxed(&s->freed_ms) <= opt.decay_ms)
        store_relaxed(&s->wanted, (uint16_t)npages);
    return NULL;
}

/* Leave the block, if the slot is empty. */
static bool enter_slot(struct hot_slot *s, const struct page *pg)
{
    uint64_t none = 0;
    if (load_relaxed(&s->block) != 0)
        return false;
    store_relaxed(&s->usable, pg->usable);
    store_relaxed(&s->stale, pg->stale);
    return __atomic_compare_exchange_n(&s->block, &none, pack(pg), false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

bool hot_put(struct page *pg)
{
    struct hot_slot *s = own_slot();
    return pg->npages <= load_relaxed(&s->granted) && enter_slot(s, pg);
}

static size_t all_granted(void)
{
    size_t sum = 0;
    for (unsigned i = 0; i < HOT_SLOTS; i++)
        sum += load_relaxed(&slots[i].granted);
    return sum;
}

bool hot_put_new(struct page *pg, size_t (*most)(unsigned node), void (*release)(struct page *))
{
    struct hot_slot *s = own_slot();
    uint32_t npages = pg->npages, had = load_relaxed(&s->granted);
    if (npages <= had)
        return false; /* the slot is in use */
    if (load_relaxed(&s->wanted) != npages) {
        store_relaxed(&s->freed, (uint16_t)npages);
        store_relaxed(&s->wanted, 0); /* what was wanted once may be long ago */
        store_relaxed(&s->freed_ms, clock_coarse_ms());
        return false;
    }
    size_t room = most(pg->node) + had;
    if (all_granted() + npages > room) {
        hot_drain(true, release); /* threads move: slots they have left keep what others need */
        if (all_granted() + npages > room)
            return false;
    }
    store_relaxed(&s->granted, npages);
    return enter_slot(s, pg);
}

/* ---- blocks with mappings of their own ---- */

struct page *hot_take_own(size_t bytes, size_t align, struct page **stray)
{
    struct hot_slot *s = own_slot();
    *stray = NULL;
    if (load_relaxed(&s->own) == NULL)
        return NULL;
    struct page *pg = exchange_acquire(&s->own, NULL); /* pairs with hot_put_own */
    if (pg == NULL)
        return NULL;
    if (length_fits(pg->region->size, bytes) && ((uintptr_t)pg->base & (align - 1)) == 0) {
        owner_add(&s->uses, 1);
        return pg;
    }
    *stray = pg;
    return NULL;
}

struct page *hot_put_own(struct page *pg, bool (*purge)(struct page *))
{
    struct hot_slot *s = own_slot();
    uint64_t now = clock_coarse_ms();
    pg->zeroed = false;
    if (now == 0 || pg->purged_ms != now) {
        pg->zeroed = purge(pg);
        pg->purged_ms = now;
    }
    store_relaxed(&s->own_usable, pg->usable);
    return __atomic_exchange_n(&s->own, pg, __ATOMIC_ACQ_REL);
}

/* ---- all of them ---- */

static size_t empty_slot(struct hot_slot *s, void (*release)(struct page *))
{
    store_relaxed(&s->granted, 0);
    uint64_t word = load_relaxed(&s->block) == 0 ? 0 : exchange_acquire(&s->block, 0);
    struct page *own = load_relaxed(&s->own) == NULL ? NULL : exchange_acquire(&s->own, NULL);
    if (word != 0)
        release(packed_page(word));
    if (own != NULL)
        release(own);
    return (size_t)(word != 0) + (own != NULL);
}

size_t hot_drain(bool idle, void (*release)(struct page *))
{
    size_t n = 0;
    for (struct hot_slot *s = slots; s < slots + HOT_SLOTS; s++) {
        uint32_t uses = load_relaxed(&s->uses);
        if (!idle || uses == load_relaxed(&s->looked))
            n += empty_slot(s, release);
        else
            store_relaxed(&s->looked, uses);
    }
    return n;
}

struct hot_stats hot_stats(void)
{
    struct hot_stats st = {0};
    for (struct hot_slot *s = slots; s < slots + HOT_SLOTS; s++) {
        uint64_t word = load_relaxed(&s->block);
        if (word != 0) {
            st.bytes += packed_length(word) << PAGE_SHIFT;
            st.usable += load_relaxed(&s->usable);
            st.stale += load_relaxed(&s->stale);
            st.count++;
        }
        if (load_relaxed(&s->own) != NULL) {
            st.own_usable += load_relaxed(&s->own_usable);
            st.own_count++;
        }
    }
    return st;
}
