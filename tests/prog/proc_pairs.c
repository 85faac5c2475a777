/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A block of megabytes taken, touched and freed again and again costs no VMA system call a round (R53):
 * proc_pairs ROUNDS SIZE THREADS MOST. All rounds of all threads together may make at most MOST calls.
 */
#include "proc_calls.h"

static long rounds;
static size_t size;
static pthread_barrier_t start, done, end;

/* Threads live on until the calls are counted: what their start and their end cost is not the matter. */
static void *work(void *arg)
{
    pthread_barrier_wait(&start);
    for (long i = 0; i < rounds; i++) {
        char *p = malloc(size);
        CHECK(p);
        *(volatile char *)p = 1;
        free(p);
    }
    pthread_barrier_wait(&done);
    pthread_barrier_wait(&end);
    return arg;
}

int main(int argc, char **argv)
{
    rounds = arg_count(argc, argv, 1, 100000);
    size = (size_t)arg_count(argc, argv, 2, 8 << 20);
    long threads = arg_count(argc, argv, 3, 1), most = arg_count(argc, argv, 4, 20);
    pthread_t t[16];
    CHECK(threads >= 1 && threads <= 16);
    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&done, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&end, NULL, (unsigned)threads + 1);
    calls_watch();
    for (long i = 0; i < threads; i++)
        CHECK(pthread_create(&t[i], NULL, work, NULL) == 0);
    calls_reset();
    pthread_barrier_wait(&start);
    pthread_barrier_wait(&done);
    long calls_made = calls_total();
    pthread_barrier_wait(&end);
    for (long i = 0; i < threads; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    if (calls_made > most)
        FAIL("%ld rounds of %zu bytes in each of %ld threads made %ld VMA calls, more than %ld", rounds, size, threads,
             calls_made, most);
    printf("done\n");
    return 0;
}
