/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The allocator's calls, below the names that programs know. Level 10.
 *
 * errno is neither read nor written here: callers in preload/ and compat/api set ENOMEM when NULL comes back, and every
 * path keeps it otherwise. `func` is the public name for misuse lines.
 */
#ifndef CORE_ALLOC_H
#define CORE_ALLOC_H

#include "compat/os/cc.h"

/* What: malloc, when the hit path could not. Fails: NULL. Context: any thread, also before our constructor. */
void *alloc_slow(size_t size);

/* What: free, when the hit path could not; NULL is fine, foreign pointers are counted and left alone. */
void alloc_free_slow(void *p, const char *func);

/* What: size bytes that read as zero. Fails: NULL. */
void *alloc_zeroed(size_t size);

/* What: realloc for p != NULL and size > 0. Owner: the caller, of the result; p is then gone. Fails: NULL, p untouched;
 * also for a pointer that is not ours, which is counted. Shrinking never fails. */
void *alloc_resize(void *p, size_t size, const char *func);

/* What: a block at a multiple of align, a power of two. Fails: NULL. */
void *alloc_aligned(size_t align, size_t size, bool zero);

/* What: bytes that may be used at p, at least what was asked for; 0 for NULL and foreign pointers. */
size_t alloc_usable(const void *p);

/* What: the usable size a request would get; 0 bytes count as 1. Fails: 0 if it cannot be served. */
size_t alloc_good_size(size_t size, size_t align);

/* What: a free that was told a size: count it if that cannot be the block's. p is ours to free afterwards. */
void alloc_check_size(const void *p, size_t size, size_t align, const char *func);

/* What: resize in place only. Result: did it? */
bool alloc_resize_in_place(void *p, size_t size);

#endif
