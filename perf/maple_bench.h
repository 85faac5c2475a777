/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two trees of ranges behind one interface: the maple tree as the library has it, and a red-black tree (libbsd's tree.h)
 * under the same kind of lock. Ranges never overlap; entries are not NULL.
 */
#ifndef PERF_MAPLE_BENCH_H
#define PERF_MAPLE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tree_ops {
    const char *name;
    void (*init)(bool gaps, size_t ranges); /* with room for so many, and some */
    void *(*load)(uintptr_t index);
    void (*store)(uintptr_t first, uintptr_t last, void *entry); /* into a gap */
    void (*erase)(uintptr_t index);
    void (*change)(uintptr_t first, uintptr_t last, void *entry); /* the range is there */
    bool (*gap)(uintptr_t from, uintptr_t size, uintptr_t *at);   /* the lowest */
    bool (*place)(uintptr_t from, uintptr_t size, void *entry, uintptr_t *at);
    uint64_t (*lock_holds)(void);
};

extern const struct tree_ops maple_ops, redblack_ops;

/* Memory that is there and has been touched. */
void *bench_memory(size_t size);

/* What the maple tree counts; nothing for the other. */
struct tree_counts {
    uint64_t taken, returned, reader_locks;
};
struct tree_counts maple_counts(void);
void maple_switches(bool worst, bool zero);

#endif
