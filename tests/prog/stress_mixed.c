/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contents-checked stress: threads allocate, reallocate and free blocks of 1 B to 1 MiB through shared slots.
 *
 *     stress_mixed [-t threads] [-n operations in all] [-s seed]
 *
 * The operations of each thread follow from the seed; how the threads interleave does not.
 */
#define _GNU_SOURCE
#include "stress_slots.h"

static pthread_barrier_t start;

static void *worker(void *arg)
{
    size_t id = (size_t)arg;
    uint64_t rng = stress_seed * 1000003 + id;
    pthread_barrier_wait(&start);
    for (unsigned long i = 0; i < stress_ops / stress_threads; i++)
        stress_op(&rng, id * (SLOTS / stress_threads), SLOTS / 16);
    return NULL;
}

int main(int argc, char **argv)
{
    stress_options(argc, argv);
    pthread_t *threads = calloc(stress_threads, sizeof *threads);
    CHECK(threads);
    CHECK(pthread_barrier_init(&start, NULL, (unsigned)stress_threads) == 0);
    for (size_t i = 0; i < stress_threads; i++)
        CHECK(pthread_create(&threads[i], NULL, worker, (void *)i) == 0);
    for (size_t i = 0; i < stress_threads; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    free(threads);
    stress_drain();
    return 0;
}
