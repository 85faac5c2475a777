/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * churn: threads that live for `live` malloc+free pairs. `threads` are alive at once; each frees one half of its blocks
 * and leaves the other half to the main thread, which frees them after joining it. What is measured is how an allocator
 * makes, fills, empties and forgets the cache of a thread; starting the thread itself is in the figure too, the same
 * for all.
 */
#include "micro.h"

#include <pthread.h>

struct worker {
    pthread_t thread;
    uint64_t **left; /* live/2 blocks for main to free; written by the worker, read after join */
    uint64_t number;
    const struct job *job;
    int busy;
};

static void *live_and_die(void *arg)
{
    struct worker *w = arg;
    uint64_t rng = w->job->seed + w->number;
    long half = w->job->live / 2;
    w->left = malloc((size_t)half * sizeof *w->left);
    if (w->left == NULL)
        micro_fail("churn", "no memory");
    for (long i = 0; i < half; i++) {
        uint64_t *own = micro_alloc(micro_below(&rng, (uint32_t)w->job->size - 8) + 8, ~w->number);
        w->left[i] = micro_alloc(micro_below(&rng, (uint32_t)w->job->size - 8) + 8, w->number);
        if (*own != ~w->number)
            micro_fail("churn", "a live block changed: two blocks share an address");
        free(own);
    }
    return NULL;
}

static void start(struct worker *w, uint64_t number)
{
    w->number = number;
    if (pthread_create(&w->thread, NULL, live_and_die, w) != 0)
        micro_fail("churn", "cannot start a thread");
    w->busy = 1;
}

static uint64_t finish(struct worker *w)
{
    uint64_t sum = 0;
    if (!w->busy)
        return 0;
    pthread_join(w->thread, NULL);
    for (long i = 0; i < w->job->live / 2; i++) {
        if (*w->left[i] != w->number)
            micro_fail("churn", "a live block changed: two blocks share an address");
        sum += *w->left[i];
        free(w->left[i]);
    }
    free(w->left);
    w->busy = 0;
    return sum;
}

static uint64_t run(struct worker *workers, long width, long total)
{
    uint64_t sum = 0;
    for (long i = 0; i < total; i++) {
        sum += finish(&workers[i % width]);
        start(&workers[i % width], (uint64_t)i);
    }
    for (long i = 0; i < width; i++)
        sum += finish(&workers[i]);
    return sum;
}

void churn(struct job *job)
{
    struct worker *workers = calloc((size_t)job->threads, sizeof *workers);
    if (workers == NULL)
        micro_fail("churn", "no memory");
    for (long i = 0; i < job->threads; i++)
        workers[i].job = job;
    long total = job->ops / job->live + 1;
    run(workers, job->threads, total / 20 + 1);
    job_start(job);
    job->check = run(workers, job->threads, total);
    job_stop(job, total * job->live);
    free(workers);
}
