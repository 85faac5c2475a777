/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What was given back stays away (R09): acc_collapse [MIB] [SECONDS]. MIB of 64-byte blocks; nine of ten runs of 256
 * neighbours are freed; malloc_trim(0); then nothing happens for SECONDS, in which the kernel may put huge pages where holes
 * are. Prints what is resident after each step.
 */
#include "proc_util.h"

enum { SIZE = 64, RUN = 256 };

static void wait_seconds(long n)
{
    while (n > 0)
        n = (long)sleep((unsigned)n);
}

int main(int argc, char **argv)
{
    size_t n = MiB(arg_count(argc, argv, 1, 64)) / SIZE / RUN * RUN;
    uint64_t seed = 9;
    unsigned char **block = malloc(n * sizeof *block);
    CHECK(block);
    memset(block, 1, n * sizeof *block);
    long before = status_kib("VmRSS:");
    for (size_t i = 0; i < n; i++)
        mark(block[i] = malloc(SIZE), SIZE);
    long full = status_kib("VmRSS:") - before, kept = 0;
    for (size_t run = 0; run < n; run += RUN) {
        int stays = rng_next(&seed) % 10 == 0;
        kept += stays ? RUN * SIZE / 1024 : 0;
        for (size_t i = run; i < run + RUN && !stays; i++) {
            check_mark(block[i], SIZE);
            free(block[i]);
            block[i] = NULL;
        }
    }
    malloc_trim(0);
    long trimmed = status_kib("VmRSS:") - before;
    wait_seconds(arg_count(argc, argv, 2, 2));
    long later = status_kib("VmRSS:") - before;
    printf("full %ld KiB, kept %ld, trimmed %ld, later %ld\n", full, kept, trimmed, later);
    if (trimmed > full / 2)
        FAIL("%ld KiB of %ld resident after the trim, %ld kept", trimmed, full, kept);
    if (later > trimmed + trimmed / 8 + 2048)
        FAIL("%ld KiB resident after the trim, later %ld, %ld kept", trimmed, later, kept);
    for (size_t i = 0; i < n; i++)
        if (block[i])
            check_mark(block[i], SIZE);
    return 0;
}
