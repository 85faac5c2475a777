/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work whose output is always the same: numa_work [rounds]. Eight threads allocate, hand what they have to the next
 * thread, which checks and frees it. Prints one line about the contents it saw. First it checks that it was started as any
 * program: with an environment and a name.
 */
#include "proc_util.h"

enum { THREADS = 8, BLOCKS = 600 };

static struct block given[THREADS][BLOCKS];
static pthread_barrier_t together;
static long rounds;
static atomic_ulong sum;

static void *thread(void *arg)
{
    int me = (int)(intptr_t)arg, from = (me + 1) % THREADS;
    uint64_t seed = 100 + (uint64_t)me;
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < BLOCKS; i++)
            given[me][i] = block_new(rng_size(&seed, 16));
        pthread_barrier_wait(&together);
        for (int i = 0; i < BLOCKS; i++) {
            atomic_fetch_add(&sum, given[from][i].size);
            block_free(&given[from][i]);
        }
        pthread_barrier_wait(&together);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t t[THREADS];
    CHECK(environ && environ[0] && getenv("PATH"));
    CHECK(strcmp(program_invocation_name, argv[0]) == 0);
    rounds = arg_count(argc, argv, 1, 20);
    CHECK(pthread_barrier_init(&together, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&t[i], NULL, thread, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    printf("%ld rounds, %lu bytes\n", rounds, atomic_load(&sum));
    return 0;
}
