/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One tree, one size: nanoseconds of the calling thread's cpu time for each operation. perf/maple runs it for both trees in
 * turn. The line is cut into cells of 64 KiB; each holds a range of random size at its start, the rest is a gap.
 *
 *   maple_bench [-t maple|redblack] [-n RANGES] [-o OPERATIONS] [-r READERS] [-g] [-w] [-z]
 *   -g keep gaps   -w set aside the worst case   -z zero nodes
 * Prints "operation ns" lines, then counters, then a check that is the same for both trees.
 */
#include "maple_bench.h"

#include "compat/os/atomic.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { CELL = 64 << 10, READERS_MAX = 64, UNIT = 1 << 10 };

static const struct tree_ops *tree = &maple_ops;
static size_t ranges = 1000, operations = 200000;
static unsigned readers;
static bool gaps;
static uint32_t *order;    /* a permutation of the cells */
static uint8_t *length;    /* of each cell's range, in units */
static uint64_t check;
static bool stop;

void *bench_memory(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED) {
        perror("maple_bench: mmap");
        exit(2);
    }
    return p;
}

static uint64_t next_random(uint64_t *seed)
{
    uint64_t x = *seed += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

static size_t below(uint64_t *seed, size_t n)
{
    return (size_t)((unsigned __int128)next_random(seed) * n >> 64);
}

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uintptr_t first_of(size_t cell)
{
    return (uintptr_t)(cell + 1) * CELL;
}

static uintptr_t last_of(size_t cell)
{
    return first_of(cell) + (uintptr_t)length[cell] * UNIT - 1;
}

static void *entry_of(size_t cell)
{
    return &length[cell];
}

static void store(size_t cell)
{
    tree->store(first_of(cell), last_of(cell), entry_of(cell));
}

/* ---- readers beside the writer ---- */

struct reader {
    pthread_t thread;
    uint64_t seed, loads, check;
    double ns;
};

static void *read_on(void *arg)
{
    struct reader *r = arg;
    double begin = cpu_ns();
    while (!load_relaxed(&stop)) {
        for (int i = 0; i < 64; i++)
            r->check += tree->load(first_of(below(&r->seed, ranges))) != NULL;
        r->loads += 64;
    }
    r->ns = cpu_ns() - begin;
    return NULL;
}

/* ---- the operations ---- */

static void build(void)
{
    for (size_t i = 0; i < ranges; i++)
        store(order[i]);
}

static void load(void)
{
    uint64_t seed = 1;
    for (size_t i = 0; i < operations; i++) {
        uintptr_t at = first_of(below(&seed, ranges)) + below(&seed, CELL);
        check += (uintptr_t)tree->load(at) != 0;
    }
}

static void change(void)
{
    uint64_t seed = 2;
    for (size_t i = 0; i < operations; i++) {
        size_t cell = below(&seed, ranges);
        tree->change(first_of(cell), last_of(cell), entry_of(cell));
    }
}

/* Take one out, put it back: two operations. */
static void replace(void)
{
    uint64_t seed = 3;
    for (size_t i = 0; i < operations / 2; i++) {
        size_t cell = below(&seed, ranges);
        tree->erase(first_of(cell));
        store(cell);
    }
}

static void gap(void)
{
    uint64_t seed = 4;
    for (size_t i = 0; i < operations; i++) {
        uintptr_t at = 0;
        if (tree->gap(first_of(below(&seed, ranges)), (1 + below(&seed, 62)) * UNIT, &at))
            check += at / UNIT;
    }
}

/* Place a block in the lowest gap that fits, take it out again. */
static void place(void)
{
    uint64_t seed = 5;
    for (size_t i = 0; i < operations / 2; i++) {
        uintptr_t at = 0;
        if (tree->place(first_of(below(&seed, ranges)), (1 + below(&seed, 62)) * UNIT, &check, &at)) {
            check += at / UNIT;
            tree->erase(at);
        }
    }
}

static void timed(const char *name, size_t n, void (*body)(void))
{
    struct reader r[READERS_MAX];
    struct tree_counts before = maple_counts();
    uint64_t holds = tree->lock_holds();
    double reads = 0, read_ns = 0;
    store_relaxed(&stop, false);
    for (unsigned i = 0; i < readers; i++) {
        r[i] = (struct reader){.seed = i + 10};
        if (pthread_create(&r[i].thread, NULL, read_on, &r[i]) != 0)
            exit(2);
    }
    double begin = cpu_ns();
    body();
    double ns = cpu_ns() - begin;
    store_relaxed(&stop, true);
    for (unsigned i = 0; i < readers; i++) {
        pthread_join(r[i].thread, NULL);
        reads += (double)r[i].loads;
        read_ns += r[i].ns;
    }
    struct tree_counts after = maple_counts();
    printf("%s %.1f %.4f %.4f %.4f %.2f\n", name, ns / (double)n, (double)(after.taken - before.taken) / (double)n,
           (double)(after.returned - before.returned) / (double)n,
           (double)(tree->lock_holds() - holds) / ((double)n + reads), reads > 0 ? read_ns / reads : 0.0);
}

static void prepare(bool worst, bool zero)
{
    uint64_t seed = 42;
    order = bench_memory(ranges * sizeof *order);
    length = bench_memory(ranges);
    for (size_t i = 0; i < ranges; i++) {
        size_t j = below(&seed, i + 1);
        order[i] = order[j];
        order[j] = (uint32_t)i;
        length[i] = (uint8_t)(1 + below(&seed, CELL / UNIT - 1));
    }
    tree->init(gaps, ranges);
    tree->store((uintptr_t)(ranges + 1) * CELL, UINTPTR_MAX, &check); /* the end of the line, so that gaps have a bound */
    maple_switches(worst, zero);
}

int main(int argc, char **argv)
{
    bool worst = false, zero = false;
    int c;
    while ((c = getopt(argc, argv, "t:n:o:r:gwz")) != -1) {
        switch (c) {
        case 't':
            tree = strcmp(optarg, "redblack") == 0 ? &redblack_ops : &maple_ops;
            break;
        case 'n':
            ranges = strtoul(optarg, NULL, 10);
            break;
        case 'o':
            operations = strtoul(optarg, NULL, 10);
            break;
        case 'r':
            readers = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'g':
            gaps = true;
            break;
        case 'w':
            worst = true;
            break;
        case 'z':
            zero = true;
            break;
        default:
            return 2;
        }
    }
    if (ranges == 0 || ranges > UINT32_MAX || operations < 2 || readers > READERS_MAX)
        return 2;
    prepare(worst, zero);
    timed("insert", ranges, build);
    timed("load", operations, load);
    timed("change", operations, change);
    timed("replace", operations, replace);
    if (gaps) {
        timed("gap", operations, gap);
        timed("place", operations, place);
    }
    printf("check %llu\n", (unsigned long long)check);
    return 0;
}
