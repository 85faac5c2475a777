/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A filter that kills the process at any system call which glibc's malloc would not make:
 * proc_seccomp [operations] [no_madvise].
 *
 * A thread is started first; then the filter is set for all threads, the thread works, ends, and the main thread trims
 * and works. With `no_madvise` that call is refused with EPERM instead of allowed. Exit 77 where there is no seccomp.
 */
#include "proc_util.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

static long operations;
static atomic_int there, go;

static void *thread(void *arg)
{
    struct block b[512] = {{NULL, 0}};
    uint64_t seed = 11;
    struct block early = block_new(100);
    atomic_store(&there, 1);
    while (!atomic_load(&go))
        ;
    for (long i = 0; i < operations; i++) {
        unsigned at = rng_next(&seed) % 512;
        block_free(&b[at]);
        b[at] = block_new(rng_size(&seed, i % 256 == 0 ? 22 : 13));
    }
    for (int i = 0; i < 512; i++)
        block_free(&b[i]);
    block_free(&early);
    return arg;
}

#ifdef ARCH

#ifndef SECCOMP_RET_KILL_PROCESS
#define SECCOMP_RET_KILL_PROCESS SECCOMP_RET_KILL
#endif

static const int allowed[] = {SYS_read,           SYS_write,    SYS_exit,   SYS_exit_group, SYS_rt_sigreturn,
                              SYS_rt_sigprocmask, SYS_futex,    SYS_brk,    SYS_mmap,       SYS_munmap,
                              SYS_mremap,         SYS_mprotect, SYS_madvise};
enum { ALLOWED = sizeof allowed / sizeof allowed[0] };

static int set_filter(int no_madvise)
{
    struct sock_filter code[4 + 2 * ALLOWED + 1];
    unsigned n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < ALLOWED; i++) {
        int refused = no_madvise && allowed[i] == SYS_madvise;
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], 0, 1);
        code[n++] =
            (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, refused ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_ALLOW);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {(unsigned short)n, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

#else

static int set_filter(int no_madvise)
{
    (void)no_madvise;
    errno = ENOSYS;
    return -1;
}

#endif

int main(int argc, char **argv)
{
    static const char text[] = "done\n";
    pthread_t t;
    operations = arg_count(argc, argv, 1, 1000000);
    struct block early = block_new(5000);
    CHECK(pthread_create(&t, NULL, thread, NULL) == 0);
    /* What starting a thread needs from the kernel is not the matter here. */
    while (!atomic_load(&there))
        usleep(1000);
    if (set_filter(argc > 2) != 0) {
        fprintf(stderr, "no seccomp: %s\n", strerror(errno));
        return 77;
    }
    atomic_store(&go, 1);
    CHECK(pthread_join(t, NULL) == 0);
    malloc_trim(0);
    check_heap(3000, NULL, 0);
    every_class(MiB(4));
    block_free(&early);
    CHECK(write(1, text, sizeof text - 1) > 0);
    _exit(0);
}
