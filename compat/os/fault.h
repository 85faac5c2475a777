/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The seam where tests refuse what we ask the kernel for. Level 0.
 *
 * Each system call about address space asks here first. In the library the question is a constant and costs nothing; the
 * debug objects that the tests link are built with SHEAF_FAULT, and tests/fault/fault.c answers. What bootstrap asks by
 * raw system calls and what later goes through libc's functions is met alike.
 */
#ifndef COMPAT_OS_FAULT_H
#define COMPAT_OS_FAULT_H

#include "cc.h"

enum fault_call { FAULT_MMAP, FAULT_MUNMAP, FAULT_MADVISE, FAULT_MREMAP, FAULT_MBIND, FAULT_CALLS };

#ifdef SHEAF_FAULT
/* What: count a call, and say whether it is the one to fail. Result: true: the call is not to be made, and *answer, 0 or
 * -errno, is what it says. Context: any time; keeps errno. */
bool fault_hit(enum fault_call call, long *answer);
#else
static inline bool fault_hit(enum fault_call call, long *answer)
{
    (void)call;
    (void)answer;
    return false;
}
#endif

#endif
