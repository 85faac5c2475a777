/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The C library's names. Level 11: argument checks, errno and aliases; nothing else.
 *
 * Answers are glibc's (docs/design.md has the table). errno is written only where NULL is returned; every other path
 * leaves it alone.
 */
#include "compat/os/bits.h"
#include "compat/os/vm.h"
#include "core/alloc.h"
#include "core/fast.h"
#include "core/libc.h"
#include "core/life.h"
#include "core/misuse.h"
#include "core/opt.h"
#include "preload/dlopen.h"

#include <errno.h>

/* Not from stdlib.h: its attributes describe the C library's functions to the compiler, ours are the definitions. */
EXPORT void *malloc(size_t size);
EXPORT void free(void *p);
EXPORT void *calloc(size_t n, size_t size);
EXPORT void *realloc(void *p, size_t size);
EXPORT void *reallocarray(void *p, size_t n, size_t size);
EXPORT void *memalign(size_t align, size_t size);
EXPORT void *aligned_alloc(size_t align, size_t size);
EXPORT int posix_memalign(void **out, size_t align, size_t size);
EXPORT void *valloc(size_t size);
EXPORT void *pvalloc(size_t size);
EXPORT size_t malloc_usable_size(void *p);
EXPORT void cfree(void *p);
EXPORT void free_sized(void *p, size_t size);
EXPORT void free_aligned_sized(void *p, size_t align, size_t size);

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

NOINLINE static void *malloc_slow(size_t size)
{
    void *p = alloc_slow(size);
    return LIKELY(p != NULL) ? p : no_memory();
}

NOINLINE static void free_slow(void *p)
{
    alloc_free_slow(p, "free");
}

void *malloc(size_t size)
{
    return alloc_fast(size, malloc_slow);
}

void free(void *p)
{
    free_fast(p, free_slow);
}

void *calloc(size_t n, size_t size)
{
    size_t total;
    if (UNLIKELY(__builtin_mul_overflow(n, size, &total)))
        return no_memory();
    void *p = alloc_zeroed(total);
    return LIKELY(p != NULL) ? p : no_memory();
}

static void *resize(void *p, size_t size, const char *func)
{
    if (p == NULL)
        return malloc(size);
    if (size == 0) {
        alloc_free_slow(p, func);
        return NULL;
    }
    void *q = alloc_resize(p, size, func);
    return LIKELY(q != NULL) ? q : no_memory();
}

void *realloc(void *p, size_t size)
{
    return resize(p, size, "realloc");
}

void *reallocarray(void *p, size_t n, size_t size)
{
    size_t total;
    if (UNLIKELY(__builtin_mul_overflow(n, size, &total)))
        return no_memory();
    return resize(p, total, "reallocarray");
}

/* Lenient, as glibc is: any alignment is rounded up to a power of two. */
static void *aligned(size_t align, size_t size)
{
    size_t pow2 = align == 0 ? 1 : pow2_up(align);
    if (pow2 == 0) {
        errno = EINVAL;
        return NULL;
    }
    void *p = alloc_aligned(pow2, size, false);
    return LIKELY(p != NULL) ? p : no_memory();
}

void *memalign(size_t align, size_t size)
{
    return aligned(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return aligned(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    if (align % sizeof(void *) != 0 || !is_pow2(align))
        return EINVAL;
    int saved = errno; /* off:true: the C library's memalign writes it */
    void *p = alloc_aligned(align, size, false);
    errno = saved;
    if (p == NULL)
        return ENOMEM;
    *out = p;
    return 0;
}

void *valloc(size_t size)
{
    return aligned(vm_page_size(), size);
}

void *pvalloc(size_t size)
{
    size_t page = vm_page_size();
    if (size > PTRDIFF_MAX)
        return no_memory();
    return aligned(page, align_up(size, page));
}

size_t malloc_usable_size(void *p)
{
    size_t size = alloc_usable(p);
    if (UNLIKELY(size == 0 && p != NULL && opt.strict))
        misuse_foreign_asked("malloc_usable_size", p);
    return size;
}

NOINLINE static void free_sized_slow(void *p, size_t size)
{
    alloc_check_size(p, size, 1, "free_sized");
    alloc_free_slow(p, "free_sized");
}

void free_sized(void *p, size_t size)
{
    free_sized_fast(p, size, free_sized_slow);
}

void free_aligned_sized(void *p, size_t align, size_t size)
{
    alloc_check_size(p, size, align, "free_aligned_sized");
    alloc_free_slow(p, "free_aligned_sized");
}

void cfree(void *p) ALIAS(free);
EXPORT void *__libc_malloc(size_t size) ALIAS(malloc);
EXPORT void *__libc_calloc(size_t n, size_t size) ALIAS(calloc);
EXPORT void *__libc_realloc(void *p, size_t size) ALIAS(realloc);
EXPORT void __libc_free(void *p) ALIAS(free);
EXPORT void *__libc_memalign(size_t align, size_t size) ALIAS(memalign);
EXPORT void *__libc_valloc(size_t size) ALIAS(valloc);
EXPORT void *__libc_pvalloc(size_t size) ALIAS(pvalloc);

/* Linked with -z initfirst: runs before libc's own constructor, which sets environ. glibc passes the environment. */
__attribute__((constructor(101))) static void construct(int argc UNUSED, char **argv UNUSED, char **env UNUSED)
{
    bool passive = life_sanitizer(); /* its malloc is in use: no fork handlers, dlopen as it is */
#if !defined(__GLIBC__) /* if: another loader calls constructors without arguments */
    env = NULL;
#endif
    if (!passive)
        life_construct(env);
    dlopen_init(passive || libc_in_use() || opt.deepbind == OPT_DEEPBIND_KEEP);
}
