/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * C++ operator new and delete, by their mangled names (LP64). Level 11.
 *
 * Programs replace single forms, mostly only `new(size_t)` and `delete(void *)`; the standard says that the derived forms
 * (array, nothrow, sized) then call the replacement. So a derived form takes our path only while the base form in force,
 * read through the GOT, is our own; else it calls the base. Aligned new is a base of its own. new[] and delete[] derive
 * from new and delete, and are in turn the base of the other array forms: a program that keeps arrays apart replaces
 * both pairs.
 *
 * Failure goes to the next operator new (libstdc++'s), which runs the new-handler loop and throws.
 */
#define _GNU_SOURCE
#include "core/alloc.h"
#include "core/fast.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

typedef void *(*new_fn)(size_t);
typedef void *(*new_nothrow_fn)(size_t, const void *);
typedef void *(*new_aligned_fn)(size_t, size_t);
typedef void *(*new_aligned_nothrow_fn)(size_t, size_t, const void *);

/* What the dynamic linker bound the base names to. */
extern void *new_in_force(size_t size) __asm__("_Znwm");
extern void delete_in_force(void *p) __asm__("_ZdlPv");
extern void *new_array_in_force(size_t size) __asm__("_Znam");
extern void delete_array_in_force(void *p) __asm__("_ZdaPv");
extern void *new_aligned_in_force(size_t size, size_t align) __asm__("_ZnwmSt11align_val_t");
extern void delete_aligned_in_force(void *p, size_t align) __asm__("_ZdlPvSt11align_val_t");
extern void *new_array_aligned_in_force(size_t size, size_t align) __asm__("_ZnamSt11align_val_t");
extern void delete_array_aligned_in_force(void *p, size_t align) __asm__("_ZdaPvSt11align_val_t");

/* The compiler takes two names for two functions and folds a comparison of them to false: hide one from it. */
#define IS_OURS(in_force, ours)                                                                                        \
    ({                                                                                                                 \
        __typeof__(&(ours)) hidden = &(ours);                                                                          \
        __asm__("" : "+r"(hidden));                                                                                    \
        LIKELY((in_force) == hidden);                                                                                  \
    })

static int is_libstdcxx(struct dl_phdr_info *info, size_t size, void *path)
{
    static const char file[] = "libstdc++.so.6";
    size_t n = strlen(info->dlpi_name);
    (void)size;
    if (n < sizeof file - 1 || strncmp(info->dlpi_name + n - (sizeof file - 1), file, sizeof file) != 0)
        return 0;
    *(const char **)path = info->dlpi_name;
    return 1;
}

/* The next definition behind ours, or the one of a libstdc++ that was loaded later and privately. That one is opened by
 * the path it is known by: a bare name would be looked for in files, at every failure in a program that has none. */
COLD static void *next(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);
    const char *path = NULL;
    if (f == NULL && dl_iterate_phdr(is_libstdcxx, &path) != 0) {
        void *lib = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
        if (lib != NULL)
            f = dlsym(lib, name);
    }
    return f;
}

/* ---- new ---- */

COLD static void *new_failed(size_t size)
{
    new_fn f = (new_fn)next("_Znwm");
    return f == NULL ? NULL : f(size);
}

NOINLINE static void *new_slow(size_t size)
{
    void *p = alloc_slow(size);
    return LIKELY(p != NULL) ? p : new_failed(size);
}

EXPORT void *new_base(size_t size) __asm__("_Znwm");
void *new_base(size_t size)
{
    return alloc_fast(size, new_slow);
}
static void *new_ours(size_t size) __attribute__((alias("_Znwm")));

EXPORT void *new_array(size_t size) __asm__("_Znam");
void *new_array(size_t size)
{
    if (!IS_OURS(new_in_force, new_ours))
        return new_in_force(size);
    return alloc_fast(size, new_slow);
}
static void *new_array_ours(size_t size) __attribute__((alias("_Znam")));

COLD static void *nothrow_failed(size_t size, const void *tag, const char *name)
{
    new_nothrow_fn f = (new_nothrow_fn)next(name);
    return f == NULL ? NULL : f(size, tag);
}

/* A nothrow form over a base that is not ours: only C++ can catch what that throws. */
static void *nothrow(bool ours, size_t size, const void *tag, const char *name)
{
    void *p = ours ? alloc_fast(size, alloc_slow) : NULL;
    if (LIKELY(p != NULL))
        return p;
    return nothrow_failed(size, tag, name);
}

EXPORT void *new_nothrow(size_t size, const void *tag) __asm__("_ZnwmRKSt9nothrow_t");
void *new_nothrow(size_t size, const void *tag)
{
    return nothrow(IS_OURS(new_in_force, new_ours), size, tag, "_ZnwmRKSt9nothrow_t");
}

EXPORT void *new_array_nothrow(size_t size, const void *tag) __asm__("_ZnamRKSt9nothrow_t");
void *new_array_nothrow(size_t size, const void *tag)
{
    bool ours = IS_OURS(new_in_force, new_ours) && IS_OURS(new_array_in_force, new_array_ours);
    return nothrow(ours, size, tag, "_ZnamRKSt9nothrow_t");
}

/* ---- aligned new ---- */

EXPORT void *new_aligned(size_t size, size_t align) __asm__("_ZnwmSt11align_val_t");
void *new_aligned(size_t size, size_t align)
{
    void *p = alloc_aligned(align, size, false);
    if (LIKELY(p != NULL))
        return p;
    if (size > PTRDIFF_MAX) /* libstdc++ 12 rounds it up, past zero, and succeeds: have the plain form refuse it */
        return new_failed(size);
    new_aligned_fn f = (new_aligned_fn)next("_ZnwmSt11align_val_t");
    return f == NULL ? NULL : f(size, align);
}
static void *new_aligned_ours(size_t size, size_t align) __attribute__((alias("_ZnwmSt11align_val_t")));

EXPORT void *new_array_aligned(size_t size, size_t align) __asm__("_ZnamSt11align_val_t");
void *new_array_aligned(size_t size, size_t align)
{
    return new_aligned_in_force(size, align);
}
static void *new_array_aligned_ours(size_t size, size_t align) __attribute__((alias("_ZnamSt11align_val_t")));

static void *aligned_nothrow(bool ours, size_t size, size_t align, const void *tag, const char *name)
{
    void *p = ours ? alloc_aligned(align, size, false) : NULL;
    if (LIKELY(p != NULL))
        return p;
    if (size > PTRDIFF_MAX) /* as above */
        return nothrow_failed(size, tag, "_ZnwmRKSt9nothrow_t");
    new_aligned_nothrow_fn f = (new_aligned_nothrow_fn)next(name);
    return f == NULL ? NULL : f(size, align, tag);
}

EXPORT void *new_aligned_nothrow(size_t, size_t, const void *) __asm__("_ZnwmSt11align_val_tRKSt9nothrow_t");
void *new_aligned_nothrow(size_t size, size_t align, const void *tag)
{
    bool ours = IS_OURS(new_aligned_in_force, new_aligned_ours);
    return aligned_nothrow(ours, size, align, tag, "_ZnwmSt11align_val_tRKSt9nothrow_t");
}

EXPORT void *new_array_aligned_nothrow(size_t, size_t, const void *) __asm__("_ZnamSt11align_val_tRKSt9nothrow_t");
void *new_array_aligned_nothrow(size_t size, size_t align, const void *tag)
{
    bool ours = IS_OURS(new_aligned_in_force, new_aligned_ours) &&
                IS_OURS(new_array_aligned_in_force, new_array_aligned_ours);
    return aligned_nothrow(ours, size, align, tag, "_ZnamSt11align_val_tRKSt9nothrow_t");
}

/* ---- delete ---- */

NOINLINE static void delete_slow(void *p)
{
    alloc_free_slow(p, "operator delete");
}

EXPORT void delete_base(void *p) __asm__("_ZdlPv");
void delete_base(void *p)
{
    free_fast(p, delete_slow);
}
static void delete_ours(void *p) __attribute__((alias("_ZdlPv")));

HOT_INLINE void delete_derived(void *p)
{
    if (!IS_OURS(delete_in_force, delete_ours))
        delete_in_force(p);
    else
        free_fast(p, delete_slow);
}

NOINLINE static void delete_sized_slow(void *p, size_t size)
{
    alloc_check_size(p, size, 1, "operator delete");
    alloc_free_slow(p, "operator delete");
}

HOT_INLINE void delete_sized_derived(void *p, size_t size)
{
    if (!IS_OURS(delete_in_force, delete_ours))
        delete_in_force(p);
    else
        free_sized_fast(p, size, delete_sized_slow);
}

EXPORT void delete_array(void *p) __asm__("_ZdaPv");
void delete_array(void *p)
{
    delete_derived(p);
}
static void delete_array_ours(void *p) __attribute__((alias("_ZdaPv")));

EXPORT void delete_nothrow(void *p, const void *tag) __asm__("_ZdlPvRKSt9nothrow_t");
void delete_nothrow(void *p, const void *tag)
{
    (void)tag;
    delete_derived(p);
}

EXPORT void delete_array_nothrow(void *p, const void *tag) __asm__("_ZdaPvRKSt9nothrow_t");
void delete_array_nothrow(void *p, const void *tag)
{
    (void)tag;
    delete_array_in_force(p);
}

EXPORT void delete_sized(void *p, size_t size) __asm__("_ZdlPvm");
void delete_sized(void *p, size_t size)
{
    delete_sized_derived(p, size);
}

EXPORT void delete_array_sized(void *p, size_t size) __asm__("_ZdaPvm");
void delete_array_sized(void *p, size_t size)
{
    if (!IS_OURS(delete_array_in_force, delete_array_ours))
        delete_array_in_force(p);
    else
        delete_sized_derived(p, size);
}

/* ---- aligned delete ---- */

EXPORT void delete_aligned(void *p, size_t align) __asm__("_ZdlPvSt11align_val_t");
void delete_aligned(void *p, size_t align)
{
    (void)align;
    free_fast(p, delete_slow);
}

EXPORT void delete_array_aligned(void *p, size_t align) __asm__("_ZdaPvSt11align_val_t");
void delete_array_aligned(void *p, size_t align)
{
    delete_aligned_in_force(p, align);
}

EXPORT void delete_aligned_nothrow(void *p, size_t align, const void *tag) __asm__("_ZdlPvSt11align_val_tRKSt9nothrow_t");
void delete_aligned_nothrow(void *p, size_t align, const void *tag)
{
    (void)tag;
    delete_aligned_in_force(p, align);
}

EXPORT void delete_array_aligned_nothrow(void *, size_t, const void *) __asm__("_ZdaPvSt11align_val_tRKSt9nothrow_t");
void delete_array_aligned_nothrow(void *p, size_t align, const void *tag)
{
    (void)tag;
    delete_array_aligned_in_force(p, align);
}

static void delete_aligned_ours(void *p, size_t align) __attribute__((alias("_ZdlPvSt11align_val_t")));
static void delete_array_aligned_ours(void *p, size_t align) __attribute__((alias("_ZdaPvSt11align_val_t")));

EXPORT void delete_sized_aligned(void *p, size_t size, size_t align) __asm__("_ZdlPvmSt11align_val_t");
void delete_sized_aligned(void *p, size_t size, size_t align)
{
    if (IS_OURS(delete_aligned_in_force, delete_aligned_ours))
        alloc_check_size(p, size, align, "operator delete");
    delete_aligned_in_force(p, align);
}

EXPORT void delete_array_sized_aligned(void *p, size_t size, size_t align) __asm__("_ZdaPvmSt11align_val_t");
void delete_array_sized_aligned(void *p, size_t size, size_t align)
{
    if (IS_OURS(delete_aligned_in_force, delete_aligned_ours) &&
        IS_OURS(delete_array_aligned_in_force, delete_array_aligned_ours))
        alloc_check_size(p, size, align, "operator delete");
    delete_array_aligned_in_force(p, align);
}
