/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for our own bookkeeping. Level 2: over vm, used by everything above.
 *
 * Power-of-two blocks of 64 bytes to 16 KiB from chunks that are never unmapped; a freed block goes to the free list of
 * its size. Metadata never lies in or next to the program's memory. The first chunk is part of the library's zeroed
 * data, so a program that does little maps none.
 */
#ifndef CORE_META_H
#define CORE_META_H

#include "compat/os/cc.h"

enum { META_MIN_SHIFT = 6, META_MAX_SHIFT = 14 };

/* What: a block of at least size bytes, aligned to its power of two (at most 64 guaranteed). Contents are undefined.
 * Units: bytes, at most 16 KiB. Locks: takes META; may map, so the caller holds no lock. Fails: NULL.
 * Cost: O(1); now and then one mmap. */
void *meta_alloc(size_t size);

/* What: as meta_alloc, zeroed. */
void *meta_zalloc(size_t size);

/* What: as meta_alloc, for a block the caller can do without: once the system has refused us memory, it leaves a reserve
 * untouched and asks the system only now and then. */
void *meta_alloc_optional(size_t size);

/* What: the system begins to refuse memory: set a reserve aside while there is some. Locks: none may be held. */
void meta_reserve(void);

/* What: give a block back. Units: the size it was asked with. Context: any. Cost: O(1). */
void meta_free(void *p, size_t size);

struct meta_stats {
    size_t mapped;     /* bytes of chunks, the static one included */
    size_t in_library; /* of them: the static one, if it is in use */
    size_t used;       /* bytes in blocks handed out */
    size_t fresh;      /* of mapped: the untouched rest of the newest chunk, unless that is the static one */
};

struct meta_stats meta_stats(void);

/* A chunk that was mapped. It lies at its own beginning, and is constant once it can be seen. */
struct meta_chunk {
    const struct meta_chunk *next; /* the one mapped before it */
    size_t size;                   /* bytes, from this struct on */
};

/* What: all chunks but the static one, the newest first. Order: acquire; pairs with the release in meta.c. Context: any.
 * For the layer of regions, which lists them: it is above this one, so it looks from time to time (its tree feeds on meta). */
const struct meta_chunk *meta_chunks(void);

/* What: fork: hold and open the lock. */
void meta_fork_hold(void);
void meta_fork_open(void);

#endif
