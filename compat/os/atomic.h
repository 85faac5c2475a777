/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Atomic accesses with the order in the name, so that a reader sees it at the call and a model checker has one place to
 * hook into. Level 0. Work on any naturally aligned scalar or pointer.
 */
#ifndef COMPAT_OS_ATOMIC_H
#define COMPAT_OS_ATOMIC_H

#include "cc.h"

#define load_relaxed(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define load_acquire(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define store_relaxed(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define add_relaxed(p, v) __atomic_fetch_add(p, v, __ATOMIC_RELAXED)
#define sub_relaxed(p, v) __atomic_fetch_sub(p, v, __ATOMIC_RELAXED)
#define exchange_release(p, v) __atomic_exchange_n(p, v, __ATOMIC_RELEASE)
#define exchange_acquire(p, v) __atomic_exchange_n(p, v, __ATOMIC_ACQUIRE)
#define cas_acquire(p, expected, v)                                                                                    \
    __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#define cas_acq_rel(p, expected, v)                                                                                    \
    __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

/* Counter written by one thread only: a relaxed load and store, no locked operation. Readers may see it late. */
#define owner_add(p, v) store_relaxed(p, load_relaxed(p) + (v))

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
