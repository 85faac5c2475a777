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

_Static_assert((int)PCP_HOLD_PAGES <= (int)ZONE_HOLD_BLOCKS, "a chunk of single pages is one zone_free_list");

struct shard {
    struct lock lock;
    struct pcp_tune tune; /* everything here, but for the two busy counters: PCP lock */
    struct page *newest[RUN_ORDER_MAX + 1], *oldest[RUN_ORDER_MAX + 1];
    size_t count; /* pages */
    size_t clean; /* os pages of theirs that read as zero and cost no memory */
    size_t alloc, refill, refill_fail, free, drain, free_high, mark, spike;
    size_t refill_holds, refill_pages, drain_holds, drain_pages;
    size_t alloc_busy, free_busy; /* atomic, by whoever found the lock taken */
} CACHE_ALIGNED;

enum { STATIC_SHARDS = 16 }; /* more cpus than this cost a mapping of their own */

static struct shard static_shards[STATIC_SHARDS];

/* On the page of initialised data, as every start and every free looks at them. */
static struct shard *shards = static_shards; /* constant after pcp_init, as the next two */
EARLY_DATA static unsigned shard_mask;
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
    limits = pcp_limits_for(n);
}

static struct shard *own_shard(void)
{
    return &shards[cpu_shard() & shard_mask];
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

static void push(struct shard *s, struct page *pg, unsigned order)
{
    struct page *next = s->newest[order];
    pg->order = (uint8_t)order;
    pg->prev = NULL;
    pg->next = next;
    if (next != NULL)
        next->prev = pg;
    else
        s->oldest[order] = pg;
    s->newest[order] = pg;
    s->count += (size_t)1 << order;
    s->clean += clean_os_pages(pg, order);
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

/* ---- from the zone ---- */

/* A run of as many pages as the tuning says, or as the zone has in one piece, cut up; all but the first piece stay here. */
static struct page *refill_locked(struct shard *s, unsigned node, unsigned order)
{
    size_t npages = (size_t)1 << order;
    struct page *pg = zone_try_alloc_some(node, order, nr_pcp_alloc(&limits, &s->tune, (unsigned)s->count, order));
    s->refill_holds++;
    if (pg == NULL) {
        s->refill_fail++;
        return NULL;
    }
    s->refill++;
    s->refill_pages += pg->npages;
    while (pg->npages > npages)
        push(s, zone_split(pg, pg->npages - npages), order);
    return pg;
}

static struct page *alloc_locked(struct shard *s, unsigned node, unsigned order)
{
    struct page *pg = s->newest[order];
    s->alloc++;
    pcp_count_alloc(&s->tune, mode(), order);
    if (UNLIKELY(pg == NULL))
        return refill_locked(s, node, order);
    take_off(s, pg, order);
    return pg;
}

struct page *pcp_alloc(unsigned node, unsigned order)
{
    struct shard *s = own_shard();
    struct page *pg = NULL;
    if (LIKELY(lock_try(&s->lock, RANK_PCP))) {
        pg = alloc_locked(s, node, order);
        lock_release(&s->lock);
    } else {
        add_relaxed(&s->alloc_busy, 1);
    }
    if (UNLIKELY(pg == NULL))
        pg = zone_alloc(node, (size_t)1 << order, 1);
    if (LIKELY(pg != NULL))
        pg->order = (uint8_t)order;
    return pg;
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

/* Runs of one node for one hold of its zone's lock, linked by next. */
static struct page *take_chunk(struct shard *s, unsigned first, size_t keep)
{
    struct page *list = NULL;
    size_t moved = 0;
    while (s->count > keep) {
        struct page *pg = oldest_run(s, first);
        if (list != NULL && (moved + pg->npages > PCP_HOLD_PAGES || pg->node != list->node))
            break;
        take_off(s, pg, pg->order);
        moved += pg->npages;
        pg->next = list;
        list = pg;
    }
    s->drain_holds++;
    s->drain_pages += moved;
    return list;
}

/* Give back so many pages, in whole runs. */
static void drain_locked(struct shard *s, unsigned first, size_t pages)
{
    size_t keep = pages < s->count ? s->count - pages : 0;
    if (s->count == keep)
        return;
    s->drain++;
    while (s->count > keep)
        zone_free_list(take_chunk(s, first, keep));
}

static void empty_locked(struct shard *s)
{
    drain_locked(s, RUN_ORDER_MAX, s->count);
    pcp_tune_reset(&limits, &s->tune);
}

/* The run of frees may have begun on other cpus. In turn, so that no mark costs more than one look. */
static void empty_another(const struct shard *own)
{
    uint32_t turn = load_relaxed(&next_to_empty);
    struct shard *s = &shards[turn & shard_mask];
    if (s == own)
        s = &shards[++turn & shard_mask];
    store_relaxed(&next_to_empty, turn + 1);
    if (s == own || !lock_try(&s->lock, RANK_PCP))
        return;
    if (s->tune.run_pages > 0)
        empty_locked(s);
    lock_release(&s->lock);
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

static struct pcp_verdict free_locked(struct shard *s, struct page *pg, unsigned order)
{
    bool early = spiking(s, pg->node, pg->npages);
    s->free++;
    push(s, pg, order);
    struct pcp_verdict v = pcp_count_free(&limits, &s->tune, mode(), (unsigned)s->count, order, early);
    if (UNLIKELY(v.drain > 0))
        drain_locked(s, order, v.drain);
    count_verdict(s, v);
    return v;
}

void pcp_free(struct page *pg, unsigned order, bool zeroed)
{
    struct shard *s = own_shard();
    unsigned node = pg->node;
    page_set_kind(pg, PAGE_CACHED);
    pg->npages = 1u << order;
    pg->zeroed = zeroed;
    if (UNLIKELY(!lock_try(&s->lock, RANK_PCP))) {
        add_relaxed(&s->free_busy, 1);
        pg->next = NULL;
        zone_free_list(pg);
        zone_relax(node, false);
        return;
    }
    struct pcp_verdict v = free_locked(s, pg, order);
    lock_release(&s->lock);
    follow(s, node, v);
}

void pcp_note_free(size_t npages)
{
    struct shard *s = own_shard();
    unsigned node = numa_current();
    if (!lock_try(&s->lock, RANK_PCP))
        return;
    struct pcp_verdict v = pcp_count_run(&s->tune, npages, spiking(s, node, npages));
    if (v.mark)
        empty_locked(s);
    count_verdict(s, v);
    lock_release(&s->lock);
    follow(s, node, v);
}

void pcp_note_alloc(void)
{
    struct shard *s = own_shard();
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
    drain_locked(s, RUN_ORDER_MAX, give);
    lock_release(&s->lock);
    return give;
}

void pcp_age(unsigned steps)
{
    size_t given = 0;
    uint32_t turn = load_relaxed(&next_to_age);
    for (unsigned i = 0; steps > 0 && i <= shard_mask && given < PCP_AGE_PAGES; i++)
        given += age_shard(&shards[turn++ & shard_mask], steps);
    store_relaxed(&next_to_age, turn);
    if (given > 0)
        for (unsigned node = 0; node < numa_count(); node++)
            zone_relax(node, false);
}

void pcp_drain(void)
{
    for (unsigned i = 0; i <= shard_mask; i++) {
        lock_acquire(&shards[i].lock, RANK_PCP);
        empty_locked(&shards[i]);
        lock_release(&shards[i].lock);
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
    sum->refill += s->refill;
    sum->refill_fail += s->refill_fail;
    sum->free += s->free;
    sum->free_busy += load_relaxed(&s->free_busy);
    sum->drain += s->drain;
    sum->free_high += s->free_high;
    sum->mark += s->mark;
    sum->spike += s->spike;
    sum->refill_holds += s->refill_holds;
    sum->refill_pages += s->refill_pages;
    sum->drain_holds += s->drain_holds;
    sum->drain_pages += s->drain_pages;
    sum->lock_acquired += s->lock.acquired;
    sum->lock_contended += s->lock.contended;
}

struct pcp_stats pcp_stats(void)
{
    struct pcp_stats sum = {0};
    for (unsigned i = 0; i <= shard_mask; i++) {
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
    for (unsigned i = 0; i <= shard_mask; i++) {
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
    for (unsigned i = 0; i <= shard_mask; i++)
        lock_fork_hold(&shards[i].lock, RANK_PCP);
}

void pcp_fork_open(void)
{
    for (unsigned i = 0; i <= shard_mask; i++)
        lock_fork_open(&shards[i].lock);
}
