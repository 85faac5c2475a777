/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which cpu and which node are we on, and how many cpus may we use. Level 0.
 *
 * Ids are hints: they may be sparse, may exceed any count and may have changed when the caller looks; users map them
 * into their own tables with a bounds check.
 */
#ifndef COMPAT_OS_CPU_H
#define COMPAT_OS_CPU_H

#include "cc.h"

/* What: the cpu the caller runs on, from the rseq area that glibc registered, else getcpu. Cost: a load, or a vDSO call.
 * Context: any thread, any time. */
unsigned cpu_current(void);

/* What: a number for picking one of the process's per-cpu tables: threads that run at the same time have different ones.
 * The kernel's mm_cid where it is filled (Linux 6.3): dense from 0, so a process of one thread stays with one table on
 * whatever cpu it runs; else cpu_current. Cost: two loads, or as there. Context: any thread, any time. */
unsigned cpu_shard(void);

/* What: the kernel's number of the cpu the caller runs on, if the thread's rseq area says so, else -1. No call of any
 * kind. Cost: a load. Context: any thread, any time. */
int cpu_filled(void);

/* What: likewise the node, which kernels since 6.3 write there. Any number may come, see numa.h. */
int cpu_node_filled(void);

/* What: the node by getcpu: a vDSO call on x86-64, a system call on aarch64. Fails: -1. Leaves errno alone. */
int cpu_node_ask(void);

/* What: how many cpus the process may run on (affinity mask), at least 1; read once. Cost: one system call the first
 * time. Context: any time. Fails: 1. */
unsigned cpu_count(void);

#endif
