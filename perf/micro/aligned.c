/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * aligned: random replace of `live` blocks from aligned_alloc: alignment 16 to 4096, small ones more often (64 is the
 * cache line that programs ask for), size a multiple of the alignment. Every address is checked.
 */
#include "micro.h"

static void *born(uint64_t *rng, uint32_t largest, uint64_t word)
{
    static const uint16_t aligns[8] = {16, 32, 64, 64, 64, 128, 256, 4096};
    size_t align = aligns[micro_below(rng, 8)];
    size_t size = (micro_below(rng, largest) + align) & ~(align - 1);
    uint64_t *p = aligned_alloc(align, size);
    if (p == NULL)
        micro_fail("aligned", "aligned_alloc returned NULL");
    if (((uintptr_t)p & (align - 1)) != 0)
        micro_fail("aligned", "not aligned");
    *p = word;
    return p;
}

static void step(uint64_t **block, struct job *job)
{
    uint32_t slot = micro_below(&job->seed, (uint32_t)job->live);
    free(block[slot]);
    block[slot] = born(&job->seed, (uint32_t)job->size, slot);
}

void aligned(struct job *job)
{
    uint64_t **block = calloc((size_t)job->live, sizeof *block);
    if (block == NULL)
        micro_fail("aligned", "no memory");
    for (long i = 0; i < job->live + job->ops / 10; i++)
        step(block, job);
    job_start(job);
    for (long i = 0; i < job->ops; i++)
        step(block, job);
    job_stop(job, job->ops);
    for (long i = 0; i < job->live; i++) {
        if (block[i] != NULL && *block[i] != (uint64_t)i)
            micro_fail("aligned", "a live block changed: two blocks share an address");
        job->check = job->check * 31 + (block[i] ? *block[i] : 0);
        free(block[i]);
    }
    free(block);
}
