/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Alignment arguments (R43): aligned_alloc and memalign take anything and round up to a power of two; posix_memalign
 * takes powers of two that are multiples of a pointer's size and nothing else; C++ asks for less than that.
 */
#define _GNU_SOURCE
#include "api_routes.h"

#define ALIGN_TOP 5000
#define ALIGN_HUGE ((size_t)1 << 30)

static size_t rounded(size_t align)
{
    size_t power = ROUTE_ALIGN_MIN;
    while (power < align)
        power *= 2;
    return power;
}

static void check(const char *name, void *p, size_t align, size_t size)
{
    CHECKF(p != NULL, "%s(%zu, %zu) is NULL with errno %d", name, align, size, errno);
    CHECKF(errno == ERRNO_MARK, "%s(%zu, %zu) set errno to %d", name, align, size, errno);
    CHECKF((uintptr_t)p % rounded(align) == 0, "%s(%zu, %zu) is at %p", name, align, size, p);
    if (size) {
        ((volatile char *)p)[0] = 1;
        ((volatile char *)p)[size - 1] = 1;
    }
    free(p);
}

static void lenient(size_t align, size_t size)
{
    errno = ERRNO_MARK;
    check("aligned_alloc", aligned_alloc(opaque(align), size), align, size);
    check("memalign", memalign(opaque(align), size), align, size);
}

static void strict(size_t align, size_t size)
{
    void *const mark = (void *)(uintptr_t)0x5eed0;
    void *p = mark;
    bool valid = align % sizeof p == 0 && align && (align & (align - 1)) == 0;
    errno = ERRNO_MARK;
    int got = posix_memalign(&p, opaque(align), size);
    CHECKF(got == (valid ? 0 : EINVAL), "posix_memalign(%zu, %zu) is %d", align, size, got);
    if (got == 0)
        check("posix_memalign", p, align, size);
    else
        CHECKF(p == mark && errno == ERRNO_MARK, "posix_memalign(%zu, %zu) left a trace", align, size);
}

/* Aligned new with every power of two, also below a pointer's size. */
static void from_cxx(size_t align, size_t size)
{
    for (size_t i = 0; i < ALLOC_ROUTES; i++) {
        const struct alloc_route *r = &alloc_routes[i];
        if (!r->f || (r->shape != ROUTE_SIZE_ALIGN && r->shape != ROUTE_SIZE_ALIGN_NT))
            continue;
        errno = ERRNO_MARK;
        check(r->name, route_alloc(r, align, size), align, size);
    }
}

static void page_routes(void)
{
    size_t page = os_page();
    for (size_t size = 0; size <= 3 * page; size += 61) {
        errno = ERRNO_MARK;
        check("valloc", valloc(opaque(size)), page, size);
        void *p = pvalloc(opaque(size));
        size_t whole = (size + page - 1) / page * page;
        CHECKF(malloc_usable_size(p) >= whole, "pvalloc(%zu) has usable size %zu", size, malloc_usable_size(p));
        check("pvalloc", p, page, whole);
    }
}

int main(void)
{
    routes_init();
    static const size_t sizes[] = {0, 1, 8, 10, 63, 64, 65, 1000, 4096, 70000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t align = 0; align <= ALIGN_TOP; align++) {
            lenient(align, sizes[i]);
            strict(align, sizes[i]);
        }
        for (size_t align = 1; align <= ALIGN_HUGE; align *= 2) {
            lenient(align, sizes[i]);
            strict(align, sizes[i]);
            from_cxx(align, sizes[i]);
        }
    }
    page_routes();
    return 0;
}
