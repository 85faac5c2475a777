/* SPDX-License-Identifier: BSD-2-Clause */
#include "pcp_tune.h"

#include "dbg.h"

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static unsigned most(unsigned a, unsigned b)
{
    return a > b ? a : b;
}

static unsigned above(unsigned a, unsigned b)
{
    return a > b ? a - b : 0;
}

static unsigned scaled(const struct pcp_limits *l)
{
    return (unsigned)l->batch << PCP_SCALE_MAX;
}

struct pcp_limits pcp_limits_for(size_t shards)
{
    unsigned batch = shards > PCP_MANY_SHARDS ? PCP_BATCH_PAGES_MANY : PCP_BATCH_PAGES;
    unsigned share = (unsigned)(PCP_BUSY_PAGES / shards);
    return (struct pcp_limits){
        .batch = (uint16_t)batch,
        .high_min = (uint16_t)(PCP_IDLE_PAGES / shards),
        .high_max = (uint16_t)most(least(share, PCP_HIGH_PAGES), PCP_HIGH_BATCHES * batch),
    };
}

void pcp_end_run(struct pcp_tune *t)
{
    t->run_pages = 0;
    t->run_next = 0;
    t->run_spike = 0;
}

void pcp_count_alloc(struct pcp_tune *t, enum pcp_mode mode, unsigned order)
{
    unsigned pages = 1u << order;
    t->free_count = (uint16_t)(mode == PCP_EXACT ? above(t->free_count, pages) : t->free_count / 2u);
    pcp_end_run(t);
}

unsigned nr_pcp_alloc(const struct pcp_limits *l, struct pcp_tune *t, unsigned count, unsigned order)
{
    unsigned n = (unsigned)l->batch << t->alloc_factor;
    unsigned high = least(most(t->high, l->high_min) + n, l->high_max);
    t->high = (uint16_t)high; /* a higher cap might have kept what is wanted now */
    unsigned room = above(high, count);
    unsigned limit = most(above(room, l->batch), least(l->batch, room)); /* a batch stays free for frees */
    if (n <= limit && t->alloc_factor < PCP_SCALE_MAX)
        t->alloc_factor++;
    unsigned runs = least(least(n, limit), PCP_REFILL_PAGES) >> order;
    if (runs < 2)
        runs = room >= 2u << order ? 2 : 1;
    return runs << order;
}

unsigned nr_pcp_high(const struct pcp_limits *l, struct pcp_tune *t, unsigned count, bool free_high)
{
    unsigned high = least(most(t->high, l->high_min), l->high_max);
    unsigned next = high;
    if (free_high)
        next = most(above(high, scaled(l)), l->high_min);
    else if (count >= high) /* it must at least hold a batch of what was freed in a row */
        next = least(most(high, t->free_count + (unsigned)l->batch), l->high_max);
    t->high = (uint16_t)next;
    return free_high ? 0 : high;
}

unsigned nr_pcp_free(const struct pcp_limits *l, const struct pcp_tune *t, unsigned count, unsigned high)
{
    if (high == 0)
        return most(least(count, scaled(l)), 1);
    unsigned lot =
        most(most(above(high, l->batch), high / 2), 1); /* leaves a batch, or half of a cap of less than two */
    unsigned n = least(most(t->free_count, l->batch), lot);
    if (n > PCP_HOLD_PAGES)
        n -= n % PCP_HOLD_PAGES;        /* no hold of the zone's lock for a remainder */
    return most(n, above(count, high)); /* INV-TUNE-3 */
}

/* Have so many pages been freed, before this free of a run, that a row of runs is to empty the shard? */
static bool row_is_long(const struct pcp_limits *l, const struct pcp_tune *t, enum pcp_mode mode, unsigned pages)
{
    if (mode == PCP_EXACT) /* a net count alone comes here by many small steps of mixed traffic, too */
        return t->free_count >= scaled(l) && t->run_pages - pages >= scaled(l);
    return t->free_count >= (mode == PCP_HALVE ? l->batch : l->batch + l->high_min / 2u);
}

struct pcp_verdict pcp_count_run(struct pcp_tune *t, size_t npages, bool spiking)
{
    struct pcp_verdict v = {0};
    uint32_t room = UINT32_MAX - PCP_RUN_STEP - t->run_pages;
    t->run_pages += npages < room ? (uint32_t)npages : room;
    uint32_t mark = t->run_next != 0 ? t->run_next : spiking ? PCP_RUN_AGAIN : PCP_RUN_PAGES;
    if (t->run_pages < mark)
        return v;
    v.mark = true;
    t->run_next = t->run_pages + PCP_RUN_STEP;
    v.spike = t->run_pages >= t->run_spike;
    if (v.spike)
        t->run_spike = t->run_pages < UINT32_MAX / 2 ? 2 * t->run_pages : UINT32_MAX;
    return v;
}

struct pcp_verdict pcp_count_free(const struct pcp_limits *l, struct pcp_tune *t, enum pcp_mode mode, unsigned count,
                                  unsigned order, bool spiking)
{
    unsigned pages = 1u << order;
    struct pcp_verdict v = pcp_count_run(t, pages, spiking);
    t->alloc_factor /= 2;
    v.free_high = order > 0 && t->run_before && count >= l->batch && row_is_long(l, t, mode, pages);
    t->run_before = order > 0;
    t->free_count = (uint16_t)least(t->free_count + pages, scaled(l));
    if (v.mark) {
        pcp_tune_reset(l, t); /* the purge that follows uses up what was counted */
        v.free_high = false;
        v.drain = count;
        return v;
    }
    unsigned high = nr_pcp_high(l, t, count, v.free_high);
    if (count >= high && count > 0)
        v.drain = nr_pcp_free(l, t, count, high);
    return v;
}

void pcp_tune_reset(const struct pcp_limits *l, struct pcp_tune *t)
{
    t->high = l->high_min;
    t->free_count = 0;
    t->alloc_factor = 0;
    t->run_before = false;
}

unsigned pcp_decay(const struct pcp_limits *l, struct pcp_tune *t, unsigned count)
{
    unsigned high = most(t->high, l->high_min);
    high = most(high - (high + 7) / 8, most(above(count, scaled(l)), l->high_min));
    t->high = (uint16_t)least(high, l->high_max);
    return above(count, t->high);
}

void pcp_tune_check(const struct pcp_limits *l, const struct pcp_tune *t)
{
    CHECK(l->high_min <= l->high_max);
    CHECK(t->high <= l->high_max);
    CHECK(t->free_count <= scaled(l));
    CHECK(t->alloc_factor <= PCP_SCALE_MAX);
}
