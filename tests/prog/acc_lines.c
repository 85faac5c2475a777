/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * No two threads get parts of one cache line (R64): acc_lines [THREADS] [BLOCKS]. Threads allocate 16 bytes at a time, by
 * turns as far as the system lets them, and count in each block; then all blocks are laid side by side.
 */
#include "proc_util.h"

enum { LINE = 64, SIZE = 16 };

struct owned {
    uintptr_t line;
    long thread;
};

static long blocks;
static struct owned *all;
static pthread_barrier_t start;

static void *body(void *arg)
{
    long me = (long)(intptr_t)arg;
    struct owned *mine = all + me * blocks;
    pthread_barrier_wait(&start);
    for (long i = 0; i < blocks; i++) {
        long *p = malloc(SIZE);
        CHECK(p);
        *p = i;
        mine[i] = (struct owned){(uintptr_t)p / LINE, me};
        if (i % 32 == 31)
            sched_yield();
    }
    pthread_barrier_wait(&start); /* no thread's blocks go to another one before all have theirs */
    return NULL;
}

static int by_line(const void *a, const void *b)
{
    const struct owned *x = a, *y = b;
    return x->line < y->line ? -1 : x->line > y->line;
}

int main(int argc, char **argv)
{
    long threads = arg_count(argc, argv, 1, 8), shared = 0;
    blocks = arg_count(argc, argv, 2, 5000);
    pthread_t *t = calloc((size_t)threads, sizeof *t);
    all = calloc((size_t)(threads * blocks), sizeof *all);
    CHECK(t && all && pthread_barrier_init(&start, NULL, (unsigned)threads) == 0);
    for (long i = 0; i < threads; i++)
        CHECK(pthread_create(&t[i], NULL, body, (void *)(intptr_t)i) == 0);
    for (long i = 0; i < threads; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    qsort(all, (size_t)(threads * blocks), sizeof *all, by_line);
    for (long i = 1; i < threads * blocks; i++)
        shared += all[i].line == all[i - 1].line && all[i].thread != all[i - 1].thread;
    if (shared != 0)
        FAIL("%ld lines have blocks of two threads", shared);
    printf("%ld blocks\n", threads * blocks);
    return 0;
}
