/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * realloc at zero (R45), as glibc does it: realloc(p, 0) frees and returns NULL, realloc(NULL, n) is malloc, also for
 * n = 0, and none of them is a failure in errno. That realloc(p, 0) really frees is shown by doing it more often than
 * the address space allows.
 */
#define _GNU_SOURCE
#include "api_check.h"

#include <malloc.h>
#include <sys/resource.h>

#define LIMIT ((rlim_t)512 << 20)
#define TOTAL ((size_t)4 << 30)

static void *get(size_t size)
{
    void *p = malloc(size);
    CHECKF(p != NULL, "malloc(%zu) is NULL: blocks given to realloc(p, 0) are lost", size);
    *(volatile char *)p = 1;
    errno = ERRNO_MARK;
    return p;
}

static void gone(const char *what, const void *p, size_t size)
{
    CHECKF(p == NULL, "%s of a block of %zu is not NULL", what, size);
    CHECKF(errno == ERRNO_MARK, "%s of a block of %zu set errno to %d", what, size, errno);
}

static void frees(size_t size)
{
    size_t rounds = TOTAL / size < 300000 ? TOTAL / size : 300000;
    for (size_t i = 0; i < rounds; i++) {
        gone("realloc(p, 0)", realloc(opaque_ptr(get(size)), opaque(0)), size);
        gone("reallocarray(p, 0, 16)", reallocarray(opaque_ptr(get(size)), opaque(0), 16), size);
        gone("reallocarray(p, 16, 0)", reallocarray(opaque_ptr(get(size)), 16, opaque(0)), size);
    }
}

static void null_is_malloc(void)
{
    errno = ERRNO_MARK;
    void *a = realloc(NULL, opaque(0)), *b = reallocarray(NULL, opaque(0), 16), *c = realloc(NULL, 100);
    CHECK(a && b && c && a != b && b != c && a != c);
    CHECK(errno == ERRNO_MARK);
    CHECK(malloc_usable_size(c) >= 100);
    /* A block of no bytes can grow. */
    a = realloc(a, 1000);
    CHECK(a && malloc_usable_size(a) >= 1000);
    free(a);
    free(b);
    free(c);
}

int main(void)
{
    struct rlimit limit = {LIMIT, LIMIT};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    null_is_malloc();
    for (size_t size = 16; size <= (64u << 20); size *= 4)
        frees(size);
    return 0;
}
