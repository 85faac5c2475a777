/* SPDX-License-Identifier: BSD-2-Clause */
#include "pcp.h"

#include "compat/os/bits.h"
#include "compat/os/cpu.h"
#include "compat/os/lock.h"
#include "compat/os/numa.h"
#include "compat/os/vm.h"
#include "dbg.h"
#include "opt.h"
#include "pcp_tune.h"
#include "rank.h"
#include "zone.h"

#include <string.h>

_Static_assert((int)PCP_HOLD_PAGES <= (int)ZONE_HOLD_BLOCKS, "a chunk of single pages is one zone_free_list");

struct shard {
    struct lock lock;
    struct pcp_tune tune; /* everything here down to spike: PCP lock */
    struct page *newest[RUN_ORDER_MAX + 1], *oldest[RUN_ORDER_MAX + 1];
    size_t count; /* pages */
    size_t clean; /* os pages of theirs that read as zero and cost no memory */
    size_t level; /* pages in use when the run was level_run pages long; ANY: whatever it was */
    uint32_t level_run;
    size_t alloc, free, drain, free_high, mark, spike;
    /* Atomic: counted by whoever found the lock taken, or moves pages with the lock dropped. */
    size_t alloc_busy, free_busy;
    size_t refill, refill_fail, refill_holds, refill_pages, drain_holds, drain_pages;
} CACHE_ALIGNED;

#define ANY SIZE_MAX

enum { STATIC_SHARDS = 16 }; /* more cpus than this cost a mapping of their own */

static struct shard static_shards[STATIC_SHARDS];

/* On the page of initialised data, as every start and every free looks at them. */
static struct shard *shards = static_shards; /* constant after pcp_init and pcp_nodes, as the next three */
EARLY_DATA static unsigned shard_mask; /* of a node's shards, which follow each other */
EARLY_DATA static unsigned nshards;    /* all nodes' */
EARLY_DATA static struct pcp_limits limits;
/* Taken by pcp_spike_over and pcp_mark_passed; relaxed: news, which guard nothing. */
EARLY_DATA static uint32_t spike_over, mark_passed;
EARLY_DATA static uint32_t next_to_empty, next_to_age; /* turns of drain_another and pcp_age; racy on purpose */

void pcp_init(void)
{
    size_t n = pow2_up(cpu_count());
    if (n > STATIC_SHARDS) {
        struct shard *more = vm_map(align_up(n * sizeof *more, vm_page_size()), false);
        if (more != NULL)
            shards = more;
        else
            n = STATIC_SHARDS; /* several cpus a shard: slower, as right */
    }
    shard_mask = (unsigned)n - 1;
    nshards = (unsigned)n;
    limits = pcp_limits_for(n);
}

/* The first node's shards move: nothing points at them yet but lists that begin in them. */
bool pcp_nodes(unsigned count)
{
    size_t n = (size_t)nshards * count;
    struct shard *all = vm_map(align_up(n * sizeof *all, vm_page_size()), false);
    if (all == NULL)
        return false;
    memcpy(all, shards, nshards * sizeof *all);
    shards = all;
    nshards = (unsigned)n;
    return true;
}

/* This cpu's shard for the pages of a node. */
static struct shard *own_shard(unsigned node)
{
    return &shards[node * (shard_mask + 1) + (cpu_shard() & shard_mask)];
}

static enum pcp_mode mode(void)
{
    return (enum pcp_mode)opt.pcp_free_count;
}

/* ---- lists ---- */

static unsigned clean_os_pages(const struct page *pg, unsigned order)
{
    unsigned n = (unsigned)__builtin_popcount(pg->clean);
    for (size_t i = 1; i < (size_t)1 << order; i++)
        n += (unsigned)__builtin_popcount(pmap_page(page_address(pg) + i * PAGE_BYTES)->clean);
    return n;
}

/* Runs of one order that the caller has in its hands, linked both ways; no lock is needed to put them together. */
struct runs {
    struct page *newest, *oldest;
    size_t pages, clean;
};

/* Add one that is newer than all the others. */
static void runs_add(struct runs *r, struct page *pg, unsigned order)
{
    pg->order = (uint8_t)order;
    pg->prev = NULL;
    pg->next = r->newest;
    if (r->newest != NULL)
        r->newest->prev = pg;
    else
        r->oldest = pg;
    r->newest = pg;
    r->pages += (size_t)1 << order;
    r->clean += clean_os_pages(pg, order);
}

/* Put them on the shard, newer than what is there. Cost: O(1). */
static void push(struct shard *s, const struct runs *r, unsigned order)
{
    struct page *next = s->newest[order];
    r->oldest->next = next;
    if (next != NULL)
        next->prev = r->oldest;
    else
        s->oldest[order] = r->oldest;
    s->newest[order] = r->newest;
    s->count += r->pages;
    s->clean += r->clean;
}

/* Take a run off its list, from either end. */
static void take_off(struct shard *s, struct page *pg, unsigned order)
{
    if (pg->prev != NULL)
        pg->prev->next = pg->next;
    else
        s->newest[order] = pg->next;
    if (pg->next != NULL)
        pg->next->prev = pg->prev;
    else
        s->oldest[order] = pg->prev;
    s->count -= (size_t)1 << order;
    s->clean -= clean_os_pages(pg, order);
}

/* ---- to the zone ---- */

/* The oldest run of the first order that has one, from `first` on and around; the shard must not be empty. */
static struct page *oldest_run(const struct shard *s, unsigned first)
{
    unsigned order = first;
    while (s->oldest[order] == NULL)
        order = (order + 1) % (RUN_ORDER_MAX + 1);
    return s->oldest[order];
}

/* Take off all that is there, list by list, without a look at each run; linked by next. */
static struct page *take_all_runs(struct shard *s, unsigned first)
{
    struct page *all = NULL;
    for (unsigned i = RUN_ORDER_MAX + 1; i-- > 0;) {
        unsigned order = (first + i) % (RUN_ORDER_MAX + 1);
        if (s->newest[order] == NULL)
            continue;
        s->oldest[order]->next = all;
        all = s->newest[order];
        s->newest[order] = s->oldest[order] = NULL;
    }
    s->count = s->clean = 0;
    return all;
}

/* Take off so many pages, in whole runs, the oldest first. Result: linked by next, for give_down once the lock is let go. */
static struct page *drain_locked(struct shard *s, unsigned first, size_t pages)
{
    struct page *list = NULL, **end = &list;
    size_t keep = pages < s->count ? s->count - pages : 0;
    if (s->count == keep)
        return NULL;
    s->drain++;
    if (keep == 0)
        return take_all_runs(s, first);
    while (s->count > keep) {
        struct page *pg = oldest_run(s, first);
        take_off(s, pg, pg->order);
        *end = pg;
        end = &pg->next;
    }
    *end = NULL;
    return list;
}

static struct page *empty_locked(struct shard *s)
{
    struct page *all = drain_locked(s, RUN_ORDER_MAX, s->count);
    pcp_tune_reset(&limits, &s->tune);
    return all;
}

/* Cut off the front of a list what one hold of the zone's lock moves: runs of one node. Result: the rest. */
static struct page *cut_chunk(struct page *list, size_t *pages)
{
    struct page *last = list, *rest = list->next;
    *pages = last->npages;
    while (rest != NULL && *pages + rest->npages <= PCP_HOLD_PAGES && rest->node == list->node) {
        *pages += rest->npages;
        last = rest;
        rest = rest->next;
    }
    last->next = NULL;
    return rest;
}

/* Hand runs to their zones, those that were taken off s. No lock held: a fork child loses what another thread has here. */
static void give_down(struct shard *s, struct page *list)
{
    size_t pages;
    for (struct page *chunk = list; chunk != NULL; chunk = list) {
        list = cut_chunk(chunk, &pages);
        zone_free_list(chunk);
        add_relaxed(&s->drain_holds, 1);
        add_relaxed(&s->drain_pages, pages);
    }
}

/* ---- from the zone ---- */

/* Cut all but the first 2^order pages of a run off, as runs of that order. Neighbours stay neighbours. */
static struct runs cut_up(struct page *pg, unsigned order)
{
    struct runs r = {0};
    size_t npages = (size_t)1 << order;
    while (pg->npages > npages)
        runs_add(&r, zone_split(pg, pg->npages - npages), order);
    return r;
}

/* Put runs on the shard, unless it is taken, or others have filled it meanwhile: then they go back. No lock held. */
static void hand_in(struct shard *s, const struct runs *r, unsigned order)
{
    struct page *back = r->newest;
    if (lock_try(&s->lock, RANK_PCP)) {
        if (s->count + r->pages <= limits.high_max) { /* INV-PCP-2 */
            push(s, r, order);
            back = NULL;
        }
        lock_release(&s->lock);
    }
    give_down(s, back);
}

/* A run of as many pages as the tuning says, or as the zone has in one piece, cut up; all but the first piece go to the
 * shard. No lock held: the zone may keep us waiting, and the cutting touches a descriptor a piece. */
static struct page *refill_shard(struct shard *s, unsigned node, unsigned order, size_t want)
{
    struct page *pg = zone_try_alloc_some(node, order, want);
    add_relaxed(&s->refill_holds, 1);
    add_relaxed(pg == NULL ? &s->refill_fail : &s->refill, 1);
    if (pg == NULL)
        return NULL;
    add_relaxed(&s->refill_pages, pg->npages);
    struct runs r = cut_up(pg, order);
    if (r.newest != NULL)
        hand_in(s, &r, order);
    return pg;
}

/* Fails: NULL; *want: pages to refill with. */
static struct page *alloc_locked(struct shard *s, unsigned order, size_t *want)
{
    struct page *pg = s->newest[order];
    s->alloc++;
    pcp_count_alloc(&s->tune, mode(), order);
    if (UNLIKELY(pg == NULL))
        *want = nr_pcp_alloc(&limits, &s->tune, (unsigned)s->count, order);
    else
        take_off(s, pg, order);
    return pg;
}

struct page *pcp_alloc(unsigned node, unsigned order)
{
    struct shard *s = own_shard(node);
    struct page *pg = NULL;
    size_t want = 0;
    if (LIKELY(lock_try(&s->lock, RANK_PCP))) {
        pg = alloc_locked(s, order, &want);
        lock_release(&s->lock);
        if (UNLIKELY(pg == NULL))
            pg = refill_shard(s, node, order, want);
    } else {
        add_relaxed(&s->alloc_busy, 1);
    }
    if (UNLIKELY(pg == NULL))
        pg = zone_alloc(node, (size_t)1 << order, 1);
    if (LIKELY(pg != NULL))
        pg->order = (uint8_t)order;
    return pg;
}

/* ---- frees ---- */

/* The run of frees may have begun on other cpus. In turn, so that no mark costs more than one look. */
static void empty_another(const struct shard *own)
{
    uint32_t turn = load_relaxed(&next_to_empty);
    struct shard *s = &shards[turn % nshards];
    if (s == own)
        s = &shards[++turn % nshards];
    store_relaxed(&next_to_empty, turn + 1);
    if (s == own || !lock_try(&s->lock, RANK_PCP))
        return;
    struct page *all = s->tune.run_pages > 0 ? empty_locked(s) : NULL;
    lock_release(&s->lock);
    give_down(s, all);
}

static void count_verdict(struct shard *s, struct pcp_verdict v)
{
    s->free_high += v.free_high;
    s->mark += v.mark;
    s->spike += v.spike;
}

/* What a free asked for beyond its shard. No lock held. */
static void follow(const struct shard *s, unsigned node, struct pcp_verdict v)
{
    if (v.spike)
        store_relaxed(&spike_over, 1);
    if (v.mark) {
        store_relaxed(&mark_passed, 1);
        empty_another(s);
    }
    if (v.mark || v.drain > 0)
        zone_relax(node, v.mark);
}

/* Asked only when it can matter: a run below both marks is not told anyway. */
static bool spiking(const struct shard *s, unsigned node, size_t npages)
{
    return s->tune.run_pages + npages >= PCP_RUN_AGAIN && zone_spiking(node);
}

static void look_at_level(struct shard *s, size_t level)
{
    s->level = level;
    s->level_run = s->tune.run_pages;
}

/* A cpu that only frees what others allocate sees a run without an end. It is a spike's if memory in use has fallen by at
 * least half of it since the last look: else the run is over. */
static void believe(struct shard *s, unsigned node, struct pcp_verdict *v)
{
    size_t out = zone_in_use(node), now = out > s->count ? out - s->count : 0, run = s->tune.run_pages - s->level_run;
    bool fallen = s->level == ANY || now + run / 2 <= s->level;
    if (v->mark && !fallen) {
        pcp_end_run(&s->tune);
        v->mark = v->spike = false; /* the drain stays: what is freed here is wanted elsewhere */
    }
    look_at_level(s, now);
}

/* *out: what has to go to the zone once the lock is let go. */
static struct pcp_verdict free_locked(struct shard *s, const struct runs *r, unsigned order, struct page **out)
{
    unsigned node = r->newest->node;
    bool early = spiking(s, node, r->pages), begun = s->tune.run_pages >= PCP_RUN_STEP;
    s->free++;
    push(s, r, order);
    struct pcp_verdict v = pcp_count_free(&limits, &s->tune, mode(), (unsigned)s->count, order, early);
    if (UNLIKELY(v.mark || (!begun && s->tune.run_pages >= PCP_RUN_STEP)))
        believe(s, node, &v);
    if (UNLIKELY(v.drain > 0))
        *out = drain_locked(s, order, v.drain);
    count_verdict(s, v);
    return v;
}

void pcp_free(struct page *pg, unsigned order, bool zeroed)
{
    unsigned node = pg->node;
    struct shard *s = own_shard(node);
    page_set_kind(pg, PAGE_CACHED);
    pg->npages = 1u << order;
    pg->zeroed = zeroed;
    struct runs r = {0};
    runs_add(&r, pg, order);
    if (UNLIKELY(!lock_try(&s->lock, RANK_PCP))) {
        add_relaxed(&s->free_busy, 1);
        pg->next = NULL;
        zone_free_list(pg);
        zone_relax(node, false);
        return;
    }
    struct page *out = NULL;
    struct pcp_verdict v = free_locked(s, &r, order, &out);
    lock_release(&s->lock);
    give_down(s, out);
    follow(s, node, v);
}

void pcp_note_free(size_t npages)
{
    unsigned node = numa_here();
    struct shard *s = own_shard(node);
    if (!lock_try(&s->lock, RANK_PCP))
        return;
    struct pcp_verdict v = pcp_count_run(&s->tune, npages, spiking(s, node, npages));
    look_at_level(s, ANY); /* it was no page of the zone's, or came there before */
    struct page *all = v.mark ? empty_locked(s) : NULL;
    count_verdict(s, v);
    lock_release(&s->lock);
    give_down(s, all);
    follow(s, node, v);
}

void pcp_note_alloc(void)
{
    struct shard *s = own_shard(numa_here());
    if (!lock_try(&s->lock, RANK_PCP))
        return;
    pcp_end_run(&s->tune);
    lock_release(&s->lock);
}

bool pcp_spike_over(void)
{
    return UNLIKELY(load_relaxed(&spike_over) != 0) && exchange_acquire(&spike_over, 0) != 0;
}

bool pcp_mark_passed(void)
{
    return UNLIKELY(load_relaxed(&mark_passed) != 0) && exchange_acquire(&mark_passed, 0) != 0;
}

/* ---- ageing and trimming ---- */

/* Result: pages given back. */
static size_t age_shard(struct shard *s, unsigned steps)
{
    unsigned give = 0;
    if (!lock_try(&s->lock, RANK_PCP))
        return 0;
    do
        give += pcp_decay(&limits, &s->tune, (unsigned)s->count - give);
    while (--steps > 0 && s->tune.high > limits.high_min);
    struct page *out = drain_locked(s, RUN_ORDER_MAX, give);
    lock_release(&s->lock);
    give_down(s, out);
    return give;
}

void pcp_age(unsigned steps)
{
    size_t given = 0;
    uint32_t turn = load_relaxed(&next_to_age);
    for (unsigned i = 0; steps > 0 && i < nshards && given < PCP_AGE_PAGES; i++)
        given += age_shard(&shards[turn++ % nshards], steps);
    store_relaxed(&next_to_age, turn);
    if (given > 0)
        for (unsigned node = 0; node < numa_count(); node++)
            zone_relax(node, false);
}

void pcp_drain(void)
{
    for (unsigned i = 0; i < nshards; i++) {
        lock_acquire(&shards[i].lock, RANK_PCP);
        struct page *all = empty_locked(&shards[i]);
        lock_release(&shards[i].lock);
        give_down(&shards[i], all);
    }
}

/* ---- looking at it ---- */

static void add_stats(struct pcp_stats *sum, const struct shard *s)
{
    size_t bytes = s->count << PAGE_SHIFT;
    sum->bytes += bytes;
    sum->resident += bytes - s->clean * vm_page_size();
    sum->alloc += s->alloc;
    sum->alloc_busy += load_relaxed(&s->alloc_busy);
    sum->refill += load_relaxed(&s->refill);
    sum->refill_fail += load_relaxed(&s->refill_fail);
    sum->free += s->free;
    sum->free_busy += load_relaxed(&s->free_busy);
    sum->drain += s->drain;
    sum->free_high += s->free_high;
    sum->mark += s->mark;
    sum->spike += s->spike;
    sum->refill_holds += load_relaxed(&s->refill_holds);
    sum->refill_pages += load_relaxed(&s->refill_pages);
    sum->drain_holds += load_relaxed(&s->drain_holds);
    sum->drain_pages += load_relaxed(&s->drain_pages);
    sum->lock_acquired += s->lock.acquired;
    sum->lock_contended += s->lock.contended;
}

struct pcp_stats pcp_stats(void)
{
    struct pcp_stats sum = {0};
    for (unsigned i = 0; i < nshards; i++) {
        lock_acquire(&shards[i].lock, RANK_PCP);
        add_stats(&sum, &shards[i]);
        lock_release(&shards[i].lock);
    }
    return sum;
}

static void check_list(const struct shard *s, unsigned order, size_t *pages, size_t *clean)
{
    const struct page *last = NULL;
    for (const struct page *pg = s->newest[order]; pg != NULL; last = pg, pg = pg->next) {
        CHECK(pg->prev == last);
        CHECK_EQ(pg->kind, PAGE_CACHED);
        CHECK_EQ(pg->npages, 1u << order);
        CHECK_EQ(pg->order, order);
        *pages += pg->npages;
        *clean += clean_os_pages(pg, order);
    }
    CHECK(s->oldest[order] == last);
}

void pcp_check(void)
{
    for (unsigned i = 0; i < nshards; i++) {
        struct shard *s = &shards[i];
        size_t pages = 0, clean = 0;
        lock_acquire(&s->lock, RANK_PCP);
        for (unsigned order = 0; order <= RUN_ORDER_MAX; order++)
            check_list(s, order, &pages, &clean);
        CHECK_EQ(pages, s->count);
        CHECK_EQ(clean, s->clean);
        CHECK(s->count <= limits.high_max);
        pcp_tune_check(&limits, &s->tune);
        lock_release(&s->lock);
    }
}

void pcp_fork_hold(void)
{
    for (unsigned i = 0; i < nshards; i++)
        lock_fork_hold(&shards[i].lock, RANK_PCP);
}

void pcp_fork_open(void)
{
    for (unsigned i = 0; i < nshards; i++)
        lock_fork_open(&shards[i].lock);
}
