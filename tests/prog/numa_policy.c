/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is the user's policy obeyed? numa_policy [--set MODE:NODE,NODE...] [--mib N] [--judge PERCENT]
 *
 * One thread a node (on its cpus, as far as they are allowed) allocates 16 MiB of mixed sizes, frees them and allocates
 * again. Says how the pages are spread, and judges by the policy that the process was given, by numactl or by --set
 * (bind, interleave, preferred; set before the threads are made): bind, preferred: at least PERCENT of the pages on its
 * nodes. interleave: each of its nodes has at least PERCENT of an even share, and no other node has any. None: at least
 * PERCENT on the node of the thread.
 */
#include "numa_util.h"

static const char *const round_names[] = {"at start", "again"};
static struct placement spread[2];
static long own[2], pages[2];
static size_t bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void count(int round, const struct load *l, const struct node *node)
{
    struct placement *at = map_table(sizeof *at);
    place_load(at, l);
    pthread_mutex_lock(&lock);
    pages[round] += at->pages;
    own[round] += at->on[node->memory];
    for (int i = 0; i < NUMA_MAX; i++)
        spread[round].on[i] += at->on[i];
    pthread_mutex_unlock(&lock);
    munmap(at, sizeof *at);
}

static void work(struct worker *w)
{
    struct load load = {NULL, 0, 0};
    for (int round = 0; round < 2; round++) {
        uint64_t seed = 1 + (uint64_t)(w->node->id * 2 + round);
        load_fill(&load, bytes, seed);
        count(round, &load, w->node);
        load_drop(&load, seed);
    }
}

static void set_policy(const char *text)
{
    static const char *const names[] = {"default", "preferred", "bind", "interleave", "local"};
    struct node_mask mask = {{0}};
    int mode = 0;
    size_t length = strcspn(text, ":");
    while (mode < 5 && (strlen(names[mode]) != length || strncmp(names[mode], text, length) != 0))
        mode++;
    if (mode == 5)
        FAIL("no policy called %s", text);
    for (text += length; *text; text += strspn(text, "0123456789")) {
        long node = strtol(++text, NULL, 10);
        CHECK(node >= 0 && node < NUMA_MAX);
        mask.bits[(unsigned long)node / (8 * sizeof(long))] |= 1ul << ((unsigned long)node % (8 * sizeof(long)));
    }
    CHECK(syscall(SYS_set_mempolicy, mode, mode == POLICY_LOCAL ? NULL : &mask, (unsigned long)NUMA_MAX) == 0);
}

/* The figure that is judged. */
static double obeyed(int round, int mode, const struct node_mask *mask)
{
    long inside = 0, least = pages[round], set = 0;
    for (int i = 0; i < NUMA_MAX; i++)
        if (mask_has(mask, i)) {
            set++;
            inside += spread[round].on[i];
            least = spread[round].on[i] < least ? spread[round].on[i] : least;
        }
    if (mode == POLICY_INTERLEAVE)
        return inside < pages[round] ? 0 : percent(least * set, pages[round]);
    return mode == POLICY_DEFAULT || mode == POLICY_LOCAL ? percent(own[round], pages[round])
                                                          : percent(inside, pages[round]);
}

int main(int argc, char **argv)
{
    static struct worker workers[sizeof nodes / sizeof *nodes];
    static struct node_mask mask;
    double bar = judge_percent(argc, argv);
    const char *set = option_text(argc, argv, "--set");
    int mode = 0, bad = 0;
    bytes = MiB(option_count(argc, argv, "--mib", 16));
    numa_scan();
    if (set)
        set_policy(set);
    CHECK(syscall(SYS_get_mempolicy, &mode, &mask, (unsigned long)NUMA_MAX, NULL, 0) == 0);
    mode &= 0xff; /* flags lie above */
    for (int i = 0; i < node_count; i++) {
        workers[i] = (struct worker){0, &nodes[i], 0, work, NULL};
        worker_start(&workers[i]);
    }
    for (int i = 0; i < node_count; i++)
        worker_join(&workers[i]);
    for (int round = 0; round < 2; round++) {
        printf("%s, MiB by node:", round_names[round]);
        for (int i = 0; i < NUMA_MAX; i++)
            if (spread[round].on[i] > 0)
                printf(" %d: %ld", i, spread[round].on[i] * sysconf(_SC_PAGESIZE) >> 20);
        printf("\n%s, obeyed: %.2f %%\n", round_names[round], obeyed(round, mode, &mask));
        CHECK(pages[round] > 0);
        bad += obeyed(round, mode, &mask) < bar;
    }
    fflush(stdout);
    if (bad)
        FAIL("policy %d: %d of 2 rounds below %.1f %%", mode, bad, bar);
    return 0;
}
