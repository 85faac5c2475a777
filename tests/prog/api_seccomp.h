/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls that fail, or succeed without acting, for the rest of the process: how a test sees what an allocator
 * does when the kernel does not do as it is told. Needs no privilege.
 */
#ifndef PROG_API_SECCOMP_H
#define PROG_API_SECCOMP_H

#include "api_check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* Make one system call return -1 with `error`, or 0 without acting if `error` is 0. Filters add up; one cannot be
 * taken back. Skips the program where the kernel or a sandbox refuses. */
static inline void seccomp_answer(int number, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((uint32_t)error & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        SKIPF("no seccomp filter: %s", strerror(errno));
}

#endif
