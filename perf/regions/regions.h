/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the items of perf/vma share. Each asks for address space in one of the ways that hurt the kernel's VMA layer in
 * public reports; `regions ITEM` runs it once under whatever malloc the process has, `regions -k ITEM` once with mmap,
 * munmap, mprotect and mremap in its place.
 *
 * Layers: regions.c (command line, clocks, the two ways to memory) calls an item; an item asks struct memory only.
 * Rules for an item: seeded; with -n 0 it does all but its calls, which is the control of the counted run; prints
 * "NAME VALUE" lines; checks what two live blocks on one address, or lost contents, would break.
 */
#ifndef PERF_REGIONS_H
#define PERF_REGIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

/* Where memory comes from: malloc, or the kernel. All return NULL or fail as malloc does. */
struct memory {
    void *(*get)(size_t size);
    void (*put)(void *p, size_t size);
    void *(*grow)(void *p, size_t from, size_t to);
    /* Take a piece out of use, and into use again: free and malloc, or two mprotect. */
    void (*hide)(void **p, size_t size);
    void (*show)(void **p, size_t size);
};

enum touch { TOUCH_NONE, TOUCH_ONE, TOUCH_ALL };

/* One run. Constant once run() is called. */
struct job {
    const struct memory *memory;
    long n;  /* how often, item by item; -1: as long as `ms` says */
    long ms; /* how long, where n is -1 */
    long threads;
    size_t size; /* bytes a block, or of the last block */
    enum touch touch;
    long seconds; /* growth: give up after so many */
    uint64_t seed;
};

void pair(const struct job *job);      /* pair.c: threads that get, touch and put one block at a time */
void live(const struct job *job);      /* live.c: get n blocks, then put them in order of birth */
void many(const struct job *job);      /* live.c: n live blocks of mixed sizes, put in mixed order, and again */
void alternate(const struct job *job); /* alternate.c: every other piece of a range goes and comes back */
void holes(const struct job *job);     /* holes.c: every other of n blocks goes; what the process then looks like */
void growth(const struct job *job);    /* growth.c: one block grows in steps of 1 MiB */
void lockall(const struct job *job);   /* lockall.c: all memory locked, threads start */
void dump(const struct job *job);      /* dump.c: allocate, free some, and die with a core dump */

/* Nanoseconds of cpu time of the process, and of the clock on the wall. */
double cpu_ns(void);
double wall_ns(void);

/* Print what went wrong and exit 1. */
_Noreturn void regions_fail(const char *item, const char *what);

/* A block with its first byte written (unless `touch` says none), or the end of the program. */
void *regions_get(const struct job *job, size_t size);

/* Memory of the program's own that no allocator sees. Zeroed; never given back. */
void *regions_own(size_t size);

/* A line of /proc/self/status in KiB; lines of /proc/self/maps. Neither allocates. */
long status_kib(const char *key);
long maps_lines(void);

/* A step of a 64-bit linear congruential generator, reduced to a number below n. */
static inline uint32_t regions_below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((*state >> 32) * n) >> 32);
}

#endif
