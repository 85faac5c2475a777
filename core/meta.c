/* SPDX-License-Identifier: BSD-2-Clause */
#include "meta.h"

#include "compat/os/atomic.h"
#include "compat/os/bits.h"
#include "compat/os/lock.h"
#include "compat/os/vm.h"
#include "dbg.h"
#include "rank.h"
#include "thp.h"

#include <string.h>

_Static_assert(sizeof(struct meta_chunk) <= 1 << META_MIN_SHIFT, "a chunk's first block describes it");

enum {
    SIZES = META_MAX_SHIFT - META_MIN_SHIFT + 1,
    FIRST_CHUNK = 48 << 10, /* enough for a program that does little */
    CHUNK_MIN = 256 << 10,
    CHUNK_MAX = 4 << 20,
    CHUNK_SCARCE = 64 << 10, /* when address space is short */
    RESERVE = 128 << 10,     /* for blocks that must be had, when address space is short */
    REFUSED_SKIP = 256,      /* optional blocks refused without a system call after the system refused one */
};

struct free_block {
    struct free_block *next;
};

static struct {
    struct lock lock;
    const struct meta_chunk *chunks; /* newest; written under the META lock, read by anyone */
    struct free_block *free[SIZES]; /* META lock */
    char *bump, *end;          /* META lock: the rest of the newest chunk */
    size_t mapped, used;       /* META lock */
    size_t in_library;         /* META lock */
    size_t next_chunk;
    bool scarce;               /* META lock: the system has refused memory */
    unsigned skip;             /* META lock: optional requests still to refuse at once */
} meta;

static char first_chunk[FIRST_CHUNK] __attribute__((aligned(64))); /* a larger alignment would move all of .bss */

static unsigned pool_index(size_t size)
{
    return size <= 1 << META_MIN_SHIFT ? 0 : ilog2_up(size) - META_MIN_SHIFT;
}

/* Cut the rest of a chunk into free blocks, so that a new chunk wastes nothing of the old. */
static void retire_rest_locked(void)
{
    for (int i = SIZES - 1; i >= 0; i--) {
        size_t size = (size_t)1 << (META_MIN_SHIFT + i);
        while ((size_t)(meta.end - meta.bump) >= size) {
            struct free_block *b = (struct free_block *)meta.bump;
            meta.bump += size;
            b->next = meta.free[i];
            meta.free[i] = b;
        }
    }
}

static void add_chunk_locked(char *p, size_t size)
{
    retire_rest_locked();
    meta.bump = p;
    meta.end = p + size;
    meta.mapped += size;
}

/* A chunk that was mapped begins with the description of itself. */
static void add_mapped_chunk_locked(char *p, size_t size)
{
    struct meta_chunk *c = (struct meta_chunk *)(void *)p;
    *c = (struct meta_chunk){.next = meta.chunks, .size = size};
    add_chunk_locked(p, size);
    meta.bump += (size_t)1 << META_MIN_SHIFT;
    meta.used += (size_t)1 << META_MIN_SHIFT;
    store_release(&meta.chunks, c); /* pairs with meta_chunks */
}

static void *take_block_locked(unsigned i, size_t leave)
{
    size_t size = (size_t)1 << (META_MIN_SHIFT + i);
    struct free_block *b = meta.free[i];
    if (b != NULL) {
        meta.free[i] = b->next;
    } else {
        if (meta.mapped == 0) {
            add_chunk_locked(first_chunk, FIRST_CHUNK);
            meta.in_library = FIRST_CHUNK;
        }
        if ((size_t)(meta.end - meta.bump) < size + leave)
            return NULL;
        b = (struct free_block *)meta.bump;
        meta.bump += size;
    }
    meta.used += size;
    return b;
}

/* Map a chunk with no lock held; two threads may both do so, which wastes nothing: the other chunk's rest is cut up. */
static bool grow(void)
{
    lock_acquire(&meta.lock, RANK_META);
    size_t size = meta.next_chunk < CHUNK_MIN ? CHUNK_MIN : meta.next_chunk;
    meta.next_chunk = size < CHUNK_MAX ? size * 2 : size;
    lock_release(&meta.lock);
    char *p = thp_map_small(size);
    if (p == NULL) {
        size = CHUNK_SCARCE;
        p = thp_map_small(size);
    }
    lock_acquire(&meta.lock, RANK_META);
    if (p != NULL)
        add_mapped_chunk_locked(p, size);
    else
        meta.scarce = true;
    meta.skip = p == NULL ? REFUSED_SKIP : 0;
    lock_release(&meta.lock);
    return p != NULL;
}

void *meta_alloc(size_t size)
{
    ASSERT(size <= (size_t)1 << META_MAX_SHIFT);
    unsigned i = pool_index(size);
    for (;;) {
        lock_acquire(&meta.lock, RANK_META);
        void *p = take_block_locked(i, 0);
        lock_release(&meta.lock);
        if (p != NULL || !grow())
            return p;
    }
}

void *meta_zalloc(size_t size)
{
    void *p = meta_alloc(size);
    return p == NULL ? NULL : memset(p, 0, size);
}

void *meta_alloc_optional(size_t size)
{
    unsigned i = pool_index(size);
    for (;;) {
        lock_acquire(&meta.lock, RANK_META);
        void *p = take_block_locked(i, meta.scarce ? RESERVE : 0);
        bool ask = p == NULL && meta.skip == 0;
        if (p == NULL && !ask)
            meta.skip--;
        lock_release(&meta.lock);
        if (!ask || !grow())
            return p;
    }
}

void meta_reserve(void)
{
    lock_acquire(&meta.lock, RANK_META);
    meta.scarce = true;
    bool enough = (size_t)(meta.end - meta.bump) >= RESERVE;
    lock_release(&meta.lock);
    if (!enough)
        grow();
}

void meta_free(void *p, size_t size)
{
    unsigned i = pool_index(size);
    struct free_block *b = p;
    lock_acquire(&meta.lock, RANK_META);
    b->next = meta.free[i];
    meta.free[i] = b;
    meta.used -= (size_t)1 << (META_MIN_SHIFT + i);
    lock_release(&meta.lock);
}

struct meta_stats meta_stats(void)
{
    lock_acquire(&meta.lock, RANK_META);
    struct meta_stats s = {.mapped = meta.mapped, .in_library = meta.in_library, .used = meta.used};
    if (meta.mapped != meta.in_library)
        s.fresh = (size_t)(meta.end - meta.bump);
    lock_release(&meta.lock);
    return s;
}

const struct meta_chunk *meta_chunks(void)
{
    return load_acquire(&meta.chunks);
}

void meta_fork_hold(void)
{
    lock_fork_hold(&meta.lock, RANK_META);
}

void meta_fork_open(void)
{
    lock_fork_open(&meta.lock);
}
