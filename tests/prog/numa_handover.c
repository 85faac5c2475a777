/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Does freed memory stay with its node? numa_handover [--mib N] [--judge PERCENT]
 *
 * A on one node allocates 100 MiB of mixed sizes and lives on; B on another node frees them; C on B's node allocates as
 * much, and lives on; D on A's node allocates as much. Judged: PERCENT of C's pages are on C's node, as many of D's on
 * D's, and A's node holds at most 10 % more for D than it did for A: what B freed is used again, or given back.
 */
#include "numa_util.h"

static size_t bytes;
static struct load from_a, from_c, from_d;
static pthread_barrier_t told;

/* Allocates, says so, and lives on until told. */
static void fill_and_wait(struct worker *w)
{
    load_fill(w->arg, bytes, 1 + (uint64_t)w->which);
    pthread_barrier_wait(&told);
    pthread_barrier_wait(&told);
}

static void fill(struct worker *w)
{
    load_fill(w->arg, bytes, 7);
}

static void drop(struct worker *w)
{
    load_drop(w->arg, 3);
}

static double share_on(const struct load *l, const struct node *node, const char *who)
{
    struct placement *at = map_table(sizeof *at);
    place_load(at, l);
    double share = percent(at->on[node->memory], at->pages);
    CHECK(at->pages > 0);
    printf("%s on its node: %.2f %%\n", who, share);
    munmap(at, sizeof *at);
    return share;
}

int main(int argc, char **argv)
{
    double bar = judge_percent(argc, argv);
    bytes = MiB(option_count(argc, argv, "--mib", 100));
    numa_scan();
    need_nodes(2);
    const struct node *first = &nodes[0], *second = &nodes[1];
    CHECK(pthread_barrier_init(&told, NULL, 2) == 0);

    struct worker a = {0, first, 0, fill_and_wait, &from_a};
    worker_start(&a);
    pthread_barrier_wait(&told);
    double with_a = node_mib(first->memory);

    struct worker b = {0, second, 0, drop, &from_a};
    worker_start(&b);
    worker_join(&b);
    double freed = node_mib(first->memory);

    struct worker c = {0, second, 1, fill, &from_c};
    worker_start(&c);
    worker_join(&c);
    double c_share = share_on(&from_c, second, "C");
    double with_c = node_mib(first->memory);

    struct worker d = {0, first, 1, fill, &from_d};
    worker_start(&d);
    worker_join(&d);
    double d_share = share_on(&from_d, first, "D");
    double with_d = node_mib(first->memory);
    pthread_barrier_wait(&told);
    worker_join(&a);

    printf("A's node, MiB: %.0f by A, %.0f freed, %.0f with C, %.0f with D\n", with_a, freed, with_c, with_d);
    printf("A's node grew: %.1f %%\n", 100 * (with_d - with_a) / with_a);
    fflush(stdout);
    if (bar >= 0 && (c_share < bar || d_share < bar))
        FAIL("C %.2f %%, D %.2f %%: below %.1f %%", c_share, d_share, bar);
    if (bar >= 0 && with_d > with_a * 1.1)
        FAIL("A's node holds %.1f MiB for D's blocks, and held %.1f for A's", with_d, with_a);
    return 0;
}
