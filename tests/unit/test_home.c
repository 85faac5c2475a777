/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Home nodes and objects of other nodes, on a made-up machine: each cpu we may run on is a node of its own, so a thread
 * changes nodes by changing cpus. Every test runs in a child process: a heap with several nodes stays one.
 */
#include "unit.h"
#include "tests/made_up.h"

#include "compat/os/numa.h"
#include "core/barn.h"
#include "core/fast.h"
#include "core/large.h"
#include "core/life.h"
#include "core/pcp.h"
#include "core/reclaim.h"
#include "core/region.h"
#include "core/slab.h"
#include "core/zone.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CPUS_MAX = 8 };

static int cpu_of_node[CPUS_MAX], nodes;

/* ---- the machine ---- */

static long say_allowed(unsigned long *mask, size_t bits)
{
    memset(mask, 0, bits / 8);
    for (int i = 0; i < nodes; i++)
        mask[0] |= 1ul << i;
    return 0;
}

static int say_nodes(void)
{
    return nodes;
}

static int say_cpus(void)
{
    return 1024;
}

static int say_node_of_cpu(int cpu)
{
    for (int i = 0; i < nodes; i++)
        if (cpu_of_node[i] == cpu)
            return i;
    return -1;
}

static int say_distance(int a, int b)
{
    return a == b ? 10 : 20 + (a > b ? a - b : b - a);
}

static const struct numa_system made_up = {say_allowed, say_no_policy, say_first, say_yes, say_nodes,
                                           say_cpus, say_node_of_cpu, say_distance, close_nothing};

static void go(int node)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu_of_node[node], &one);
    MUST(sched_setaffinity(0, sizeof one, &one) == 0);
}

/* Result: false, this machine has one cpu for us. */
static bool make_machine(void)
{
    cpu_set_t all;
    MUST(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && nodes < CPUS_MAX; cpu++)
        if (CPU_ISSET((size_t)cpu, &all))
            cpu_of_node[nodes++] = cpu;
    if (nodes < 2)
        return false;
    go(0);
    numa_init_from(&made_up, TAG_NODES_MAX, life_make_nodes);
    MUST(numa_count() == (unsigned)nodes && numa_here() == 0);
    return true;
}

static void on_machine(void (*body)(void))
{
    pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        alarm(60);
        if (make_machine())
            body();
        _exit(0);
    }
    EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
    EXPECT_EQ(status, 0);
}

static unsigned node_of(const void *p)
{
    return pmap_tag(p) >> TAG_NODE_SHIFT;
}

static void wait_a_step(void)
{
    usleep(20000); /* of the coarse clock: a thread changes its home once in one */
}

static void check_all(void)
{
    for (unsigned n = 0; n < numa_count(); n++) {
        zone_check(n);
        for (class_t c = 0; c < SIZE_CLASSES; c++) {
            barn_check(c, n);
            slab_check(c, n);
        }
    }
    pcp_check();
    tcache_check();
}

/* ---- tests ---- */

enum { OBJECTS = 20000 };
static void *obj[OBJECTS];

static void get_all(size_t size)
{
    for (int i = 0; i < OBJECTS; i++) {
        obj[i] = unit_malloc(size);
        MUST(obj[i] != NULL);
        unit_stamp(obj[i], size, (uint64_t)i);
    }
}

static void free_all(size_t size)
{
    for (int i = 0; i < OBJECTS; i++) {
        MUST(unit_stamped(obj[i], size, (uint64_t)i));
        unit_free(obj[i]);
    }
}

static void moves_with_its_thread(void)
{
    for (int round = 0; round < 3; round++)
        for (int n = 0; n < 2; n++) {
            go(n);
            wait_a_step();
            unit_free(unit_malloc(32));
            get_all(48);
            int strangers = 0; /* what the sheaves still had, until the first slow call */
            for (int i = 0; i < OBJECTS; i++)
                strangers += node_of(obj[i]) != (unsigned)n;
            MUST(strangers <= 1024);
            check_all();
            free_all(48);
            check_all();
        }
}

TEST(home, objects_come_from_the_node_the_thread_is_on)
{
    on_machine(moves_with_its_thread);
}

static size_t free_objs(class_t c, unsigned node)
{
    return slab_stats(c, node).free_objs + barn_stats(c, node).objs;
}

/* Objects of a class that are neither in slabs nor in barns. */
static size_t out_of(class_t c, unsigned node)
{
    return slab_stats(c, node).slabs * size_info[c].objs - free_objs(c, node);
}

static void remote_frees(void)
{
    class_t c = size_to_class(96);
    go(0);
    get_all(96);
    tcache_flush("test");
    size_t before = out_of(c, 0);
    MUST(before >= OBJECTS);
    go(1);
    wait_a_step();
    size_t locks = slab_stats(c, 0).lock_acquired;
    free_all(96);
    locks = slab_stats(c, 0).lock_acquired - locks;
    MUST(locks * 32 <= OBJECTS); /* in batches */
    check_all();
    struct tcache_stats st;
    tcache_stats(&st);
    MUST(out_of(c, 0) <= before - OBJECTS + st.cached[c]);
    MUST(free_objs(c, 1) == 0 && slab_stats(c, 1).slabs == 0);
    tcache_flush("test");
    MUST(out_of(c, 0) == before - OBJECTS);
    check_all();
}

TEST(home, objects_of_other_nodes_go_home_in_batches)
{
    on_machine(remote_frees);
}

static void mixed_classes(void)
{
    uint64_t seed = 5;
    static size_t size[OBJECTS];
    go(0);
    for (int i = 0; i < OBJECTS; i++) {
        size[i] = 16 + unit_below(&seed, 2000);
        obj[i] = unit_malloc(size[i]);
        MUST(obj[i] != NULL);
        unit_stamp(obj[i], size[i], (uint64_t)i);
    }
    go(1);
    wait_a_step();
    for (int i = OBJECTS - 1; i >= 0; i--) {
        MUST(unit_stamped(obj[i], size[i], (uint64_t)i));
        unit_free(obj[i]);
    }
    go(0); /* what waits for node 0 is local now */
    wait_a_step();
    unit_free(unit_malloc(100));
    struct tcache_stats st;
    tcache_stats(&st);
    check_all();
    tcache_flush("test");
    reclaim_trim(0);
    for (class_t c = 0; c < SIZE_CLASSES; c++)
        MUST(slab_stats(c, 1).slabs == 0);
    check_all();
}

TEST(home, mixed_objects_of_other_nodes_find_their_slabs)
{
    on_machine(mixed_classes);
}

static void large_blocks(void)
{
    for (int n = 0; n < 2; n++) {
        go(n);
        wait_a_step();
        for (size_t size = 40000; size < 8000000; size *= 3) {
            void *p = unit_malloc(size);
            MUST(p != NULL && large_page(p)->node == n);
            unit_free(p);
        }
    }
    check_all();
}

TEST(home, pages_come_from_the_node_too)
{
    on_machine(large_blocks);
}

/* Blocks of 2 MiB are one node's. */
static void blocks_are_not_shared(void)
{
    for (int round = 0; round < 40; round++)
        for (int n = 0; n < 2; n++) {
            go(n);
            void *p = unit_malloc((size_t)100000 << (round % 6));
            MUST(p != NULL);
            struct page *pg = large_page(p);
            MUST(pmap_block(p)->node == pg->node);
        }
    check_all();
}

TEST(home, nodes_share_no_block)
{
    on_machine(blocks_are_not_shared);
}

static void throw_about(unsigned thread)
{
    uint64_t seed = thread + 1;
    static void *shared[64];
    for (int i = 0; i < 4000; i++) {
        if (i % 200 == 0)
            go((int)unit_below(&seed, 2));
        void *p = unit_malloc(16 + unit_below(&seed, 3000));
        MUST(p != NULL);
        *(uint64_t *)p = (uintptr_t)p;
        void *q = __atomic_exchange_n(&shared[unit_below(&seed, 64)], p, __ATOMIC_ACQ_REL);
        if (q != NULL) {
            MUST(*(uint64_t *)q == (uintptr_t)q);
            unit_free(q);
        }
    }
}

static void threads_move(void)
{
    unit_threads(4, throw_about);
    check_all();
}

TEST(home, threads_that_move_lose_nothing)
{
    on_machine(threads_move);
}

/* ---- fork ---- */

/* A child of a fork goes on with the heap, from another node. */
static void forks(void)
{
    go(0);
    get_all(96);
    tcache_flush("test");
    pid_t pid = fork();
    if (pid == 0) {
        check_all();
        go(1);
        wait_a_step();
        free_all(96);
        tcache_flush("test");
        check_all();
        _exit(0);
    }
    int status = 1;
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    free_all(96);
    check_all();
}

TEST(home, fork_child_goes_on)
{
    on_machine(forks);
}

static int freed[2], go_on[2];

/* Frees the first half from another node, and keeps what has not gone home. */
static void *keep_remote(void *arg)
{
    char byte;
    (void)arg;
    go(1);
    for (int i = 0; i < OBJECTS / 2; i++)
        unit_free(obj[i]);
    MUST(write(freed[1], "", 1) == 1 && read(go_on[0], &byte, 1) == 1);
    tcache_flush("test");
    return NULL;
}

/* A child of a fork finds what another thread had on its way home. */
static void forks_beside_remote(void)
{
    class_t c = size_to_class(96);
    pthread_t thread;
    char byte;
    unit_fork_handlers();
    go(0);
    get_all(96);
    tcache_flush("test");
    size_t rest = out_of(c, 0) - OBJECTS;
    MUST(pipe(freed) == 0 && pipe(go_on) == 0 && pthread_create(&thread, NULL, keep_remote, NULL) == 0);
    MUST(read(freed[0], &byte, 1) == 1);
    MUST(out_of(c, 0) - rest > OBJECTS / 2); /* some still wait */
    pid_t pid = fork();
    if (pid == 0) {
        alarm(30);
        reclaim_trim(0);
        MUST(out_of(c, 0) - rest == OBJECTS / 2);
        check_all();
        _exit(0);
    }
    int status = 1;
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    MUST(write(go_on[1], "", 1) == 1 && pthread_join(thread, NULL) == 0);
    MUST(out_of(c, 0) - rest == OBJECTS / 2);
    for (int i = OBJECTS / 2; i < OBJECTS; i++)
        unit_free(obj[i]);
    check_all();
}

TEST(home, fork_child_finds_what_was_on_its_way)
{
    on_machine(forks_beside_remote);
}
