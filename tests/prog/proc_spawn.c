/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * posix_spawn and system() beside busy threads: proc_spawn [times] [threads].
 */
#include "proc_util.h"

#include <spawn.h>

extern char **environ;

int main(int argc, char **argv)
{
    long times = arg_count(argc, argv, 1, 500);
    int threads = (int)arg_count(argc, argv, 2, 4);
    atomic_int stop = 0;
    struct busy *t = busy_start(threads, 18, &stop);
    for (long i = 0; i < times; i++) {
        char *args[] = {"true", NULL};
        pid_t pid = -1;
        struct block b = block_new(16 + (size_t)i);
        CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, args, environ) == 0);
        wait_ok(pid, "spawned true", i);
        block_free(&b);
    }
    CHECK(system("exit 7") == 7 << 8);
    busy_stop(t, threads);
    check_heap(5000, NULL, 0);
    printf("%ld spawns\n", times);
    return 0;
}
