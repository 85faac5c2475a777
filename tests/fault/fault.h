/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who answers at the seam of compat/os/fault.h. A test of the debug objects sets the fault by calls; in a program that has
 * libsheaf-fault.so preloaded it comes from the environment:
 *
 *     SHEAF_FAULT=CALL:K:ANSWER:FILE    CALL  mmap, munmap, madvise, mremap, mbind
 *                                       K     the K-th call of this kind fails; "K+": and all after it
 *                                       ANSWER an errno; 0: nothing is done and the call says 0
 *                                       FILE  each process appends lines: "hit" at the first such call, and at its end
 *                                             "calls N mapped BYTES"; it is created
 */
#ifndef TESTS_FAULT_FAULT_H
#define TESTS_FAULT_FAULT_H

#include "compat/os/fault.h"

extern const char *const fault_name[FAULT_CALLS];

/* What: from now on the k-th call of this kind (and, if forever, each after it) says `answer`, 0 or -errno. k 0: none. The
 * counts begin anew. Context: one thread. */
void fault_set(enum fault_call call, long k, bool forever, int answer);

/* What: calls of this kind since fault_set. */
long fault_calls(enum fault_call call);

/* What: how often a call was refused since fault_set. */
long fault_hits(void);

/* What: write to the file of the environment, if there is one. */
void fault_log(const char *line);

#endif
