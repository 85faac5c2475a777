/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gb_threads [THREADS] [control]: THREADS (4,000) threads each allocate, write and free one block of each of 64 sizes up
 * to 32 KiB, then sleep. With "control" they do not: what they cost then is their stacks. Prints the growth of resident
 * memory per thread.
 */
#define _GNU_SOURCE
#include "gb.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

enum { SIZES = 64, STACK = 128 << 10, STACK_USED = 24 << 10 };

static int control;
static atomic_long finished;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

/* 64 sizes up to 32 KiB: 16 a step to 256 B, then 6 or 7 a doubling. */
static size_t size_of(int i)
{
    if (i < 16)
        return (size_t)(i + 1) * 16;
    size_t base = (size_t)256 << (i - 16) / 7;
    return base + base * (size_t)((i - 16) % 7 + 1) / 7;
}

/* The same depth of stack is used with and without an allocator's slow paths. */
static void __attribute__((noinline)) use_stack(void)
{
    volatile char use[STACK_USED];
    for (size_t i = 0; i < sizeof use; i += 1024)
        use[i] = 1;
}

static void *body(void *arg)
{
    use_stack();
    for (int i = 0; !control && i < SIZES; i++)
        gb_block_free(gb_block(size_of(i), (uint64_t)i), (uint64_t)i);
    atomic_fetch_add(&finished, 1);
    pthread_mutex_lock(&lock);
    for (;;)
        pthread_cond_wait(&never, &lock);
    return arg;
}

int main(int argc, char **argv)
{
    long threads = gb_arg(argc, argv, 1, 4000, 1);
    control = argc > 2 && strcmp(argv[2], "control") == 0;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    long before = gb_rss_kib();
    for (long i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attr, body, NULL) != 0)
            gb_fail("cannot start a thread");
    }
    while (atomic_load(&finished) < threads)
        gb_sleep_ms(10);
    gb_sleep_ms(200);
    long after = gb_rss_kib();
    gb_say("before_kib", before);
    gb_say("after_kib", after);
    gb_say("bytes_a_thread", (after - before) * 1024 / threads);
    return 0;
}
