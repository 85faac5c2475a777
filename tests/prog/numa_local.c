/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is a thread's memory on the node that it runs on? numa_local [--threads N] [--mib N] [--judge PERCENT]
 *
 * N threads (8), dealt out to the nodes, allocate and touch 32 MiB of mixed sizes each. Then all free, move one node on
 * and allocate again; then all move one node on first, free there, and allocate again. The share of pages on the node of
 * the thread that allocated them, for each of the three, of all and of the worst thread; judged, each share of all must
 * be at least PERCENT.
 */
#include "numa_util.h"

enum { ROUNDS = 3, THREADS_MAX = 256 };
static const char *const round_names[ROUNDS] = {"at start", "moved, freed before", "moved, freed after"};

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
        if (round == 1)
            load_drop(&load, seed);
        pthread_barrier_wait(&together);
        pin_node(node, me / node_count);
        if (round == 2)
            load_drop(&load, seed);
        pthread_barrier_wait(&together);
        load_fill(&load, bytes, seed);
        measure(&load, node, &results[me][round]);
        pthread_barrier_wait(&together);
    }
    load_drop(&load, 1);
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
    for (int round = 0; round < ROUNDS; round++) {
        long pages = 0, own = 0;
        double worst = 100;
        for (int i = 0; i < n; i++) {
            struct result r = results[i][round];
            pages += r.pages;
            own += r.own;
            worst = percent(r.own, r.pages) < worst ? percent(r.own, r.pages) : worst;
        }
        CHECK(pages > 0);
        printf("%s: %.2f %%, worst thread %.2f\n", round_names[round], percent(own, pages), worst);
        bad += percent(own, pages) < bar;
    }
    fflush(stdout);
    if (bad)
        FAIL("%d of %d rounds below %.1f %%", bad, ROUNDS, bar);
    return 0;
}
