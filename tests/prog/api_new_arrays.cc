// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program that keeps arrays apart: it replaces operator new, new[], delete and delete[], and their aligned
 * counterparts. The standard derives the nothrow and sized array forms from new[] and delete[], not from new and delete.
 * Every block carries a mark of the form that gave it, so a form that reaches the wrong base is noticed there.
 */
#include "api_check.h"

#include <new>

#if defined(__GNUC__) && !defined(__clang__)
/* The sized forms are left alone on purpose. */
#pragma GCC diagnostic ignored "-Wsized-deallocation"
#endif

/* clang hides the sized forms from a C++17 program that does not ask for them; they are in libstdc++ all the same. */
void operator delete(void *, std::size_t) noexcept;
void operator delete[](void *, std::size_t) noexcept;
void operator delete(void *, std::size_t, std::align_val_t) noexcept;
void operator delete[](void *, std::size_t, std::align_val_t) noexcept;

namespace {

enum Mark : unsigned long { kOne = 0x11, kArray = 0x22, kAligned = 0x33, kAlignedArray = 0x44 };
constexpr size_t kRoom = 64; /* in front of each block: the mark */
constexpr std::align_val_t kAlign{32};

unsigned long calls;

void *give(size_t size, Mark mark)
{
    char *p = static_cast<char *>(aligned_alloc(kRoom, (size + 2 * kRoom - 1) / kRoom * kRoom));
    CHECK(p);
    *reinterpret_cast<unsigned long *>(p) = mark;
    calls++;
    return p + kRoom;
}

void take(void *p, Mark mark)
{
    calls++;
    if (!p)
        return;
    char *start = static_cast<char *>(p) - kRoom;
    unsigned long found = *reinterpret_cast<unsigned long *>(start);
    CHECKF(found == mark, "a block of mark %lx ended in the delete of mark %lx", found, (unsigned long)mark);
    free(start);
}

} // namespace

void *operator new(size_t size) { return give(size, kOne); }
void *operator new[](size_t size) { return give(size, kArray); }
void *operator new(size_t size, std::align_val_t) { return give(size, kAligned); }
void *operator new[](size_t size, std::align_val_t) { return give(size, kAlignedArray); }
void operator delete(void *p) noexcept { take(p, kOne); }
void operator delete[](void *p) noexcept { take(p, kArray); }
void operator delete(void *p, std::align_val_t) noexcept { take(p, kAligned); }
void operator delete[](void *p, std::align_val_t) noexcept { take(p, kAlignedArray); }

namespace {

void plain()
{
    ::operator delete(opaque_ptr(::operator new(opaque(100))), size_t{100});
    ::operator delete(opaque_ptr(::operator new(opaque(100), std::nothrow)), std::nothrow);
    ::operator delete[](opaque_ptr(::operator new[](opaque(100))), size_t{100});
    ::operator delete[](opaque_ptr(::operator new[](opaque(100), std::nothrow)), std::nothrow);
    CHECKF(calls == 8, "8 plain forms, %lu calls", calls);
    calls = 0;
}

void aligned()
{
    ::operator delete(opaque_ptr(::operator new(opaque(100), kAlign)), size_t{100}, kAlign);
    ::operator delete(opaque_ptr(::operator new(opaque(100), kAlign, std::nothrow)), kAlign, std::nothrow);
    ::operator delete[](opaque_ptr(::operator new[](opaque(100), kAlign)), size_t{100}, kAlign);
    ::operator delete[](opaque_ptr(::operator new[](opaque(100), kAlign, std::nothrow)), kAlign, std::nothrow);
    CHECKF(calls == 8, "8 aligned forms, %lu calls", calls);
    calls = 0;
}

} // namespace

int main()
{
    calls = 0; /* constructors may have come by */
    for (int i = 0; i < 100; i++) {
        plain();
        aligned();
    }
    return 0;
}
