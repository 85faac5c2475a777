/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that watches its own VMA system calls (brk, mmap, munmap, mprotect, mremap, madvise): it counts them, or has
 * the k-th of one kind refused. No tracer and no privilege: a filter hands each call to a thread of the same process,
 * which lets it go on or answers it with an error. The thread that called calls_watch and those it starts afterwards are
 * watched; the watching thread is not.
 *
 *     calls_watch();              exit 77 where the kernel or a sandbox does not allow it
 *     calls_reset(); work(); n = calls_total();
 *     calls_refuse(SYS_mremap, 2, ENOMEM); work(); if (calls_refused()) ...
 */
#ifndef TESTS_PROG_PROC_CALLS_H
#define TESTS_PROG_PROC_CALLS_H

#include "proc_util.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const int calls_watched[] = {SYS_brk, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise};
enum { CALLS = sizeof calls_watched / sizeof calls_watched[0] };

/* seen: by place in calls_watched. refuse_*: set by calls_refuse; left counts down to the call that is refused. */
static struct {
    atomic_int listener;
    atomic_long seen[CALLS], left;
    atomic_int refuse_number, refuse_error, refused;
} calls;

static inline void calls_reset(void)
{
    for (int i = 0; i < CALLS; i++)
        atomic_store(&calls.seen[i], 0);
}

static inline long calls_of(int number)
{
    for (int i = 0; i < CALLS; i++)
        if (calls_watched[i] == number)
            return atomic_load(&calls.seen[i]);
    FAIL("call %d is not watched", number);
}

static inline long calls_total(void)
{
    long sum = 0;
    for (int i = 0; i < CALLS; i++)
        sum += atomic_load(&calls.seen[i]);
    return sum;
}

/* The k-th call of this number from now on (1: the next) fails with `error`. */
static inline void calls_refuse(int number, long k, int error)
{
    atomic_store(&calls.refuse_error, error);
    atomic_store(&calls.refused, 0);
    atomic_store(&calls.left, k);
    atomic_store(&calls.refuse_number, number);
}

static inline int calls_refused(void)
{
    return atomic_load(&calls.refused);
}

/* 0, or the error that the call gets. */
static inline int calls_judge(int number)
{
    for (int i = 0; i < CALLS; i++)
        if (calls_watched[i] == number)
            atomic_fetch_add(&calls.seen[i], 1);
    if (number != atomic_load(&calls.refuse_number) || atomic_fetch_sub(&calls.left, 1) != 1)
        return 0;
    atomic_store(&calls.refused, 1);
    return atomic_load(&calls.refuse_error);
}

/* Allocates nothing: who is watched may hold the allocator's locks. */
static inline void *calls_watcher(void *arg)
{
    union {
        struct seccomp_notif notif;
        char room[1024]; /* the kernel's struct may be longer than ours */
    } in;
    union {
        struct seccomp_notif_resp resp;
        char room[1024];
    } out;
    int fd;
    while ((fd = atomic_load(&calls.listener)) < 0)
        usleep(1000);
    for (;;) {
        memset(&in, 0, sizeof in);
        memset(&out, 0, sizeof out);
        if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &in) != 0)
            continue;
        int error = calls_judge(in.notif.data.nr);
        out.resp.id = in.notif.id;
        out.resp.error = -error;
        out.resp.flags = error ? 0 : SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &out);
    }
    return arg;
}

static inline int calls_filter(void)
{
    struct sock_filter code[2 * CALLS + 2];
    unsigned short n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < CALLS; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls_watched[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {n, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static inline void calls_watch(void)
{
    struct seccomp_notif_sizes sizes;
    pthread_t watcher;
    if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) != 0 || sizes.seccomp_notif > 1024 ||
        sizes.seccomp_notif_resp > 1024) {
        fprintf(stderr, "no seccomp that asks: %s\n", strerror(errno));
        exit(77);
    }
    atomic_store(&calls.refuse_number, -1);
    atomic_store(&calls.listener, -1);
    CHECK(pthread_create(&watcher, NULL, calls_watcher, NULL) == 0);
    int fd = calls_filter();
    if (fd < 0) {
        fprintf(stderr, "no seccomp that asks: %s\n", strerror(errno));
        exit(77);
    }
    atomic_store(&calls.listener, fd);
    /* Where notifications may not go on (an old kernel), nothing but an error comes back. */
    if (syscall(SYS_madvise, NULL, 0, 0) != 0 && errno == ENOSYS)
        FAIL("%s", "the watched calls do not go on");
    calls_reset();
}

#endif
