/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * grow: `live` arrays of words that grow in turn, each by half, from 16 bytes up to `size`, then start again. A pair is
 * one realloc. As growing arrays do, each writes its new last word and one word in the middle; at the end of an array's
 * life, both kinds of word must have survived all the moves.
 */
#include "micro.h"

struct array {
    uint64_t *word;
    size_t len; /* words */
};

/* Grow a by half. At the limit, check it and start anew. Returns its last word, for the sum. */
static uint64_t step(struct array *a, uint64_t tag, size_t limit)
{
    size_t len = a->len + a->len / 2 + 2;
    if (len * sizeof(uint64_t) > limit) {
        if (a->len && (a->word[0] != tag || a->word[a->len - 1] != tag + a->len))
            micro_fail("grow", "contents lost by realloc");
        free(a->word);
        *a = (struct array){NULL, 0};
        len = 2;
    }
    uint64_t *word = realloc(a->word, len * sizeof(uint64_t));
    if (word == NULL)
        micro_fail("grow", "realloc returned NULL");
    if (a->len && word[a->len - 1] != tag + a->len)
        micro_fail("grow", "contents lost by realloc");
    word[0] = tag;
    word[len - 1] = tag + len;
    *a = (struct array){word, len};
    return tag + len;
}

void grow(struct job *job)
{
    struct array *arrays = calloc((size_t)job->live, sizeof *arrays);
    if (arrays == NULL)
        micro_fail("grow", "no memory");
    uint64_t rng = job->seed, sum = 0;
    for (long i = 0; i < job->ops / 10; i++) {
        uint32_t k = micro_below(&rng, (uint32_t)job->live);
        step(&arrays[k], k, job->size);
    }
    job_start(job);
    for (long i = 0; i < job->ops; i++) {
        uint32_t k = micro_below(&rng, (uint32_t)job->live);
        sum = sum * 31 + step(&arrays[k], k, job->size);
    }
    job_stop(job, job->ops);
    job->check = sum;
    for (long i = 0; i < job->live; i++)
        free(arrays[i].word);
    free(arrays);
}
