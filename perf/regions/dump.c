/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dump: allocate twice `size` bytes in blocks of 100 bytes to 4 MiB, fill them, free half, and die by abort with a core
 * dump wanted in the current directory.
 */
#include "regions.h"

#include <string.h>
#include <sys/resource.h>

enum { BLOCKS_MOST = 100000 };

/* Mostly small ones by number, mostly large ones by bytes. */
static size_t next_size(uint64_t *rng)
{
    uint32_t kind = regions_below(rng, 1000);
    if (kind < 900)
        return 100 + regions_below(rng, 4000);
    return kind < 995 ? KIB(16) + regions_below(rng, 200000) : MIB(1) + regions_below(rng, (uint32_t)MIB(3));
}

void dump(const struct job *job)
{
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_CORE, &all) != 0)
        regions_fail("dump", "cannot lift the limit on core dumps");
    char **block = regions_own(BLOCKS_MOST * sizeof *block);
    uint64_t rng = job->seed;
    size_t sum = 0, n = 0;
    for (; sum < 2 * job->size && n < BLOCKS_MOST; n++) {
        size_t size = next_size(&rng);
        block[n] = regions_get(job, size);
        memset(block[n], 1, size);
        sum += size;
    }
    for (size_t i = 0; i < n; i += 2)
        free(block[i]);
    printf("blocks %zu\n", n);
    fflush(stdout);
    abort();
}
