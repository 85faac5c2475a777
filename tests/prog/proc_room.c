/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where malloc still finds room for a block, realloc to that size does too: whatever more an allocator would like to have
 * for a block that grows, it can do without (R11). One process for each limit on the address space.
 */
#include "proc_util.h"

#include <sys/resource.h>

enum { LIMIT_FROM_MIB = 60, LIMIT_TO_MIB = 200, FROM_MIB = 20, TO_MIB = 40, LATER = 3 };

static void once(size_t limit)
{
    char *p = malloc(MiB(FROM_MIB));
    CHECK(p);
    memset(p, 1, 100);
    struct rlimit as = {limit, limit};
    CHECK(setrlimit(RLIMIT_AS, &as) == 0);
    if (realloc(p, MiB(TO_MIB)))
        _exit(0);
    CHECK(errno == ENOMEM && p[99] == 1);
    _exit(malloc(MiB(TO_MIB)) ? LATER : 0);
}

int main(void)
{
    int status;
    for (size_t mib = LIMIT_FROM_MIB; mib <= LIMIT_TO_MIB; mib += 2) {
        pid_t pid = fork();
        if (pid == 0)
            once(MiB(mib));
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status));
        if (WEXITSTATUS(status) == LATER)
            FAIL("in %zu MiB realloc to %d MiB is refused, and malloc of as much is not", mib, TO_MIB);
        CHECK(WEXITSTATUS(status) == 0);
    }
    printf("done\n");
    return 0;
}
