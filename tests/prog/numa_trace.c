/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program asks the kernel about nodes: numa_trace [--judge N] [--preload LIB] program [argument...].
 *
 * Follows the program's first thread to its end and counts calls of the memory policy family, and openings of libnuma
 * and of what lies below /sys. LIB is preloaded into the program alone. Judged: no more than N of such calls, nothing
 * opened. Exit 77 where ptrace is refused.
 */
#include "proc_util.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static long policy_calls, opened, calls;

/* A string of the traced process, cut at the end of ours. */
static void read_path(pid_t pid, uint64_t address, char *text, size_t size)
{
    struct iovec here = {text, size - 1}, there = {(void *)(uintptr_t)address, size - 1};
    ssize_t n = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (n < 0) {
        /* Near the end of a mapping: no further than the page. */
        size_t left = 4096 - (size_t)(address & 4095);
        here.iov_len = there.iov_len = left < size - 1 ? left : size - 1;
        n = process_vm_readv(pid, &here, 1, &there, 1, 0);
    }
    text[n > 0 ? n : 0] = 0;
}

static void count_call(pid_t pid, const struct __ptrace_syscall_info *info)
{
    char path[200];
    calls++;
    switch (info->entry.nr) {
    case SYS_get_mempolicy:
    case SYS_set_mempolicy:
    case SYS_mbind:
    case SYS_move_pages:
    case SYS_migrate_pages:
        policy_calls++;
        break;
    case SYS_openat:
        read_path(pid, info->entry.args[1], path, sizeof path);
        if (strstr(path, "libnuma") || strncmp(path, "/sys", 4) == 0) {
            printf("opened: %s\n", path);
            opened++;
        }
        break;
    default:
        break;
    }
}

static int follow(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status))
        return status;
    CHECK(ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0);
    for (long sig = 0;;) {
        CHECK(ptrace(PTRACE_SYSCALL, pid, 0, sig) == 0);
        CHECK(waitpid(pid, &status, 0) == pid);
        if (!WIFSTOPPED(status))
            return status;
        sig = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        if (WSTOPSIG(status) != (SIGTRAP | 0x80))
            continue;
        sig = 0;
        struct __ptrace_syscall_info info = {0};
        CHECK(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) > 0);
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
            count_call(pid, &info);
    }
}

int main(int argc, char **argv)
{
    const char *preload = NULL;
    long bar = -1;
    int at = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--judge") == 0)
            bar = strtol(argv[at + 1], NULL, 10);
        else if (strcmp(argv[at], "--preload") == 0)
            preload = argv[at + 1];
        else
            FAIL("no such option: %s", argv[at]);
    }
    CHECK(at < argc);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (preload)
            setenv("LD_PRELOAD", preload, 1);
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
            _exit(77);
        execvp(argv[at], argv + at);
        FAIL("cannot run %s (errno %d)", argv[at], errno);
    }
    int status = follow(pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "the program ended with status %x\n", (unsigned)status);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    printf("policy calls: %ld\nfiles opened: %ld\n", policy_calls, opened);
    fflush(stdout);
    CHECK(calls > 5);
    if (bar >= 0 && (policy_calls > bar || opened > 0))
        FAIL("%ld policy calls and %ld files, at most %ld and none", policy_calls, opened, bar);
    return 0;
}
