/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocation after a thread's own state was torn down: proc_teardown keys|first_free [threads].
 *
 * keys: threads one after the other, each with 5 keys whose destructors set the next key again and allocate and free
 * 200 blocks, so that they run in every destructor round. first_free: threads whose first call is free(), of blocks
 * that the main thread made. In both the resident size must not grow with the number of threads.
 */
#include "proc_util.h"

enum { KEYS = 5, BLOCKS = 200 };

static pthread_key_t keys[KEYS];
static atomic_long destructor_runs;

static void churn(uint64_t seed)
{
    struct block b[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        b[i] = block_new(rng_size(&seed, 11));
    for (int i = 0; i < BLOCKS; i++)
        block_free(&b[i]);
}

static void destructor(void *value)
{
    uintptr_t i = (uintptr_t)value - 1;
    atomic_fetch_add(&destructor_runs, 1);
    churn(i);
    CHECK(pthread_setspecific(keys[(i + 1) % KEYS], (void *)((i + 1) % KEYS + 1)) == 0);
}

static void *keyed_thread(void *arg)
{
    churn((uintptr_t)arg);
    for (uintptr_t i = 0; i < KEYS; i++)
        CHECK(pthread_setspecific(keys[i], (void *)(i + 1)) == 0);
    return NULL;
}

static void *freeing_thread(void *arg)
{
    struct block *b = arg;
    for (int i = 0; i < BLOCKS; i++)
        block_free(&b[i]);
    return NULL;
}

static void run_thread(void *(*body)(void *), void *arg)
{
    pthread_t t;
    CHECK(pthread_create(&t, NULL, body, arg) == 0);
    CHECK(pthread_join(t, NULL) == 0);
}

static void run_threads(int keyed, long from, long to)
{
    static struct block b[BLOCKS];
    uint64_t seed = 7;
    for (long n = from; n < to; n++) {
        if (keyed) {
            run_thread(keyed_thread, (void *)n);
            continue;
        }
        for (int i = 0; i < BLOCKS; i++)
            b[i] = block_new(rng_size(&seed, 11));
        run_thread(freeing_thread, b);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    int keyed = strcmp(argv[1], "keys") == 0;
    long threads = arg_count(argc, argv, 2, keyed ? 100000 : 10000);
    for (int i = 0; i < KEYS; i++)
        CHECK(pthread_key_create(&keys[i], destructor) == 0);
    run_threads(keyed, 0, threads / 4);
    long early = status_kib("VmRSS:");
    run_threads(keyed, threads / 4, threads);
    long late = status_kib("VmRSS:");
    /* A leak of one cache a thread would be more than a page each. */
    if (late > early + 2048 + threads / 2)
        FAIL("%ld KiB after %ld threads, %ld KiB after %ld", early, threads / 4, late, threads);
    if (keyed)
        CHECK(atomic_load(&destructor_runs) >= threads * KEYS * 2);
    printf("%ld threads\n", threads);
    return 0;
}
