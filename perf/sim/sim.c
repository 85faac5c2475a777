/* SPDX-License-Identifier: BSD-2-Clause */
/* Options of the simulator; what it is: sim.h. */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct plan plan = {
    .machine = {.cpus = 64, .nodes = 1, .llc = 8},
    .load = {.traffic = TRAFFIC_CHURN, .work = 50 * PS_PER_NS, .batch = 1000},
    .warm_ms = 4,
    .window_ms = 8,
    .seed = 1,
};

static _Noreturn void usage(void)
{
    fputs("usage: sim [OPTION...]\n"
          "  --cpus N --nodes N --llc N     the machine; llc: cpus that share a last level cache (default 64, 1, 8)\n"
          "  --tell-llc                     each such group is a node for the library: a barn each\n"
          "  --traffic churn|pairs|far|all|pages [--one-size] [--batch N] [--work NS]\n"
          "  --cap N --barn N               capacity of every sheaf, full sheaves of every barn (default: as shipped)\n"
          "  --barn-cpus N                  cpus that share a barn (default: as shipped)\n"
          "  --warm MS --window MS --seed N\n"
          "  --cost NAME=PICOSECONDS        change a row of the table of costs\n"
          "  --verify                       write into blocks, free all at the end, check all layers\n"
          "  --table NAME                   a table of docs/simulation.md\n"
          "  --costs | --calibrate          print the table of costs; measure it anew and print it\n"
          "  --self-check                   the short form in make check\n",
          stderr);
    exit(2);
}

static unsigned number(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (*text == '\0' || *end != '\0' || n > 1u << 20)
        usage();
    return (unsigned)n;
}

static enum traffic traffic_named(const char *name)
{
    for (int i = 0; i < TRAFFICS; i++)
        if (strcmp(name, traffic_name[i]) == 0)
            return (enum traffic)i;
    usage();
}

static void change_cost(const char *text)
{
    char name[40];
    uint64_t value;
    if (sscanf(text, "%39[a-z_]=%" SCNu64, name, &value) != 2 || !cost_set(name, value))
        usage();
}

static void print_figures(const struct figures *f)
{
    static const char *const name[RANKS] = {"fork", "threads", "barn", "slab", "pcp", "zone", "region", "space", "meta"};
    double cpus = plan.machine.cpus, us = (double)f->window / 1e6;
    printf("calls a cpu and us %.3f, waiting %.2f %% of the time\n", (double)f->ops / cpus / us,
           100 * (double)f->wait / cpus / (double)f->window);
    printf("%-8s %10s %10s %8s %8s %8s %8s\n", "lock", "holds", "waits", "sleeps", "busiest", "mean ns", "waiting");
    for (unsigned r = 0; r < RANKS; r++)
        if (f->rank[r].holds > 0)
            printf("%-8s %10" PRIu64 " %10" PRIu64 " %8" PRIu64 " %7.1f%% %8.0f %7.2f%%\n", name[r], f->rank[r].holds,
                   f->rank[r].waits, f->rank[r].sleeps, 100 * (double)f->rank[r].busiest / (double)f->window,
                   (double)f->rank[r].busy / 1e3 / (double)f->rank[r].holds,
                   100 * (double)f->rank[r].wait / cpus / (double)f->window);
    printf("KiB parked: barns %" PRIu64 ", sheaves %" PRIu64 ", slabs %" PRIu64 ", pages %" PRIu64 ", metadata %" PRIu64
           "; blocks in use %" PRIu64 "\n",
           f->barn >> 10, f->sheaves >> 10, f->remote_and_slabs >> 10, f->pages >> 10, f->meta >> 10, f->live);
}

static int run_one(void)
{
    struct figures f;
    plan.load.stamped = plan.check;
    if (!run_plan(&plan, &f))
        return 1;
    print_figures(&f);
    return 0;
}

/* Result: an option with a value. */
static bool take_option(const char *name, const char *value)
{
    if (strcmp(name, "--cpus") == 0)
        plan.machine.cpus = number(value);
    else if (strcmp(name, "--nodes") == 0)
        plan.machine.nodes = number(value);
    else if (strcmp(name, "--llc") == 0)
        plan.machine.llc = number(value);
    else if (strcmp(name, "--traffic") == 0)
        plan.load.traffic = traffic_named(value);
    else if (strcmp(name, "--batch") == 0)
        plan.load.batch = number(value);
    else if (strcmp(name, "--work") == 0)
        plan.load.work = (uint64_t)number(value) * PS_PER_NS;
    else if (strcmp(name, "--cap") == 0)
        plan.sheaf_cap = number(value);
    else if (strcmp(name, "--barn") == 0)
        plan.barn_max = number(value);
    else if (strcmp(name, "--barn-cpus") == 0)
        plan.machine.barn_cpus = number(value);
    else if (strcmp(name, "--warm") == 0)
        plan.warm_ms = number(value);
    else if (strcmp(name, "--window") == 0)
        plan.window_ms = number(value);
    else if (strcmp(name, "--seed") == 0)
        plan.seed = number(value);
    else if (strcmp(name, "--cost") == 0)
        change_cost(value);
    else
        return false;
    return true;
}

static bool take_switch(const char *name)
{
    if (strcmp(name, "--tell-llc") == 0)
        plan.machine.tell_llc = true;
    else if (strcmp(name, "--one-size") == 0)
        plan.load.one_size = true;
    else if (strcmp(name, "--verify") == 0)
        plan.check = true;
    else
        return false;
    return true;
}

static void look_at(const struct plan *p)
{
    if (p->machine.cpus == 0 || p->machine.nodes == 0 || p->machine.llc == 0 || p->machine.nodes > p->machine.cpus ||
        p->load.batch == 0 || p->window_ms == 0)
        usage();
    if (p->load.traffic == TRAFFIC_PAIRS || p->load.traffic == TRAFFIC_FAR || p->load.traffic == TRAFFIC_ALL)
        if (p->machine.cpus % 2 != 0) /* they send to each other */
            usage();
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--self-check") == 0)
            return check_all();
        if (strcmp(argv[i], "--calibrate") == 0) {
            calibrate();
            return 0;
        }
        if (strcmp(argv[i], "--costs") == 0) {
            cost_print();
            return 0;
        }
        if (take_switch(argv[i]))
            continue;
        if (i + 1 == argc)
            usage();
        if (strcmp(argv[i], "--table") == 0)
            return table_print(argv[i + 1]);
        if (!take_option(argv[i], argv[i + 1]))
            usage();
        i++;
    }
    look_at(&plan);
    return run_one();
}
