/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tables with a row for each node. Level 2.
 *
 * A process begins with one node, whose rows lie in zeroed data and are valid before anything has run. Where the
 * constructor finds more nodes, each module makes rows for nodes 1 and up before numa_count() tells anybody of them
 * (life.c: make_nodes). They are never given back.
 */
#ifndef CORE_NODES_H
#define CORE_NODES_H

#include "compat/os/bits.h"
#include "compat/os/vm.h"

/* What: zeroed rows of `bytes` each for nodes 1 to count - 1. Context: our constructor. Fails: NULL: no memory. */
static inline void *nodes_rows(unsigned count, size_t bytes)
{
    return vm_map(align_up((count - 1) * bytes, vm_page_size()), false);
}

#endif
