/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gb_pipe [SECONDS] [MIB] [PRODUCERS]: PRODUCERS (16) threads keep MIB (370) live in blocks of 592 B, one thread frees
 * them, for SECONDS (30). Prints the highest resident KiB seen, without the program's own, and the live bytes.
 *
 * All blocks go through one bounded queue, first in, first out, in batches; it is kept at 90 to 100 % of its length.
 * Whoever finds room fills it: the shares of the producers in what is live drift, and memory that only its own thread
 * can use again is stranded.
 */
#define _GNU_SOURCE
#include "gb.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BYTES = 592, BATCH = 64, STACK = 256 << 10, SAMPLE_MS = 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER, not_empty = PTHREAD_COND_INITIALIZER;
static void **ring;           /* of room pointers, under lock */
static size_t room, head, len; /* under lock; room: constant */
static atomic_int stop;
static atomic_long batches;

static void put(void **batch)
{
    pthread_mutex_lock(&lock);
    while (len + BATCH > room)
        pthread_cond_wait(&not_full, &lock);
    for (size_t i = 0; i < BATCH; i++)
        ring[(head + len + i) % room] = batch[i];
    len += BATCH;
    pthread_cond_signal(&not_empty);
    pthread_mutex_unlock(&lock);
}

static void take(void **batch)
{
    pthread_mutex_lock(&lock);
    while (len < room / 10 * 9) /* refill begins when a tenth is gone, and whoever runs then has it all */
        pthread_cond_wait(&not_empty, &lock);
    for (size_t i = 0; i < BATCH; i++)
        batch[i] = ring[(head + i) % room];
    head = (head + BATCH) % room;
    len -= BATCH;
    pthread_cond_signal(&not_full);
    pthread_mutex_unlock(&lock);
}

static void *producer(void *arg)
{
    void *batch[BATCH];
    uint64_t word = (uint64_t)(uintptr_t)arg << 32;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        for (int i = 0; i < BATCH; i++) {
            batch[i] = gb_block(BYTES, 0);
            ((uint64_t *)batch[i])[0] = ((uint64_t *)batch[i])[BYTES / 8 - 1] = word++;
        }
        put(batch);
    }
    return NULL;
}

static void *consumer(void *arg)
{
    void *batch[BATCH];
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        take(batch);
        for (int i = 0; i < BATCH; i++)
            gb_block_free(batch[i], ((uint64_t *)batch[i])[BYTES / 8 - 1]);
        atomic_fetch_add_explicit(&batches, 1, memory_order_relaxed);
    }
    return arg;
}

static void start(void *(*body)(void *), long number)
{
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    if (pthread_create(&thread, &attr, body, (void *)number) != 0)
        gb_fail("cannot start a thread");
    pthread_detach(thread);
    pthread_attr_destroy(&attr);
}

/* Read often, so from statm, which costs no walk of the page tables. */
static long resident_kib(void)
{
    static char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        gb_fail("/proc/self/statm");
    text[n] = '\0';
    return strtol(strchr(text, ' '), NULL, 10) * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(int argc, char **argv)
{
    long seconds = gb_arg(argc, argv, 1, 30, 1), mib = gb_arg(argc, argv, 2, 370, 1);
    long producers = gb_arg(argc, argv, 3, 16, 1), peak = 0;
    room = GB_MIB(mib) / BYTES / BATCH * BATCH;
    ring = gb_table(room * sizeof *ring);
    long before = gb_rss_kib();
    uint64_t end = gb_now_ns() + (uint64_t)seconds * 1000000000u;
    start(consumer, 0);
    for (long i = 0; i < producers; i++)
        start(producer, i + 1);
    while (gb_now_ns() < end) {
        long now = resident_kib();
        peak = now > peak ? now : peak;
        gb_sleep_ms(SAMPLE_MS);
    }
    atomic_store(&stop, 1);
    gb_say("before_kib", before);
    gb_say("peak_kib", peak - before);
    gb_say("live_bytes", (long long)(room * BYTES));
    gb_say("permille", (long long)(GB_KIB(peak - before) * 1000 / (room * BYTES)));
    gb_say("blocks", atomic_load(&batches) * BATCH);
    return 0;
}
