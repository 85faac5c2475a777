/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes, as dense indices 0..numa_count()-1. Level 0.
 *
 * A dense index stands for a node that we may have memory of and that has cpus. Every number the kernel may give leads to
 * one: a node without memory, without permission or beyond what was known at start leads to the nearest node that has an
 * index, and anything else to index 0. So numbers may be sparse, large, late or wrong, and no caller needs to care.
 *
 *     kernel's node   0    1    2    3 ... 17   99             2: no memory, nearest is 3; 17: memory, no cpus
 *     home_of_node   [1]  [0]  [2]  [2]    [1]  -> 0           99: beyond the table
 *     real            0: 1   1: 0   2: 3                       index 0: where the constructor ran, then ascending
 *     order           0: 0 1 2   1: 1 0 2   2: 2 0 1           by distance, itself first
 *
 * Until numa_init has run, where one node is allowed, and where the kernel or a filter refuses to say: one node, index 0,
 * and no memory spent. Placement is first touch; nothing here sets a policy.
 */
#ifndef COMPAT_OS_NUMA_H
#define COMPAT_OS_NUMA_H

#include "atomic.h"
#include "cc.h"

/* Where to ask. Each may refuse or lie; for tests of that there are others than the one of numa_sys.c. */
struct numa_system {
    long (*allowed)(unsigned long *mask, size_t bits); /* nodes whose memory we may use; -errno: -EINVAL too few bits */
    long (*policy)(void);          /* the thread's policy, a number of the kernel's; -errno */
    int (*here)(void);             /* the node the caller is on; -1 unknown */
    bool (*open)(void);            /* is there anybody to answer the four below? */
    int (*nodes)(void);            /* a number above that of any node; 0 unknown */
    int (*cpus)(void);             /* likewise of cpus */
    int (*node_of_cpu)(int cpu);   /* -1 unknown */
    int (*distance)(int a, int b); /* 10 is home; 0 unknown */
    void (*close)(void);
};
extern const struct numa_system numa_real_system;

/* Read-only once made. */
struct numa_map {
    size_t size;                        /* bytes of the mapping that all of it lies in */
    unsigned count, node_slots, cpu_slots;
    bool made_up;                       /* not the kernel's system: its node of a thread means nothing, its cpu does */
    uint32_t *real;                     /* [count] */
    uint16_t *order;                    /* [count * count] */
    uint16_t *home_of_node;             /* [node_slots] */
    uint16_t *home_of_cpu;              /* [cpu_slots]; NUMA_NO_HOME: ask for the node */
};
enum { NUMA_NO_HOME = UINT16_MAX };
extern struct numa_map *numa_map; /* NULL: one node */

/* What: find out about nodes; no more than `most` get an index (what the caller's tables can tell apart), nodes beyond
 * lead to the nearest of those. Calls: one system call where one node is allowed, and no file is opened; else it opens
 * libnuma if there is one, and closes it again. prepare (or NULL) makes the caller's tables for so many nodes before
 * anybody is told of them; false: one node. Context: our constructor, once, before there are threads; the loader may call
 * malloc meanwhile, so no lock may be held. Fails: silently, one node. Leaves errno alone. */
void numa_init(unsigned most, bool (*prepare)(unsigned count));

/* What: the same with another system. For tests. */
void numa_init_from(const struct numa_system *sys, unsigned most, bool (*prepare)(unsigned count));

/* What: one node again, tables freed. For tests: nobody may look meanwhile. */
void numa_reset(void);

/* What: number of nodes in use, at least 1. It grows once, in numa_init; memory handed out before counts as index 0's,
 * which is why that is the node where the constructor ran. Context: any time. Cost: a load or two. */
static inline unsigned numa_count(void)
{
    const struct numa_map *m = load_acquire(&numa_map); /* pairs with the end of numa_init_from */
    return LIKELY(m == NULL) ? 1 : m->count;
}

unsigned numa_here_slow(const struct numa_map *m);

/* What: the index the calling thread should allocate from now. May be another one at the next call. Never a system call
 * where the thread has an rseq area or the processor a vDSO getcpu. Cost: some loads; a vDSO call of 5 ns on kernels
 * before 6.3 if libnuma was not there. Context: any thread, any time; meant for slow paths. */
static inline unsigned numa_here(void)
{
    const struct numa_map *m = load_acquire(&numa_map);
    return LIKELY(m == NULL) ? 0 : numa_here_slow(m);
}

/* What: the index a node of the kernel's leads to; any value is allowed. Context: any time. */
unsigned numa_home_of_node(int node);

/* What: the same for a cpu; NUMA_NO_HOME if nobody said. */
unsigned numa_home_of_cpu(unsigned cpu);

/* What: the i-th nearest index to a node, itself for i = 0. Ties go by index. `node` and `i` are below numa_count(). */
unsigned numa_nearest(unsigned node, unsigned i);

/* What: the kernel's number of an index, for reports and for mbind. 0 where there is one node. */
unsigned numa_real(unsigned node);

/* What: ask for pages of a mapping that nobody has touched: node: preferred there; NUMA_NO_HOME: interleaved over all. Nothing
 * where there is one node, or a policy of the user's. Locks: none may be held. Fails: silently, it is a wish. */
void numa_place(void *p, size_t size, unsigned node);

/* What: did the process start under a policy of the user's (numactl, or inherited: anything but default and local)? Then
 * it wins: no binding, no advice of ours about nodes. What set_mempolicy does later wins as well, since pages go where the
 * kernel puts them; it is not asked about again, because a filter may forbid that (and then we are not told here). */
bool numa_user_policy(void);

#endif
