/* SPDX-License-Identifier: BSD-2-Clause */
#include "alloc.h"

#include "barn.h"
#include "compat/os/bits.h"
#include "compat/os/numa.h"
#include "compat/os/vm.h"
#include "fast.h"
#include "large.h"
#include "libc.h"
#include "life.h"
#include "misuse.h"
#include "opt.h"
#include "reclaim.h"
#include "slab.h"

#include <string.h>

enum { ALIGN_MAX_SHIFT = 47 }; /* no address has more bits */

/* Where there is no memory, what caches hold is given back first, and asked for once more. */
static void *small_alloc(class_t c)
{
    void *p = sheaf_pop(&tcache_self()->top[c]);
    if (p == NULL)
        p = tcache_alloc_slow(c);
    if (UNLIKELY(p == NULL))
        p = tcache_alloc_far(c);
    return p != NULL || !reclaim_for_need(class_to_size(c)) ? p : tcache_alloc_slow(c);
}

/* From the home node, else from the nearest that has memory. */
static void *large_alloc_near(size_t size, size_t align, bool zero)
{
    unsigned home = numa_here(), n = numa_count();
    void *p = large_alloc(home, size, align, zero);
    for (unsigned i = 1; UNLIKELY(p == NULL) && i < n; i++)
        p = large_alloc(numa_nearest(home, i), size, align, zero);
    return p;
}

static void *big_alloc(size_t size, size_t align, bool zero)
{
    if (size > PTRDIFF_MAX)
        return NULL;
    tcache_look_home("malloc");
    void *p = large_alloc_near(size, align, zero);
    return p != NULL || !reclaim_for_need(size) ? p : large_alloc_near(size, align, zero);
}

/* A free by one of our own calls: the hit path's push first. */
static void small_free(class_t c, void *p, const char *func)
{
    struct tcache *tc = tcache_self();
    p = pmap_plain(p);
    if ((pmap_tag(p) ^ tc->node_tag) - 1 != c || !sheaf_push(&tc->top[c], p))
        tcache_free_slow(c, p, func);
}

void *alloc_slow(size_t size)
{
    if (UNLIKELY(libc_in_use()))
        return libc_calls.malloc(size);
    life_start();
    if (LIKELY(size <= SIZE_SMALL_MAX))
        return small_alloc(size_to_class(size));
    return big_alloc(size, 1, false);
}

/* A pointer whose tag says nothing: NULL, the C library's, ours but wrong, or a stranger's. */
COLD static void free_unknown(void *p, const char *func)
{
    if (libc_in_use()) {
        libc_calls.free(p);
        return;
    }
    large_complain(p, func);
    misuse_foreign(func, p);
}

void alloc_free_slow(void *p, const char *func)
{
    if (p == NULL)
        return;
    unsigned tag = pmap_tag(p);
    class_t c = tag_class(tag);
    struct page *pg;
    if (LIKELY(tag != 0 && c < SIZE_CLASSES))
        tcache_free_slow(c, pmap_plain(p), func);
    else if (LIKELY(tag != 0 && (pg = large_page(p)) != NULL))
        large_free(pg);
    else
        free_unknown(p, func);
    reclaim_poll(func);
}

void *alloc_zeroed(size_t size)
{
    if (size <= SIZE_SMALL_MAX && !libc_in_use()) {
        life_start();
        void *p = small_alloc(size_to_class(size));
        return p == NULL ? NULL : memset(p, 0, size);
    }
    if (libc_in_use())
        return libc_calls.calloc(1, size);
    life_start();
    return big_alloc(size, 1, true);
}

void *alloc_aligned(size_t align, size_t size, bool zero)
{
    if (libc_in_use()) {
        void *q = libc_calls.memalign(align, size);
        return q != NULL && zero ? memset(q, 0, size) : q;
    }
    if (size > PTRDIFF_MAX || align > (size_t)1 << ALIGN_MAX_SHIFT)
        return NULL;
    life_start();
    class_t c = size_aligned_class(size, align);
    if (c >= SIZE_CLASSES)
        return big_alloc(size, align, zero);
    void *p = small_alloc(c);
    return p != NULL && zero ? memset(p, 0, size) : p;
}

size_t alloc_usable(const void *p)
{
    unsigned tag = pmap_tag(p);
    class_t c = tag_class(tag);
    if (tag == 0)
        return p != NULL && libc_in_use() ? libc_calls.usable((void *)(uintptr_t)p) : 0;
    if (c < SIZE_CLASSES)
        return class_to_size(c);
    const struct page *pg = large_page(p);
    return pg == NULL ? 0 : pg->usable;
}

size_t alloc_good_size(size_t size, size_t align)
{
    if (size > PTRDIFF_MAX || align > (size_t)1 << ALIGN_MAX_SHIFT)
        return 0;
    class_t c = size_aligned_class(size, align);
    if (c < SIZE_CLASSES)
        return class_to_size(c);
    size_t rounded = align_up(size == 0 ? 1 : size, vm_page_size());
    return rounded > PTRDIFF_MAX ? 0 : rounded;
}

/* ---- realloc ---- */

static bool fits_small(class_t c, size_t size)
{
    size_t have = class_to_size(c);
    return size <= have && (size > have / 2 || c == 0 || size_to_class(size) == c);
}

static void *move_small(void *p, class_t c, size_t size, const char *func)
{
    size_t old_size = class_to_size(c);
    void *q = size <= SIZE_SMALL_MAX ? small_alloc(size_to_class(size)) : big_alloc(size, 1, false);
    if (q != NULL) {
        memcpy(q, p, old_size < size ? old_size : size);
        small_free(c, p, func);
    }
    return q;
}

static void *move_large(struct page *pg, size_t size)
{
    size_t old_size = pg->usable;
    void *p = pg->base;
    void *q = size <= SIZE_SMALL_MAX ? small_alloc(size_to_class(size))
              : size > old_size      ? large_alloc_growing(numa_here(), size)
                                     : big_alloc(size, 1, false);
    if (q != NULL) {
        memcpy(q, p, old_size < size ? old_size : size);
        large_free(pg);
    }
    return q;
}

COLD static void *resize_unknown(void *p, size_t size, const char *func)
{
    if (libc_in_use())
        return libc_calls.realloc(p, size);
    large_complain(p, func);
    misuse_foreign_asked(func, p);
    return NULL;
}

/* Where there is no memory for a smaller block, the old one will do: programs do not expect a shrink to fail. */
void *alloc_resize(void *p, size_t size, const char *func)
{
    unsigned tag = pmap_tag(p);
    class_t c = tag_class(tag);
    if (UNLIKELY(size > PTRDIFF_MAX))
        return NULL;
    if (LIKELY(tag != 0 && c < SIZE_CLASSES)) {
        if (opt.hardened)
            slab_verify(p, func);
        void *q = fits_small(c, size) ? p : move_small(p, c, size, func);
        return q == NULL && size <= class_to_size(c) ? p : q;
    }
    struct page *pg = tag == 0 ? NULL : large_page(p);
    if (pg == NULL)
        return resize_unknown(p, size, func);
    size_t have = pg->usable;
    void *q = large_resize(pg, size);
    if (q == NULL)
        q = move_large(pg, size);
    return q == NULL && size <= have ? p : q;
}

bool alloc_resize_in_place(void *p, size_t size)
{
    unsigned tag = pmap_tag(p);
    class_t c = tag_class(tag);
    if (size > PTRDIFF_MAX || tag == 0)
        return false;
    if (c < SIZE_CLASSES)
        return size <= class_to_size(c);
    struct page *pg = large_page(p);
    if (pg == NULL)
        return false;
    return size <= pg->usable || (pg->kind != PAGE_OWN && large_resize(pg, size) != NULL);
}

/* ---- sized frees ---- */

void alloc_check_size(const void *p, size_t size, size_t align, const char *func)
{
    unsigned tag = pmap_tag(p);
    class_t c = tag_class(tag);
    struct misuse m = {.func = func, .p = p, .what = "wrong size", .state = "in use"};
    if (tag == 0 || size > PTRDIFF_MAX)
        return;
    if (c < SIZE_CLASSES) {
        size_t have = class_to_size(c); /* a realloc may have left a block of up to twice its size where it was */
        if (size <= have && (size > have / 2 || size_aligned_class(size, align) == c))
            return;
        m.size = have;
        m.kind = "slab";
        const struct page *pg = pmap_page(p);
        m.base = page_address(pg->kind == PAGE_SLAB_TAIL ? pg->head : pg);
    } else {
        const struct page *pg = large_page(p);
        bool large = size > SIZE_SMALL_MAX || size_aligned_class(size, align) >= SIZE_CLASSES;
        if (pg == NULL || (large && size <= pg->usable))
            return;
        m.kind = pg->kind == PAGE_RUN ? "run" : "large";
        m.base = pg->base;
    }
    misuse_wrong_size(&m);
}
