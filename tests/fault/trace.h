/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random traces over one layer each, with a model beside: which blocks there are, and what was written into them. A step
 * may be refused memory; whatever it says, what was there before is still there.
 */
#ifndef TESTS_FAULT_TRACE_H
#define TESTS_FAULT_TRACE_H

#include <stddef.h>
#include <stdint.h>

struct trace {
    const char *name;
    unsigned steps;
    void (*step)(uint64_t *seed);
    void (*verify)(void); /* all contents are as written, no two blocks overlap */
    void (*end)(void);    /* give all back, to the system too */
};

extern const struct trace trace_region, trace_zone, trace_slab, trace_large, trace_grow, trace_tcache, trace_heap;

/* What: how many requests were refused so far; the trace counts them. */
extern unsigned long trace_refused;

#endif
