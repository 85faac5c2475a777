/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The mallocx family as jemalloc documents it: mallocx, rallocx, xallocx, sallocx, dallocx, sdallocx, nallocx, with
 * alignment, zeroing, tcache and arena flags, and as one heap with malloc and free. Skipped where the process has no
 * mallocx.
 */
#define _GNU_SOURCE
#include "api_check.h"

#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>

/* The flags, by the numbers of the documentation's header. */
#define X_LG_ALIGN(lg) ((int)(lg))
#define X_ALIGN(a) X_LG_ALIGN(__builtin_ctzl(a))
#define X_ZERO 0x40
#define X_TCACHE_NONE (1 << 8)
#define X_ARENA(a) (((int)(a) + 1) << 20)

static void *(*x_alloc)(size_t, int);
static void *(*x_realloc)(void *, size_t, int);
static size_t (*x_resize)(void *, size_t, size_t, int);
static size_t (*x_size)(const void *, int);
static void (*x_free)(void *, int);
static void (*x_free_sized)(void *, size_t, int);
static size_t (*x_would)(size_t, int);

static uint64_t seed = 48;

static void *look_up(const char *name)
{
    void *f = dlsym(RTLD_DEFAULT, name);
    if (!f)
        SKIPF("the process has no %s", name);
    return f;
}

static void init(void)
{
    x_alloc = (void *(*)(size_t, int))look_up("mallocx");
    x_realloc = (void *(*)(void *, size_t, int))look_up("rallocx");
    x_resize = (size_t(*)(void *, size_t, size_t, int))look_up("xallocx");
    x_size = (size_t(*)(const void *, int))look_up("sallocx");
    x_free = (void (*)(void *, int))look_up("dallocx");
    x_free_sized = (void (*)(void *, size_t, int))look_up("sdallocx");
    x_would = (size_t(*)(size_t, int))look_up("nallocx");
}

/* Free by each way in turn. sdallocx may be told any size between the request and the real size. */
static void give_back(void *p, size_t size, int flags)
{
    flags &= ~X_ZERO;
    switch (rng_below(&seed, 4)) {
    case 0:
        x_free(p, flags);
        break;
    case 1:
        x_free_sized(p, size, flags);
        break;
    case 2:
        x_free_sized(p, x_size(p, flags), flags);
        break;
    default:
        free(p);
    }
}

/* A block with dirt in it, freed: so that zeroes have to be made. */
static void leave_dirt(size_t size, int flags)
{
    void *p = x_alloc(size, flags & ~X_ZERO);
    CHECK(p);
    memset(p, 0xA5, x_size(p, 0));
    x_free(p, 0);
}

static void one(size_t size, size_t align, int more)
{
    int flags = X_ALIGN(align) | more;
    leave_dirt(size, flags);
    size_t would = x_would(size, flags);
    void *p = x_alloc(size, flags);
    CHECKF(p != NULL, "mallocx(%zu, %#x) is NULL", size, flags);
    size_t is = x_size(p, flags);
    CHECKF((uintptr_t)p % align == 0, "mallocx(%zu, %#x) is at %p", size, flags, p);
    CHECKF(is >= size && is == would, "mallocx(%zu, %#x): nallocx says %zu, sallocx %zu", size, flags, would, is);
    CHECKF(is == malloc_usable_size(p), "mallocx(%zu, %#x): sallocx %zu, usable %zu", size, flags, is,
           malloc_usable_size(p));
    if (more & X_ZERO)
        CHECKF(nonzero_at(p, is) == is, "mallocx(%zu, %#x): byte %zu is not zero", size, flags, nonzero_at(p, is));
    pattern_fill(p, is, size);
    CHECK(pattern_diff(p, is, size) == is);
    give_back(p, size, flags);
}

static void allocation(void)
{
    static const int more[] = {0, X_ZERO, X_TCACHE_NONE, X_ARENA(0), X_ZERO | X_TCACHE_NONE};
    for (size_t i = 0; i < 20000; i++) {
        size_t size = i % 100 ? rng_log(&seed, 1, 32u << 10) : rng_log(&seed, 32u << 10, 4u << 20);
        one(size, (size_t)1 << rng_below(&seed, 14), more[i % (sizeof more / sizeof *more)]);
    }
}

/* rallocx keeps contents up to the smaller size; with the zero flag all beyond the old real size is zero. */
static void reallocation(void)
{
    for (size_t i = 0; i < 8000; i++) {
        size_t top = i % 50 ? 32u << 10 : 2u << 20;
        size_t from = rng_log(&seed, 1, top), to = rng_log(&seed, 1, top);
        size_t align = (size_t)1 << rng_below(&seed, 13);
        int flags = X_ALIGN(align) | (i % 2 ? X_ZERO : 0);
        leave_dirt(to, flags);
        void *p = x_alloc(from, X_ALIGN(align));
        CHECK(p);
        size_t old = x_size(p, 0);
        pattern_fill(p, old, i);
        void *q = x_realloc(p, to, flags);
        CHECKF(q != NULL, "rallocx(%zu to %zu, %#x) is NULL", from, to, flags);
        size_t kept = from < to ? from : to;
        CHECKF((uintptr_t)q % align == 0, "rallocx(%zu to %zu, %#x) is at %p", from, to, flags, q);
        CHECKF(x_size(q, 0) >= to && x_size(q, 0) == x_would(to, flags), "rallocx(%zu to %zu, %#x): %zu, nallocx %zu",
               from, to, flags, x_size(q, 0), x_would(to, flags));
        CHECKF(pattern_diff(q, kept, i) == kept, "rallocx(%zu to %zu, %#x) lost contents", from, to, flags);
        if ((flags & X_ZERO) && to > old)
            CHECKF(nonzero_at((char *)q + old, to - old) == to - old, "rallocx(%zu to %zu, %#x): tail not zero", from,
                   to, flags);
        give_back(q, to, flags);
    }
}

/* xallocx never moves; its answer is the real size, whether it could or not. */
static void resizing(void)
{
    for (size_t i = 0; i < 8000; i++) {
        size_t top = i % 50 ? 64u << 10 : 4u << 20;
        size_t from = rng_log(&seed, 1, top), to = rng_log(&seed, 1, top);
        size_t extra = i % 3 ? rng_below(&seed, to) : 0;
        int flags = i % 2 ? X_ZERO : 0;
        void *p = x_alloc(from, 0);
        CHECK(p);
        size_t old = x_size(p, 0);
        pattern_fill(p, old, i);
        size_t now = x_resize(p, to, extra, flags);
        CHECKF(now == x_size(p, 0), "xallocx(%zu to %zu + %zu) is %zu, sallocx %zu", from, to, extra, now,
               x_size(p, 0));
        CHECKF(now >= (to < old ? to : old), "xallocx(%zu to %zu + %zu) is %zu", from, to, extra, now);
        CHECKF(now <= old || now <= x_would(to + extra, 0), "xallocx(%zu to %zu + %zu) is %zu", from, to, extra, now);
        size_t kept = old < now ? old : now;
        CHECKF(pattern_diff(p, kept, i) == kept, "xallocx(%zu to %zu + %zu) lost contents", from, to, extra);
        if ((flags & X_ZERO) && now > old)
            CHECKF(nonzero_at((char *)p + old, now - old) == now - old, "xallocx(%zu to %zu + %zu): tail not zero",
                   from, to, extra);
        pattern_fill(p, now, i);
        CHECK(pattern_diff(p, now, i) == now);
        x_free(p, 0);
    }
}

/* Room that is there already is never refused. */
static void resizing_within(void)
{
    for (size_t size = 1; size <= (4u << 20); size += 1 + size / 7) {
        void *p = x_alloc(size, 0);
        CHECK(p);
        size_t is = x_size(p, 0);
        CHECKF(x_resize(p, is, 0, 0) >= is, "xallocx to the real size of %zu is %zu", is, x_size(p, 0));
        CHECKF(x_resize(p, size, 0, 0) >= size, "xallocx to its own size %zu is %zu", size, x_size(p, 0));
        x_free(p, 0);
    }
}

static void too_large(void)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, (size_t)PTRDIFF_MAX + 1, (size_t)PTRDIFF_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = opaque(sizes[i]);
        CHECKF(x_alloc(size, 0) == NULL, "mallocx(%#zx) is not NULL", size);
        CHECKF(x_alloc(size, X_ALIGN(4096) | X_ZERO) == NULL, "mallocx(%#zx, aligned) is not NULL", size);
        CHECKF(x_would(size, 0) == 0, "nallocx(%#zx) is %zu", size, x_would(size, 0));
        size_t aligned = x_would(size, X_ALIGN(65536));
        CHECKF(aligned == 0, "nallocx(%#zx, aligned) is %zu", size, aligned);
        void *p = x_alloc(100, 0);
        CHECK(p);
        pattern_fill(p, 100, i);
        CHECKF(x_realloc(p, size, 0) == NULL, "rallocx(%#zx) is not NULL", size);
        CHECKF(pattern_diff(opaque_ptr(p), 100, i) == 100, "a refused rallocx(%#zx) changed the block", size);
        x_free(p, 0);
    }
}

/* Blocks cross between the families in both directions. */
static void one_heap(void)
{
    for (size_t size = 1; size <= (2u << 20); size = size * 2 + 3) {
        void *p = malloc(size), *q = x_alloc(size, 0);
        void *r = aligned_alloc(4096, size), *s = x_alloc(size, X_ALIGN(4096));
        CHECK(p && q && r && s);
        CHECK(x_size(p, 0) == malloc_usable_size(p) && x_size(r, 0) == malloc_usable_size(r));
        p = x_realloc(p, size * 2, 0);
        q = realloc(q, size * 2);
        CHECK(p && q);
        x_free(p, 0);
        free(q);
        x_free(r, X_ALIGN(4096));
        free(s);
    }
}

int main(void)
{
    init();
    allocation();
    reallocation();
    resizing();
    resizing_within();
    too_large();
    one_heap();
    return 0;
}
