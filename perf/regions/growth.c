/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * growth: one block grows from 1 MiB to `size` bytes in steps of 1 MiB; each step touches every page of the new part.
 * At the end each MiB must hold what was written into it. An allocator that copies at each step needs hours for
 * gigabytes: after `seconds` it stops, and "reached" says where.
 */
#include "regions.h"

#include <sys/resource.h>
#include <unistd.h>

static void touch_step(uint64_t *word, size_t step, size_t page)
{
    uint64_t *at = word + step * (MIB(1) / sizeof *at);
    for (size_t i = 0; i < MIB(1) / sizeof *at; i += page / sizeof *at)
        at[i] = step + 1;
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

void growth(const struct job *job)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), steps = job->n == 0 ? 0 : job->size >> 20, done = 0;
    uint64_t *word = NULL;
    long before = faults(), base_kib = status_kib("VmRSS");
    double from = cpu_ns(), end = wall_ns() + (double)job->seconds * 1e9;
    for (; done < steps && wall_ns() < end; done++) {
        word = job->memory->grow(word, done << 20, (done + 1) << 20);
        if (word == NULL)
            regions_fail("growth", "no memory");
        touch_step(word, done, page);
    }
    double ms = (cpu_ns() - from) / 1e6;
    for (size_t i = 0; i < done; i++)
        if (word[i * (MIB(1) / sizeof *word)] != i + 1)
            regions_fail("growth", "contents lost by realloc");
    printf("cpu_ms %.2f\nfaults %ld\npeak_kib %ld\nreached_mib %zu\n", ms, faults() - before,
           status_kib("VmHWM") - base_kib, done);
}
