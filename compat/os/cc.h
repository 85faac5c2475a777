/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the compiler is asked to do: attributes and build constants. Level 0; includes nothing of ours.
 *
 * Build switches are plain constants (`if (cfg_debug)`), so that every configuration compiles all code.
 */
#ifndef COMPAT_OS_CC_H
#define COMPAT_OS_CC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define HOT_INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#define COLD __attribute__((cold, noinline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TLS_IE _Thread_local __attribute__((tls_model("initial-exec")))
#define ALIAS(name) __attribute__((alias(#name)))
#define UNUSED __attribute__((unused))
/* For what every start writes: on the page of initialised data, which is dirty anyway, instead of one more of .bss. */
#define EARLY_DATA __attribute__((section(".data")))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* Two lines: adjacent-line prefetch makes 64 too small to keep two writers apart. */
#define CACHE_ALIGNED __attribute__((aligned(128)))
enum { CACHE_LINE = 64 };

#if defined(SHEAF_DEBUG) && SHEAF_DEBUG
enum { cfg_debug = 1 };
#else
enum { cfg_debug = 0 };
#endif

#endif
