/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All memory locked, with a limit of 64 MiB on it: 4 threads can be started and allocate 8 MiB each. Where the system's
 * own limit is lower, that one holds and the blocks are an eighth of it. An allocator that reserves much more than it is
 * asked for meets EAGAIN. Exit 77 where the limit cannot be made to count.
 */
#include "proc_util.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* The limit does not bind a process that may lock anything, so that right goes first. */
static void drop_ipc_lock(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) != 0)
        exit(77);
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    if (syscall(SYS_capset, &header, data) != 0)
        exit(77);
}

static pthread_barrier_t all_there;
static size_t big_size;

static void *thread(void *arg)
{
    struct block small[50], big = block_new(big_size);
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
    struct rlimit limit;
    pthread_attr_t attr;
    pthread_t t[4];
    drop_ipc_lock();
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (limit.rlim_max > MiB(64))
        limit.rlim_max = MiB(64);
    limit.rlim_cur = limit.rlim_max;
    big_size = limit.rlim_cur / 8;
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        fprintf(stderr, "mlockall: %s\n", strerror(errno));
        /* ENOMEM is a failure: then the process is too large before it did anything. */
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
    printf("4 blocks of %zu KiB\n", big_size / 1024);
    return 0;
}
