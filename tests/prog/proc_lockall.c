/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All memory locked, with a limit of 64 MiB on it: 4 threads can be started and allocate 8 MiB each. An allocator that
 * reserves much more than it is asked for meets EAGAIN.
 *
 * Where the system allows us less than 64 MiB, a privileged process locks without a limit, and 64 MiB of address space,
 * which is all locked then, take its place. Exit 77 where neither is possible.
 */
#include "proc_util.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static int may_lock(struct __user_cap_header_struct *header, struct __user_cap_data_struct *data)
{
    return syscall(SYS_capget, header, data) == 0 && (data[0].effective & (1u << CAP_IPC_LOCK));
}

/* 64 MiB of locked memory. It does not bind a process that may lock anything, so that right goes. */
static int limit_locked(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    struct rlimit limit = {MiB(64), MiB(64)};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return 0;
    if (!may_lock(&header, data))
        return 1;
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    return syscall(SYS_capset, &header, data) == 0;
}

static int limit_address_space(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    struct rlimit limit = {MiB(64), MiB(64)};
    return may_lock(&header, data) && setrlimit(RLIMIT_AS, &limit) == 0;
}

static pthread_barrier_t all_there;

static void *thread(void *arg)
{
    struct block small[50], big = block_new(MiB(8));
    memset(big.p, mark_of(big.p, big.size), big.size);
    for (size_t i = 0; i < 50; i++)
        small[i] = block_new(16 + i * 30);
    pthread_barrier_wait(&all_there);
    for (int i = 0; i < 50; i++)
        block_free(&small[i]);
    block_free(&big);
    return arg;
}

int main(void)
{
    pthread_attr_t attr;
    pthread_t t[4];
    if (!limit_locked() && !limit_address_space()) {
        fprintf(stderr, "no way to a limit of 64 MiB on locked memory\n");
        return 77;
    }
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        /* ENOMEM under the limit means that the process is too large before it did anything: a failure. */
        fprintf(stderr, "mlockall: %s\n", strerror(errno));
        return errno == EPERM || errno == ENOSYS ? 77 : 1;
    }
    CHECK(pthread_barrier_init(&all_there, NULL, 4) == 0);
    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setstacksize(&attr, KiB(64)) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], &attr, thread, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    check_heap(500, NULL, 0);
    printf("done\n");
    return 0;
}
