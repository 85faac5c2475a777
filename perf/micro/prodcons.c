/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * prodcons: half the threads allocate batches of `live` small blocks and put them into one queue; the other half take
 * batches from it and free the blocks. No block is freed by the thread that allocated it, so every pair crosses.
 *
 * The queue is bounded (a few batches a thread), so that what is measured is traffic, not the growth of a heap. The
 * batch itself is a malloc'd array and crosses as well. The time is the whole process's cpu time: a lock that spins
 * while its holder sleeps shows.
 */
#include "micro.h"

#include <pthread.h>

enum { BATCHES_A_THREAD = 4 };

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t not_empty, not_full;
    uint64_t ***batch;      /* ring of cap batches, under lock */
    long cap, head, len;    /* under lock */
    long to_make, to_take;  /* batches not yet started by producers, taken by consumers; under lock */
    uint64_t sum;           /* of words read back, under lock */
    const struct job *job;  /* constant */
};

static void put(struct queue *q, uint64_t **batch)
{
    pthread_mutex_lock(&q->lock);
    while (q->len == q->cap)
        pthread_cond_wait(&q->not_full, &q->lock);
    q->batch[(q->head + q->len++) % q->cap] = batch;
    pthread_cond_signal(&q->not_empty);
    pthread_mutex_unlock(&q->lock);
}

/* The next batch, or NULL when all have been taken. */
static uint64_t **get(struct queue *q)
{
    uint64_t **batch = NULL;
    pthread_mutex_lock(&q->lock);
    if (q->to_take > 0) {
        q->to_take--;
        while (q->len == 0)
            pthread_cond_wait(&q->not_empty, &q->lock);
        batch = q->batch[q->head];
        q->head = (q->head + 1) % q->cap;
        q->len--;
        pthread_cond_signal(&q->not_full);
    }
    pthread_mutex_unlock(&q->lock);
    return batch;
}

/* A number for the next batch to make, or -1. */
static long next_to_make(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    long n = q->to_make > 0 ? --q->to_make : -1;
    pthread_mutex_unlock(&q->lock);
    return n;
}

static void *producer(void *arg)
{
    struct queue *q = arg;
    const struct job *job = q->job;
    for (long n; (n = next_to_make(q)) >= 0;) {
        uint64_t rng = job->seed + (uint64_t)n;
        uint64_t **batch = malloc((size_t)job->live * sizeof *batch);
        if (batch == NULL)
            micro_fail("prodcons", "no memory");
        for (long i = 0; i < job->live; i++)
            batch[i] = micro_alloc(micro_below(&rng, (uint32_t)job->size - 8) + 8, (uint64_t)(n * job->live + i));
        put(q, batch);
    }
    return NULL;
}

static void *consumer(void *arg)
{
    struct queue *q = arg;
    uint64_t sum = 0;
    for (uint64_t **batch; (batch = get(q)) != NULL;) {
        for (long i = 0; i < q->job->live; i++) {
            sum += *batch[i];
            free(batch[i]);
        }
        free(batch);
    }
    pthread_mutex_lock(&q->lock);
    q->sum += sum;
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static void run(struct queue *q, pthread_t *thread, long threads, long batches)
{
    q->to_make = q->to_take = batches;
    q->sum = 0;
    for (long i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, i % 2 ? producer : consumer, q) != 0)
            micro_fail("prodcons", "cannot start a thread");
    for (long i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    uint64_t n = (uint64_t)(batches * q->job->live);
    if (q->sum != n * (n - 1) / 2)
        micro_fail("prodcons", "the words read are not the words written");
}

void prodcons(struct job *job)
{
    long threads = job->threads + job->threads % 2, batches = job->ops / job->live + 1;
    struct queue q = {.lock = PTHREAD_MUTEX_INITIALIZER, .job = job, .cap = BATCHES_A_THREAD * threads};
    pthread_cond_init(&q.not_empty, NULL);
    pthread_cond_init(&q.not_full, NULL);
    q.batch = calloc((size_t)q.cap, sizeof *q.batch);
    pthread_t *thread = calloc((size_t)threads, sizeof *thread);
    if (q.batch == NULL || thread == NULL)
        micro_fail("prodcons", "no memory");
    run(&q, thread, threads, batches / 20 + 1);
    job_start(job);
    run(&q, thread, threads, batches);
    job_stop(job, batches * job->live);
    job->check = q.sum;
    free(q.batch);
    free(thread);
}
