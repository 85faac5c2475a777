/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A simulator of machines that cannot be booted. docs/simulation.md says what is real in it and what is not.
 *
 *     sim.c      options; a run in a child process          table.c    the tables of docs/simulation.md
 *     run.c      one run: machine, threads, window, figures traffic.c  what the virtual threads do
 *     sched.c    virtual cpus as coroutines, in time order  lock.c     compat/os/lock.h: simulated time
 *     machine.c  cpus, caches, nodes; what numa.c is told   os.c       compat/os/cpu.h, clock.h
 *     vm.c       compat/os/vm.h: one range of addresses     cost.c     the table of costs (cost.def)
 *     calibrate.c  measures the table anew                  check.c    --self-check
 *
 * All of core/ and the rest of compat/os are the shipped sources. Time is in picoseconds, so that sums are exact.
 */
#ifndef PERF_SIM_H
#define PERF_SIM_H

#include "compat/os/lock.h"
#include "core/rank.h"
#include "core/tcache.h"

#include <setjmp.h>
#include <ucontext.h>

#define PS_PER_NS 1000u
#define PS_PER_MS 1000000000u

/* ---- costs: cost.def ---- */

struct cost {
#define COST(name, value, source) uint64_t name;
#include "cost.def"
#undef COST
};
extern struct cost cost;

bool cost_set(const char *name, uint64_t value);
void cost_print(void);

/* ---- the machine ---- */

enum tier { TIER_SELF, TIER_LLC, TIER_NODE, TIER_FAR };

struct machine {
    unsigned cpus, nodes, llc; /* llc: cpus that share a last level cache */
    bool tell_llc;             /* the library is told that each such group is a node */
    unsigned barn_cpus;        /* cpus that share a barn; 0: as shipped */
};
extern struct machine machine;

unsigned machine_home_of(unsigned cpu); /* the node the library is told of */
unsigned machine_homes(void);
enum tier machine_tier(unsigned a, unsigned b);
void machine_tell(void); /* numa_init_from */

/* ---- virtual cpus: one thread each, never moved ---- */

enum { NOBODY = -1 };
enum wake { WAKE_TIME, WAKE_WON, WAKE_BROKE };

struct vcpu {
    ucontext_t context; /* how it begins */
    jmp_buf jump;       /* how it goes on */
    void *stack;
    struct tcache *tls; /* tcache_tls while it does not run */
    uint64_t now;       /* its own clock, picoseconds */
    uint64_t turn;      /* what is in the queue for it is valid if it has this number */
    uint64_t random;
    struct vcpu *next;  /* in a lock's list of spinners or sleepers */
    enum wake wake;
    unsigned id;
    bool done, started;
    bool waits;           /* for a lock, and since when */
    uint64_t waits_since;
    uint64_t ops, wait; /* in the window: calls of malloc and free; time from a failed try until the lock was had */
};

struct sim {
    struct vcpu *cpu;       /* [machine.cpus] */
    struct vcpu *running;   /* NULL: the main program, for which locks are no-ops and no time passes */
    uint64_t from, to;      /* the window in which figures are taken */
    bool begun;             /* the window has */
    unsigned left;          /* virtual threads that have not ended */
    void (*at_end)(void);   /* called once when simulated time passes `to`, from outside of all threads */
};
extern struct sim sim;

/* What: run body on every virtual cpu until all have returned. */
void sched_run(void (*body)(struct vcpu *), uint64_t seed);

/* What: go on only when no other virtual cpu is behind. What is shared may be touched after it. */
void sched_turn(void);

/* What: sleep until somebody calls sched_wake, or until the time (UINT64_MAX: never). Result: which. */
enum wake sched_block(uint64_t until);
void sched_wake(struct vcpu *v, uint64_t when, enum wake why);

static inline void sim_spend(uint64_t ps)
{
    if (sim.running != NULL)
        sim.running->now += ps;
}

static inline uint64_t sim_in_window(uint64_t from, uint64_t to)
{
    from = from > sim.from ? from : sim.from;
    to = to < sim.to ? to : sim.to;
    return from < to ? to - from : 0;
}

/* What a virtual cpu has waited for locks in the window, those it waits for at its end included. */
static inline uint64_t sim_waited(const struct vcpu *v)
{
    return v->wait + (v->waits ? sim_in_window(v->waits_since, sim.to) : 0);
}

static inline uint64_t sim_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline unsigned sim_below(struct vcpu *v, unsigned n)
{
    return (unsigned)((sim_random(&v->random) >> 32) * n >> 32);
}

/* ---- locks ---- */

struct rank_figures {
    uint64_t holds, waits, sleeps; /* in the window */
    uint64_t busy, busiest;        /* time held: all locks of the rank; the one that was held longest */
    uint64_t wait;
};
struct rank_figures lock_figures(unsigned rank);

/* ---- traffic ---- */

enum traffic { TRAFFIC_CHURN, TRAFFIC_PAIRS, TRAFFIC_FAR, TRAFFIC_ALL, TRAFFIC_PAGES, TRAFFICS };
extern const char *const traffic_name[TRAFFICS];

struct load {
    enum traffic traffic;
    bool one_size;     /* 64 bytes only, else a mix of eight sizes */
    bool stamped;      /* write into each block who has it, and look before it is freed */
    uint64_t work;     /* of the program between two calls */
    unsigned batch;    /* most blocks of a batch */
};
extern struct load load;

void traffic_begin(void);
void traffic_body(struct vcpu *v);
extern int64_t traffic_live; /* blocks handed out and not yet freed, all threads */

/* ---- a run ---- */

struct figures {
    uint64_t ops, wait, window;          /* sums over the cpus */
    struct rank_figures rank[RANKS];
    uint64_t barn, sheaves, remote_and_slabs, pages; /* bytes parked at the window's end */
    uint64_t meta, live;
    uint64_t barn_gets, refills; /* since the start: full sheaves from barns, and filled from slabs */
};

struct plan {
    struct machine machine;
    struct load load;
    unsigned sheaf_cap, barn_max; /* options of the library; 0: as shipped */
    unsigned warm_ms, window_ms;
    uint64_t seed;
    bool check;                   /* free all, verify, count */
};

/* What: one run in a child process, since a heap with nodes stays one. Fails: false, it has said why. */
bool run_plan(const struct plan *p, struct figures *out);
void run_here(const struct plan *p, struct figures *out);

int table_print(const char *name);
int check_all(void);
void calibrate(void);

#endif
