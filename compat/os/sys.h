/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Raw system calls that do not touch errno and cannot be interposed. Level 0.
 * x86-64 and aarch64 have their own instruction; elsewhere libc's syscall() is used with errno put back.
 */
#ifndef COMPAT_OS_SYS_H
#define COMPAT_OS_SYS_H

#include "cc.h"

#include <errno.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <unistd.h>
#endif

/* What: system call nr with six arguments. Fails: -errno in the result. Context: any time. */
static inline long sys_call6(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long ret;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
    int saved = errno;
    long ret = syscall(nr, a, b, c, d, e, f);
    if (ret == -1)
        ret = -errno;
    errno = saved;
    return ret;
#endif
}

/* What: a value of the kernel's auxiliary vector, 0 if it gave none: then getauxval alone writes ENOENT into errno (older
 * kernels tell nothing of rseq, valgrind hides the vDSO). */
static inline unsigned long sys_auxv(unsigned long type)
{
    int saved = errno;
    unsigned long value = getauxval(type);
    errno = saved;
    return value;
}

static inline long sys_call3(long nr, long a, long b, long c)
{
    return sys_call6(nr, a, b, c, 0, 0, 0);
}

#endif
