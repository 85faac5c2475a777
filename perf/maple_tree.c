/* SPDX-License-Identifier: BSD-2-Clause */
/* The maple tree for maple_bench. */
#include "maple_bench.h"

#include "core/maple.h"
#include "core/rank.h"

#include <stdlib.h>

static struct maple tree;
static char *nodes, *nodes_end;
static void *free_nodes;

static unsigned node_alloc(void *ctx, void **node, unsigned n)
{
    (void)ctx;
    for (unsigned i = 0; i < n; i++) {
        if (free_nodes != NULL) {
            node[i] = free_nodes;
            free_nodes = *(void **)free_nodes;
        } else {
            if (nodes == nodes_end)
                return i;
            node[i] = nodes;
            nodes += MAPLE_NODE_BYTES;
        }
    }
    return n;
}

static void node_free(void *ctx, void **node, unsigned n)
{
    (void)ctx;
    for (unsigned i = 0; i < n; i++) {
        *(void **)node[i] = free_nodes;
        free_nodes = node[i];
    }
}

static const struct maple_source source = {node_alloc, node_free, NULL}; /* one writer: no lock */

static void must(int error)
{
    if (error != 0)
        abort();
}

static void init(bool gaps, size_t ranges)
{
    size_t size = (ranges / 2 + 64) * MAPLE_NODE_BYTES;
    maple_init(&tree, gaps, RANK_REGION, &source);
    nodes = bench_memory(size);
    nodes_end = nodes + size;
}

static void *load(uintptr_t index)
{
    return maple_load(&tree, index);
}

static void store(uintptr_t first, uintptr_t last, void *entry)
{
    must(maple_store(&tree, first, last, entry));
}

static void erase(uintptr_t index)
{
    must(maple_erase(&tree, index, NULL));
}

static bool gap(uintptr_t from, uintptr_t size, uintptr_t *at)
{
    return maple_gap(&tree, &(struct maple_want){.from = from, .to = UINTPTR_MAX, .size = size, .align = 1}, at) == 0;
}

static bool place(uintptr_t from, uintptr_t size, void *entry, uintptr_t *at)
{
    const struct maple_want w = {.from = from, .to = UINTPTR_MAX, .size = size, .align = 1};
    return maple_place(&tree, &w, entry, at) == 0;
}

static uint64_t lock_holds(void)
{
    return maple_stats(&tree).lock_holds;
}

struct tree_counts maple_counts(void)
{
    struct maple_stats s = maple_stats(&tree);
    return (struct tree_counts){.taken = s.taken, .returned = s.returned, .reader_locks = s.reader_locks};
}

void maple_switches(bool worst, bool zero)
{
    tree.worst = worst;
    tree.zero = zero;
}

const struct tree_ops maple_ops = {"maple", init, load, store, erase, store, gap, place, lock_holds};
