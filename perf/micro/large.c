/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * large: random replace of `live` blocks between 512 KiB and `size`; the first and the last word are written, as a
 * program that fills a buffer from its start would begin. Most of the price is what the allocator asks of the kernel.
 */
#include "micro.h"

struct buffer {
    uint64_t *word;
    size_t len; /* words */
};

static void step(struct buffer *b, uint64_t *rng, size_t largest)
{
    if (b->word != NULL && (b->word[0] != b->len || b->word[b->len - 1] != ~b->len))
        micro_fail("large", "a live block changed: two blocks share an address");
    free(b->word);
    b->len = (micro_below(rng, (uint32_t)(largest - (512 << 10))) + (512 << 10)) / sizeof(uint64_t);
    b->word = micro_alloc(b->len * sizeof(uint64_t), b->len);
    b->word[b->len - 1] = ~b->len;
}

void large(struct job *job)
{
    struct buffer *buffers = calloc((size_t)job->live, sizeof *buffers);
    if (buffers == NULL)
        micro_fail("large", "no memory");
    for (long i = 0; i < job->live + job->ops / 10; i++)
        step(&buffers[i % job->live], &job->seed, job->size);
    job_start(job);
    for (long i = 0; i < job->ops; i++)
        step(&buffers[micro_below(&job->seed, (uint32_t)job->live)], &job->seed, job->size);
    job_stop(job, job->ops);
    for (long i = 0; i < job->live; i++) {
        job->check = job->check * 31 + buffers[i].len;
        free(buffers[i].word);
    }
    free(buffers);
}
