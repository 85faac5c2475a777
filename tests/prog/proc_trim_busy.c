/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc_trim from several threads at once, beside threads that allocate, while the main thread forks: each child trims and
 * checks a heap of its own.
 *
 *     proc_trim_busy [THREADS [FORKS [TRIMMERS]]]
 */
#include "proc_util.h"

static atomic_int stop;
static atomic_long trims;

static void *trim_main(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        struct block b = block_new(MiB(3));
        block_free(&b);
        malloc_trim(0);
        atomic_fetch_add(&trims, 1);
        usleep(200);
    }
    return NULL;
}

static void child(void)
{
    alarm(60);
    malloc_trim(0);
    for (int i = 0; i < 3; i++) {
        unsigned char *p = calloc(1, MiB(2));
        CHECK(p);
        for (size_t k = 0; k < MiB(2); k += 8)
            if (*(uint64_t *)(p + k) != 0)
                FAIL("byte %zu of a calloc is not zero", k);
        memset(p, 0xff, MiB(2));
        free(p);
        malloc_trim(0);
    }
    check_heap(60, NULL, 0);
    _exit(0);
}

int main(int argc, char **argv)
{
    int threads = (int)arg_count(argc, argv, 1, 4), trimmers = (int)arg_count(argc, argv, 3, 2);
    long forks = arg_count(argc, argv, 2, 100);
    pthread_t t[16];
    CHECK(trimmers <= 16);
    struct busy *busy = busy_start(threads, 22, &stop);
    for (int i = 0; i < trimmers; i++)
        CHECK(pthread_create(&t[i], NULL, trim_main, NULL) == 0);
    for (long i = 0; i < forks; i++) {
        pid_t pid = fork();
        if (pid == 0)
            child();
        wait_ok(pid, "child", i);
        malloc_trim(0);
    }
    while (atomic_load(&trims) < 10)
        usleep(1000);
    busy_stop(busy, threads);
    for (int i = 0; i < trimmers; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    check_heap(200, NULL, 0);
    printf("%ld forks\n", forks);
    return 0;
}
