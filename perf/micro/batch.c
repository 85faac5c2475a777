/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * batch: allocate `live` blocks of one size, then free them all in order of birth, over and over. Shows what a cache
 * costs when the number of live blocks crosses its capacity.
 */
#include "micro.h"

static void round_of(uint64_t **block, long live, size_t size)
{
    for (long i = 0; i < live; i++)
        block[i] = micro_alloc(size, (uint64_t)i);
    for (long i = 0; i < live; i++)
        free(block[i]);
}

/* A round off the clock in which every block must still hold its own number after all are born. */
static uint64_t checked_round(uint64_t **block, long live, size_t size)
{
    uint64_t sum = 0;
    for (long i = 0; i < live; i++)
        block[i] = micro_alloc(size, (uint64_t)i);
    for (long i = 0; i < live; i++) {
        if (*block[i] != (uint64_t)i)
            micro_fail("batch", "a live block changed: two blocks share an address");
        sum += *block[i] * 31;
        free(block[i]);
    }
    return sum;
}

void batch(struct job *job)
{
    uint64_t **block = calloc((size_t)job->live, sizeof *block);
    if (block == NULL)
        micro_fail("batch", "no memory");
    long rounds = (job->ops + job->live - 1) / job->live;
    for (long i = 0; i < rounds / 20 + 2; i++)
        round_of(block, job->live, job->size);
    job_start(job);
    for (long i = 0; i < rounds; i++)
        round_of(block, job->live, job->size);
    job_stop(job, rounds * job->live);
    job->check = checked_round(block, job->live, job->size);
    free(block);
}
