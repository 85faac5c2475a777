/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A short mixed load with its contents checked, for runs in odd surroundings: proc_mixed [threads] [operations].
 * It reads no file.
 */
#include "proc_util.h"

static long operations;

static void *thread(void *arg)
{
    struct block b[256] = {{NULL, 0}};
    uint64_t seed = (uintptr_t)arg;
    for (long i = 0; i < operations; i++) {
        unsigned at = rng_next(&seed) % 256;
        block_free(&b[at]);
        b[at] = block_new(rng_size(&seed, i % 100 == 0 ? 21 : 13));
    }
    for (int i = 0; i < 256; i++)
        block_free(&b[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    long threads = arg_count(argc, argv, 1, 4);
    operations = arg_count(argc, argv, 2, 50000);
    pthread_t *t = calloc((size_t)threads, sizeof *t);
    CHECK(t);
    for (long i = 0; i < threads; i++)
        CHECK(pthread_create(&t[i], NULL, thread, (void *)(i + 1)) == 0);
    for (long i = 0; i < threads; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    free(t);
    malloc_trim(0);
    check_heap(1000, NULL, 0);
    printf("%ld threads\n", threads);
    return 0;
}
