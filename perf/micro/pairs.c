/* SPDX-License-Identifier: BSD-2-Clause */
/* pairs: malloc, write, free, with one block live. The bare price of a hit on both sides. */
#include "micro.h"

static uint64_t run(long ops, size_t size)
{
    uint64_t sum = 0;
    for (long i = 0; i < ops; i++) {
        uint64_t *p = micro_alloc(size, (uint64_t)i);
        sum += *p;
        free(p);
    }
    return sum;
}

void pairs(struct job *job)
{
    run(job->ops / 100 + 1, job->size);
    job_start(job);
    job->check = run(job->ops, job->size);
    job_stop(job, job->ops);
    if (job->check != (uint64_t)job->ops * (uint64_t)(job->ops - 1) / 2)
        micro_fail("pairs", "a word written is not the word read");
}
