/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes, as dense indices 0..numa_count()-1. Level 0.
 *
 * Today there is one node, whatever the machine has: barns, slabs and zones are already kept per index, so that
 * placement ("NUMA") changes this file and no caller.
 */
#ifndef COMPAT_OS_NUMA_H
#define COMPAT_OS_NUMA_H

#include "cc.h"

enum { NUMA_NODES = 1 }; /* entries of per-node tables; becomes a run-time count together with libnuma */

/* What: number of nodes in use, at least 1. Context: any time. Cost: none. */
static inline unsigned numa_count(void)
{
    return NUMA_NODES;
}

/* What: dense index of the node the caller runs on. Context: slow paths only. */
static inline unsigned numa_current(void)
{
    return 0;
}

#endif
