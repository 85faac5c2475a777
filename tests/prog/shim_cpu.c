/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A preload that lies about the cpu and the node (R14), where they are asked of libc: SHIM_CPU=far says cpu 4095 of node 63,
 * SHIM_CPU=random anything, also what cannot be. Prints at exit how often it was asked.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long asked;
static uint64_t state;

static unsigned lie(unsigned far, unsigned most)
{
    static const char *mode;
    __atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
    if (!__atomic_load_n(&mode, __ATOMIC_RELAXED) && environ)
        __atomic_store_n(&mode, getenv("SHIM_CPU"), __ATOMIC_RELAXED);
    const char *is = __atomic_load_n(&mode, __ATOMIC_RELAXED);
    if (!is || strcmp(is, "random") != 0)
        return far;
    uint64_t x = __atomic_add_fetch(&state, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    return x % 8 == 0 ? (unsigned)(x >> 32) : (unsigned)(x >> 32) % most;
}

int sched_getcpu(void);
int sched_getcpu(void)
{
    return (int)lie(4095, 10000);
}

int getcpu(unsigned *cpu, unsigned *node);
int getcpu(unsigned *cpu, unsigned *node)
{
    if (cpu)
        *cpu = lie(4095, 10000);
    if (node)
        *node = lie(63, 2000);
    return 0;
}

__attribute__((destructor)) static void report(void)
{
    dprintf(2, "shim_cpu: asked %ld times\n", asked);
}
