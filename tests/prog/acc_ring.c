/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All threads loop on blocks of one size, half of them freed by the next thread (R62): acc_ring [THREADS] [ROUNDS] [SIZE].
 * Prints how many blocks there were; how often a lock was taken for them is for the allocator to say.
 */
#include "proc_util.h"

enum { SLOTS = 64 };

static long threads, rounds;
static size_t size;
static _Atomic(char *) (*mail)[SLOTS];
static pthread_barrier_t start;

static void *body(void *arg)
{
    long me = (long)(intptr_t)arg;
    pthread_barrier_wait(&start);
    for (long i = 0; i < rounds; i++) {
        char *p = malloc(size);
        CHECK(p);
        p[0] = p[size - 1] = (char)i;
        if (i % 2)
            p = atomic_exchange(&mail[(me + i / 2 % 3) % threads][i / 2 % SLOTS], p);
        free(p);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    threads = arg_count(argc, argv, 1, 16);
    rounds = arg_count(argc, argv, 2, 50000);
    size = (size_t)arg_count(argc, argv, 3, 32768);
    pthread_t *t = calloc((size_t)threads, sizeof *t);
    mail = calloc((size_t)threads, sizeof *mail);
    CHECK(t && mail && pthread_barrier_init(&start, NULL, (unsigned)threads) == 0);
    for (long i = 0; i < threads; i++)
        CHECK(pthread_create(&t[i], NULL, body, (void *)(intptr_t)i) == 0);
    for (long i = 0; i < threads; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    for (long i = 0; i < threads; i++)
        for (int s = 0; s < SLOTS; s++)
            free(mail[i][s]);
    printf("blocks=%ld\n", threads * rounds);
    return 0;
}
