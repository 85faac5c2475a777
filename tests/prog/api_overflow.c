/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sizes and alignments at the edges of arithmetic, at every entry (R24): NULL with the right errno, or a block that is
 * as large and as aligned as was asked. Never a small block for a large number.
 */
#define _GNU_SOURCE
#include "api_routes.h"

#define VALUES_MAX 512

/* Between these a request may or may not be granted and granting it could commit real memory: left out of calloc. */
#define UNSURE_LOW ((size_t)1 << 30)
#define UNSURE_HIGH ((size_t)1 << 43)

static size_t values[VALUES_MAX];
static size_t values_n;

static void add(size_t v)
{
    for (size_t i = 0; i < values_n; i++)
        if (values[i] == v)
            return;
    CHECK(values_n < VALUES_MAX);
    values[values_n++] = v;
}

static void add_around(size_t v)
{
    add(v - 1);
    add(v);
    add(v + 1);
}

static void make_values(void)
{
    add(0);
    for (unsigned k = 0; k < 64; k++) {
        add((size_t)1 << k);
        add(((size_t)1 << k) - 1);
    }
    static const size_t back[] = {0, 1, 7, 8, 15, 16, 17, 31, 32, 63, 64, 255, 256, 4000, 4095, 4096, 4097};
    for (size_t i = 0; i < sizeof back / sizeof *back; i++) {
        add((size_t)PTRDIFF_MAX - back[i]);
        add(SIZE_MAX - back[i]);
        add(SIZE_MAX - ((size_t)64 << 10) - back[i]);
        add(SIZE_MAX - ((size_t)2 << 20) - back[i]);
    }
    add((size_t)PTRDIFF_MAX + 1);
    add(((size_t)UINT32_MAX + 2) * 4096);
    add_around((size_t)1 << 32);
    add_around((size_t)1 << 44);
    add_around((size_t)1 << 47);
}

static bool power_of_two(size_t v)
{
    return v && (v & (v - 1)) == 0;
}

static void check_granted(const char *name, void *p, size_t align, size_t size)
{
    CHECKF(malloc_usable_size(p) >= size, "%s: %#zx bytes, alignment %#zx: usable size is %#zx", name, size, align,
           malloc_usable_size(p));
    if (power_of_two(align))
        CHECKF((uintptr_t)p % align == 0, "%s: %#zx bytes, alignment %#zx: at %p", name, size, align, p);
    if (size) {
        ((volatile unsigned char *)p)[0] = 1;
        ((volatile unsigned char *)p)[size - 1] = 1;
    }
}

static void check_refused(const char *name, size_t align, size_t size)
{
    CHECKF(errno == ENOMEM || (errno == EINVAL && align), "%s: %#zx bytes, alignment %#zx: NULL with errno %d", name,
           size, align, errno);
    /* What must work is not refused. */
    CHECKF(size > (1u << 20) || align > (1u << 20), "%s: %#zx bytes, alignment %#zx: refused", name, size, align);
}

/* Entries that take a size only. Operator new cannot refuse politely and is left to the C++ programs. */
static void sizes(const struct alloc_route *r)
{
    bool clears = r->shape == ROUTE_COUNT_SIZE;
    for (size_t i = 0; i < values_n; i++) {
        if (clears && values[i] > UNSURE_LOW && values[i] < UNSURE_HIGH)
            continue;
        errno = ERRNO_MARK;
        void *p = route_alloc(r, 1, values[i]);
        if (!p) {
            check_refused(r->name, 0, values[i]);
            continue;
        }
        CHECKF(values[i] <= PTRDIFF_MAX, "%s: %#zx bytes granted", r->name, values[i]);
        check_granted(r->name, p, ROUTE_ALIGN_MIN, values[i]);
        free(p);
    }
}

/* Sizes that are mapped take long, with every alignment: each pair is left to one route in four. */
static bool anothers_turn(const struct alloc_route *r, size_t a, size_t i)
{
    return values[i] > (1u << 21) && values[i] <= PTRDIFF_MAX && (a + i + (size_t)(r - alloc_routes)) % 4 != 0 &&
           !getenv("SHEAF_TEST_LONG");
}

static void sizes_and_alignments(const struct alloc_route *r)
{
    for (size_t a = 0; a < values_n; a++) {
        /* mallocx takes the logarithm, so only powers of two can be said. Aligned new: others are undefined. */
        if (r->shape != ROUTE_ALIGN_SIZE && !power_of_two(values[a]))
            continue;
        for (size_t i = 0; i < values_n; i++) {
            if (anothers_turn(r, a, i))
                continue;
            errno = ENOMEM; /* operator new does not set it */
            void *p = route_alloc(r, values[a], values[i]);
            if (!p) {
                check_refused(r->name, values[a], values[i]);
                continue;
            }
            CHECKF(values[i] <= PTRDIFF_MAX, "%s: %#zx bytes granted", r->name, values[i]);
            check_granted(r->name, p, values[a], values[i]);
            free(p);
        }
    }
}

static void posix(void)
{
    void *const mark = (void *)(uintptr_t)0x5eed0;
    for (size_t a = 0; a < values_n; a++) {
        for (size_t i = 0; i < values_n; i++) {
            size_t align = values[a], size = values[i];
            void *p = mark;
            int got = posix_memalign(&p, align, size);
            if (got == 0) {
                CHECKF(power_of_two(align) && align % sizeof p == 0, "posix_memalign took alignment %#zx", align);
                CHECKF(size <= PTRDIFF_MAX, "posix_memalign: %#zx bytes granted", size);
                check_granted("posix_memalign", p, align, size);
                free(p);
                continue;
            }
            CHECKF(p == mark, "posix_memalign(%#zx, %#zx) failed and wrote its pointer", align, size);
            bool valid = power_of_two(align) && align % sizeof p == 0;
            CHECKF(got == (valid ? ENOMEM : EINVAL), "posix_memalign(%#zx, %#zx) is %d", align, size, got);
            bool modest = size <= (1u << 20) && align <= (1u << 20);
            CHECKF(!(valid && modest), "posix_memalign(%#zx, %#zx) refused", align, size);
        }
    }
}

static void one_product(size_t n, size_t size)
{
    size_t bytes;
    bool over = __builtin_mul_overflow(n, size, &bytes);
    if (!over && bytes > UNSURE_LOW && bytes < UNSURE_HIGH)
        return;
    for (int array = 0; array < 2; array++) {
        const char *name = array ? "reallocarray" : "calloc";
        errno = ERRNO_MARK;
        void *p = array ? reallocarray(NULL, n, size) : calloc(n, size);
        if (!p) {
            CHECKF(errno == ENOMEM, "%s(%#zx, %#zx): errno is %d", name, n, size, errno);
            CHECKF(over || bytes > (1u << 20), "%s(%#zx, %#zx) refused", name, n, size);
            continue;
        }
        CHECKF(!over && bytes <= PTRDIFF_MAX, "%s(%#zx, %#zx) granted", name, n, size);
        check_granted(name, p, 1, bytes);
        free(p);
    }
}

/* Megabytes that may have to be cleared. */
static bool costly(size_t n, size_t size)
{
    size_t bytes;
    return !__builtin_mul_overflow(n, size, &bytes) && bytes > (1u << 21) && bytes <= PTRDIFF_MAX;
}

static void products(void)
{
    for (size_t a = 0; a < values_n; a++)
        for (size_t b = 0; b < values_n; b++)
            if (!costly(values[a], values[b]) || (a + b) % 8 == 0 || getenv("SHEAF_TEST_LONG"))
                one_product(values[a], values[b]);
    /* Where a 32-bit check would look right. */
    for (size_t a = ((size_t)1 << 32) - 40; a < ((size_t)1 << 32) + 40; a++)
        for (size_t b = ((size_t)1 << 32) - 40; b < ((size_t)1 << 32) + 40; b++)
            one_product(a, b);
    for (size_t a = ((size_t)1 << 16) - 20; a < ((size_t)1 << 16) + 20; a++)
        for (size_t b = ((size_t)1 << 48) - 20; b < ((size_t)1 << 48) + 20; b++)
            one_product(a, b);
}

/* A block that is there already outlives a refused realloc. */
static void existing_block(void)
{
    static const size_t old_sizes[] = {1, 100, 5000, 100000, 2000000};
    for (size_t s = 0; s < sizeof old_sizes / sizeof *old_sizes; s++) {
        for (size_t i = 0; i < values_n; i++) {
            size_t old = old_sizes[s];
            if (values[i] == 0 || (values[i] > UNSURE_LOW && values[i] < UNSURE_HIGH))
                continue;
            unsigned char *p = malloc(old);
            CHECK(p);
            p[0] = 7;
            p[old - 1] = 7;
            errno = ERRNO_MARK;
            unsigned char *q = realloc(opaque_ptr(p), values[i]);
            if (q) {
                check_granted("realloc", q, ROUTE_ALIGN_MIN, values[i]);
                free(q);
                continue;
            }
            CHECKF(errno == ENOMEM, "realloc to %#zx: errno is %d", values[i], errno);
            CHECKF(p[0] == 7 && p[old - 1] == 7, "a refused realloc to %#zx changed the block", values[i]);
            free(p);
        }
    }
}

int main(void)
{
    routes_init();
    make_values();
    for (size_t i = 0; i < ALLOC_ROUTES; i++) {
        const struct alloc_route *r = &alloc_routes[i];
        if (!r->f || r->throws || r->shape == ROUTE_OUT)
            continue;
        if (route_takes_align(r))
            sizes_and_alignments(r);
        else if (r->shape != ROUTE_SIZE_NOTHROW)
            sizes(r);
    }
    posix();
    products();
    existing_block();
    return 0;
}
