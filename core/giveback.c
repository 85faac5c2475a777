/* SPDX-License-Identifier: BSD-2-Clause */
#include "giveback.h"

static size_t min_pages(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t max_pages(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t credit_limit(const struct give_view *v)
{
    return (GIVE_CREDIT_MAX >> PAGE_SHIFT) + v->out / GIVE_CREDIT_SHARE;
}

/* Milliseconds since then. Threads read the clock before they take the lock, so now may be the earlier one: then none. */
static uint64_t since(const struct give_view *v, uint64_t then)
{
    return v->now > then ? v->now - then : 0;
}

/* Halve the credit once for each whole decay_ms; what is left of the time counts for the next one. */
static void age_credit(struct giveback *g, const struct give_view *v)
{
    uint64_t steps = since(v, g->credit_ms) / v->decay;
    g->credit = steps < 32 ? g->credit >> steps : 0;
    g->credit_ms += steps * v->decay;
}

static bool lately(const struct giveback *g, const struct give_view *v)
{
    return since(v, g->purged_ms) < v->decay;
}

static void later(uint64_t *time, const struct give_view *v)
{
    *time = v->now > *time ? v->now : *time;
}

/* Pages that mixed traffic may leave dirty before anybody looks at the clock. */
static size_t cap_of(const struct give_view *v)
{
    return max_pages(v->floor * GIVE_CAP_FLOORS, v->out / GIVE_CAP_SHARE);
}

/* The least level of the past epoch is what nobody wanted in it; of that, what has stayed idle since is to go. */
static size_t keep_aged(struct giveback *g, const struct give_view *v, size_t base)
{
    size_t low = min_pages(g->low, v->dirty), idle = low > base ? low - base : 0;
    if (g->epoch_ms == 0 || since(v, g->epoch_ms) >= v->decay) {
        g->owed = g->epoch_ms == 0 ? 0 : idle;
        g->epoch_ms = v->now;
        g->low = v->dirty;
    } else {
        g->owed = min_pages(g->owed, idle);
    }
    return v->dirty - g->owed;
}

size_t giveback_keep(struct giveback *g, enum give_cause cause, const struct give_view *v)
{
    age_credit(g, v);
    if (!lately(g, v))
        g->spiking = false;
    size_t credit = min_pages(g->credit, credit_limit(v)), base = v->floor + credit; /* INV-GIVE-1 */
    if (cause == GIVE_RUN)
        return giveback_floor(v) + credit; /* INV-GIVE-2 */
    if (cause == GIVE_AGE)
        return keep_aged(g, v, base);
    size_t cap = cap_of(v) + base;
    return v->dirty > cap ? max_pages(cap / 2, base) : v->dirty;
}

void giveback_purged(struct giveback *g, enum give_cause cause, size_t npages, const struct give_view *v)
{
    if (!lately(g, v))
        g->gone = 0;
    g->gone += npages;
    later(&g->purged_ms, v);
    g->credit_most = 2 * max_pages(g->credit, v->floor);
    if (cause == GIVE_RUN)
        g->spiking = true;
    g->owed -= min_pages(g->owed, npages);
    giveback_dirty(g, v->dirty);
}

void giveback_wanted(struct giveback *g, size_t npages, const struct give_view *v)
{
    if (g->gone == 0)
        return;
    if (!lately(g, v)) {
        g->gone = 0;
        g->spiking = false;
        return;
    }
    size_t missed = min_pages(npages, g->gone);
    g->gone -= missed;
    g->spiking = false;
    age_credit(g, v);
    size_t most = min_pages(max_pages(g->credit_most, g->credit), credit_limit(v));
    g->credit = max_pages(g->credit, min_pages(g->credit + missed, most));
    later(&g->credit_ms, v);
}
