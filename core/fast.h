/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hit path, whole. Level 10; included by the files that define public symbols.
 *
 *     malloc -> alloc_fast -> size_to_class -> tcache_self -> sheaf_pop        miss: alloc_slow (tail call)
 *     free   -> free_fast  -> pmap_tag      -> tcache_self -> sheaf_push       miss: alloc_free_slow (tail call)
 *
 * Two conditional branches on malloc: too large, sheaf empty. Three on free: beyond 48 bits, not a local small object,
 * sheaf full. Everything unusual is one of those. `make check` counts the instructions (perf/golden).
 */
#ifndef CORE_FAST_H
#define CORE_FAST_H

#include "pmap.h"
#include "tcache.h"

/* What: an object for size bytes; `slow` serves what the sheaf cannot. */
HOT_INLINE void *alloc_fast(size_t size, void *(*slow)(size_t))
{
    if (UNLIKELY(size > SIZE_SMALL_MAX))
        return slow(size);
    struct tcache *tc = tcache_self();
    class_t c = size_to_class(size);
    void **top = tc->top[c]; /* sheaf_pop, written out: gcc keeps the address of tc->top[c] in two registers else */
    void *p = *top;
    if (UNLIKELY(p == NULL))
        return slow(size);
    store_release(&tc->top[c], top - 1);
    return p;
}

/* What: give p back; `slow` takes what the sheaf cannot. */
HOT_INLINE void free_fast(void *p, void (*slow)(void *))
{
    struct tcache *tc = tcache_self();
    class_t c = (pmap_tag(p) ^ tc->node_tag) - 1;
    if (UNLIKELY(c >= SIZE_CLASSES)) {
        slow(p);
        return;
    }
    void **top = tc->top[c]; /* sheaf_push, written out */
    if (UNLIKELY(top[1] == SHEAF_END)) {
        slow(p);
        return;
    }
    top[1] = pmap_plain(p);
    store_release(&tc->top[c], top + 1);
}

/* What: as free_fast, for a caller that names the size: a wrong one goes to `slow`, which counts it. */
HOT_INLINE void free_sized_fast(void *p, size_t size, void (*slow)(void *, size_t))
{
    struct tcache *tc = tcache_self();
    class_t c = (pmap_tag(p) ^ tc->node_tag) - 1;
    if (UNLIKELY(size > SIZE_SMALL_MAX) || UNLIKELY(c != size_to_class(size)) ||
        UNLIKELY(!sheaf_push(&tc->top[c], pmap_plain(p))))
        slow(p, size);
}

#endif
