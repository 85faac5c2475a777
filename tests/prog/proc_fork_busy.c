/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fork while other threads hold every lock an allocator may have: proc_fork_busy [threads] [forks] [handlers].
 *
 * Every fourth child allocates and frees every size class from 16 B to 4 MiB, starts a thread that does so up to 64
 * KiB, and leaves; the others do so up to 8 KiB only, which costs a tenth and meets the same locks. A child that
 * waits for a lock of a thread it does not have is ended by its alarm, which is long because such a wait has no end
 * while a busy machine only takes its time. With `handlers` the counters of the three shim_atfork libraries must show
 * that their handlers ran at each fork.
 */
#include "proc_util.h"

#include <dlfcn.h>

static void *child_thread(void *arg)
{
    every_class(KiB(64));
    return arg;
}

static void child(int short_form)
{
    pthread_t t;
    alarm(30);
    every_class(short_form ? KiB(8) : MiB(4));
    if (short_form)
        _exit(0);
    CHECK(pthread_create(&t, NULL, child_thread, NULL) == 0);
    CHECK(pthread_join(t, NULL) == 0);
    _exit(0);
}

static void check_handlers(long forks)
{
    static const char *const names[] = {"shim_atfork_runs_1", "shim_atfork_runs_2", "shim_atfork_runs_3"};
    for (int i = 0; i < 3; i++) {
        long (*runs)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, names[i]);
        if (!runs)
            FAIL("%s is not loaded", names[i]);
        if (runs() != 2 * forks)
            FAIL("%s is %ld after %ld forks", names[i], runs(), forks);
    }
}

int main(int argc, char **argv)
{
    int threads = (int)arg_count(argc, argv, 1, 8);
    long forks = arg_count(argc, argv, 2, 10000);
    atomic_int stop = 0;
    struct busy *t = busy_start(threads, 22, &stop);
    for (long i = 0; i < forks; i++) {
        pid_t pid = fork();
        if (pid == 0)
            child(i % 4 != 0);
        wait_ok(pid, "child", i);
    }
    busy_stop(t, threads);
    if (argc > 3)
        check_handlers(forks);
    every_class(MiB(4));
    printf("%ld forks\n", forks);
    return 0;
}
