/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * compat/os/lock.h in simulated time. The algorithm is that of compat/os/lock.c, step by step: a compare-and-swap, a spin
 * that ends early when it sees sleepers, a sleep on the word, a release that wakes one sleeper and hands nothing over.
 * What each step costs is in cost.def.
 *
 * A lock's word has the number of its struct here, plus 1. Before virtual cpus have met any lock (start, calibration) they
 * work as the shipped ones do without contention; outside of virtual cpus later (figures, checks) they do nothing.
 */
#include "sim.h"

#include "compat/os/atomic.h"
#include "core/slab_impl.h"

#include <stdlib.h>

enum state { FREE, HELD, HELD_WAIT };

struct queue {
    struct vcpu *first, *last;
};

struct simlock {
    struct lock *lock;
    unsigned rank;
    enum state state;
    int owner;       /* of the word's line: who wrote it last */
    int last_holder; /* who has the lines that it guards */
    uint64_t line_free, held_from;
    struct queue spinners, sleepers;
    size_t put, free_objs, made, released; /* of a slab list, when the hold began */
    uint64_t holds, waits, sleeps, busy, wait;
};

static struct simlock *locks;
static size_t nlocks, room;

/* ---- queues ---- */

static void queue_add(struct queue *q, struct vcpu *v)
{
    v->next = NULL;
    if (q->first == NULL)
        q->first = v;
    else
        q->last->next = v;
    q->last = v;
}

static void queue_remove(struct queue *q, struct vcpu *v)
{
    struct vcpu **at = &q->first, *before = NULL;
    while (*at != v) {
        before = *at;
        at = &(*at)->next;
    }
    *at = v->next;
    if (q->last == v)
        q->last = before;
}

/* ---- what lines cost ---- */

static uint64_t transfer(int from, unsigned to)
{
    static const uint64_t *const by_tier[] = {NULL, &cost.transfer_llc, &cost.transfer_node, &cost.transfer_far};
    enum tier t = from == NOBODY ? TIER_SELF : machine_tier((unsigned)from, to);
    return t == TIER_SELF ? 0 : *by_tier[t];
}

/* A locked operation on the word: those of several cpus come one after the other. */
static void touch(struct simlock *s, struct vcpu *v, uint64_t price)
{
    v->now = v->now > s->line_free ? v->now : s->line_free;
    v->now += price + transfer(s->owner, v->id);
    s->owner = (int)v->id;
    s->line_free = v->now;
}

struct price {
    const uint64_t *base, *lines;
};
static const struct price price_of[RANKS] = {
    [RANK_THREADS] = {&cost.hold_threads, &cost.lines_threads},
    [RANK_BARN] = {&cost.hold_barn, &cost.lines_barn},
    [RANK_SLAB] = {&cost.hold_slab, &cost.lines_slab},
    [RANK_PCP] = {&cost.hold_pcp, &cost.lines_pcp},
    [RANK_ZONE] = {&cost.hold_zone, &cost.lines_zone},
    [RANK_REGION] = {&cost.hold_region, &cost.lines_region},
    [RANK_SPACE] = {&cost.hold_region, &cost.lines_region},
    [RANK_META] = {&cost.hold_meta, &cost.lines_meta},
};

/* ---- work done in a hold of a slab list: read off its own counters ---- */

static void slab_begin(struct simlock *s)
{
    const struct slabs *l = (const struct slabs *)(void *)s->lock;
    s->put = l->flushed_objs;
    s->free_objs = l->free_objs;
    s->made = l->made;
    s->released = l->released;
}

static class_t slab_class(const struct slabs *l)
{
    const struct slabs *row = slabs_node(l) == 0 ? slabs_here : slabs_more;
    return (class_t)((size_t)(l - row) % SIZE_CLASSES);
}

/* Objects put back in any order touch a descriptor each, unless there are fewer; those taken come slab by slab. */
static uint64_t slab_work(const struct simlock *s, int from, unsigned id)
{
    const struct slabs *l = (const struct slabs *)(const void *)s->lock;
    size_t objs = size_info[slab_class(l)].objs, put = l->flushed_objs - s->put;
    size_t made = l->made - s->made, gone = l->released - s->released;
    size_t taken = s->free_objs + put + (made - gone) * objs - l->free_objs;
    size_t lines = (put < l->nslabs ? put : l->nslabs) / cost.overlap + (taken + objs - 1) / objs;
    return put * cost.slab_put + taken * cost.slab_take + lines * transfer(from, id);
}

static uint64_t hold_cost(struct simlock *s, unsigned id)
{
    const struct price *p = &price_of[s->rank];
    if (p->base == NULL)
        return 0;
    uint64_t ps = *p->base + *p->lines * transfer(s->last_holder, id);
    return s->rank == RANK_SLAB ? ps + slab_work(s, s->last_holder, id) : ps;
}

/* ---- the lock ---- */

/* Result: its struct; NULL outside of virtual cpus. Moves when another lock is met for the first time. */
static struct simlock *find(struct lock *l, unsigned rank)
{
    if (l->word != 0)
        return &locks[l->word - 1];
    if (nlocks == room) {
        room = room == 0 ? 4096 : 2 * room;
        locks = realloc(locks, room * sizeof *locks);
        if (locks == NULL)
            abort();
    }
    locks[nlocks] = (struct simlock){.lock = l, .rank = rank, .owner = NOBODY, .last_holder = NOBODY};
    l->word = (uint32_t)++nlocks;
    return &locks[nlocks - 1];
}

static void taken(struct simlock *s, struct vcpu *v, bool waited)
{
    s->held_from = v->now;
    s->lock->acquired++;
    s->lock->contended += waited;
    bool counts = v->now >= sim.from && v->now < sim.to;
    s->holds += counts;
    s->waits += counts && waited;
    if (waited) {
        uint64_t ps = sim_in_window(v->waits_since, v->now);
        s->wait += ps;
        v->wait += ps;
    }
    if (s->rank == RANK_SLAB)
        slab_begin(s);
}

/* Sleepers are about: spinners see that, and give up spinning. */
static void break_spinners(struct simlock *s, uint64_t now)
{
    for (struct vcpu *v = s->spinners.first; v != NULL; v = v->next)
        sched_wake(v, now + transfer(s->owner, v->id), WAKE_BROKE);
    s->spinners = (struct queue){NULL, NULL};
}

/* Result: the lock is ours, since a release found us spinning. */
static bool spin(struct lock *l, struct vcpu *v)
{
    struct simlock *s = find(l, 0);
    if (s->state != HELD)
        return false;
    queue_add(&s->spinners, v);
    enum wake wake = sched_block(v->now + cost.spin);
    if (wake == WAKE_TIME)
        queue_remove(&find(l, 0)->spinners, v);
    return wake == WAKE_WON;
}

static void wait_asleep(struct lock *l, struct vcpu *v)
{
    for (;;) {
        struct simlock *s = find(l, 0);
        touch(s, v, cost.cas);
        if (s->state == FREE) {
            s->state = HELD_WAIT; /* others may sleep still */
            return;
        }
        if (s->state == HELD) {
            s->state = HELD_WAIT;
            break_spinners(s, v->now);
        }
        v->now += cost.sleep_call;
        sched_turn();
        s = find(l, 0);
        if (s->state != HELD_WAIT)
            continue;
        s->sleeps += v->now >= sim.from && v->now < sim.to;
        queue_add(&s->sleepers, v);
        sched_block(UINT64_MAX);
    }
}

static void acquire(struct lock *l, unsigned rank, struct vcpu *v)
{
    sched_turn();
    struct simlock *s = find(l, rank);
    touch(s, v, cost.cas);
    v->waits_since = v->now;
    v->waits = s->state != FREE;
    bool waited = v->waits;
    if (!waited)
        s->state = HELD;
    else if (!spin(l, v)) {
        sched_turn();
        wait_asleep(l, v);
    }
    v->waits = false;
    taken(find(l, rank), v, waited);
}

/* The word is free now: of those who spin, the one that came first takes it (a real one may be the nearest). */
static void hand_over(struct simlock *s, struct vcpu *v)
{
    struct vcpu *winner = s->spinners.first;
    if (winner == NULL)
        return;
    queue_remove(&s->spinners, winner);
    uint64_t seen = v->now + transfer((int)v->id, winner->id) + cost.cas;
    s->state = HELD;
    s->owner = (int)winner->id;
    s->line_free = seen;
    sched_wake(winner, seen, WAKE_WON);
}

static void release(struct lock *l, struct vcpu *v)
{
    struct simlock *s = find(l, 0);
    v->now += hold_cost(s, v->id);
    sched_turn();
    s = find(l, 0);
    if (s->spinners.first != NULL && s->owner == (int)v->id) /* they have read the line: it is shared */
        v->now += transfer((int)s->spinners.first->id, v->id);
    touch(s, v, cost.xchg);
    s->busy += sim_in_window(s->held_from, v->now);
    s->last_holder = (int)v->id;
    bool wake = s->state == HELD_WAIT;
    s->state = FREE;
    hand_over(s, v);
    struct vcpu *sleeper = s->sleepers.first;
    if (!wake || sleeper == NULL)
        return;
    queue_remove(&s->sleepers, sleeper);
    sched_wake(sleeper, v->now + cost.wake_latency, WAKE_TIME);
    v->now += cost.wake_call;
}

/* ---- compat/os/lock.h ---- */

/* Before there are virtual cpus: the steps of the shipped one, so that --calibrate measures them. */
static void plain_acquire(struct lock *l, unsigned rank)
{
    uint32_t w = FREE;
    if (nlocks != 0) /* nobody else runs now, but a word may have a number */
        return;
    if (!cas_acquire(&l->word, &w, HELD))
        abort();
    l->rank = rank;
    owner_add(&l->acquired, 1);
}

void lock_acquire(struct lock *l, unsigned rank)
{
    if (sim.running != NULL)
        acquire(l, rank, sim.running);
    else
        plain_acquire(l, rank);
}

bool lock_try(struct lock *l, unsigned rank)
{
    struct vcpu *v = sim.running;
    if (v == NULL) {
        plain_acquire(l, rank);
        return true;
    }
    sched_turn();
    struct simlock *s = find(l, rank);
    touch(s, v, cost.cas);
    if (s->state != FREE)
        return false;
    s->state = HELD;
    taken(s, v, false);
    return true;
}

void lock_release(struct lock *l)
{
    if (sim.running != NULL)
        release(l, sim.running);
    else if (nlocks == 0)
        exchange_release(&l->word, FREE);
}

void lock_doze(const uint32_t *word UNUSED, uint32_t value UNUSED, uint64_t ns)
{
    if (sim.running == NULL)
        return;
    sim_spend(ns * PS_PER_NS);
    sched_turn();
}

void lock_fork_begin(void)
{
}

void lock_fork_hold(struct lock *l UNUSED, unsigned rank UNUSED)
{
}

void lock_fork_open(struct lock *l UNUSED)
{
}

void lock_fork_end(void)
{
}

bool lock_rank_held(unsigned rank UNUSED)
{
    return true;
}

/* ---- figures ---- */

struct rank_figures lock_figures(unsigned rank)
{
    struct rank_figures f = {0};
    for (size_t i = 0; i < nlocks; i++) {
        const struct simlock *s = &locks[i];
        if (s->rank != rank)
            continue;
        f.holds += s->holds;
        f.waits += s->waits;
        f.sleeps += s->sleeps;
        f.wait += s->wait;
        f.busy += s->busy;
        f.busiest = s->busy > f.busiest ? s->busy : f.busiest;
    }
    return f;
}
