/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the virtual threads do, by the library's own hit path and slow calls.
 *
 *     churn   each takes a batch of one size, and frees it: first to last or last to first
 *     pairs   neighbours: one takes, the other frees        far   likewise, half a machine apart
 *     all     each takes for anybody, and frees what it was sent
 *     pages   each takes a batch of runs of 64 to 512 KiB, and frees it
 */
#include "sim.h"

#include "core/alloc.h"
#include "core/fast.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

const char *const traffic_name[TRAFFICS] = {"churn", "pairs", "far", "all", "pages"};
struct load load;
int64_t traffic_live;

enum { SIZES = 8, PARCEL = 32, BOX = 1024, POLL_NS = 500 };

struct piece {
    void *p;
    uint64_t stamp;
};

/* Blocks on their way to a cpu. Touched only after sched_turn. */
struct box {
    struct piece block[BOX];
    unsigned in, out;
};
static struct box *boxes;
static unsigned senders;
static uint64_t stamps;

/* ---- malloc and free ---- */

static void *slow_get(size_t size)
{
    sim_spend(size > SIZE_SMALL_MAX ? cost.page_call : cost.slow_call);
    return alloc_slow(size);
}

static void slow_put(void *p)
{
    sim_spend(pmap_tag(p) == TAG_BLOCK ? cost.page_call : cost.slow_call);
    alloc_free_slow(p, "free");
}

/* The program's own work, half of it at random, and the call. */
static void call(struct vcpu *v)
{
    v->now += load.work / 2 + (sim_random(&v->random) >> 32) * load.work / UINT32_MAX + cost.hit;
    v->ops += v->now >= sim.from && v->now < sim.to;
}

static struct piece get(struct vcpu *v, size_t size)
{
    call(v);
    struct piece b = {alloc_fast(size, slow_get), 0};
    if (b.p == NULL) {
        fprintf(stderr, "sim: no memory\n");
        abort();
    }
    traffic_live++;
    if (load.stamped)
        *(uint64_t *)b.p = b.stamp = ++stamps;
    return b;
}

static void put(struct vcpu *v, struct piece b)
{
    call(v);
    if (load.stamped && *(uint64_t *)b.p != b.stamp) {
        fprintf(stderr, "sim: block %p has two owners\n", b.p);
        abort();
    }
    traffic_live--;
    free_fast(b.p, slow_put);
}

/* ---- sizes ---- */

/* Of 100 blocks; 9 of 10 of at most 128 bytes, as in most counts of programs. */
static size_t any_size(struct vcpu *v)
{
    static const struct {
        unsigned upto, size;
    } mix[SIZES] = {{10, 16}, {35, 32}, {55, 48}, {75, 64}, {83, 96}, {91, 128}, {97, 256}, {100, 512}};
    unsigned i = 0, of_100 = sim_below(v, 100);
    if (load.one_size)
        return 64;
    while (of_100 >= mix[i].upto)
        i++;
    return mix[i].size;
}

static size_t any_run(struct vcpu *v)
{
    return PAGE_BYTES << sim_below(v, RUN_ORDER_MAX + 1);
}

/* ---- batches ---- */

static bool time_left(const struct vcpu *v)
{
    return v->now < sim.to;
}

static void batches(struct vcpu *v, unsigned most, size_t (*size)(struct vcpu *))
{
    struct piece *b = calloc(most, sizeof *b);
    if (b == NULL)
        abort();
    while (time_left(v)) {
        unsigned n = 1 + sim_below(v, most);
        size_t bytes = size(v);
        for (unsigned i = 0; i < n; i++)
            b[i] = get(v, bytes);
        bool forward = sim_below(v, 2) != 0;
        for (unsigned i = 0; i < n; i++)
            put(v, b[forward ? i : n - 1 - i]);
    }
    free(b);
}

/* ---- sending ---- */

static unsigned box_room(const struct box *x)
{
    return BOX - (x->in - x->out);
}

static void free_what_came(struct vcpu *v)
{
    struct box *x = &boxes[v->id];
    sched_turn();
    for (unsigned n = x->in - x->out; n > 0; n--)
        put(v, x->block[x->out++ % BOX]);
}

/* A parcel to a cpu; if its box is full, what has come here is freed meanwhile, and when time is up the parcel too. */
static void send_parcel(struct vcpu *v, unsigned to)
{
    struct piece b[PARCEL];
    struct box *x = &boxes[to];
    for (unsigned i = 0; i < PARCEL; i++)
        b[i] = get(v, any_size(v));
    sched_turn();
    while (box_room(x) < PARCEL && time_left(v)) {
        sim_spend(POLL_NS * PS_PER_NS);
        free_what_came(v);
    }
    bool room = box_room(x) >= PARCEL;
    for (unsigned i = 0; i < PARCEL; i++)
        if (room)
            x->block[x->in++ % BOX] = b[i];
        else
            put(v, b[i]);
}

/* Result: where this cpu sends to; itself: it only receives. */
static unsigned receiver(struct vcpu *v)
{
    unsigned half = machine.cpus / 2;
    switch (load.traffic) {
    case TRAFFIC_PAIRS:
        return v->id | 1u;
    case TRAFFIC_FAR:
        return v->id < half ? v->id + half : v->id;
    default:
        return (v->id + 1 + sim_below(v, machine.cpus - 1)) % machine.cpus;
    }
}

static void receive_until_all_have_sent(struct vcpu *v)
{
    struct box *x = &boxes[v->id];
    do {
        sim_spend(POLL_NS * PS_PER_NS);
        free_what_came(v);
    } while (senders > 0 || x->in != x->out);
}

static void send_and_receive(struct vcpu *v)
{
    unsigned to = receiver(v);
    while (time_left(v) && to != v->id) {
        send_parcel(v, to);
        if (boxes[v->id].in != boxes[v->id].out)
            free_what_came(v);
        to = receiver(v);
    }
    senders -= to != v->id;
    receive_until_all_have_sent(v);
}

/* ---- all of it ---- */

void traffic_begin(void)
{
    bool half = load.traffic == TRAFFIC_PAIRS || load.traffic == TRAFFIC_FAR;
    senders = half ? machine.cpus / 2 : machine.cpus;
    boxes = calloc(machine.cpus, sizeof *boxes);
    if (boxes == NULL)
        abort();
}

void traffic_body(struct vcpu *v)
{
    if (load.traffic == TRAFFIC_CHURN)
        batches(v, load.batch, any_size);
    else if (load.traffic == TRAFFIC_PAGES)
        batches(v, load.batch, any_run);
    else
        send_and_receive(v);
}
