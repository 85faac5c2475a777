/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "cpu.h"

#include "atomic.h"
#include "sys.h"
#include "vm.h"

#include <errno.h>
#include <sched.h>

/* glibc 2.35 and later; absent elsewhere. `__rseq_size` is 0 where registration was refused or switched off. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));
enum { RSEQ_CPU_ID = 4 }; /* offset of cpu_id in the kernel's struct rseq */

static unsigned count; /* 0 until asked for; every thread computes the same value */

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

unsigned cpu_current(void)
{
    if (LIKELY(have_rseq())) {
        int id = *(volatile int *)(thread_pointer() + __rseq_offset + RSEQ_CPU_ID);
        if (LIKELY(id >= 0))
            return (unsigned)id;
    }
    int saved = errno;
    int id = sched_getcpu();
    errno = saved;
    return id < 0 ? 0 : (unsigned)id;
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
