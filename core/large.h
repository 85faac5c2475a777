/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks above the largest class. Level 7, over pcp, zone and region.
 *
 *     run    up to 512 KiB          2^order pages from the pcp lists
 *     large  up to LARGE_OWN_BYTES  exact pages out of a window
 *     own    above                  a region of a huge window, or a mapping of its own, which mremap can move
 *
 * The first page's descriptor holds usable (the request rounded up to os pages) and base; its tag is TAG_BLOCK; pages
 * inside a block have tag 0. Any live block is owned by the program alone, so its descriptor needs no lock.
 */
#ifndef CORE_LARGE_H
#define CORE_LARGE_H

#include "pmap.h"

/* What: a block of at least size bytes at a multiple of align. Units: bytes; size <= PTRDIFF_MAX; align a power of two.
 * zero: all size bytes read as zero. Locks: none may be held. Fails: NULL. Cost: O(1); seldom a system call. */
void *large_alloc(unsigned node, size_t size, size_t align, bool zero);

/* What: the descriptor of the block that begins at p, or NULL if none does. Context: any time. Cost: a few loads. */
struct page *large_page(const void *p);

/* What: free the block. Locks: none may be held; may purge or unmap. */
void large_free(struct page *pg);

/* What: resize without copying. Owner: the caller, of the result; pg may be another block's afterwards if that moved.
 * Result: the block's address, moved only for an own block. Locks: none may be held; may purge or remap.
 * Fails: NULL, unchanged: the caller copies. */
void *large_resize(struct page *pg, size_t size);

/* What: a new block for data that has grown to size once already, with room to grow in place: address space only, not
 * part of its usable size. Locks: none may be held. Fails: NULL. */
void *large_alloc_growing(unsigned node, size_t size);

/* What: give back the free blocks that wait for a next request; idle: those that nobody has asked for lately. Result: how
 * many. Locks: none may be held; may purge and unmap. */
size_t large_drain(bool idle);

/* What: p lies in our memory, yet no block begins there: print the misuse line and abort. Returns for foreign pointers.
 * Locks: none may be held. */
void large_complain(const void *p, const char *func);

struct large_stats {
    size_t run_bytes, run_count, run_pages, run_stale;
    size_t large_bytes, large_count, large_pages, large_stale;
    size_t own_bytes, own_count, own_pages, own_stale;
    size_t hot_bytes, hot_own_bytes; /* free blocks that wait for the next request; counted nowhere else */
};
/* What: live blocks: usable bytes, how many, pages taken from windows, and bytes of those that are resident from an
 * earlier use though not usable; relaxed counters. */
struct large_stats large_stats(void);

#endif
