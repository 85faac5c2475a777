/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every way to get a block and every way to give it back, as two tables, so that a test can combine all with all.
 *
 * All are looked up by name at run time: a program starts under any allocator and leaves out what the process does not
 * have (glibc 2.36 has no free_sized, a C program no operator new). Under a complete allocator all rows are there; that
 * they are is what the export test checks.
 */
#ifndef PROG_API_ROUTES_H
#define PROG_API_ROUTES_H

#include "api_check.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>

#define ROUTE_ALIGN_MIN 16 /* what glibc gives every block on LP64 */
#define ROUTE_NOTHROW ((const void *)"") /* std::nothrow is an empty object: any address will do */

enum route_shape {
    ROUTE_SIZE,          /* f(size) */
    ROUTE_SIZE_NOTHROW,  /* f(size, nothrow) */
    ROUTE_COUNT_SIZE,    /* f(1, size) */
    ROUTE_NULL_SIZE,     /* f(NULL, size) */
    ROUTE_NULL_COUNT,    /* f(NULL, 1, size) */
    ROUTE_ALIGN_SIZE,    /* f(align, size) */
    ROUTE_SIZE_ALIGN,    /* f(size, align) */
    ROUTE_SIZE_ALIGN_NT, /* f(size, align, nothrow) */
    ROUTE_OUT,           /* f(&p, align, size) */
    ROUTE_FLAGS,         /* f(size, flags), flags hold lg2 of the alignment */
};

enum route_end {
    END_PTR,           /* f(p) */
    END_SIZE,          /* f(p, size) */
    END_ALIGN,         /* f(p, align) */
    END_ALIGN_SIZE,    /* f(p, align, size) */
    END_SIZE_ALIGN,    /* f(p, size, align) */
    END_NOTHROW,       /* f(p, nothrow) */
    END_ALIGN_NOTHROW, /* f(p, align, nothrow) */
    END_REALLOC,       /* f(p, 0) returns NULL */
    END_FLAGS,         /* f(p, flags) */
    END_SIZE_FLAGS,    /* f(p, size, flags) */
};

struct alloc_route {
    const char *name;
    enum route_shape shape;
    bool page_aligned; /* valloc and pvalloc */
    bool throws;       /* operator new: cannot be made to fail from C */
    void *f;
};

struct free_route {
    const char *name;
    enum route_end end;
    void *f;
};

static struct alloc_route alloc_routes[] = {
    {"malloc", ROUTE_SIZE, false, false, NULL},
    {"calloc", ROUTE_COUNT_SIZE, false, false, NULL},
    {"realloc", ROUTE_NULL_SIZE, false, false, NULL},
    {"reallocarray", ROUTE_NULL_COUNT, false, false, NULL},
    {"aligned_alloc", ROUTE_ALIGN_SIZE, false, false, NULL},
    {"memalign", ROUTE_ALIGN_SIZE, false, false, NULL},
    {"posix_memalign", ROUTE_OUT, false, false, NULL},
    {"valloc", ROUTE_SIZE, true, false, NULL},
    {"pvalloc", ROUTE_SIZE, true, false, NULL},
    {"__libc_malloc", ROUTE_SIZE, false, false, NULL},
    {"__libc_calloc", ROUTE_COUNT_SIZE, false, false, NULL},
    {"__libc_realloc", ROUTE_NULL_SIZE, false, false, NULL},
    {"__libc_memalign", ROUTE_ALIGN_SIZE, false, false, NULL},
    {"__libc_valloc", ROUTE_SIZE, true, false, NULL},
    {"__libc_pvalloc", ROUTE_SIZE, true, false, NULL},
    {"_Znwm", ROUTE_SIZE, false, true, NULL},
    {"_Znam", ROUTE_SIZE, false, true, NULL},
    {"_ZnwmRKSt9nothrow_t", ROUTE_SIZE_NOTHROW, false, false, NULL},
    {"_ZnamRKSt9nothrow_t", ROUTE_SIZE_NOTHROW, false, false, NULL},
    {"_ZnwmSt11align_val_t", ROUTE_SIZE_ALIGN, false, true, NULL},
    {"_ZnamSt11align_val_t", ROUTE_SIZE_ALIGN, false, true, NULL},
    {"_ZnwmSt11align_val_tRKSt9nothrow_t", ROUTE_SIZE_ALIGN_NT, false, false, NULL},
    {"_ZnamSt11align_val_tRKSt9nothrow_t", ROUTE_SIZE_ALIGN_NT, false, false, NULL},
    {"mallocx", ROUTE_FLAGS, false, false, NULL},
};

static struct free_route free_routes[] = {
    {"free", END_PTR, NULL},
    {"cfree", END_PTR, NULL},
    {"__libc_free", END_PTR, NULL},
    {"free_sized", END_SIZE, NULL},
    {"free_aligned_sized", END_ALIGN_SIZE, NULL},
    {"realloc", END_REALLOC, NULL},
    {"__libc_realloc", END_REALLOC, NULL},
    {"_ZdlPv", END_PTR, NULL},
    {"_ZdaPv", END_PTR, NULL},
    {"_ZdlPvm", END_SIZE, NULL},
    {"_ZdaPvm", END_SIZE, NULL},
    {"_ZdlPvRKSt9nothrow_t", END_NOTHROW, NULL},
    {"_ZdaPvRKSt9nothrow_t", END_NOTHROW, NULL},
    {"_ZdlPvSt11align_val_t", END_ALIGN, NULL},
    {"_ZdaPvSt11align_val_t", END_ALIGN, NULL},
    {"_ZdlPvmSt11align_val_t", END_SIZE_ALIGN, NULL},
    {"_ZdaPvmSt11align_val_t", END_SIZE_ALIGN, NULL},
    {"_ZdlPvSt11align_val_tRKSt9nothrow_t", END_ALIGN_NOTHROW, NULL},
    {"_ZdaPvSt11align_val_tRKSt9nothrow_t", END_ALIGN_NOTHROW, NULL},
    {"dallocx", END_FLAGS, NULL},
    {"sdallocx", END_SIZE_FLAGS, NULL},
};

#define ALLOC_ROUTES (sizeof alloc_routes / sizeof *alloc_routes)
#define FREE_ROUTES (sizeof free_routes / sizeof *free_routes)

/* Look all of them up; rows that are not there keep NULL. Call it first. */
static inline void routes_init(void)
{
    for (size_t i = 0; i < ALLOC_ROUTES; i++)
        alloc_routes[i].f = dlsym(RTLD_DEFAULT, alloc_routes[i].name);
    for (size_t i = 0; i < FREE_ROUTES; i++)
        free_routes[i].f = dlsym(RTLD_DEFAULT, free_routes[i].name);
}

static inline bool route_takes_align(const struct alloc_route *r)
{
    return r->shape == ROUTE_ALIGN_SIZE || r->shape == ROUTE_SIZE_ALIGN || r->shape == ROUTE_SIZE_ALIGN_NT ||
           r->shape == ROUTE_OUT || r->shape == ROUTE_FLAGS;
}

/* The alignment that a block of this route must have when `align`, a power of two, was asked for. */
static inline size_t route_align(const struct alloc_route *r, size_t align)
{
    if (r->page_aligned)
        return os_page();
    return route_takes_align(r) && align > ROUTE_ALIGN_MIN ? align : ROUTE_ALIGN_MIN;
}

static inline void *route_alloc(const struct alloc_route *r, size_t align, size_t size)
{
    void *p = NULL;
    switch (r->shape) {
    case ROUTE_SIZE:
        return ((void *(*)(size_t))r->f)(size);
    case ROUTE_SIZE_NOTHROW:
        return ((void *(*)(size_t, const void *))r->f)(size, ROUTE_NOTHROW);
    case ROUTE_COUNT_SIZE:
        return ((void *(*)(size_t, size_t))r->f)(1, size);
    case ROUTE_NULL_SIZE:
        return ((void *(*)(void *, size_t))r->f)(NULL, size);
    case ROUTE_NULL_COUNT:
        return ((void *(*)(void *, size_t, size_t))r->f)(NULL, 1, size);
    case ROUTE_ALIGN_SIZE:
        return ((void *(*)(size_t, size_t))r->f)(align, size);
    case ROUTE_SIZE_ALIGN:
        return ((void *(*)(size_t, size_t))r->f)(size, align);
    case ROUTE_SIZE_ALIGN_NT:
        return ((void *(*)(size_t, size_t, const void *))r->f)(size, align, ROUTE_NOTHROW);
    case ROUTE_OUT: /* the strict one: no alignment below that of a pointer */
        if (((int (*)(void **, size_t, size_t))r->f)(&p, align < sizeof p ? sizeof p : align, size) != 0)
            return NULL;
        return p;
    case ROUTE_FLAGS: /* mallocx(0) is undefined */
        return ((void *(*)(size_t, int))r->f)(size ? size : 1, __builtin_ctzl(align));
    }
    return NULL;
}

static inline void route_free(const struct free_route *r, void *p, size_t align, size_t size)
{
    switch (r->end) {
    case END_PTR:
        ((void (*)(void *))r->f)(p);
        break;
    case END_SIZE:
        ((void (*)(void *, size_t))r->f)(p, size);
        break;
    case END_ALIGN:
        ((void (*)(void *, size_t))r->f)(p, align);
        break;
    case END_ALIGN_SIZE:
        ((void (*)(void *, size_t, size_t))r->f)(p, align, size);
        break;
    case END_SIZE_ALIGN:
        ((void (*)(void *, size_t, size_t))r->f)(p, size, align);
        break;
    case END_NOTHROW:
        ((void (*)(void *, const void *))r->f)(p, ROUTE_NOTHROW);
        break;
    case END_ALIGN_NOTHROW:
        ((void (*)(void *, size_t, const void *))r->f)(p, align, ROUTE_NOTHROW);
        break;
    case END_REALLOC:
        CHECK(((void *(*)(void *, size_t))r->f)(p, 0) == NULL);
        break;
    case END_FLAGS:
        ((void (*)(void *, int))r->f)(p, __builtin_ctzl(align));
        break;
    case END_SIZE_FLAGS: /* sdallocx may trust the size: give it what mallocx was given */
        ((void (*)(void *, size_t, int))r->f)(p, size ? size : 1, __builtin_ctzl(align));
        break;
    }
}

#endif
