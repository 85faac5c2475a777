/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * replace: `live` blocks of random sizes from 1 byte (at least a word is asked for) up to `size`, evenly spread; a
 * random one is freed and a new one of a random size takes its place. The way of a program with a heap in steady state.
 *
 * Every block holds its slot number xor its size. All are checked at the end, off the clock; -r also reads the word of
 * a block just before its free, as a destructor would (then every allocator pays the cache miss of old blocks, while
 * without it only those do that write into free blocks).
 */
#include "micro.h"

struct heap {
    uint64_t **block;
    uint32_t *size; /* beside the block pointers, so that a check needs no trust in malloc_usable_size */
    uint64_t rng;
};

static void put(struct heap *h, uint32_t slot, size_t largest)
{
    uint32_t size = micro_below(&h->rng, (uint32_t)largest) + 1;
    if (size < sizeof(uint64_t))
        size = sizeof(uint64_t);
    h->size[slot] = size;
    h->block[slot] = micro_alloc(size, slot ^ ((uint64_t)size << 32));
}

static void step(struct heap *h, const struct job *job)
{
    uint32_t slot = micro_below(&h->rng, (uint32_t)job->live);
    if (job->read_back && (uint32_t)*h->block[slot] != slot)
        micro_fail("replace", "a live block changed");
    free(h->block[slot]);
    put(h, slot, job->size);
}

static uint64_t check_all(const struct heap *h, long live)
{
    uint64_t sum = 0;
    for (long i = 0; i < live; i++) {
        if (*h->block[i] != ((uint64_t)i ^ ((uint64_t)h->size[i] << 32)))
            micro_fail("replace", "a live block changed: two blocks share an address");
        sum = sum * 31 + *h->block[i];
    }
    return sum;
}

void replace(struct job *job)
{
    struct heap h = {calloc((size_t)job->live, sizeof *h.block), calloc((size_t)job->live, sizeof *h.size), job->seed};
    if (h.block == NULL || h.size == NULL)
        micro_fail("replace", "no memory");
    for (long i = 0; i < job->live; i++)
        put(&h, (uint32_t)i, job->size);
    for (long i = 0; i < job->live + job->ops / 10; i++)
        step(&h, job);
    job_start(job);
    for (long i = 0; i < job->ops; i++)
        step(&h, job);
    job_stop(job, job->ops);
    job->check = check_all(&h, job->live);
    for (long i = 0; i < job->live; i++)
        free(h.block[i]);
    free(h.block);
    free(h.size);
}
