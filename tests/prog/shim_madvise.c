/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A preload that counts the calls of madvise, in all and by advice, and those that give memory back between the
 * first and the second call of getppid, by which a program can mark a part of itself. Prints one line at exit:
 *     shim_madvise: all=N dontneed=N free=N between=N
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static long all, dontneed, lazy, between;
static int marks;

static void count(long *n)
{
    __atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
}

int madvise(void *at, size_t len, int advice)
{
    count(&all);
    if (advice == MADV_DONTNEED)
        count(&dontneed);
    if (advice == MADV_FREE)
        count(&lazy);
    if ((advice == MADV_DONTNEED || advice == MADV_FREE) && __atomic_load_n(&marks, __ATOMIC_RELAXED) == 1)
        count(&between);
    return (int)syscall(SYS_madvise, at, len, advice);
}

pid_t getppid(void)
{
    __atomic_fetch_add(&marks, 1, __ATOMIC_RELAXED);
    return (pid_t)syscall(SYS_getppid);
}

__attribute__((destructor)) static void report(void)
{
    dprintf(2, "shim_madvise: all=%ld dontneed=%ld free=%ld between=%ld\n", all, dontneed, lazy, between);
}
