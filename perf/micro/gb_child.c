/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gb_child ORDER [MIB] [PERCENT]: a process with MIB (1024) of blocks of 500 B forks. A control child frees nothing;
 * another frees PERCENT (10) of the blocks, "order"ed or at "random", and stops. Prints what each dirtied of its own.
 */
#define _GNU_SOURCE
#include "gb.h"

#include <sys/wait.h>

enum { BYTES = 500 };

/* The child reads the shuffled table and writes nothing of it. */
static long dirty_in_child(void **block, size_t gone, size_t all)
{
    int fd[2];
    long kib = -1;
    if (pipe(fd) != 0)
        gb_fail("pipe");
    pid_t pid = fork();
    if (pid < 0)
        gb_fail("fork");
    if (pid == 0) {
        for (size_t i = 0; i < gone; i++)
            gb_block_free_below(block[i], all);
        kib = gb_smaps_kib("\nPrivate_Dirty:");
        _exit(write(fd[1], &kib, sizeof kib) != sizeof kib);
    }
    close(fd[1]);
    if (read(fd[0], &kib, sizeof kib) != sizeof kib)
        gb_fail("the child said nothing");
    close(fd[0]);
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        gb_fail("the child did not end well");
    return kib;
}

int main(int argc, char **argv)
{
    int random = argc > 1 && strcmp(argv[1], "random") == 0;
    if (!random && (argc < 2 || strcmp(argv[1], "order") != 0))
        gb_fail("usage: gb_child order|random [MIB] [PERCENT]");
    size_t all = GB_MIB(gb_arg(argc, argv, 2, 1024, 1)) / BYTES;
    size_t gone = all * (size_t)gb_arg(argc, argv, 3, 10, 0) / 100;
    void **block = gb_table(all * sizeof *block);
    for (size_t i = 0; i < all; i++)
        block[i] = gb_block(BYTES, i);
    if (random)
        gb_shuffle(block, all, 13);
    long control = dirty_in_child(block, 0, all), dirty = dirty_in_child(block, gone, all);
    gb_say("control_kib", control);
    gb_say("dirty_kib", dirty);
    gb_say("freed_bytes", (long long)(gone * BYTES));
    gb_say("permille", (long long)((dirty - control) * 1024000 / (long long)(gone * BYTES)));
    return 0;
}
