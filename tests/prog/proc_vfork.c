/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A vfork child runs in our memory with the cache of the thread that made it: proc_vfork [rounds] [threads].
 *
 * The child allocates and frees 100 blocks and leaves, with other threads busy; afterwards the heap must be consistent.
 */
#include "proc_util.h"

__attribute__((noinline)) static void use_heap(void)
{
    void *p[100];
    for (size_t i = 0; i < 100; i++) {
        p[i] = malloc(16 + i * 40);
        if (!p[i])
            _exit(3);
        memset(p[i], 0x5a, 16);
    }
    for (size_t i = 0; i < 100; i++)
        free(p[i]);
}

__attribute__((noinline)) static void one_round(long n)
{
    pid_t pid = vfork();
    if (pid == 0) {
        use_heap();
        _exit(0);
    }
    wait_ok(pid, "vfork child", n);
}

int main(int argc, char **argv)
{
    long rounds = arg_count(argc, argv, 1, 10000);
    int threads = (int)arg_count(argc, argv, 2, 4);
    atomic_int stop = 0;
    struct block kept[200];
    for (size_t i = 0; i < 200; i++)
        kept[i] = block_new(16 + i * 24);
    struct busy *t = busy_start(threads, 16, &stop);
    for (long i = 0; i < rounds; i++)
        one_round(i);
    busy_stop(t, threads);
    check_heap(5000, NULL, 0);
    for (size_t i = 0; i < 200; i++)
        block_free(&kept[i]);
    printf("%ld rounds\n", rounds);
    return 0;
}
