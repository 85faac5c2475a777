/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that come and go: each lives for about a hundred operations on the shared slots and leaves blocks behind for
 * others to check and free.
 *
 *     stress_churn [-t threads at once] [-n operations in all] [-s seed]
 *
 * Some threads only free, some end by pthread_exit, some allocate and free in a key's destructor.
 */
#define _GNU_SOURCE
#include "stress_slots.h"

#define LIFE_OPS 100

static pthread_key_t key;

/* What a thread does on its way out is checked like the rest. */
static void last_ops(void *arg)
{
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    for (int i = 0; i < 10; i++)
        stress_op(&rng, rng % SLOTS, 64);
}

/* A thread whose first call is free. */
static void only_free(uint64_t *rng)
{
    for (int i = 0; i < LIFE_OPS; i++) {
        struct slot *s = &slots[rng_below(rng, SLOTS)];
        if (!slot_try(s))
            continue;
        if (s->p)
            slot_free(s, rng);
        slot_release(s);
    }
}

static void *life(void *arg)
{
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    size_t kind = rng_below(&rng, 8);
    if (kind == 0) {
        only_free(&rng);
        return NULL;
    }
    if (kind == 1)
        CHECK(pthread_setspecific(key, (void *)(uintptr_t)(rng | 1)) == 0);
    size_t n = rng_below(&rng, 2 * LIFE_OPS);
    for (size_t i = 0; i < n; i++)
        stress_op(&rng, rng % SLOTS, 64);
    if (kind == 2)
        pthread_exit(NULL);
    return NULL;
}

int main(int argc, char **argv)
{
    stress_options(argc, argv);
    CHECK(pthread_key_create(&key, last_ops) == 0);
    pthread_t *threads = calloc(stress_threads, sizeof *threads);
    CHECK(threads);
    uint64_t rng = stress_seed;
    unsigned long lives = stress_ops / LIFE_OPS, started = 0;
    for (; started < lives; started++) {
        size_t i = started % stress_threads;
        if (started >= stress_threads)
            CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(pthread_create(&threads[i], NULL, life, (void *)(uintptr_t)rng_next(&rng)) == 0);
    }
    for (size_t i = 0; i < stress_threads && i < started; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    free(threads);
    stress_drain();
    return 0;
}
