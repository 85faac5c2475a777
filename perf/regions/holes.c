/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * holes: `n` live blocks of `size` bytes, one byte of each touched; every other one is freed. Then: the lines of
 * /proc/self/maps, those the process had before, and how many requests were refused. The kernel runs out of mappings.
 */
#include "regions.h"

void holes(const struct job *job)
{
    char **block = regions_own(((size_t)job->n + 1) * sizeof *block);
    long refused = 0, before = maps_lines();
    for (long i = 0; i < job->n; i++) {
        block[i] = job->memory->get(job->size);
        if (block[i] != NULL)
            block[i][0] = (char)i;
        else
            refused++;
    }
    for (long i = 0; i < job->n; i += 2)
        if (block[i] != NULL)
            job->memory->put(block[i], job->size);
    for (long i = 1; i < job->n; i += 2)
        if (block[i] != NULL && block[i][0] != (char)i)
            regions_fail("holes", "a live block changed");
    printf("lines %ld\nbefore %ld\nrefused %ld\nrss_kib %ld\n", maps_lines(), before, refused, status_kib("VmRSS"));
}
