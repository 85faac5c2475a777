/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gb_spike CASE [BLOCKS] [SPIKES]: what stays resident when a spike is over and the process only sleeps.
 *
 *     order         1,000,000 x 120 B, freed in order of birth
 *     random        the same, freed in random order
 *     mib           1,000 x 1 MiB, all freed but the last
 *     cross         100,000 mixed blocks to 512 KiB, freed by another thread, which then sleeps too
 *     cross-random  the same in random order
 *
 * Prints resident KiB before, at the last peak, and 2 s after the last free, with no call of malloc's family between.
 */
#define _GNU_SOURCE
#include "gb.h"

#include <pthread.h>
#include <semaphore.h>

struct spike {
    const char *name;
    long blocks;
    size_t size; /* 0: mixed */
    int random, cross;
    long keep; /* blocks that stay */
};

static const struct spike spikes[] = {
    {"order", 1000000, 120, 0, 0, 0},    {"random", 1000000, 120, 1, 0, 0},
    {"mib", 1000, GB_MIB(1), 0, 0, 1},   {"cross", 100000, 0, 0, 1, 0},
    {"cross-random", 100000, 0, 1, 1, 0},
};

static const struct spike *spike;
static void **block;
static size_t blocks;
static sem_t begin, done;

static void free_all(void)
{
    for (size_t i = 0; i < blocks - (size_t)spike->keep; i++)
        gb_block_free_below(block[i], blocks);
}

static void *freer(void *arg)
{
    for (;;) {
        while (sem_wait(&begin) != 0)
            ;
        free_all();
        sem_post(&done);
    }
    return arg;
}

static void start_freer(void)
{
    pthread_t thread;
    sem_init(&begin, 0, 0);
    sem_init(&done, 0, 0);
    if (pthread_create(&thread, NULL, freer, NULL) != 0)
        gb_fail("cannot start a thread");
    pthread_detach(thread);
}

/* The table must not be written between the last free and the end: it holds the kept blocks at its end. */
static long one_spike(int again)
{
    for (size_t i = blocks - (size_t)spike->keep; again && i < blocks; i++)
        gb_block_free(block[i], i);
    for (size_t i = 0; i < blocks; i++)
        block[i] = gb_block(spike->size ? spike->size : gb_mixed_size(i), i);
    if (spike->random)
        gb_shuffle(block, blocks, 7);
    long peak = gb_rss_kib();
    if (!spike->cross) {
        free_all();
        return peak;
    }
    sem_post(&begin);
    while (sem_wait(&done) != 0)
        ;
    return peak;
}

static const struct spike *find(const char *name)
{
    for (size_t i = 0; i < sizeof spikes / sizeof *spikes; i++)
        if (strcmp(spikes[i].name, name) == 0)
            return &spikes[i];
    gb_fail("usage: gb_spike order|random|mib|cross|cross-random [BLOCKS] [SPIKES]");
}

int main(int argc, char **argv)
{
    spike = find(argc > 1 ? argv[1] : "");
    blocks = (size_t)gb_arg(argc, argv, 2, spike->blocks, 2);
    long n = gb_arg(argc, argv, 3, 1, 1), peak = 0;
    block = gb_table(blocks * sizeof *block);
    if (spike->cross)
        start_freer();
    long before = gb_rss_kib();
    for (long i = 0; i < n; i++)
        peak = one_spike(i > 0);
    gb_sleep_ms(2000);
    long after = gb_rss_kib(), lazy = gb_smaps_kib("\nLazyFree:");
    gb_say("before_kib", before);
    gb_say("peak_kib", peak);
    gb_say("after_kib", after);
    gb_say("left_kib", after - before);
    gb_say("lazy_kib", lazy);
    return 0;
}
