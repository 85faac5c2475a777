/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "cpu.h"

#include "atomic.h"
#include "sys.h"
#include "vm.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>

/* glibc 2.35 and later; absent elsewhere. `__rseq_size` is 0 where registration was refused or switched off. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));
/* Offsets in the kernel's struct rseq, and how much of it a kernel fills that knows mm_cid. glibc's __rseq_size does not
 * tell: it is 20 also where the kernel has been given 32 bytes and fills them. */
enum { RSEQ_CPU_ID = 4, RSEQ_NODE_ID = 20, RSEQ_NODE_ID_END = 24, RSEQ_MM_CID = 24, RSEQ_MM_CID_END = 28 };
#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27
#endif

static unsigned count;       /* 0 until asked for; every thread computes the same value */
static unsigned rseq_filled; /* bytes of struct rseq that the kernel fills, plus 1; 0 until asked for, likewise */

static bool have_rseq(void)
{
#if defined(__x86_64__) || defined(__aarch64__)
    return &__rseq_size != NULL && __rseq_size != 0;
#else
    return false;
#endif
}

static char *thread_pointer(void)
{
#if defined(__x86_64__)
    char *tp;
    __asm__("mov %%fs:0, %0" : "=r"(tp));
    return tp;
#elif defined(__aarch64__)
    char *tp;
    __asm__("mrs %0, tpidr_el0" : "=r"(tp));
    return tp;
#else
    return NULL;
#endif
}

static int rseq_field(ptrdiff_t offset)
{
    return *(volatile int *)(thread_pointer() + __rseq_offset + offset);
}

/* -1: this thread has no rseq area, or none that is registered. */
static int rseq_cpu(void)
{
    return LIKELY(have_rseq()) ? rseq_field(RSEQ_CPU_ID) : -1;
}

static unsigned ask_cpu(void)
{
    int saved = errno;
    int id = sched_getcpu();
    errno = saved;
    return id < 0 ? 0 : (unsigned)id;
}

unsigned cpu_current(void)
{
    int id = rseq_cpu();
    return LIKELY(id >= 0) ? (unsigned)id : ask_cpu();
}

/* Does the kernel fill struct rseq up to here? */
static bool rseq_fills(unsigned end)
{
    unsigned filled = load_relaxed(&rseq_filled);
    if (UNLIKELY(filled == 0)) {
        filled = (unsigned)sys_auxv(AT_RSEQ_FEATURE_SIZE) + 1;
        store_relaxed(&rseq_filled, filled);
    }
    return filled > end;
}

unsigned cpu_shard(void)
{
    int id = rseq_cpu();
    if (UNLIKELY(id < 0))
        return ask_cpu();
    return LIKELY(rseq_fills(RSEQ_MM_CID_END)) ? (unsigned)rseq_field(RSEQ_MM_CID) : (unsigned)id;
}

int cpu_filled(void)
{
    int id = rseq_cpu();
    return id >= 0 ? id : -1;
}

int cpu_node_filled(void)
{
    return rseq_cpu() >= 0 && rseq_fills(RSEQ_NODE_ID_END) ? rseq_field(RSEQ_NODE_ID) : -1;
}

int cpu_node_ask(void)
{
    unsigned cpu, node = 0;
    int saved = errno;
    int bad = getcpu(&cpu, &node);
    errno = saved;
    return bad != 0 || node > INT_MAX ? -1 : (int)node;
}

static unsigned count_bits(const unsigned long *mask, long bytes)
{
    unsigned n = 0;
    for (long i = 0; i < bytes / (long)sizeof *mask; i++)
        n += (unsigned)__builtin_popcountl(mask[i]);
    return n == 0 ? 1 : n;
}

/* A kernel built for more cpus than the small buffer holds says EINVAL: map larger ones until its mask fits. */
static unsigned count_affinity(void)
{
    unsigned long small[64] = {0}; /* 4,096 cpus */
    long bytes = sys_call3(SYS_sched_getaffinity, 0, sizeof small, (long)small);
    if (bytes > 0)
        return count_bits(small, bytes);
    for (size_t size = vm_page_size(); bytes == -EINVAL && size <= 64 * vm_page_size(); size *= 2) {
        unsigned long *mask = vm_map(size, false);
        if (mask == NULL)
            return 1;
        bytes = sys_call3(SYS_sched_getaffinity, 0, (long)size, (long)mask);
        unsigned n = count_bits(mask, bytes);
        vm_unmap(mask, size);
        if (bytes > 0)
            return n;
    }
    return 1;
}

unsigned cpu_count(void)
{
    unsigned n = load_relaxed(&count);
    if (UNLIKELY(n == 0)) {
        n = count_affinity();
        store_relaxed(&count, n);
    }
    return n;
}
