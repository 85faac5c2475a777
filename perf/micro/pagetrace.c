/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pagetrace TRACE [THREADS] [ROUNDS]: traffic in pages, for perf/pcp. Half of the bytes are blocks of 64 to 512 KiB, half
 * are objects of 2 to 32 KiB, which make an allocator take and leave slabs. One word of each 4 KiB is written.
 *
 *     bursty   a few MiB are allocated, then freed in reverse order; over and over
 *     mixed    a table of slots, each filled or emptied at random
 *     pure     64 MiB (all threads together) are allocated, then freed in order of birth; over and over
 *
 * Each thread does the same with a seed of its own. Prints operations and nanoseconds of cpu time an operation.
 */
#define _GNU_SOURCE
#include "gb.h"

#include <pthread.h>
#include <stdbool.h>

enum {
    SLOTS = 16384,
    MIXED_SLOTS = 1024,
    BURST_MIN = 2,
    BURST_MAX = 8,
    MIXED_LIVE = 12,
    PURE_TOTAL = 64
}; /* from BURST on: MiB */

struct worker {
    pthread_t thread;
    uint64_t seed;
    void **slot; /* SLOTS, of which `used` first ones hold blocks; mixed: any of them */
    size_t *size;
    size_t used, bytes, ops;
    long rounds;
};

static void (*trace)(struct worker *w);
static long threads;

static size_t next_size(struct worker *w)
{
    bool run = gb_below(&w->seed, 17) == 0; /* 16 objects have about the bytes of one run */
    return run ? gb_log_size(&w->seed, 16, 19) : gb_log_size(&w->seed, 11, 15);
}

static void fill(struct worker *w, size_t i)
{
    size_t size = next_size(w);
    char *p = malloc(size);
    if (p == NULL)
        gb_fail("malloc returned NULL");
    for (size_t at = 0; at < size; at += 4096)
        *(uint64_t *)(p + at) = w->seed + i;
    w->slot[i] = p;
    w->size[i] = size;
    w->bytes += size;
    w->ops++;
}

static void empty(struct worker *w, size_t i)
{
    free(w->slot[i]);
    w->slot[i] = NULL;
    w->bytes -= w->size[i];
    w->ops++;
}

static void fill_to(struct worker *w, size_t bytes)
{
    while (w->bytes < bytes && w->used < SLOTS)
        fill(w, w->used++);
}

static void bursty(struct worker *w)
{
    fill_to(w, GB_MIB(BURST_MIN) + gb_below(&w->seed, GB_MIB(BURST_MAX - BURST_MIN)));
    while (w->used > 0)
        empty(w, --w->used);
}

static void pure(struct worker *w)
{
    fill_to(w, GB_MIB(PURE_TOTAL / (size_t)threads));
    for (size_t i = 0; i < w->used; i++)
        empty(w, i);
    w->used = 0;
}

static void mixed(struct worker *w)
{
    for (int step = 0; step < 1000; step++) {
        size_t i = gb_below(&w->seed, MIXED_SLOTS);
        if (w->slot[i] != NULL)
            empty(w, i);
        else if (w->bytes < GB_MIB(MIXED_LIVE))
            fill(w, i);
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    for (long i = 0; i < w->rounds; i++)
        trace(w);
    for (size_t i = 0; i < SLOTS; i++)
        if (w->slot[i] != NULL)
            empty(w, i);
    return NULL;
}

static void *zeroed(size_t bytes)
{
    return memset(gb_table(bytes), 0, bytes);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*trace)(struct worker *w);
        long rounds;
    } traces[] = {{"bursty", bursty, 400}, {"mixed", mixed, 400}, {"pure", pure, 12}};
    long rounds = 0;
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++)
        if (argc > 1 && strcmp(argv[1], traces[i].name) == 0) {
            trace = traces[i].trace;
            rounds = traces[i].rounds;
        }
    if (trace == NULL)
        gb_fail("usage: pagetrace bursty|mixed|pure [THREADS] [ROUNDS]");
    threads = gb_arg(argc, argv, 2, 1, 1);
    rounds = gb_arg(argc, argv, 3, rounds, 1);
    struct worker *w = zeroed((size_t)threads * sizeof *w);
    for (long i = 0; i < threads; i++) {
        w[i].seed = (uint64_t)i + 1;
        w[i].rounds = rounds;
        w[i].slot = zeroed(SLOTS * sizeof *w->slot);
        w[i].size = zeroed(SLOTS * sizeof *w->size);
    }
    uint64_t start = cpu_ns();
    for (long i = 1; i < threads; i++)
        if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0)
            gb_fail("cannot start a thread");
    work(&w[0]);
    size_t ops = w[0].ops;
    for (long i = 1; i < threads; i++) {
        pthread_join(w[i].thread, NULL);
        ops += w[i].ops;
    }
    gb_say("ops", (long long)ops);
    gb_say("ns_per_op", (long long)((cpu_ns() - start) / ops));
    return 0;
}
