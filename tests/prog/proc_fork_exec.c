/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many threads fork and exec at the same time: proc_fork_exec [threads] [times]. Only the count is checked, not the
 * time.
 */
#include "proc_util.h"

static long times;
static atomic_long done;

static void *forker(void *arg)
{
    for (long i = 0; i < times; i++) {
        void *p = malloc(100 + (size_t)i);
        pid_t pid = fork();
        if (pid == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(127);
        }
        free(p);
        wait_ok(pid, "true", i);
        atomic_fetch_add(&done, 1);
    }
    return arg;
}

int main(int argc, char **argv)
{
    int threads = (int)arg_count(argc, argv, 1, 64);
    times = arg_count(argc, argv, 2, 100);
    pthread_t *t = calloc((size_t)threads, sizeof *t);
    CHECK(t);
    for (int i = 0; i < threads; i++)
        CHECK(pthread_create(&t[i], NULL, forker, NULL) == 0);
    for (int i = 0; i < threads; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    free(t);
    CHECK(atomic_load(&done) == threads * times);
    printf("%ld execs\n", atomic_load(&done));
    return 0;
}
