/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --self-check: what must be true of the simulator. Queues whose answer is known, one cpu, the same run twice, every block
 * accounted for in all traffics and odd machines, and what the defaults were chosen for.
 */
#include "sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned done, bad;

static void expect(bool ok, const char *what)
{
    done++;
    if (ok)
        return;
    bad++;
    fprintf(stderr, "FAIL sim: %s\n", what);
}

/* ---- a queue at one lock ---- */

static struct {
    struct lock lock;
    uint64_t hold, think;
    bool random; /* both exponential, else as they are */
} queue;

static uint64_t span(struct vcpu *v, uint64_t mean)
{
    double u = ((double)(sim_random(&v->random) >> 11) + 1) / 9007199254740993.0; /* in (0, 1) */
    return queue.random ? (uint64_t)(-log(u) * (double)mean) : mean;
}

static void customer(struct vcpu *v)
{
    while (v->now < sim.to) {
        sim_spend(span(v, queue.think));
        lock_acquire(&queue.lock, RANK_FORK);
        sim_spend(span(v, queue.hold));
        lock_release(&queue.lock);
    }
}

static double busy, served, waited;

static void note_queue(void)
{
    struct rank_figures f = lock_figures(RANK_FORK);
    busy = (double)f.busy / (double)(sim.to - sim.from);
    served = (double)f.holds * (double)queue.hold / (double)(sim.to - sim.from);
    waited = 0;
    for (unsigned i = 0; i < machine.cpus; i++)
        waited += (double)sim_waited(&sim.cpu[i]) / (double)(sim.to - sim.from) / machine.cpus;
}

/* Steps of the lock cost nothing, nobody sleeps: only the queue is left. */
static void run_queue(unsigned customers, uint64_t hold_ns, uint64_t think_ns, bool at_random)
{
    static const char *const nothing[] = {"cas", "xchg", "transfer_llc", "transfer_node", "transfer_far"};
    for (unsigned i = 0; i < sizeof nothing / sizeof *nothing; i++)
        cost_set(nothing[i], 0);
    cost_set("spin", (uint64_t)3600 * 1000 * PS_PER_MS);
    machine = (struct machine){.cpus = customers, .nodes = 1, .llc = 4};
    queue.hold = hold_ns * PS_PER_NS;
    queue.think = think_ns * PS_PER_NS;
    queue.random = at_random;
    sim.from = 2 * (uint64_t)PS_PER_MS;
    sim.to = 102 * (uint64_t)PS_PER_MS;
    sim.at_end = note_queue;
    sched_run(customer, 5);
}

static bool near(double a, double b, double share)
{
    return fabs(a - b) <= share * fabs(b);
}

/* More customers than it can serve: always busy, one each hold, all others wait. */
static bool full_queue(void)
{
    run_queue(16, 1000, 0, false);
    return near(busy, 1, 0.001) && near(served, 1, 0.001) && near(waited, 15.0 / 16, 0.001);
}

/* Fewer, each at its time: all are served, and nobody waits once they have found their places. */
static bool empty_queue(void)
{
    run_queue(4, 1000, 9000, false);
    return near(served, 0.4, 0.001) && waited == 0;
}

/* Exponential times, a closed system: the share of time it is busy is known (M/M/1//N). */
static bool random_queue(void)
{
    unsigned n = 8;
    double term = 1, sum = 1, ratio = 1.0 / 6;
    for (unsigned k = 1; k <= n; k++)
        sum += term *= (n - k + 1) * ratio;
    run_queue(n, 1000, 6000, true);
    return near(busy, 1 - 1 / sum, 0.01) && near(waited, 1 - (1 - 1 / sum) * 7 / n, 0.03);
}

static bool in_child(bool (*body)(void))
{
    int status = 1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(body() ? 0 : 1);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static void check_queues(void)
{
    expect(in_child(full_queue), "a lock with too many customers is busy all the time and serves one each hold");
    expect(in_child(empty_queue), "a lock with few regular customers makes none wait");
    expect(in_child(random_queue), "a lock with random customers is as busy as M/M/1//N says");
}

/* ---- the allocator ---- */

static struct plan plan_of(unsigned cpus, unsigned nodes, enum traffic t)
{
    return (struct plan){.machine = {.cpus = cpus, .nodes = nodes, .llc = 8},
                         .load = {.traffic = t, .work = 50 * PS_PER_NS, .batch = 1500},
                         .warm_ms = 1,
                         .window_ms = 1,
                         .seed = 9};
}

static void check_one_cpu(void)
{
    for (enum traffic t = TRAFFIC_CHURN; t <= TRAFFIC_PAGES; t += TRAFFIC_PAGES - TRAFFIC_CHURN) {
        struct plan p = plan_of(1, 1, t);
        struct figures f = {0};
        uint64_t waits = 0, holds = 0;
        p.load.batch = t == TRAFFIC_PAGES ? 60 : 4000;
        expect(run_plan(&p, &f), "one cpu runs");
        for (unsigned r = 0; r < RANKS; r++) {
            waits += f.rank[r].waits;
            holds += f.rank[r].holds;
        }
        expect(holds > 0 && waits == 0 && f.wait == 0, "one cpu never waits");
    }
}

static void check_same_again(void)
{
    struct plan p = plan_of(24, 2, TRAFFIC_ALL);
    struct figures a = {0}, b = {0}, c = {0};
    expect(run_plan(&p, &a) && run_plan(&p, &b), "a run repeats");
    expect(memcmp(&a, &b, sizeof a) == 0, "the same run has the same figures");
    p.seed++;
    expect(run_plan(&p, &c) && memcmp(&a, &c, sizeof a) != 0, "another seed has others");
}

static void check_blocks(void)
{
    static const struct machine odd[] = {{2, 1, 8, false, 0}, {24, 3, 5, false, 0}, {40, 2, 8, true, 0}, {80, 1, 8, false, 0}};
    for (enum traffic t = TRAFFIC_CHURN; t < TRAFFICS; t++)
        for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++) {
            struct plan p = plan_of(0, 0, t);
            struct figures f;
            char what[80];
            p.machine = odd[i];
            p.load.batch = t == TRAFFIC_PAGES ? 20 : p.load.batch;
            p.load.stamped = p.check = true;
            snprintf(what, sizeof what, "every block is accounted for: %s on %u cpus", traffic_name[t], odd[i].cpus);
            expect(run_plan(&p, &f), what);
        }
}

/* ---- what the defaults were chosen for ---- */

static void check_parts(void)
{
    struct plan p = plan_of(128, 1, TRAFFIC_PAIRS);
    struct figures one = {0}, parts = {0}, far = {0};
    p.load.one_size = true;
    p.warm_ms = 6;
    expect(run_plan(&p, &parts), "pairs run with parts");
    p.load.traffic = TRAFFIC_FAR;
    expect(run_plan(&p, &far), "far pairs run with parts");
    p.load.traffic = TRAFFIC_PAIRS;
    p.machine.barn_cpus = 128;
    expect(run_plan(&p, &one), "pairs run with one barn");
    expect(parts.wait * 8 < one.wait, "a barn for every 32 cpus waits far less than one for 128");
    expect(parts.ops > one.ops * 3 / 2, "and does more");
    expect(far.barn_gets > far.refills, "who takes finds what was freed at another part");
}

int check_all(void)
{
    check_queues();
    check_one_cpu();
    check_same_again();
    check_blocks();
    check_parts();
    printf("sim: %u checks, %u failed\n", done, bad);
    return bad != 0;
}
