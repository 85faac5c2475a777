/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tables of docs/simulation.md. A cell is calls a cpu and time, in percent of what the same traffic does on one cpu of
 * its own (two, where it takes two): how much of a cpu is left when there are many.
 */
#include "sim.h"


#include <stdio.h>
#include <string.h>


static const struct plan usual = {
    .machine = {.cpus = 64, .nodes = 1, .llc = 8},
    .load = {.traffic = TRAFFIC_CHURN, .work = 50 * PS_PER_NS, .batch = 4000},
    .warm_ms = 20,
    .window_ms = 4,
    .seed = 1,
};

static bool failed;

static struct figures figures_of(const struct plan *p)
{
    struct figures f = {0};
    if (!run_plan(p, &f)) {
        fprintf(stderr, "sim: a run failed\n");
        failed = true;
    }
    return f;
}

static double calls(const struct figures *f, unsigned cpus)
{
    return f->window == 0 ? 0 : (double)f->ops / cpus / ((double)f->window / 1e6);
}

/* The same traffic with nobody else about. Far pairs then are neighbours. */
static double alone(const struct plan *p)
{
    struct plan one = *p;
    bool two = p->load.traffic != TRAFFIC_CHURN && p->load.traffic != TRAFFIC_PAGES;
    one.machine = (struct machine){.cpus = two ? 2 : 1, .nodes = 1, .llc = 8};
    struct figures f = figures_of(&one);
    return calls(&f, one.machine.cpus);
}

static double percent_of(const struct plan *p, const struct figures *f, double of)
{
    return 100 * calls(f, p->machine.cpus) / of;
}

static double busiest(const struct figures *f, unsigned rank)
{
    return f->window == 0 ? 0 : 100 * (double)f->rank[rank].busiest / (double)f->window;
}

static double waiting(const struct plan *p, const struct figures *f)
{
    return f->window == 0 ? 0 : 100 * (double)f->wait / p->machine.cpus / (double)f->window;
}

static double kib_a_cpu(const struct plan *p, uint64_t bytes)
{
    return (double)bytes / 1024 / p->machine.cpus;
}

/* ---- caps: capacity and depth of barns, one barn a node ---- */

static const unsigned counts[] = {8, 16, 32, 64, 128, 256};
enum { COUNTS = sizeof counts / sizeof *counts };

static void caps_row(struct plan p, const char *what)
{
    static const struct {
        unsigned cap, barn;
    } column[] = {{32, 10}, {32, 0}, {120, 10}, {120, 0}, {0, 10}, {0, 0}};
    double of = alone(&p);
    for (unsigned i = 0; i < COUNTS; i++) {
        p.machine.cpus = counts[i];
        printf("%-16s %5u", what, counts[i]);
        for (unsigned k = 0; k < sizeof column / sizeof *column; k++) {
            p.sheaf_cap = column[k].cap;
            p.barn_max = column[k].barn;
            p.machine.barn_cpus = counts[i];
            struct figures f = figures_of(&p);
            printf(" %6.0f %4.0f", percent_of(&p, &f, of), busiest(&f, RANK_BARN));
        }
        printf("\n");
    }
}

static void caps(void)
{
    struct plan p = usual;
    printf("                       cap 32      cap 32      cap 120     cap 120     earned      earned\n");
    printf("traffic           cpus 10 sheaves  growing     10 sheaves  growing     10 sheaves  growing\n");
    p.load.one_size = true;
    caps_row(p, "churn, one size");
    p.load.traffic = TRAFFIC_PAIRS;
    caps_row(p, "pairs, one size");
    p.load.one_size = false;
    caps_row(p, "pairs, mixed");
}

/* ---- parts: cpus that share a barn ---- */

static void parts_row(struct plan p, const char *what)
{
    static const unsigned each[] = {1024, 64, 32, 16, 8};
    double of = alone(&p);
    for (unsigned cpus = 64; cpus <= 256; cpus *= 2) {
        p.machine.cpus = cpus;
        printf("%-16s %5u", what, cpus);
        for (unsigned k = 0; k < sizeof each / sizeof *each; k++) {
            p.machine.barn_cpus = each[k];
            struct figures f = figures_of(&p);
            printf(" %5.0f %3.0f %3.0f", percent_of(&p, &f, of), busiest(&f, RANK_BARN), busiest(&f, RANK_SLAB));
        }
        printf("\n");
    }
}

static void parts(void)
{
    struct plan p = usual;
    printf("cpus a barn             one a node    64            32            16            8\n");
    p.load.one_size = true;
    parts_row(p, "churn, one size");
    p.load.traffic = TRAFFIC_PAIRS;
    parts_row(p, "pairs, one size");
    p.load.traffic = TRAFFIC_FAR;
    parts_row(p, "far, one size");
    p.load.one_size = false;
    parts_row(p, "far, mixed");
    p.load.traffic = TRAFFIC_CHURN;
    parts_row(p, "churn, mixed");
}

/* ---- scale: as shipped; a node, and an LLC told as a node ---- */

static void scale_line(const struct plan *p, const char *what, double of)
{
    struct figures f = figures_of(p);
    printf("%-16s %5u %5u %5s %6.0f %7.1f %6.0f %5.0f %5.0f %5.0f %7.0f %7.0f %7.0f\n", what, p->machine.cpus,
           p->machine.nodes, p->machine.tell_llc ? "LLC" : "node", percent_of(p, &f, of), waiting(p, &f),
           busiest(&f, RANK_BARN), busiest(&f, RANK_SLAB), busiest(&f, RANK_ZONE), busiest(&f, RANK_META),
           kib_a_cpu(p, f.barn), kib_a_cpu(p, f.sheaves), kib_a_cpu(p, f.remote_and_slabs));
}

static void scale_head(void)
{
    printf("                                 calls waiting  busiest lock, %%             parked, KiB a cpu\n");
    printf("traffic           cpus nodes  barn      %%       %%   barn  slab  zone  meta   barns sheaves   slabs\n");
}

static void scale_rows(struct plan p, const char *what)
{
    static const struct {
        unsigned cpus, nodes;
    } row[] = {{8, 1}, {32, 1}, {64, 1}, {128, 1}, {128, 2}, {256, 2}, {256, 8}, {512, 4}, {1024, 8}, {1024, 16}};
    double of = alone(&p);
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        p.machine.cpus = row[i].cpus;
        p.machine.nodes = row[i].nodes;
        scale_line(&p, what, of);
    }
}

static void scale(void)
{
    struct plan p = usual;
    scale_head();
    for (enum traffic t = TRAFFIC_CHURN; t <= TRAFFIC_ALL; t++) {
        char what[40];
        p.load.traffic = t;
        snprintf(what, sizeof what, "%s, mixed", traffic_name[t]);
        scale_rows(p, what);
    }
}

static void llc(void)
{
    static const struct {
        unsigned cpus, nodes;
    } row[] = {{64, 1}, {128, 2}, {256, 2}};
    static const struct {
        enum traffic traffic;
        bool one_size;
        const char *what;
    } kind[] = {{TRAFFIC_CHURN, true, "churn, one size"},
                {TRAFFIC_CHURN, false, "churn, mixed"},
                {TRAFFIC_PAIRS, true, "pairs, one size"},
                {TRAFFIC_FAR, false, "far, mixed"},
                {TRAFFIC_ALL, false, "all, mixed"}};
    scale_head();
    for (unsigned k = 0; k < sizeof kind / sizeof *kind; k++)
        for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
            struct plan p = usual;
            p.load.traffic = kind[k].traffic;
            p.load.one_size = kind[k].one_size;
            double of = alone(&p);
            p.machine.cpus = row[i].cpus;
            p.machine.nodes = row[i].nodes;
            scale_line(&p, kind[k].what, of);
            p.machine.tell_llc = true;
            scale_line(&p, kind[k].what, of);
        }
}

/* ---- work: how much of its time the program spends outside of malloc ---- */

static void work(void)
{
    static const unsigned ns[] = {25, 50, 100, 200, 400};
    printf("ns of work a call          25          50         100         200         400\n");
    printf("traffic           cpus      %% wait      %% wait      %% wait      %% wait      %% wait\n");
    for (enum traffic t = TRAFFIC_CHURN; t <= TRAFFIC_FAR; t++)
        for (unsigned cpus = 32; cpus <= 256; cpus *= 2) {
            printf("%-7s %8s %5u", traffic_name[t], "one size", cpus);
            for (unsigned k = 0; k < sizeof ns / sizeof *ns; k++) {
                struct plan p = usual;
                p.load.traffic = t;
                p.load.one_size = true;
                p.load.work = ns[k] * PS_PER_NS;
                double of = alone(&p);
                p.machine.cpus = cpus;
                struct figures f = figures_of(&p);
                printf(" %6.0f %4.0f", percent_of(&p, &f, of), waiting(&p, &f));
            }
            printf("\n");
        }
}

/* ---- pages: runs of 64 to 512 KiB ---- */

static void pages(void)
{
    static const struct {
        unsigned cpus, nodes;
    } row[] = {{8, 1}, {16, 1}, {32, 1}, {64, 1}, {128, 1}, {128, 8}, {256, 2}, {1024, 16}};
    struct plan p = usual;
    p.load.traffic = TRAFFIC_PAGES;
    printf("work a call          us  cpus nodes  calls %%  waiting %%  pcp %%  zone %%  parked KiB a cpu\n");
    for (unsigned batch = 8; batch <= 64; batch *= 8)
        for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
            p.load.work = 10000 * PS_PER_NS;
            p.load.batch = batch;
            p.machine = (struct machine){.cpus = 1, .nodes = 1, .llc = 8};
            double of = alone(&p);
            p.machine.cpus = row[i].cpus;
            p.machine.nodes = row[i].nodes;
            struct figures f = figures_of(&p);
            printf("batches up to %-4u %5.0f %5u %5u  %7.0f  %9.1f  %5.0f  %6.0f  %16.0f\n", batch,
                   (double)p.load.work / 1e6, p.machine.cpus, p.machine.nodes, percent_of(&p, &f, of), waiting(&p, &f),
                   busiest(&f, RANK_PCP), busiest(&f, RANK_ZONE), kib_a_cpu(&p, f.pages));
        }
}

int table_print(const char *name)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } table[] = {{"caps", caps}, {"parts", parts}, {"scale", scale}, {"llc", llc}, {"work", work}, {"pages", pages}};
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0) {
            table[i].print();
            return failed;
        }
    fprintf(stderr, "sim: tables are caps, parts, scale, llc, work, pages\n");
    return 2;
}
