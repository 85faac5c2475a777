/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is said when the program uses the allocator wrongly. Level 1: it only prints; the caller has found out.
 *
 * One line each, on standard error, by a direct write: nothing is allocated, no lock is needed.
 */
#ifndef CORE_MISUSE_H
#define CORE_MISUSE_H

#include "compat/os/cc.h"

struct misuse {
    const char *func; /* public name of the operation that saw it */
    const void *p;    /* the pointer the program passed */
    const char *what; /* "double free", "not the start of a block", "wrong size" */
    size_t size;      /* object size of the class, 0 for runs and large blocks */
    const char *kind; /* "slab", "run", "large" */
    const void *base; /* where the slab or block begins */
    const char *state; /* "already free", "in use", or NULL: "offset N" */
};

/* What: the line for a block of ours, then abort. Locks: the caller has let go of all of them. Context: anywhere. */
COLD _Noreturn void misuse_abort(const struct misuse *m);

/* What: a pointer that is not ours was to be freed. Counts it; the first one of a process prints one line; strict prints
 * its line and aborts. Context: anywhere, no lock held. */
COLD void misuse_foreign(const char *func, const void *p);

/* What: a pointer that is not ours was asked about or to be resized, which the caller can be told by its result: as above,
 * but strict prints a line each time and goes on. */
COLD void misuse_foreign_asked(const char *func, const void *p);

/* What: a sized free whose size does not fit the block. Counts it; strict prints the line and aborts. */
COLD void misuse_wrong_size(const struct misuse *m);

/* What: how often the process passed foreign pointers, and wrong sizes, so far. */
size_t misuse_foreign_count(void);
size_t misuse_wrong_size_count(void);

#endif
