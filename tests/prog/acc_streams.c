/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many threads that inflate streams, as a Java server does through zlib (R69): acc_streams [THREADS] [STREAMS]. A stream is a
 * state of 7 KiB, a window of 32 KiB and a result that doubles from 512 B to 64 KiB, all of them written; between streams a
 * thread rests. At last all rest. Prints page faults and resident KiB.
 */
#include "proc_util.h"

#include <sys/resource.h>

static long threads, streams;
static pthread_barrier_t all_done;

static void stream(uint64_t *seed)
{
    char *state = malloc(7160), *window = NULL, *out = malloc(512);
    size_t want = 2048 + (size_t)(rng_next(seed) % 63488), size = 512;
    CHECK(state && out);
    memset(state, 1, 7160);
    while (size < want) {
        if (!window) {
            window = malloc(32768);
            CHECK(window);
            memset(window, 2, 32768);
        }
        size *= 2;
        out = realloc(out, size);
        CHECK(out);
        memset(out + size / 2, 3, size / 2);
        sched_yield();
    }
    CHECK(out[size - 1] == 3 && state[7159] == 1);
    free(window);
    free(state);
    free(out);
}

static void *body(void *arg)
{
    uint64_t seed = 69 + (uint64_t)(intptr_t)arg;
    for (long i = 0; i < streams; i++) {
        stream(&seed);
        if (i % 8 == 7)
            usleep(500);
    }
    pthread_barrier_wait(&all_done);
    pthread_barrier_wait(&all_done);
    return NULL;
}

int main(int argc, char **argv)
{
    threads = arg_count(argc, argv, 1, 200);
    streams = arg_count(argc, argv, 2, 40);
    pthread_t *t = calloc((size_t)threads, sizeof *t);
    struct rusage u;
    CHECK(t && pthread_barrier_init(&all_done, NULL, (unsigned)threads + 1) == 0);
    for (long i = 0; i < threads; i++)
        CHECK(pthread_create(&t[i], NULL, body, (void *)(intptr_t)i) == 0);
    pthread_barrier_wait(&all_done);
    usleep(100000);
    CHECK(getrusage(RUSAGE_SELF, &u) == 0);
    printf("faults=%ld rss_kib=%ld most_kib=%ld\n", u.ru_minflt, status_kib("VmRSS:"), u.ru_maxrss);
    pthread_barrier_wait(&all_done);
    for (long i = 0; i < threads; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    return 0;
}
