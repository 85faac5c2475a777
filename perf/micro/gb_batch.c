/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gb_batch [BATCHES]: BATCHES (100,000) times 3,500 blocks of 32 to 256 B, then all freed. An allocator that gives back
 * what the next batch wants pays with page faults; prints how many there were.
 */
#define _GNU_SOURCE
#include "gb.h"

#include <sys/resource.h>

enum { BLOCKS = 3500, LEAST = 32, MOST = 256 };

static uint64_t *block[BLOCKS];

static long faults(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
}

static void one_batch(uint64_t *seed)
{
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = LEAST + gb_below(seed, MOST - LEAST + 1);
        block[i] = malloc(size);
        if (block[i] == NULL)
            gb_fail("malloc gave NULL");
        ((char *)block[i])[size - 1] = 1; /* both ends: every page of it, and cheap enough for this many */
        *block[i] = (uint64_t)i;
    }
    for (int i = 0; i < BLOCKS; i++)
        gb_block_free(block[i], (uint64_t)i);
}

int main(int argc, char **argv)
{
    long batches = gb_arg(argc, argv, 1, 100000, 1);
    uint64_t seed = 3, start = gb_now_ns();
    memset(block, 1, sizeof block);
    long before = faults();
    for (long i = 0; i < batches; i++)
        one_batch(&seed);
    long n = faults() - before;
    gb_say("batches", batches);
    gb_say("faults", n);
    gb_say("ns_per_pair", (long long)((gb_now_ns() - start) / ((uint64_t)batches * BLOCKS)));
    return 0;
}
