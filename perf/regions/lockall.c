/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lockall: 64 MiB of locked memory allowed, all present and future memory locked; four threads with stacks of the usual
 * size start and allocate 1 MiB each. An allocator that reserves much more than it is asked for meets EAGAIN.
 *
 * Where the system allows us less than 64 MiB, a process that may lock anything, and 64 MiB of address space, which is
 * all locked then, take its place ("by_as 1"). Prints "threads N", or "skip 1" where neither is possible.
 */
#include "regions.h"

#include <linux/capability.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 4 };

static int may_lock(struct __user_cap_header_struct *header, struct __user_cap_data_struct *data)
{
    return syscall(SYS_capget, header, data) == 0 && (data[0].effective & (1u << CAP_IPC_LOCK));
}

/* The limit does not bind a process that may lock anything, so that right goes. */
static int limit_locked(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    struct rlimit limit = {MIB(64), MIB(64)};
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
    struct rlimit limit = {MIB(64), MIB(64)};
    return may_lock(&header, data) && setrlimit(RLIMIT_AS, &limit) == 0;
}

static pthread_barrier_t all_there;

static void *thread(void *arg)
{
    char *p = malloc(MIB(1));
    if (p != NULL)
        memset(p, 1, MIB(1));
    pthread_barrier_wait(&all_there);
    free(p);
    return p == NULL ? NULL : arg;
}

void lockall(const struct job *job)
{
    pthread_t t[THREADS];
    void *ok;
    long good = 0;
    int by_as = !limit_locked();
    if (by_as && !limit_address_space()) {
        printf("skip 1\n");
        return;
    }
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        regions_fail("lockall", "mlockall refused");
    pthread_barrier_init(&all_there, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&t[i], NULL, thread, (void *)job) != 0)
            regions_fail("lockall", "cannot start a thread");
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], &ok);
        good += ok != NULL;
    }
    printf("threads %ld\nby_as %d\n", good, by_as);
}
