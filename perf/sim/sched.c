/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Virtual cpus as coroutines. Each has a clock of its own and runs ahead until it touches what is shared; there it lets
 * all run that are behind. So what is shared changes in the order of simulated time, and the same way in every run.
 */
#undef _FORTIFY_SOURCE /* it takes a jump to another stack for an error */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { STACK_BYTES = 256 << 10 };

struct sim sim;

/* ---- the queue: a heap by time, then by cpu ---- */

struct entry {
    uint64_t when, turn;
    unsigned id;
};
static struct entry *heap;
static size_t heap_count, heap_room;

static bool before(const struct entry *a, const struct entry *b)
{
    return a->when != b->when ? a->when < b->when : a->id < b->id;
}

static void heap_push(struct entry e)
{
    if (heap_count == heap_room) {
        heap_room = heap_room == 0 ? 1024 : 2 * heap_room;
        heap = realloc(heap, heap_room * sizeof *heap);
        if (heap == NULL)
            abort();
    }
    size_t i = heap_count++;
    for (; i > 0 && before(&e, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = e;
}

static void heap_drop(void)
{
    struct entry e = heap[--heap_count];
    size_t i = 0, child;
    for (; (child = 2 * i + 1) < heap_count; i = child) {
        child += child + 1 < heap_count && before(&heap[child + 1], &heap[child]);
        if (!before(&heap[child], &e))
            break;
        heap[i] = heap[child];
    }
    heap[i] = e;
}

/* The first entry that still means something. */
static struct entry *heap_first(void)
{
    while (heap_count > 0 && heap[0].turn != sim.cpu[heap[0].id].turn)
        heap_drop();
    return heap_count > 0 ? &heap[0] : NULL;
}

/* ---- switching ---- */

static jmp_buf main_jump;
static struct tcache *main_tls;
static void (*body_of_all)(struct vcpu *);
static bool end_told;

/* Time has come to here: nothing earlier will happen. */
static void time_is(uint64_t now)
{
    sim.begun |= now >= sim.from;
    if (now < sim.to || end_told)
        return;
    end_told = true;
    struct vcpu *running = sim.running;
    sim.running = NULL;
    if (sim.at_end != NULL)
        sim.at_end();
    sim.running = running;
}

/* Not by swapcontext, which asks the kernel for the signal mask each time. */
static void enter(struct vcpu *to, jmp_buf from)
{
    sim.running = to;
    tcache_tls = to->tls;
    if (_setjmp(from) != 0)
        return;
    if (to->started)
        _longjmp(to->jump, 1);
    to->started = true;
    setcontext(&to->context);
}

/* Leave the running one for the first of the queue. */
static void leave(struct vcpu *v)
{
    struct entry *e = heap_first();
    if (e == NULL) {
        fprintf(stderr, "sim: every virtual cpu waits\n");
        abort();
    }
    struct vcpu *to = &sim.cpu[e->id];
    to->now = e->when > to->now ? e->when : to->now;
    to->turn++;
    heap_drop();
    time_is(to->now);
    if (to == v)
        return;
    v->tls = tcache_tls;
    enter(to, v->jump);
}

void sched_turn(void)
{
    struct vcpu *v = sim.running;
    struct entry self = {v->now, v->turn, v->id}, *first = heap_first();
    if (first == NULL || before(&self, first)) {
        time_is(v->now);
        return;
    }
    heap_push(self);
    leave(v);
}

enum wake sched_block(uint64_t until)
{
    struct vcpu *v = sim.running;
    v->wake = WAKE_TIME;
    if (until != UINT64_MAX)
        heap_push((struct entry){until, v->turn, v->id});
    leave(v);
    return v->wake;
}

void sched_wake(struct vcpu *v, uint64_t when, enum wake why)
{
    v->turn++; /* a time it waited for is void */
    v->wake = why;
    heap_push((struct entry){when, v->turn, v->id});
}

static void start(unsigned id)
{
    struct vcpu *v = &sim.cpu[id];
    body_of_all(v);
    v->done = true;
    if (--sim.left > 0) {
        leave(v);
        abort(); /* nobody comes back */
    }
    time_is(v->now);
    sim.running = NULL;
    tcache_tls = main_tls;
    _longjmp(main_jump, 1);
}

static void make(struct vcpu *v, unsigned id, uint64_t seed)
{
    v->id = id;
    v->tls = main_tls;
    v->random = seed * 0x9e3779b97f4a7c15u + id;
    v->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (v->stack == MAP_FAILED || getcontext(&v->context) != 0)
        abort();
    v->context.uc_stack.ss_sp = v->stack;
    v->context.uc_stack.ss_size = STACK_BYTES;
    v->context.uc_link = NULL;
    makecontext(&v->context, (void (*)(void))start, 1, id);
    v->now = sim_random(&v->random) % (100 * PS_PER_NS); /* not all at once */
    heap_push((struct entry){v->now, v->turn, id});
}

void sched_run(void (*body)(struct vcpu *), uint64_t seed)
{
    main_tls = tcache_tls;
    body_of_all = body;
    end_told = sim.begun = false;
    heap_count = 0;
    sim.left = machine.cpus;
    sim.cpu = calloc(machine.cpus, sizeof *sim.cpu);
    if (sim.cpu == NULL)
        abort();
    for (unsigned i = 0; i < machine.cpus; i++)
        make(&sim.cpu[i], i, seed);
    struct entry first = heap[0];
    heap_drop();
    sim.cpu[first.id].turn++;
    enter(&sim.cpu[first.id], main_jump);
}
