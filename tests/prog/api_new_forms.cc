// SPDX-License-Identifier: BSD-2-Clause
/*
 * All 8 forms of operator new and all 12 of operator delete, by explicit call and by expression: each pair that C++
 * allows, with address, contents and alignment checked.
 *
 *     api_new_forms [strict]    strict: aligned new of nearly SIZE_MAX bytes fails; in libstdc++ 12 its rounding wraps
 */
#include "api_check.h"

#include <malloc.h>
#include <new>
#include <string>
#include <vector>

/* clang hides the sized forms from a C++17 program that does not ask for them; they are in libstdc++ all the same. */
void operator delete(void *, std::size_t) noexcept;
void operator delete[](void *, std::size_t) noexcept;
void operator delete(void *, std::size_t, std::align_val_t) noexcept;
void operator delete[](void *, std::size_t, std::align_val_t) noexcept;

namespace {

constexpr size_t kSizes[] = {0, 1, 8, 16, 17, 100, 256, 1000, 1024, 5000, 32768, 40000, 200000, 600000, 3000000};
constexpr size_t kNews = 8, kDeletes = 12, kLive = 3;

void *get(size_t form, size_t size, std::align_val_t align)
{
    switch (form) {
    case 0:
        return ::operator new(size);
    case 1:
        return ::operator new[](size);
    case 2:
        return ::operator new(size, std::nothrow);
    case 3:
        return ::operator new[](size, std::nothrow);
    case 4:
        return ::operator new(size, align);
    case 5:
        return ::operator new[](size, align);
    case 6:
        return ::operator new(size, align, std::nothrow);
    default:
        return ::operator new[](size, align, std::nothrow);
    }
}

void put(size_t form, void *p, size_t size, std::align_val_t align)
{
    switch (form) {
    case 0:
        return ::operator delete(p);
    case 1:
        return ::operator delete[](p);
    case 2:
        return ::operator delete(p, size);
    case 3:
        return ::operator delete[](p, size);
    case 4:
        return ::operator delete(p, std::nothrow);
    case 5:
        return ::operator delete[](p, std::nothrow);
    case 6:
        return ::operator delete(p, align);
    case 7:
        return ::operator delete[](p, align);
    case 8:
        return ::operator delete(p, size, align);
    case 9:
        return ::operator delete[](p, size, align);
    case 10:
        return ::operator delete(p, align, std::nothrow);
    default:
        return ::operator delete[](p, align, std::nothrow);
    }
}

/* Array goes with array, aligned with aligned. */
bool pair_allowed(size_t n, size_t d)
{
    return n % 2 == d % 2 && (n >= 4) == (d >= 6);
}

void one(size_t n, size_t d, size_t size, size_t align)
{
    void *p[kLive];
    for (size_t i = 0; i < kLive; i++) {
        errno = ERRNO_MARK;
        p[i] = opaque_ptr(get(n, opaque(size), std::align_val_t{align}));
        CHECKF(p[i], "new form %zu of %zu bytes is null", n, size);
        CHECKF(errno == ERRNO_MARK, "new form %zu of %zu bytes set errno to %d", n, size, errno);
        size_t want = n >= 4 && align > 16 ? align : 16;
        CHECKF((uintptr_t)p[i] % want == 0, "new form %zu of %zu bytes, alignment %zu: at %p", n, size, align, p[i]);
        CHECK(malloc_usable_size(p[i]) >= size);
        pattern_fill_sparse(p[i], size, i);
    }
    for (size_t i = 0; i < kLive; i++) {
        CHECKF(pattern_diff_sparse(p[i], size, i) == size, "new form %zu of %zu bytes overlaps", n, size);
        put(d, p[i], size, std::align_val_t{align});
        CHECKF(errno == ERRNO_MARK, "delete form %zu of %zu bytes set errno to %d", d, size, errno);
    }
}

void all_pairs()
{
    for (size_t n = 0; n < kNews; n++)
        for (size_t d = 0; d < kDeletes; d++)
            for (size_t size : kSizes)
                for (size_t align = 1; pair_allowed(n, d) && align <= 8192; align *= 2)
                    one(n, d, size, align);
}

void null_is_fine()
{
    for (size_t d = 0; d < kDeletes; d++)
        put(d, opaque_ptr(nullptr), 100, std::align_val_t{64});
}

struct alignas(128) Wide {
    char c[200];
};

struct Counted {
    static int live;
    Counted() { live++; }
    ~Counted() { live--; }
    char c[24];
};
int Counted::live;

void expressions()
{
    for (int i = 0; i < 1000; i++) {
        Wide *w = static_cast<Wide *>(opaque_ptr(new Wide));
        Wide *many = static_cast<Wide *>(opaque_ptr(new Wide[7]));
        CHECK((uintptr_t)w % 128 == 0 && (uintptr_t)many % 128 == 0);
        delete w;
        delete[] many;
        Counted *c = static_cast<Counted *>(opaque_ptr(new Counted[i + 1]));
        CHECK(Counted::live == i + 1);
        delete[] c;
        CHECK(Counted::live == 0);
    }
    std::vector<std::string> words;
    for (int i = 0; i < 20000; i++)
        words.push_back(std::string(size_t(i % 100), char('a' + i % 26)));
    for (int i = 0; i < 20000; i++)
        CHECK(words[size_t(i)] == std::string(size_t(i % 100), char('a' + i % 26)));
}

/* Whichever form asks, blocks that were freed serve the next requests: nothing that lies in a cache is forgotten. */
void blocks_come_back(size_t n, size_t d)
{
    constexpr size_t kRounds = 20000, kSize = 208;
    void *p[64];
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (void *&q : p)
        q = opaque_ptr(malloc(kSize));
    for (void *q : p)
        free(q);
    for (size_t i = 0; i < kRounds; i++) {
        void *q = opaque_ptr(get(n, opaque(kSize), std::align_val_t{16}));
        low = (uintptr_t)q < low ? (uintptr_t)q : low;
        high = (uintptr_t)q > high ? (uintptr_t)q : high;
        put(d, q, kSize, std::align_val_t{16});
    }
    CHECKF(high - low < kRounds * kSize / 4, "new form %zu, one block live: spread over %zu bytes", n, high - low);
}

/* Requests no machine can grant. */
void impossible(bool strict)
{
    int caught = 0;
    for (size_t size : {SIZE_MAX, SIZE_MAX - 4096, size_t(PTRDIFF_MAX), size_t(PTRDIFF_MAX) + 1}) {
        try {
            opaque_ptr(::operator new(opaque(size)));
        } catch (const std::bad_alloc &) {
            caught++;
        }
        CHECK(opaque_ptr(::operator new(opaque(size), std::nothrow)) == nullptr);
        if (!strict)
            continue;
        CHECK(opaque_ptr(::operator new[](opaque(size), std::align_val_t{64}, std::nothrow)) == nullptr);
        try {
            opaque_ptr(::operator new(opaque(size), std::align_val_t{64}));
        } catch (const std::bad_alloc &) {
            caught++;
        }
    }
    CHECKF(caught == (strict ? 8 : 4), "only %d impossible requests threw", caught);
}

} // namespace

int main(int argc, char **argv)
{
    all_pairs();
    null_is_fine();
    expressions();
    for (size_t n = 0; n < kNews; n++)
        blocks_come_back(n, n % 2 + (n < 4 ? 0 : 6));
    impossible(argc > 1 && strcmp(argv[1], "strict") == 0);
    return 0;
}
