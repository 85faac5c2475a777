/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A training loop (R70): acc_tensors [THREADS] [ROUNDS] [MAX_MIB]. In each round each thread takes blocks of 1 to MAX_MIB MiB
 * one after the other, writes a byte of each page and hands the block to the next thread, which frees the one it got before.
 * After some rounds memory goes round: prints page faults and blocks of the rest, and how the resident size went.
 */
#include "proc_util.h"

#include <sys/resource.h>

enum { WARM = 5, STEPS = 6 };

static long threads, rounds, max_mib;
static _Atomic(char *) *given; /* a slot a thread, and one for each step */
static pthread_barrier_t round_ends;
static long faults_warm, rss_warm, rss_most;

static long faults(void)
{
    struct rusage u;
    CHECK(getrusage(RUSAGE_SELF, &u) == 0);
    return u.ru_minflt;
}

/* Like the layers of a network, the same in each round. */
static size_t size_of(long thread, long step)
{
    uint64_t seed = (uint64_t)(thread * STEPS + step);
    return MiB(1) + (size_t)(rng_next(&seed) % (uint64_t)(max_mib * 1024 - 1023)) * 1024;
}

static void one_round(long me)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (long step = 0; step < STEPS; step++) {
        size_t size = size_of(me, step);
        char *p = malloc(size);
        CHECK(p);
        for (size_t i = 0; i < size; i += page)
            p[i] = (char)step;
        free(atomic_exchange(&given[(me + 1) % threads * STEPS + step], p));
    }
}

static void *body(void *arg)
{
    long me = (long)(intptr_t)arg;
    for (long r = 0; r < rounds; r++) {
        one_round(me);
        if (pthread_barrier_wait(&round_ends) == PTHREAD_BARRIER_SERIAL_THREAD && r >= WARM) {
            long rss = status_kib("VmRSS:");
            if (r == WARM) {
                faults_warm = faults();
                rss_warm = rss;
            }
            rss_most = rss > rss_most ? rss : rss_most;
        }
        pthread_barrier_wait(&round_ends);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    threads = arg_count(argc, argv, 1, 8);
    rounds = WARM + arg_count(argc, argv, 2, 20);
    max_mib = arg_count(argc, argv, 3, 64);
    pthread_t *t = calloc((size_t)threads, sizeof *t);
    given = calloc((size_t)(threads * STEPS), sizeof *given);
    CHECK(t && given && pthread_barrier_init(&round_ends, NULL, (unsigned)threads) == 0);
    for (long i = 0; i < threads; i++)
        CHECK(pthread_create(&t[i], NULL, body, (void *)(intptr_t)i) == 0);
    for (long i = 0; i < threads; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    long pages = 0;
    for (long i = 0; i < threads * STEPS; i++)
        pages += (long)(size_of(i / STEPS, i % STEPS) / (size_t)sysconf(_SC_PAGESIZE));
    printf("faults=%ld pages_a_round=%ld rounds=%ld rss_kib=%ld most_kib=%ld\n", faults() - faults_warm, pages,
           rounds - WARM - 1, rss_warm, rss_most);
    return 0;
}
