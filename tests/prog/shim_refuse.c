/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stands before libc's madvise, and does it by a bare system call. From the environment:
 *     SHIM_REFUSE=k,errno     the k-th call fails so; 0 for errno: it does nothing and says that it did
 *     SHIM_REFUSE=k+,errno    and all after it
 *     SHIM_REFUSE_NAP=us      each call takes so long, so that forks and other threads meet it
 *     SHIM_REFUSE_REPORT=1    at exit, how many calls there were
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static long calls, first, nap;
static int forever, answer = -1;

__attribute__((constructor)) static void start(void)
{
    const char *spec = getenv("SHIM_REFUSE"), *us = getenv("SHIM_REFUSE_NAP");
    char *rest = NULL;
    nap = us == NULL ? 0 : strtol(us, NULL, 10);
    if (spec == NULL)
        return;
    first = strtol(spec, &rest, 10);
    forever = *rest == '+';
    answer = (int)strtol(rest + forever + 1, NULL, 10);
}

int madvise(void *p, size_t size, int advice)
{
    long n = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if (nap > 0)
        usleep((useconds_t)nap);
    if (first != 0 && (n == first || (forever && n > first))) {
        if (answer != 0)
            errno = answer;
        return answer == 0 ? 0 : -1;
    }
    return (int)syscall(SYS_madvise, p, size, advice);
}

__attribute__((destructor)) static void report(void)
{
    if (getenv("SHIM_REFUSE_REPORT") != NULL)
        dprintf(2, "shim_refuse: %ld calls\n", calls);
}
