/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pair: each thread gets a block of `size` bytes, touches none, one byte or every page of it, and puts it back; `n`
 * rounds in all, or as many as fit into `ms`. If `ms` says, a few rounds go before the clock starts; a counted run has
 * its `n` rounds and no more.
 */
#include "regions.h"

#include <pthread.h>
#include <unistd.h>

struct worker {
    pthread_t thread;
    const struct job *job;
    pthread_barrier_t *start; /* of all workers and main: once they are warm, and again with the clock started */
    long rounds;              /* to do; then: done */
};

static size_t page;

static void round_trip(const struct job *job)
{
    char *p = regions_get(job, job->size);
    if (job->touch == TOUCH_ALL)
        for (size_t i = 0; i < job->size; i += page)
            ((volatile char *)p)[i] = 1;
    job->memory->put(p, job->size);
}

static void rounds(const struct job *job, long n)
{
    for (long i = 0; i < n; i++)
        round_trip(job);
}

/* Looking at the clock must not be seen in the result. */
static long until(const struct job *job, double end, long at_once)
{
    long done = 0;
    for (; wall_ns() < end; done += at_once)
        rounds(job, at_once);
    return done;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    long few = w->job->touch == TOUCH_ALL ? 1 : 64;
    if (w->job->n < 0)
        rounds(w->job, few);
    pthread_barrier_wait(w->start);
    pthread_barrier_wait(w->start);
    if (w->job->n < 0)
        w->rounds = until(w->job, wall_ns() + (double)w->job->ms * 1e6, few);
    else
        rounds(w->job, w->rounds);
    return NULL;
}

void pair(const struct job *job)
{
    pthread_barrier_t start;
    struct worker *w = regions_own((size_t)job->threads * sizeof *w);
    page = (size_t)sysconf(_SC_PAGESIZE);
    pthread_barrier_init(&start, NULL, (unsigned)job->threads + 1);
    for (long i = 0; i < job->threads; i++) {
        w[i] = (struct worker){.job = job, .start = &start, .rounds = job->n < 0 ? 0 : job->n / job->threads};
        if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0)
            regions_fail("pair", "cannot start a thread");
    }
    pthread_barrier_wait(&start);
    double from = cpu_ns();
    pthread_barrier_wait(&start);
    long done = 0;
    for (long i = 0; i < job->threads; i++) {
        pthread_join(w[i].thread, NULL);
        done += w[i].rounds;
    }
    printf("ns %.2f\ncalls %ld\n", done ? (cpu_ns() - from) / (double)done : 0, done);
}
