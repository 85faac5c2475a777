/* SPDX-License-Identifier: BSD-2-Clause */
/* Small arithmetic on powers of two. Level 0. Pure functions, usable anywhere. */
#ifndef COMPAT_OS_BITS_H
#define COMPAT_OS_BITS_H

#include "cc.h"

/* Round x up (down) to a multiple of a, a power of two. The caller makes sure that x + a - 1 does not wrap. */
static inline size_t align_up(size_t x, size_t a)
{
    return (x + a - 1) & ~(a - 1);
}

static inline size_t align_down(size_t x, size_t a)
{
    return x & ~(a - 1);
}

static inline bool is_pow2(size_t x)
{
    return x != 0 && (x & (x - 1)) == 0;
}

/* Floor of log2; x > 0. */
static inline unsigned ilog2(size_t x)
{
    return 63u - (unsigned)__builtin_clzll(x);
}

/* Smallest k with 2^k >= x; x > 0. */
static inline unsigned ilog2_up(size_t x)
{
    return x <= 1 ? 0 : ilog2(x - 1) + 1;
}

/* Smallest power of two >= x, 0 if there is none; x > 0. */
static inline size_t pow2_up(size_t x)
{
    return x > (SIZE_MAX >> 1) + 1 ? 0 : (size_t)1 << ilog2_up(x);
}

#endif
