/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks allocated by one thread and freed by another: proc_crossfree bounded|third_trim [MiB].
 *
 * bounded: producers keep so many MiB of 592-byte blocks alive, one thread only frees; the resident size stays under
 * 1.4 times what lives, however much passed through. third_trim: a producer allocates 1 KiB blocks and then sleeps,
 * another thread frees them all, a third calls malloc_trim(0): the memory is gone from the resident size.
 */
#include "proc_util.h"

enum { PRODUCERS = 4, SIZE = 592, ROUNDS = 8 };

/* A ring for each producer; a slot is empty again when its block was taken. */
struct ring {
    _Atomic(unsigned char *) *slots;
    size_t len;
    pthread_t thread;
};

static struct ring rings[PRODUCERS];
static atomic_int stop;

static void *producer(void *arg)
{
    struct ring *r = arg;
    for (size_t n = 0; n < ROUNDS * r->len; n++) {
        while (atomic_load_explicit(&r->slots[n % r->len], memory_order_acquire))
            sched_yield();
        unsigned char *p = malloc(SIZE);
        CHECK(p);
        memset(p, (int)n, SIZE);
        atomic_store_explicit(&r->slots[n % r->len], p, memory_order_release);
    }
    return NULL;
}

static void take(struct ring *r, size_t n)
{
    unsigned char *p;
    while (!(p = atomic_load_explicit(&r->slots[n % r->len], memory_order_acquire)))
        sched_yield();
    CHECK(p[0] == (unsigned char)n && p[SIZE - 1] == (unsigned char)n);
    free(p);
    atomic_store_explicit(&r->slots[n % r->len], NULL, memory_order_release);
}

/* Frees the oldest block of each ring while the rings stay full; returns the largest resident size seen when they
 * were. */
static long consume(size_t len)
{
    long most = 0;
    for (size_t n = 0; n < ROUNDS * len; n++) {
        /* Wait for the ring to be full, until the producers have made their last. */
        for (int i = 0; i < PRODUCERS; i++) {
            size_t newest = n + len - 1;
            while (newest < ROUNDS * len && !atomic_load(&rings[i].slots[newest % len]))
                sched_yield();
            take(&rings[i], n);
        }
        if (n < (ROUNDS - 1) * len && n % (len / 8) == 0) {
            long now = status_kib("VmRSS:");
            most = now > most ? now : most;
        }
    }
    return most;
}

static void bounded(size_t live)
{
    size_t len = live / PRODUCERS / SIZE;
    for (int i = 0; i < PRODUCERS; i++) {
        rings[i].len = len;
        rings[i].slots = calloc(len, sizeof *rings[i].slots);
        CHECK(rings[i].slots);
    }
    long before = status_kib("VmRSS:") + (long)(PRODUCERS * len * sizeof *rings[0].slots / 1024);
    for (int i = 0; i < PRODUCERS; i++)
        CHECK(pthread_create(&rings[i].thread, NULL, producer, &rings[i]) == 0);
    long used = consume(len) - before;
    for (int i = 0; i < PRODUCERS; i++) {
        CHECK(pthread_join(rings[i].thread, NULL) == 0);
        free(rings[i].slots);
    }
    printf("live %zu KiB, resident %ld KiB\n", live / 1024, used);
    if (used > (long)(live / 1024 * 14 / 10))
        FAIL("%ld KiB resident for %zu KiB alive", used, live / 1024);
}

/* The threads of third_trim: the producer is asleep, but there, when the others do their part. */
static unsigned char **blocks;
static size_t blocks_len;
static atomic_int produced;

static void *produce_and_sleep(void *arg)
{
    for (size_t i = 0; i < blocks_len; i++) {
        blocks[i] = malloc(1024);
        CHECK(blocks[i]);
        memset(blocks[i], (int)i, 1024);
    }
    atomic_store(&produced, 1);
    while (!atomic_load(&stop))
        usleep(1000);
    return arg;
}

static void *free_all(void *arg)
{
    for (size_t i = 0; i < blocks_len; i++) {
        CHECK(blocks[i][1023] == (unsigned char)i);
        free(blocks[i]);
    }
    return arg;
}

static void *trim(void *arg)
{
    malloc_trim(0);
    return arg;
}

static void run(void *(*body)(void *))
{
    pthread_t t;
    CHECK(pthread_create(&t, NULL, body, NULL) == 0);
    CHECK(pthread_join(t, NULL) == 0);
}

static void third_trim(size_t live)
{
    pthread_t t;
    blocks_len = live / 1024;
    blocks = calloc(blocks_len, sizeof *blocks);
    CHECK(blocks);
    long before = status_kib("VmRSS:");
    CHECK(pthread_create(&t, NULL, produce_and_sleep, NULL) == 0);
    while (!atomic_load(&produced))
        usleep(1000);
    long full = status_kib("VmRSS:");
    CHECK(full - before > (long)(live / 1024));
    run(free_all);
    run(trim);
    long after = status_kib("VmRSS:") - (long)(blocks_len * sizeof *blocks / 1024);
    atomic_store(&stop, 1);
    CHECK(pthread_join(t, NULL) == 0);
    free(blocks);
    printf("before %ld, full %ld, trimmed %ld KiB\n", before, full, after);
    /* An eighth may stay: what the sleeping thread and the pages in reserve hold. */
    if (after - before > (full - before) / 8)
        FAIL("%ld KiB before, %ld full, still %ld after the trim", before, full, after);
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    if (strcmp(argv[1], "bounded") == 0)
        bounded(MiB(arg_count(argc, argv, 2, 370)));
    else if (strcmp(argv[1], "third_trim") == 0)
        third_trim(MiB(arg_count(argc, argv, 2, 1000)));
    else
        FAIL("unknown command %s", argv[1]);
    return 0;
}
