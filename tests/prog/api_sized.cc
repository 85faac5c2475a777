// SPDX-License-Identifier: BSD-2-Clause
/*
 * Sized delete and free_sized with a wrong size (R20): the block goes back to where it came from, nothing else is hurt.
 *
 * Three parts: a base-class delete without a virtual destructor, as programs really do it; wrong sizes by every route
 * that takes one, under a crowd of live blocks whose contents are checked; and a look at memory, because a block that
 * went to the wrong class is lost to its own.
 */
#include "api_routes.h"

#include <new>

/* clang hides it from a C++17 program that does not ask for it. */
void operator delete(void *, std::size_t) noexcept;

namespace {

struct Base {
    char a[8];
};

struct Derived : Base {
    char b[2000];
};

constexpr size_t kDeletes = 1000000;
constexpr size_t kSlots = 4096;
constexpr size_t kOps = 400000;

struct Slot {
    void *p;
    size_t size;
    uint64_t mark;
};

Slot slots[kSlots];
uint64_t seed = 20;

size_t resident_kib()
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long total = 0, resident = 0;
    if (!f || fscanf(f, "%lu %lu", &total, &resident) != 2)
        SKIPF("no /proc/self/statm");
    fclose(f);
    return resident * (size_t)(sysconf(_SC_PAGESIZE) / 1024);
}

/* The delete expression passes sizeof(Base) for a Derived. If each landed in the wrong class, 2 GB would be lost. */
void base_deletes()
{
    size_t before = 0;
    for (size_t i = 0; i < kDeletes; i++) {
        Derived *d = static_cast<Derived *>(opaque_ptr(new Derived));
        d->a[0] = d->b[1999] = 1;
        Base *b = static_cast<Base *>(opaque_ptr(d));
        if (i % 2)
            delete b; /* by gcc with the size, by clang without */
        else
            ::operator delete(b, sizeof *b);
        if (i == kDeletes / 10)
            before = resident_kib();
    }
    size_t after = resident_kib();
    CHECKF(after < before + 32 * 1024, "base-class deletes grew the process from %zu to %zu KiB", before, after);
}

bool takes_size(const free_route &r)
{
    return r.f && (r.end == END_SIZE || r.end == END_ALIGN_SIZE || r.end == END_SIZE_ALIGN);
}

size_t wrong_size(size_t size)
{
    switch (rng_below(&seed, 4)) {
    case 0:
        return rng_below(&seed, 64);
    case 1:
        return size / 2;
    case 2:
        return size * 2 + 1;
    default:
        return rng_log(&seed, 1, 64u << 10);
    }
}

void check_and_free(Slot &s, const free_route &r)
{
    size_t at = pattern_diff(s.p, s.size, s.mark);
    CHECKF(at == s.size, "%s with wrong sizes: byte %zu of %zu is another block's", r.name, at, s.size);
    route_free(&r, s.p, 16, wrong_size(s.size));
    s.p = nullptr;
}

void fill(Slot &s)
{
    s.size = rng_log(&seed, 1, 4096);
    s.mark = rng_next(&seed);
    s.p = malloc(s.size);
    CHECK(s.p);
    CHECKF(malloc_usable_size(s.p) >= s.size, "usable size of %zu is %zu", s.size, malloc_usable_size(s.p));
    pattern_fill(s.p, s.size, s.mark);
}

void crowd()
{
    static free_route routes[FREE_ROUTES];
    size_t n = 0;
    for (const free_route &r : free_routes)
        if (takes_size(r))
            routes[n++] = r;
    CHECK(n >= 2); /* libstdc++ alone has two */
    size_t settled = 0;
    for (size_t i = 0; i < kOps; i++) {
        Slot &s = slots[rng_below(&seed, kSlots)];
        if (s.p)
            check_and_free(s, routes[i % n]);
        else
            fill(s);
        if (i == kOps / 4)
            settled = resident_kib();
    }
    size_t after = resident_kib();
    CHECKF(after < settled + 32 * 1024, "wrong sizes grew the process from %zu to %zu KiB", settled, after);
    for (Slot &s : slots)
        if (s.p)
            check_and_free(s, routes[0]);
}

} // namespace

int main()
{
    routes_init();
    base_deletes();
    crowd();
    return 0;
}
