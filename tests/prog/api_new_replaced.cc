// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program that replaces operator new(size_t) and operator delete(void*) and nothing else. The standard says that the
 * array, nothrow and sized forms then reach the replacement. It hands out blocks of an arena of its own, so that a form
 * that goes past it is noticed by both sides. The aligned forms are not derived from it and must not come here.
 *
 *     api_new_replaced [quick | throw]    throw: the replacement throws, the nothrow forms answer nullptr
 */
#include "api_check.h"

#include <malloc.h>
#include <memory>
#include <new>
#include <string>

#if defined(__GNUC__) && !defined(__clang__)
/* The sized delete is left alone on purpose. */
#pragma GCC diagnostic ignored "-Wsized-deallocation"
#endif

/* clang hides the sized forms from a C++17 program that does not ask for them; they are in libstdc++ all the same. */
void operator delete(void *, std::size_t) noexcept;
void operator delete[](void *, std::size_t) noexcept;
void operator delete(void *, std::size_t, std::align_val_t) noexcept;
void operator delete[](void *, std::size_t, std::align_val_t) noexcept;

namespace {

constexpr size_t kArena = size_t{8} << 20;

alignas(64) char arena[kArena];
size_t used;
unsigned long news, deletes;
bool refuse;

bool mine(const void *p)
{
    return p >= arena && p < arena + kArena;
}

} // namespace

void *operator new(size_t size)
{
    news++;
    if (refuse)
        throw std::bad_alloc();
    size_t room = (size + 31) / 16 * 16;
    CHECK(used + room <= kArena);
    void *p = arena + used;
    used += room;
    return p;
}

void operator delete(void *p) noexcept
{
    deletes++;
    CHECKF(!p || mine(p), "the replaced delete got %p, which its new never gave", p);
}

namespace {

void one_new(const char *what, void *p, unsigned long before)
{
    CHECKF(news == before + 1, "%s called the replacement %lu times", what, news - before);
    CHECKF(mine(opaque_ptr(p)), "%s gave %p, which is not the replacement's", what, p);
}

void one_delete(const char *what, unsigned long before)
{
    CHECKF(deletes == before + 1, "%s called the replacement %lu times", what, deletes - before);
}

void derived_news(void *(&p)[4])
{
    unsigned long n = news;
    one_new("new", p[0] = ::operator new(opaque(100)), n);
    one_new("new[]", p[1] = ::operator new[](opaque(100)), n + 1);
    one_new("new nothrow", p[2] = ::operator new(opaque(100), std::nothrow), n + 2);
    one_new("new[] nothrow", p[3] = ::operator new[](opaque(100), std::nothrow), n + 3);
}

void derived_deletes()
{
    void *p[4], *q[4];
    derived_news(p);
    derived_news(q);
    unsigned long d = deletes;
    ::operator delete(p[0]);
    one_delete("delete", d++);
    ::operator delete[](p[1]);
    one_delete("delete[]", d++);
    ::operator delete(p[2], std::nothrow);
    one_delete("delete nothrow", d++);
    ::operator delete[](p[3], std::nothrow);
    one_delete("delete[] nothrow", d++);
    ::operator delete(q[0], size_t{100});
    one_delete("sized delete", d++);
    ::operator delete[](q[1], size_t{100});
    one_delete("sized delete[]", d++);
}

/* Aligned forms have a base of their own, which nobody replaced: not the arena, and no delete of ours. */
void aligned_forms()
{
    unsigned long n = news, d = deletes;
    for (size_t align = 32; align <= 4096; align *= 2) {
        std::align_val_t a{align};
        void *p = opaque_ptr(::operator new(100, a)), *q = opaque_ptr(::operator new[](100, a, std::nothrow));
        CHECK(p && q && !mine(p) && !mine(q) && (uintptr_t)p % align == 0 && (uintptr_t)q % align == 0);
        ::operator delete(p, 100, a);
        ::operator delete[](q, a);
    }
    CHECK(news == n && deletes == d);
}

/* Code inside libstdc++ that was compiled long ago comes here as well. */
void inside_the_library()
{
    unsigned long n = news, d = deletes;
    {
        std::string s(opaque(1000), 'x');
        s.append(opaque(5000), 'y');
        std::unique_ptr<int[]> v(new int[opaque(100)]);
        CHECK(mine(s.data()) && mine(v.get()) && s[999] == 'x' && s[5999] == 'y');
    }
    CHECKF(news > n + 2 && deletes - d == news - n, "%lu news, %lu deletes", news - n, deletes - d);
}

/* The C side stays what it is. */
void malloc_is_apart()
{
    unsigned long n = news;
    void *p = opaque_ptr(malloc(100));
    CHECK(p && !mine(p) && malloc_usable_size(p) >= 100 && news == n);
    free(p);
}

void throwing()
{
    refuse = true;
    int caught = 0;
    try {
        opaque_ptr(::operator new[](opaque(100)));
    } catch (const std::bad_alloc &) {
        caught++;
    }
    CHECKF(caught == 1 && news == 1, "new[] did not pass on what the replacement threw (%lu calls)", news);
    CHECK(opaque_ptr(::operator new(opaque(100), std::nothrow)) == nullptr);
    CHECK(opaque_ptr(::operator new[](opaque(100), std::nothrow)) == nullptr);
    CHECKF(news == 3, "the nothrow forms called the replacement %lu times", news - 1);
    refuse = false;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "throw") == 0) {
        news = 0;
        throwing();
        return 0;
    }
    for (int i = 0; i < 100; i++)
        derived_deletes();
    aligned_forms();
    inside_the_library();
    malloc_is_apart();
    return 0;
}
