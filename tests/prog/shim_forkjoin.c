/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library with a worker thread that allocates without pause, started in its constructor, ended and waited for before
 * each fork and started again in the parent, as numeric libraries do. The worker can only end if no lock of the allocator
 * is held by then: the allocator's handlers must have been registered before this one's.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 200 };

static pthread_t worker;
static int stop;

static void *work(void *unused)
{
    void *p[BLOCKS];
    do {
        for (size_t i = 0; i < BLOCKS; i++) {
            if (!(p[i] = malloc(1 + i * 200)))
                abort();
            memset(p[i], 1, 1 + i * 200);
        }
        for (size_t i = 0; i < BLOCKS; i++)
            free(p[i]);
    } while (!__atomic_load_n(&stop, __ATOMIC_RELAXED));
    return unused;
}

static void start(void)
{
    __atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
    if (pthread_create(&worker, NULL, work, NULL) != 0)
        abort();
}

static void end(void)
{
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    if (pthread_join(worker, NULL) != 0)
        abort();
}

__attribute__((constructor(101))) static void shim_forkjoin_start(void)
{
    if (pthread_atfork(end, start, NULL) != 0)
        abort();
    start();
}
