/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a program that the kernel tells nothing about nodes: numa_refuse EPERM|ENOSYS program [argument...].
 *
 * As containers do, mbind, get_mempolicy, set_mempolicy, move_pages and migrate_pages fail with that error, from before
 * the program is started. Exit 77 where there is no seccomp.
 */
#include "api_seccomp.h"

int main(int argc, char **argv)
{
    static const int refused[] = {SYS_mbind, SYS_get_mempolicy, SYS_set_mempolicy, SYS_move_pages, SYS_migrate_pages};
    CHECK(argc > 2);
    int error = strcmp(argv[1], "ENOSYS") == 0 ? ENOSYS : EPERM;
    for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++)
        seccomp_answer(refused[i], error);
    CHECK(syscall(SYS_get_mempolicy, NULL, NULL, 0ul, NULL, 0) == -1 && errno == error);
    execvp(argv[2], argv + 2);
    FAILF("cannot run %s (errno %d)", argv[2], errno);
}
