/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gb_frag [MIB] [PERCENT]: MIB (1024) of blocks of 16 B to 4 KiB, PERCENT (95) of them freed at random, then the
 * allocator's own "give all back". Prints resident KiB without the program's own, and the bytes of the live blocks.
 */
#define _GNU_SOURCE
#include "gb.h"

enum { LEAST = 16, MOST = 4096 };

static size_t size_of(uint64_t number)
{
    uint64_t state = number ^ 0x5eed;
    return LEAST + gb_below(&state, MOST - LEAST + 1);
}

static size_t fill(void **block, size_t room, size_t bytes)
{
    size_t n = 0;
    for (size_t sum = 0; sum < bytes && n < room; n++) {
        block[n] = gb_block(size_of(n), n);
        sum += size_of(n);
    }
    return n;
}

/* What is left keeps its contents: they are read at the very end, which also holds the compiler to the frees. */
static size_t live_bytes(void **block, size_t from, size_t to)
{
    size_t sum = 0;
    for (size_t i = from; i < to; i++)
        sum += size_of(*(uint64_t *)block[i]);
    return sum;
}

int main(int argc, char **argv)
{
    size_t bytes = GB_MIB(gb_arg(argc, argv, 1, 1024, 1)), percent = (size_t)gb_arg(argc, argv, 2, 95, 0);
    struct gb_purge purge = gb_purge_find();
    size_t room = bytes / (MOST / 2) + 4096;
    void **block = gb_table(room * sizeof *block);
    long before = gb_rss_kib();
    size_t n = fill(block, room, bytes), gone = n * percent / 100;
    gb_shuffle(block, n, 11);
    long peak = gb_rss_kib();
    for (size_t i = 0; i < gone; i++)
        gb_block_free_below(block[i], n);
    long freed = gb_rss_kib();
    gb_purge(&purge);
    long after = gb_rss_kib(), lazy = gb_smaps_kib("\nLazyFree:");
    size_t live = live_bytes(block, gone, n);
    gb_say("before_kib", before);
    gb_say("peak_kib", peak - before);
    gb_say("freed_kib", freed - before);
    gb_say("after_kib", after - before);
    gb_say("lazy_kib", lazy);
    gb_say("live_bytes", (long long)live);
    gb_say("permille", (long long)(GB_KIB(after - before) * 1000 / live));
    return 0;
}
