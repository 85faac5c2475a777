/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is a thread's memory on the node that it runs on? numa_local [--threads N] [--mib N] [--judge PERCENT]
 *
 * N threads (8), dealt out to the nodes, allocate and touch 32 MiB of mixed sizes each. Then all free, move one node on
 * and allocate again, three times; then all move one node on first, free there, and allocate again. The share of pages on
 * the node of the thread that allocated them, for each of the three ways, of all and of the worst thread in a round;
 * judged, each share of all must be at least PERCENT.
 *
 * Three times, because how much of the old node's memory a thread still has at hand after a move is chance.
 */
#include "numa_util.h"

enum { ROUNDS = 5, THREADS_MAX = 256 };
enum way { START, FREED_BEFORE, FREED_AFTER, WAYS };
static const char *const way_names[WAYS] = {"at start", "moved, freed before", "moved, freed after"};
static const enum way way_of[ROUNDS] = {START, FREED_BEFORE, FREED_BEFORE, FREED_BEFORE, FREED_AFTER};

struct result {
    long pages, own;
};

static struct result results[THREADS_MAX][ROUNDS];
static pthread_barrier_t together;
static size_t bytes;

static void measure(const struct load *l, const struct node *node, struct result *r)
{
    struct placement *at = map_table(sizeof *at);
    place_load(at, l);
    r->pages = at->pages;
    r->own = at->on[node->memory];
    munmap(at, sizeof *at);
}

static void work(struct worker *w)
{
    struct load load = {NULL, 0, 0};
    int me = (int)(intptr_t)w->arg, home = me % node_count;
    for (int round = 0; round < ROUNDS; round++) {
        const struct node *node = &nodes[(home + round) % node_count];
        uint64_t seed = 1 + (uint64_t)(me * ROUNDS + round);
        if (way_of[round] == FREED_BEFORE)
            load_drop(&load, seed);
        pthread_barrier_wait(&together);
        pin_node(node, me / node_count);
        if (way_of[round] == FREED_AFTER)
            load_drop(&load, seed);
        pthread_barrier_wait(&together);
        load_fill(&load, bytes, seed);
        measure(&load, node, &results[me][round]);
        pthread_barrier_wait(&together);
    }
    load_drop(&load, 1);
}

/* Result: the share of all threads' pages. */
static double say(enum way way, int threads)
{
    long pages = 0, own = 0;
    double worst = 100;
    for (int i = 0; i < threads * ROUNDS; i++) {
        struct result r = results[i / ROUNDS][i % ROUNDS];
        if (way_of[i % ROUNDS] != way)
            continue;
        pages += r.pages;
        own += r.own;
        worst = percent(r.own, r.pages) < worst ? percent(r.own, r.pages) : worst;
    }
    CHECK(pages > 0);
    printf("%s: %.2f %%, worst thread %.2f\n", way_names[way], percent(own, pages), worst);
    return percent(own, pages);
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS_MAX];
    double bar = judge_percent(argc, argv);
    int n = (int)option_count(argc, argv, "--threads", 8), bad = 0;
    CHECK(n > 0 && n <= THREADS_MAX);
    bytes = MiB(option_count(argc, argv, "--mib", 32));
    numa_scan();
    CHECK(pthread_barrier_init(&together, NULL, (unsigned)n) == 0);
    for (int i = 0; i < n; i++) {
        workers[i] = (struct worker){0, &nodes[i % node_count], i / node_count, work, (void *)(intptr_t)i};
        worker_start(&workers[i]);
    }
    for (int i = 0; i < n; i++)
        worker_join(&workers[i]);
    for (enum way way = START; way < WAYS; way++)
        bad += say(way, n) < bar;
    fflush(stdout);
    if (bad)
        FAIL("%d of %d ways below %.1f %%", bad, WAYS, bar);
    return 0;
}
