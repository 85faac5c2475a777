/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gb_loop [ROUNDS] [SPIKE] [MIB]: ROUNDS (1,000) times malloc(6 MiB), write every page, free; before that a spike of MIB
 * (1024): none, "mib" of 1 MiB blocks, "small" of 120 B blocks, "one" of a single block.
 *
 * The loop stands between two getppid calls, so that a trace shows what was asked of the kernel inside it.
 */
#define _GNU_SOURCE
#include "gb.h"

#include <sys/resource.h>

enum { LOOP_BYTES = 6 << 20 };

/* Blocks in a list through their own first words, so that no table is needed; freed last in, first out. */
static void spike_of(size_t bytes, size_t size)
{
    void **last = NULL;
    for (size_t n = bytes / size; n > 0; n--) {
        void **p = malloc(size);
        if (p == NULL)
            gb_fail("malloc gave NULL");
        memset(p, 1, size);
        *p = last;
        last = p;
    }
    while (last) {
        void **next = *last;
        free(last);
        last = next;
    }
}

static void spike(const char *kind, size_t bytes)
{
    if (strcmp(kind, "mib") == 0)
        spike_of(bytes, GB_MIB(1));
    else if (strcmp(kind, "small") == 0)
        spike_of(bytes, 120);
    else if (strcmp(kind, "one") == 0)
        spike_of(bytes, bytes);
    else if (strcmp(kind, "none") != 0)
        gb_fail("usage: gb_loop [ROUNDS] [none|mib|small|one] [MIB]");
}

static void one_round(long number, size_t page)
{
    char *p = malloc(LOOP_BYTES);
    if (p == NULL)
        gb_fail("malloc gave NULL");
    for (size_t i = 0; i < LOOP_BYTES; i += page)
        *(volatile long *)(p + i) = number;
    if (*(long *)p != number || *(long *)(p + LOOP_BYTES - page) != number)
        gb_fail("a block lost its contents");
    free(p);
}

static long faults(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
}

int main(int argc, char **argv)
{
    long rounds = gb_arg(argc, argv, 1, 1000, 1);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    spike(argc > 2 ? argv[2] : "none", GB_MIB(gb_arg(argc, argv, 3, 1024, 1)));
    long before = faults();
    (void)getppid();
    for (long i = 0; i < rounds; i++)
        one_round(i, page);
    (void)getppid();
    long n = faults() - before;
    gb_say("rounds", rounds);
    gb_say("faults", n);
    gb_say("rss_kib", gb_rss_kib());
    return 0;
}
