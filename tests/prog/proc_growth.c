/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One block grows from 1 MiB to MIB by realloc in steps of 1 MiB, every page of it touched (R61): proc_growth MIB. No
 * content may be lost on the way. Prints what it cost: "calls N faults N over_kib N", the last being the peak of the
 * resident size beyond the block.
 */
#include "proc_calls.h"

#include <sys/resource.h>

static size_t page;

static void fill_step(uint64_t *word, size_t step)
{
    uint64_t *at = word + step * (MiB(1) / sizeof *at);
    for (size_t i = 0; i < MiB(1) / sizeof *at; i += page / sizeof *at)
        at[i] = step * MiB(1) + i;
}

static void check_step(const uint64_t *word, size_t step)
{
    const uint64_t *at = word + step * (MiB(1) / sizeof *at);
    for (size_t i = 0; i < MiB(1) / sizeof *at; i += page / sizeof *at)
        CHECK(at[i] == step * MiB(1) + i);
}

static long faults(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
    return usage.ru_minflt;
}

int main(int argc, char **argv)
{
    size_t mib = (size_t)arg_count(argc, argv, 1, 256);
    uint64_t *word = NULL;
    page = (size_t)sysconf(_SC_PAGESIZE);
    calls_watch();
    long resident = status_kib("VmRSS"), before = faults();
    for (size_t step = 0; step < mib; step++) {
        word = realloc(word, (step + 1) << 20);
        CHECK(word);
        fill_step(word, step);
        check_step(word, 0);
        check_step(word, step / 2);
    }
    long faulted = faults() - before, made = calls_total();
    long over = status_kib("VmHWM") - resident - (long)(mib << 10);
    for (size_t step = 0; step < mib; step++)
        check_step(word, step);
    free(word);
    printf("calls %ld faults %ld over_kib %ld\n", made, faulted, over);
    return 0;
}
