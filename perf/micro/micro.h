/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the micro programs share. Each pattern is one allocation habit, in one file; `micro PATTERN` runs it once under
 * whatever malloc the process has, and prints nanoseconds of cpu time per malloc+free pair.
 *
 * Layers: micro.c (command line, clocks, printing) calls a pattern's run(); a pattern calls malloc and free only.
 * Rules for a pattern: seeded; writes the first word of every block, as a program would; checks something that two
 * live blocks on one address, or lost contents, would break; compiled with -fno-builtin so that no pair is optimised
 * away; a short warm-up goes before the clock starts.
 */
#ifndef PERF_MICRO_H
#define PERF_MICRO_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* One run. All set before run() and constant, except result and clock. */
struct job {
    long ops;        /* malloc+free pairs to do */
    long threads;    /* for patterns with threads */
    uint64_t seed;   /* of the sizes and the order of frees */
    int read_back;   /* -r: also read the first word before a free */
    size_t size;     /* bytes: size, or the largest size */
    long live;       /* blocks live at a time */
    double start_ns; /* set by job_start */
    double cpu_ns;   /* set by job_stop */
    long done;       /* pairs really timed, set by the pattern */
    uint64_t check;  /* printed: the same under every allocator */
};

/* One named pattern of the table in micro.c. run: one of the functions below. */
struct pattern {
    const char *name;
    void (*run)(struct job *job);
    size_t size;
    long live;
    long ops;     /* by default: some 0.2 s */
    long threads; /* 0: a one-thread pattern */
    const char *what;
};

void pairs(struct job *job);   /* pairs.c: one block at a time */
void batch(struct job *job);   /* batch.c: allocate `live` blocks, then free them */
void replace(struct job *job); /* replace.c: `live` blocks; a random one dies, a new one is born */
void grow(struct job *job);    /* grow.c: arrays that grow by realloc */
void aligned(struct job *job); /* aligned.c: aligned_alloc of mixed alignments */
void large(struct job *job);   /* large.c: blocks of megabytes */
void prodcons(struct job *job); /* prodcons.c: half the threads allocate, the other half free */
void churn(struct job *job);   /* churn.c: short-lived threads */

/* Start and stop the cpu clock: of the thread for one-thread patterns, else of the process. */
void job_start(struct job *job);
void job_stop(struct job *job, long pairs_done);

/* Print what went wrong and exit 1. */
_Noreturn void micro_fail(const char *pattern, const char *what);

/* A block whose first word is written, or the end of the program. */
static inline uint64_t *micro_alloc(size_t size, uint64_t word)
{
    uint64_t *p = malloc(size);
    if (__builtin_expect(p == NULL, 0))
        micro_fail("malloc", "returned NULL");
    *p = word;
    return p;
}

/* A step of a 64-bit linear congruential generator; the high half is the random number. */
static inline uint32_t micro_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

/* A random number below n, without a division. */
static inline uint32_t micro_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(((uint64_t)micro_random(state) * n) >> 32);
}

#endif
