/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc's non-standard calls, so that a program linked with libjemalloc never has its blocks cross between two heaps.
 * Level 11. The flags are jemalloc's documented ones; arena and thread-cache choices are accepted and ignored.
 */
#include "compat/os/cc.h"
#include "core/alloc.h"
#include "core/size.h"

#include <string.h>

enum { LG_ALIGN_MASK = 0x3f, ZERO = 0x40 }; /* MALLOCX_LG_ALIGN(la), MALLOCX_ZERO */
enum { PAGE_ALIGN = 4096 };                 /* what every large block has, wherever it moves */

EXPORT void *mallocx(size_t size, int flags);
EXPORT void *rallocx(void *p, size_t size, int flags);
EXPORT size_t xallocx(void *p, size_t size, size_t extra, int flags);
EXPORT size_t sallocx(const void *p, int flags);
EXPORT void dallocx(void *p, int flags);
EXPORT void sdallocx(void *p, size_t size, int flags);
EXPORT size_t nallocx(size_t size, int flags);

static size_t align_of(int flags)
{
    return (size_t)1 << (flags & LG_ALIGN_MASK);
}

/* What reads as zero is the block's real size: a later rallocx may clear only what is beyond it. */
void *mallocx(size_t size, int flags)
{
    size_t align = align_of(flags), real = (flags & ZERO) != 0 ? alloc_good_size(size, align) : size;
    return real < size ? NULL : alloc_aligned(align, real, (flags & ZERO) != 0);
}

/* Move to a new block at the asked alignment. */
static void *move(void *p, size_t old, size_t size, int flags)
{
    void *q = alloc_aligned(align_of(flags), size, false);
    if (q == NULL)
        return NULL;
    memcpy(q, p, old < size ? old : size);
    alloc_free_slow(p, "rallocx");
    return q;
}

/* The bytes that a block gained read as zero. */
static void *zero_gain(void *p, size_t old, int flags)
{
    if (p != NULL && (flags & ZERO) != 0 && alloc_usable(p) > old)
        memset((char *)p + old, 0, alloc_usable(p) - old);
    return p;
}

/* In place where the new size would get the same block; large blocks may grow or move as realloc does. */
void *rallocx(void *p, size_t size, int flags)
{
    size_t old = alloc_usable(p), align = align_of(flags);
    bool aligned = ((uintptr_t)p & (align - 1)) == 0;
    if (aligned && alloc_good_size(size, align) == old)
        return p;
    if (aligned && align <= PAGE_ALIGN && size > SIZE_SMALL_MAX)
        return zero_gain(alloc_resize(p, size, "rallocx"), old, flags);
    return zero_gain(move(p, old, size, flags), old, flags);
}

size_t xallocx(void *p, size_t size, size_t extra, int flags)
{
    size_t old = alloc_usable(p), want = size + extra < size ? SIZE_MAX : size + extra;
    if (!alloc_resize_in_place(p, want))
        alloc_resize_in_place(p, size);
    zero_gain(p, old, flags);
    return alloc_usable(p);
}

size_t sallocx(const void *p, int flags)
{
    (void)flags;
    return alloc_usable(p);
}

void dallocx(void *p, int flags)
{
    (void)flags;
    alloc_free_slow(p, "dallocx");
}

void sdallocx(void *p, size_t size, int flags)
{
    alloc_check_size(p, size, align_of(flags), "sdallocx");
    alloc_free_slow(p, "sdallocx");
}

size_t nallocx(size_t size, int flags)
{
    return alloc_good_size(size, align_of(flags));
}
