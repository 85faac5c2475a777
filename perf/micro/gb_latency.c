/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gb_latency [MIB] [THREADS]: THREADS (4) threads measure every one of their malloc calls, 16 B to 32 KiB, while another
 * frees MIB (2048) of mixed blocks in random order and gives all back. Prints percentiles in nanoseconds.
 *
 * Each call is timed by itself; the clock's own cost is printed and not taken off. Only calls made while the other thread
 * frees and gives back count. A thread that the scheduler stops inside a call shows in the highest figures, whichever the
 * allocator: the number of such stops is printed beside them.
 */
#define _GNU_SOURCE
#include "gb.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

enum { SUB = 32, SUB_SHIFT = 5, BUCKETS = 64 * SUB, LIVE = 256, MOST_THREADS = 64 };
enum { WARM, ON, OFF };

/* One thread's calls by their time: exact below SUB, then SUB buckets a doubling. */
struct meter {
    uint64_t n[BUCKETS];
    uint64_t most;
    long stops; /* times the scheduler took the cpu away while it measured */
    pthread_t thread;
    uint64_t seed;
};

static struct meter meter[MOST_THREADS];
static uint64_t sum[BUCKETS];
static atomic_int phase;

static unsigned bucket_of(uint64_t ns)
{
    if (ns < SUB)
        return (unsigned)ns;
    unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - SUB_SHIFT;
    return (shift + 1) * SUB + (unsigned)(ns >> shift) - SUB;
}

/* The largest time that falls into the bucket. */
static uint64_t top_of(unsigned b)
{
    if (b < SUB)
        return b;
    unsigned shift = b / SUB - 1;
    return (((uint64_t)(b % SUB) + SUB + 1) << shift) - 1;
}

static long stops(void)
{
    struct rusage used;
    getrusage(RUSAGE_THREAD, &used);
    return used.ru_nivcsw;
}

static void *measure(void *arg)
{
    struct meter *m = arg;
    void *live[LIVE] = {NULL};
    long before = 0;
    int was = WARM;
    for (unsigned i = 0; was != OFF; i++) {
        int now = atomic_load_explicit(&phase, memory_order_relaxed);
        if (now != was)
            before = now == ON ? stops() : before;
        was = now;
        size_t size = gb_log_size(&m->seed, 4, 15);
        free(live[i % LIVE]);
        uint64_t start = gb_now_ns();
        uint64_t *p = malloc(size);
        uint64_t ns = gb_now_ns() - start;
        if (p == NULL)
            gb_fail("malloc gave NULL");
        *p = i;
        live[i % LIVE] = p;
        if (now == ON) {
            m->n[bucket_of(ns)]++;
            m->most = ns > m->most ? ns : m->most;
        }
    }
    m->stops = stops() - before;
    for (int i = 0; i < LIVE; i++)
        free(live[i]);
    return NULL;
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t clock_cost(void)
{
    uint64_t n[256] = {0}, total = 0;
    for (int i = 0; i < 100001; i++) {
        uint64_t start = gb_now_ns(), ns = gb_now_ns() - start;
        n[ns < 255 ? ns : 255]++;
    }
    uint64_t ns = 0;
    while ((total += n[ns]) <= 50000)
        ns++;
    return ns;
}

static uint64_t percentile(uint64_t calls, uint64_t part, uint64_t of)
{
    uint64_t want = calls / of * part + calls % of * part / of, seen = 0;
    unsigned b = 0;
    while (b < BUCKETS - 1 && (seen += sum[b]) <= want)
        b++;
    return top_of(b);
}

static void report(long threads, uint64_t took)
{
    uint64_t calls = 0, most = 0, stopped = 0;
    for (long t = 0; t < threads; t++) {
        for (unsigned b = 0; b < BUCKETS; b++) {
            sum[b] += meter[t].n[b];
            calls += meter[t].n[b];
        }
        most = meter[t].most > most ? meter[t].most : most;
        stopped += (uint64_t)meter[t].stops;
    }
    gb_say("calls", (long long)calls);
    gb_say("p50_ns", (long long)percentile(calls, 50, 100));
    gb_say("p99_ns", (long long)percentile(calls, 99, 100));
    gb_say("p999_ns", (long long)percentile(calls, 999, 1000));
    gb_say("p9999_ns", (long long)percentile(calls, 9999, 10000));
    gb_say("max_ns", (long long)most);
    gb_say("stops", (long long)stopped);
    gb_say("took_ms", (long long)(took / 1000000));
}

static size_t fill(void **block, size_t most, size_t bytes)
{
    size_t n = 0;
    for (size_t total = 0; n < most && total < bytes; n++) {
        block[n] = gb_block(gb_mixed_size(n), n);
        total += gb_mixed_size(n);
    }
    return n;
}

int main(int argc, char **argv)
{
    size_t bytes = GB_MIB(gb_arg(argc, argv, 1, 2048, 1));
    long threads = gb_arg(argc, argv, 2, 4, 1);
    if (threads > MOST_THREADS)
        gb_fail("too many threads");
    struct gb_purge purge = gb_purge_find();
    gb_say("clock_ns", (long long)clock_cost());
    size_t room = bytes / 1024; /* a block of the mix has several KiB */
    void **block = gb_table(room * sizeof *block);
    size_t n = fill(block, room, bytes);
    gb_shuffle(block, n, 17);
    for (long t = 0; t < threads; t++) {
        meter[t].seed = (uint64_t)t + 1;
        if (pthread_create(&meter[t].thread, NULL, measure, &meter[t]) != 0)
            gb_fail("cannot start a thread");
    }
    gb_sleep_ms(300);
    atomic_store(&phase, ON);
    uint64_t start = gb_now_ns(), cpu = cpu_ns();
    for (size_t i = 0; i < n; i++)
        gb_block_free_below(block[i], n);
    gb_purge(&purge);
    uint64_t took = gb_now_ns() - start;
    cpu = cpu_ns() - cpu;
    atomic_store(&phase, OFF);
    for (long t = 0; t < threads; t++)
        pthread_join(meter[t].thread, NULL);
    report(threads, took);
    gb_say("took_cpu_ms", (long long)(cpu / 1000000));
    return 0;
}
