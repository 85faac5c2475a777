/* SPDX-License-Identifier: BSD-2-Clause */
/* compat/os/cpu.h: where the caller runs. */
#include "unit.h"

#include "compat/os/cpu.h"
#include "compat/os/sys.h"

#include <errno.h>
#include <sched.h>
#include <sys/auxv.h>

/* The n-th cpu we may run on; -1: there are not so many. */
static int allowed_cpu(int n)
{
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && n-- == 0)
            return cpu;
    return -1;
}

static void pin_to(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    MUST(sched_setaffinity(0, sizeof one, &one) == 0);
}

static void follow_cpus(void *arg)
{
    (void)arg;
    int cpus[8], n = 0;
    while (n < 8 && (cpus[n] = allowed_cpu(n)) >= 0)
        n++;
    for (int i = 0; i < n; i++) {
        pin_to(cpus[i]);
        MUST(cpu_current() == (unsigned)cpus[i]);
    }
}

TEST(cpu, current_is_the_one_we_are_pinned_to)
{
    unit_thread(follow_cpus, NULL);
}

TEST(cpu, count_is_that_of_the_affinity_mask)
{
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof all, &all) == 0) /* more cpus than the set has room for: refused */
        EXPECT_EQ(cpu_count(), CPU_COUNT(&all));
}

static unsigned shard[2];
static uint32_t seen;

/* Both run, each on its cpu, until both have looked. */
static void look(unsigned thread)
{
    pin_to(allowed_cpu((int)thread));
    add_relaxed(&seen, 1);
    while (load_relaxed(&seen) < 2)
        cpu_relax();
    for (int i = 0; i < 1000; i++) {
        shard[thread] = cpu_shard();
        cpu_relax();
    }
    add_relaxed(&seen, 1);
    while (load_relaxed(&seen) < 4)
        cpu_relax();
}

TEST(cpu, threads_that_run_together_have_shards_of_their_own)
{
    if (allowed_cpu(1) < 0)
        return;
    int apart = 0;
    for (int i = 0; i < 50; i++) { /* another program may take one of the two cpus meanwhile */
        seen = 0;
        unit_threads(2, look);
        apart += shard[0] != shard[1];
    }
    EXPECT(apart > 0);
}

/* mm_cid is dense: one thread, wherever it runs, has the first table or one below the number of cpus. */
TEST(cpu, shards_are_dense_where_the_kernel_counts_them)
{
    if (getauxval(27) < 28) /* AT_RSEQ_FEATURE_SIZE */
        return;
    for (int i = 0; i < 1000; i++)
        EXPECT(cpu_shard() < cpu_count());
}

/* Kernels before 6.3 have no AT_RSEQ_FEATURE_SIZE, and the first malloc asks for it. */
TEST(cpu, what_the_kernel_does_not_tell_leaves_errno_alone)
{
    errno = 1234;
    EXPECT_EQ(sys_auxv(12345), 0);
    EXPECT_EQ(errno, 1234);
    EXPECT(sys_auxv(AT_PAGESZ) >= 4096);
    EXPECT_EQ(errno, 1234);
}
