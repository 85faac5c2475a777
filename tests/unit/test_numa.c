/* SPDX-License-Identifier: BSD-2-Clause */
/* compat/os/numa.h: any system's nodes as dense indices, on made-up systems, and on this one. */
#include "unit.h"

#include "compat/os/cpu.h"
#include "compat/os/numa.h"
#include "compat/os/vm.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- a made-up system ---- */

enum { IDS = 4096, ANY = -2 };

static struct {
    long refusal;         /* of the question which nodes are allowed */
    size_t bits_needed;   /* fewer: -EINVAL */
    unsigned char memory[IDS];
    long mode;            /* policy */
    bool library;
    int nodes, cpus;      /* what it says; ANY: the truth */
    int cpu_node[IDS];
    int (*distance)(int, int);
    int here;
    int asked, opened, closed; /* calls */
} fake;

static int by_pairs(int a, int b)
{
    return a == b ? 10 : a / 2 == b / 2 ? 20 : 30;
}

static int by_number(int a, int b)
{
    int apart = abs(a - b);
    return apart > 200 ? 210 : 10 + apart;
}

static long fake_allowed(unsigned long *mask, size_t bits)
{
    fake.asked++;
    if (fake.refusal != 0)
        return fake.refusal;
    if (bits < fake.bits_needed)
        return -EINVAL;
    memset(mask, 0, bits / 8);
    for (size_t i = 0; i < IDS && i < bits; i++)
        if (fake.memory[i])
            mask[i / 64] |= 1ul << i % 64;
    return 0;
}

static long fake_policy(void)
{
    return fake.mode;
}

static int fake_here(void)
{
    return fake.here;
}

static bool fake_open(void)
{
    fake.opened++;
    return fake.library;
}

static int fake_nodes(void)
{
    return fake.nodes;
}

static int fake_cpus(void)
{
    return fake.cpus;
}

static int fake_node_of_cpu(int cpu)
{
    return cpu < IDS ? fake.cpu_node[cpu] : -1;
}

static int fake_distance(int a, int b)
{
    return fake.distance(a, b);
}

static void fake_close(void)
{
    fake.closed++;
}

static const struct numa_system fake_system = {
    .allowed = fake_allowed,
    .policy = fake_policy,
    .here = fake_here,
    .open = fake_open,
    .nodes = fake_nodes,
    .cpus = fake_cpus,
    .node_of_cpu = fake_node_of_cpu,
    .distance = fake_distance,
    .close = fake_close,
};

/* Nodes with memory, and the node of each cpu; both lists end with -1. */
static void fake_machine(const int *memory, const int *cpus)
{
    memset(&fake, 0, sizeof fake);
    fake.library = true;
    fake.distance = by_pairs;
    fake.nodes = 0;
    for (; *memory >= 0; memory++)
        fake.memory[*memory] = 1;
    for (fake.cpus = 0; cpus[fake.cpus] >= 0; fake.cpus++) {
        fake.cpu_node[fake.cpus] = cpus[fake.cpus];
        fake.nodes = cpus[fake.cpus] + 1 > fake.nodes ? cpus[fake.cpus] + 1 : fake.nodes;
    }
}

#define LIST(...) ((const int[]){__VA_ARGS__, -1})

static void fake_start(unsigned most)
{
    numa_reset();
    numa_init_from(&fake_system, most, NULL);
}

/* Whatever was said: every number has a home, and each row of neighbours is a permutation that begins with itself. */
static void check_map(void)
{
    unsigned n = numa_count();
    EXPECT(n >= 1);
    for (unsigned i = 0; i < n; i++) {
        unsigned long seen[IDS / 64] = {0};
        EXPECT_EQ(numa_nearest(i, 0), i);
        for (unsigned j = 0; j < n; j++) {
            unsigned next = numa_nearest(i, j);
            EXPECT(next < n && (seen[next / 64] >> next % 64 & 1) == 0);
            seen[next / 64] |= 1ul << next % 64;
        }
        if (n > 1)
            EXPECT_EQ(numa_home_of_node((int)numa_real(i)), i);
    }
    static const int odd[] = {INT32_MIN, -2, -1, 0, 1, 63, 64, 1023, 1024, 4095, 4096, 1 << 20, INT32_MAX};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        EXPECT(numa_home_of_node(odd[i]) < n);
        EXPECT(numa_home_of_cpu((unsigned)odd[i]) < n || numa_home_of_cpu((unsigned)odd[i]) == NUMA_NO_HOME);
    }
    EXPECT(numa_here() < n);
}

/* ---- one node ---- */

static void expect_one(void)
{
    EXPECT_EQ(numa_count(), 1);
    EXPECT(numa_map == NULL);
    EXPECT_EQ(numa_here(), 0);
    EXPECT_EQ(numa_home_of_node(7), 0);
    EXPECT_EQ(numa_nearest(0, 0), 0);
    EXPECT(!numa_user_policy());
}

TEST(numa, one_node_is_one_question_and_no_library)
{
    fake_machine(LIST(0), LIST(0, 0, 0, 0));
    fake.mode = 3;
    fake_start(100);
    expect_one();
    EXPECT_EQ(fake.asked, 1);
    EXPECT_EQ(fake.opened, 0);
}

TEST(numa, refused_is_one_node_and_errno_stays)
{
    static const int errors[] = {EPERM, ENOSYS, EINVAL, EFAULT};
    for (int i = 0; i < 4; i++) {
        fake_machine(LIST(0, 1), LIST(0, 1));
        fake.refusal = -errors[i];
        size_t mapped = vm_mapped_bytes();
        errno = 1234;
        fake_start(100);
        EXPECT_EQ(errno, 1234);
        expect_one();
        EXPECT_EQ(fake.opened, 0);
        EXPECT_EQ(vm_mapped_bytes(), mapped);
    }
}

TEST(numa, tables_for_one_node_are_one_node)
{
    fake_machine(LIST(0, 1), LIST(0, 1));
    fake_start(1);
    expect_one();
}

/* A cpuset may allow the memory of several nodes and still leave one with cpus. */
TEST(numa, memory_alone_makes_no_home)
{
    fake_machine(LIST(0, 1, 2), LIST(1, 1));
    fake_start(100);
    expect_one();
    EXPECT_EQ(fake.opened, 1);
    EXPECT_EQ(fake.closed, 1);
}

/* ---- several ---- */

TEST(numa, four_nodes_in_pairs)
{
    fake_machine(LIST(0, 1, 2, 3), LIST(0, 0, 1, 1, 2, 2, 3, 3));
    fake.here = 2;
    fake_start(100);
    EXPECT_EQ(numa_count(), 4);
    EXPECT_EQ(numa_real(0), 2); /* where we are, then ascending */
    EXPECT_EQ(numa_real(1), 0);
    EXPECT_EQ(numa_real(2), 1);
    EXPECT_EQ(numa_real(3), 3);
    EXPECT_EQ(numa_nearest(0, 1), 3); /* 2: 3 is 20 away, 0 and 1 are 30 */
    EXPECT_EQ(numa_nearest(0, 2), 1);
    EXPECT_EQ(numa_nearest(0, 3), 2);
    EXPECT_EQ(numa_nearest(1, 1), 2);
    for (unsigned cpu = 0; cpu < 8; cpu++)
        EXPECT_EQ(numa_real(numa_home_of_cpu(cpu)), cpu / 2);
    EXPECT_EQ(fake.opened, 1);
    EXPECT_EQ(fake.closed, 1);
    check_map();
    numa_reset();
    expect_one();
}

TEST(numa, a_node_without_memory_has_the_nearest_ones)
{
    fake_machine(LIST(0, 1, 3), LIST(0, 0, 1, 1, 2, 2, 3, 3));
    fake.here = 2;
    fake_start(100);
    EXPECT_EQ(numa_count(), 3);
    EXPECT_EQ(numa_real(numa_home_of_node(2)), 3);
    EXPECT_EQ(numa_real(numa_home_of_cpu(4)), 3);
    EXPECT_EQ(numa_real(0), 3); /* what we have had so far came from there */
    check_map();
    numa_reset();
}

TEST(numa, a_node_without_cpus_is_not_used)
{
    fake_machine(LIST(0, 1, 2, 3), LIST(0, 0, 1, 1, 2, 2, 2, 2));
    fake_start(100);
    EXPECT_EQ(numa_count(), 3);
    EXPECT_EQ(numa_real(numa_home_of_node(3)), 2);
    check_map();
    numa_reset();
}

TEST(numa, numbers_may_be_sparse_and_large)
{
    fake_machine(LIST(3, 64, 1000, 3000), LIST(3, 64, 1000, 3000, 3, 17));
    fake.bits_needed = 4000;
    fake.distance = by_number;
    fake.here = 64;
    fake_start(100);
    EXPECT_EQ(numa_count(), 4);
    EXPECT_EQ(numa_real(0), 64);
    EXPECT_EQ(numa_real(3), 3000);
    EXPECT_EQ(numa_real(numa_home_of_node(17)), 3); /* 14 away; 64 is 47 */
    EXPECT_EQ(numa_real(numa_home_of_cpu(5)), 3);
    EXPECT_EQ(numa_home_of_node(3001), 0);
    check_map();
    numa_reset();
}

TEST(numa, more_nodes_than_the_tables_have_lead_to_the_nearest)
{
    fake_machine(LIST(0, 1, 2, 3), LIST(0, 1, 2, 3));
    fake.distance = by_number;
    fake_start(2);
    EXPECT_EQ(numa_count(), 2);
    EXPECT_EQ(numa_home_of_node(2), 1);
    EXPECT_EQ(numa_home_of_node(3), 1);
    check_map();
    numa_reset();
}

TEST(numa, many_nodes_and_cpus)
{
    static int all[1025], cpus[4001];
    for (int i = 0; i < 1024; i++)
        all[i] = i;
    for (int i = 0; i < 4000; i++)
        cpus[i] = (i * 7) % 1024;
    all[1024] = cpus[4000] = -1;
    fake_machine(all, cpus);
    fake.distance = by_number;
    fake_start(60000);
    EXPECT_EQ(numa_count(), 1024);
    EXPECT_EQ(numa_nearest(1000, 1), 999);
    EXPECT_EQ(numa_nearest(1000, 2), 1001);
    EXPECT_EQ(numa_home_of_cpu(3999), (3999 * 7) % 1024);
    check_map();
    numa_reset();
}

TEST(numa, without_the_library_all_are_equally_far)
{
    fake_machine(LIST(0, 2, 5), LIST(0, 2, 5));
    fake.library = false;
    fake.here = 5;
    fake_start(100);
    EXPECT_EQ(numa_count(), 3);
    EXPECT_EQ(numa_real(0), 5);
    EXPECT_EQ(numa_nearest(1, 1), 0);
    EXPECT_EQ(numa_nearest(1, 2), 2);
    EXPECT_EQ(numa_home_of_cpu(0), NUMA_NO_HOME);
    EXPECT_EQ(fake.closed, 0);
    check_map();
    numa_reset();
}

/* ---- lies ---- */

static int lie;

static int lying(int a, int b)
{
    static const int said[] = {0, -1, 1, 255, 256, INT32_MAX, INT32_MIN, 10};
    return said[(unsigned)(a * 31 + b * 17 + lie) % 8];
}

TEST(numa, lies_leave_a_usable_map)
{
    static const int counts[] = {INT32_MIN, -1, 0, 1, 2, 70, 1 << 30, INT32_MAX};
    uint64_t seed = 42;
    for (lie = 0; lie < 400; lie++) {
        fake_machine(LIST(0, 1, 2, 3), LIST(0, 1, 2, 3));
        fake.distance = lying;
        fake.nodes = counts[lie % 8];
        fake.cpus = counts[lie / 8 % 8];
        fake.here = (int)unit_random(&seed);
        for (int i = 0; i < IDS; i++) {
            fake.memory[i] = unit_below(&seed, 300) == 0;
            fake.cpu_node[i] = lie % 3 == 0 ? (int)unit_random(&seed) : (int)unit_below(&seed, IDS + 100) - 50;
        }
        fake_start(1 + (unsigned)unit_below(&seed, 12));
        EXPECT(numa_count() <= 12);
        check_map();
    }
    numa_reset();
}

TEST(numa, a_users_policy_is_seen)
{
    for (int mode = 0; mode < 7; mode++) {
        fake_machine(LIST(0, 1), LIST(0, 1));
        fake.mode = mode == 6 ? -EPERM : mode;
        fake_start(100);
        EXPECT_EQ(numa_count(), 2);
        EXPECT_EQ(numa_user_policy(), mode != 0 && mode != 4 && mode != 6); /* default, local, refused */
    }
    numa_reset();
}

/* ---- this machine ---- */

TEST(numa, the_real_system_agrees_with_the_kernel)
{
    cpu_set_t all, one;
    errno = 1234;
    numa_init(1000, NULL);
    EXPECT_EQ(errno, 1234);
    check_map();
    if (getenv("SHEAF_TEST_NODES") != NULL)
        EXPECT_EQ(numa_count(), (unsigned)strtol(getenv("SHEAF_TEST_NODES"), NULL, 10));
    EXPECT(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET((size_t)cpu, &one);
        EXPECT(sched_setaffinity(0, sizeof one, &one) == 0);
        EXPECT_EQ(numa_here(), numa_home_of_node(cpu_node_ask()));
        EXPECT(cpu_filled() < 0 || cpu_filled() == cpu);
        EXPECT(cpu_node_filled() < 0 || cpu_node_filled() == cpu_node_ask());
        if (numa_home_of_cpu((unsigned)cpu) != NUMA_NO_HOME && numa_count() > 1)
            EXPECT_EQ(numa_home_of_cpu((unsigned)cpu), numa_here());
    }
    EXPECT(sched_setaffinity(0, sizeof all, &all) == 0);
    numa_reset();
}
