/* SPDX-License-Identifier: BSD-2-Clause */
#include "pcp.h"

#include "compat/os/bits.h"
#include "compat/os/cpu.h"
#include "compat/os/lock.h"
#include "compat/os/vm.h"
#include "dbg.h"
#include "rank.h"
#include "zone.h"

struct shard {
    struct lock lock;
    struct page *list[RUN_ORDER_MAX + 1]; /* everything here: PCP lock */
    size_t count;                         /* pages */
    struct pcp_stats stats;
} CACHE_ALIGNED;

enum { STATIC_SHARDS = 16 }; /* more cpus than this cost a mapping of their own */

static struct shard static_shards[STATIC_SHARDS];
static struct shard *shards = static_shards; /* constant after pcp_init */
static unsigned shard_mask;

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
}

static void push(struct shard *s, struct page *pg, unsigned order)
{
    pg->order = (uint8_t)order;
    pg->next = s->list[order];
    s->list[order] = pg;
    s->count += (size_t)1 << order;
}

static struct page *pop(struct shard *s, unsigned order)
{
    struct page *pg = s->list[order];
    if (pg != NULL) {
        s->list[order] = pg->next;
        s->count -= (size_t)1 << order;
    }
    return pg;
}

/* Take a batch from the zone as one run, so that neighbours stay neighbours, and keep all but the first piece; a shard
 * that is full of other orders takes one run only (INV-PCP-2). */
static struct page *refill_shard(struct shard *s, unsigned node, unsigned order)
{
    size_t batch = s->count < PCP_HIGH_PAGES ? PCP_BATCH_PAGES >> order : 1;
    struct page *pg = batch > 1 ? zone_try_alloc(node, batch << order, 1) : NULL;
    if (pg == NULL)
        return zone_try_alloc(node, (size_t)1 << order, 1);
    s->stats.refill++;
    while (pg->npages > (size_t)1 << order)
        push(s, zone_split(pg, pg->npages - ((size_t)1 << order)), order);
    return pg;
}

struct page *pcp_alloc(unsigned node, unsigned order)
{
    struct shard *s = &shards[cpu_current() & shard_mask];
    struct page *pg = NULL;
    if (lock_try(&s->lock, RANK_PCP)) {
        s->stats.alloc++;
        pg = pop(s, order);
        if (pg == NULL)
            pg = refill_shard(s, node, order);
        lock_release(&s->lock);
    }
    if (pg == NULL)
        pg = zone_alloc(node, (size_t)1 << order, 1);
    if (pg != NULL)
        pg->order = (uint8_t)order;
    return pg;
}

/* Move runs, largest first, to the zone until at most keep pages are left. */
static void give_back_locked(struct shard *s, size_t keep)
{
    s->stats.drain++;
    for (int order = RUN_ORDER_MAX; order >= 0; order--) {
        struct page *pg;
        while (s->count > keep && (pg = pop(s, (unsigned)order)) != NULL)
            zone_free(pg, (size_t)1 << order, pg->zeroed);
    }
}

void pcp_free(struct page *pg, unsigned order, bool zeroed)
{
    struct shard *s = &shards[cpu_current() & shard_mask];
    unsigned node = pg->node;
    page_set_kind(pg, PAGE_CACHED);
    pg->npages = 1u << order;
    pg->zeroed = zeroed;
    if (!lock_try(&s->lock, RANK_PCP)) {
        zone_free(pg, (size_t)1 << order, zeroed);
        zone_relax(node, false);
        return;
    }
    s->stats.free++;
    push(s, pg, order);
    bool full = s->count > PCP_HIGH_PAGES;
    if (full)
        give_back_locked(s, PCP_HIGH_PAGES / 2);
    lock_release(&s->lock);
    if (full)
        zone_relax(node, false);
}

void pcp_drain(void)
{
    for (unsigned i = 0; i <= shard_mask; i++) {
        lock_acquire(&shards[i].lock, RANK_PCP);
        give_back_locked(&shards[i], 0);
        lock_release(&shards[i].lock);
    }
}

struct pcp_stats pcp_stats(void)
{
    struct pcp_stats sum = {0};
    for (unsigned i = 0; i <= shard_mask; i++) {
        struct shard *s = &shards[i];
        lock_acquire(&s->lock, RANK_PCP);
        sum.bytes += s->count << PAGE_SHIFT;
        sum.alloc += s->stats.alloc;
        sum.refill += s->stats.refill;
        sum.free += s->stats.free;
        sum.drain += s->stats.drain;
        lock_release(&s->lock);
    }
    return sum;
}

void pcp_check(void)
{
    for (unsigned i = 0; i <= shard_mask; i++) {
        struct shard *s = &shards[i];
        size_t pages = 0;
        lock_acquire(&s->lock, RANK_PCP);
        for (unsigned order = 0; order <= RUN_ORDER_MAX; order++)
            for (struct page *pg = s->list[order]; pg != NULL; pg = pg->next) {
                CHECK_EQ(pg->kind, PAGE_CACHED);
                CHECK_EQ(pg->npages, 1u << order);
                pages += pg->npages;
            }
        CHECK_EQ(pages, s->count);
        CHECK(s->count <= PCP_HIGH_PAGES + RUN_PAGES_MAX);
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

bool pcp_spike_over(void)
{
    return false;
}

void pcp_age(unsigned steps)
{
    (void)steps;
}
