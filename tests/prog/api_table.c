/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The answers of glibc 2.36 on x86-64, row by row, as programs were written against them. Passes under plain glibc and
 * must pass under any replacement that calls itself drop-in. Every row also says what becomes of errno.
 *
 * "api_table strict" asks for more in one place: POSIX says that posix_memalign answers by its result, and for invalid
 * alignments glibc leaves errno alone; where mmap itself refuses, glibc 2.36 lets ENOMEM through to errno.
 */
#define _GNU_SOURCE
#include "api_check.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>

/* One row: evaluate the call with errno marked, then compare pointer and errno. */
#define ROW_PTR(call)                                                                                                  \
    do {                                                                                                               \
        errno = ERRNO_MARK;                                                                                            \
        void *row = opaque_ptr(call);                                                                                  \
        CHECKF(row != NULL, "%s is NULL", #call);                                                                      \
        CHECKF(errno == ERRNO_MARK, "%s set errno to %d", #call, errno);                                               \
        CHECKF((uintptr_t)row % 16 == 0, "%s is at %p", #call, row);                                                   \
        free(row);                                                                                                     \
    } while (0)

#define ROW_NULL(call, error)                                                                                          \
    do {                                                                                                               \
        errno = ERRNO_MARK;                                                                                            \
        void *row = opaque_ptr(call);                                                                                  \
        CHECKF(row == NULL, "%s is not NULL", #call);                                                                  \
        CHECKF(errno == (error), "%s: errno is %d, not %d", #call, errno, (error));                                    \
    } while (0)

static void zero_sizes(void)
{
    size_t none = opaque(0);
    ROW_PTR(malloc(none));
    ROW_PTR(calloc(none, none));
    ROW_PTR(calloc(opaque(7), none));
    ROW_PTR(calloc(none, opaque(7)));
    ROW_PTR(realloc(NULL, none));
    ROW_PTR(reallocarray(NULL, none, 16));
    ROW_PTR(reallocarray(NULL, 16, none));
    ROW_PTR(valloc(none));
    ROW_PTR(pvalloc(none));
    ROW_PTR(aligned_alloc(opaque(64), none));
    ROW_PTR(memalign(opaque(64), none));
}

static void realloc_to_zero(void)
{
    void *p = malloc(100);
    CHECK(p);
    ROW_NULL(realloc(p, opaque(0)), ERRNO_MARK);
    p = malloc(64 << 20);
    CHECK(p);
    ROW_NULL(realloc(p, opaque(0)), ERRNO_MARK);
}

static void too_large(void)
{
    size_t half = opaque((size_t)PTRDIFF_MAX);
    ROW_NULL(malloc(half), ENOMEM);
    ROW_NULL(malloc(half + 1), ENOMEM);
    ROW_NULL(malloc(half + 4097), ENOMEM);
    ROW_NULL(malloc(opaque((size_t)-8)), ENOMEM);
    ROW_NULL(malloc(opaque(SIZE_MAX)), ENOMEM);
    ROW_NULL(realloc(NULL, half), ENOMEM);
    ROW_NULL(realloc(NULL, opaque((size_t)-8)), ENOMEM);
    ROW_NULL(calloc(opaque(SIZE_MAX), 2), ENOMEM);
    ROW_NULL(calloc(2, opaque(SIZE_MAX)), ENOMEM);
    ROW_NULL(calloc(half, 1), ENOMEM);
    ROW_NULL(calloc(opaque((size_t)1 << 33), (size_t)1 << 33), ENOMEM);
    ROW_NULL(reallocarray(NULL, opaque(SIZE_MAX), 2), ENOMEM);
    ROW_NULL(reallocarray(NULL, opaque((size_t)1 << 33), (size_t)1 << 33), ENOMEM);
    ROW_NULL(valloc(opaque((size_t)-8)), ENOMEM);
    ROW_NULL(pvalloc(opaque((size_t)-8)), ENOMEM);
    ROW_NULL(pvalloc(half - 4000), ENOMEM);
}

/* A failed realloc leaves the block as it was. */
static void too_large_for_realloc(void)
{
    unsigned char *p = malloc(100);
    CHECK(p);
    pattern_fill(p, 100, 5);
    ROW_NULL(realloc(opaque_ptr(p), opaque((size_t)-8)), ENOMEM);
    ROW_NULL(reallocarray(opaque_ptr(p), opaque(SIZE_MAX / 2), 3), ENOMEM);
    CHECK(pattern_diff(opaque_ptr(p), 100, 5) == 100);
    free(p);
}

static void lenient_alignments(void)
{
    ROW_PTR(aligned_alloc(opaque(3), 8));
    ROW_PTR(aligned_alloc(opaque(0), 8));
    ROW_PTR(aligned_alloc(opaque(1), 8));
    ROW_PTR(aligned_alloc(opaque(64), 10));
    ROW_PTR(memalign(opaque(3), 8));
    ROW_PTR(memalign(opaque(48), 8));
    void *p = memalign(opaque(48), 8);
    CHECKF((uintptr_t)p % 64 == 0, "memalign(48, 8) is at %p", p);
    free(p);
}

static void alignments_too_large(void)
{
    ROW_NULL(memalign(opaque((size_t)1 << 63), 8), ENOMEM);
    ROW_NULL(aligned_alloc(opaque((size_t)1 << 62), 8), ENOMEM);
    ROW_NULL(aligned_alloc(opaque((size_t)1 << 40), 8), ENOMEM);
    ROW_NULL(memalign(opaque(SIZE_MAX), 8), EINVAL);
}

static bool strict;

/* posix_memalign answers by its result alone: pointer and errno stay as they were on failure. */
static void posix_row(size_t align, size_t size, int want)
{
    void *const mark = (void *)(uintptr_t)0x5eed0;
    void *p = mark;
    errno = ERRNO_MARK;
    int got = posix_memalign(&p, opaque(align), size);
    CHECKF(got == want, "posix_memalign(%#zx, %zu) is %d, not %d", align, size, got, want);
    if (strict || want != ENOMEM || errno != ENOMEM)
        CHECKF(errno == ERRNO_MARK, "posix_memalign(%#zx, %zu) set errno to %d", align, size, errno);
    if (want != 0) {
        CHECKF(p == mark, "posix_memalign(%#zx, %zu) failed and wrote its pointer", align, size);
        return;
    }
    CHECKF(p != mark && p != NULL && (uintptr_t)p % align == 0, "posix_memalign(%#zx, %zu) gave %p", align, size, p);
    free(p);
}

static void posix_rows(void)
{
    static const size_t bad[] = {0, 1, 3, 4, 24};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        posix_row(bad[i], 16, EINVAL);
    posix_row((size_t)1 << 62, 16, ENOMEM);
    posix_row(16, SIZE_MAX - 4, ENOMEM);
    posix_row(8, 0, 0);
    posix_row(4096, 1, 0);
}

static void free_keeps_errno(void)
{
    void *p = malloc(64 << 20);
    CHECK(p);
    memset(p, 1, 1 << 20);
    errno = ERRNO_MARK;
    free(opaque_ptr(p));
    CHECK(errno == ERRNO_MARK);
    free(opaque_ptr(NULL));
    CHECK(errno == ERRNO_MARK);
    CHECK(malloc_usable_size(NULL) == 0);
}

/* C23; absent from glibc 2.36. */
static void sized_free(void)
{
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void (*free_aligned_sized)(void *, size_t, size_t) =
        (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    errno = ERRNO_MARK;
    if (free_sized) {
        free_sized(NULL, 0);
        free_sized(NULL, 100);
        free_sized(malloc(100), 100);
    }
    if (free_aligned_sized) {
        free_aligned_sized(NULL, 64, 100);
        free_aligned_sized(aligned_alloc(64, 128), 64, 128);
    }
    CHECK(errno == ERRNO_MARK);
}

static void always_sixteen(void)
{
    for (size_t size = 1; size <= 64; size++) {
        void *p[8];
        for (int i = 0; i < 8; i++) {
            p[i] = malloc(size);
            CHECKF((uintptr_t)p[i] % 16 == 0, "malloc(%zu) is at %p", size, p[i]);
        }
        for (int i = 0; i < 8; i++)
            free(p[i]);
    }
}

int main(int argc, char **argv)
{
    strict = argc > 1 && strcmp(argv[1], "strict") == 0;
    zero_sizes();
    realloc_to_zero();
    too_large();
    too_large_for_realloc();
    lenient_alignments();
    alignments_too_large();
    posix_rows();
    free_keeps_errno();
    sized_free();
    always_sixteen();
    return 0;
}
