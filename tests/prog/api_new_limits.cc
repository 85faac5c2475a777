// SPDX-License-Identifier: BSD-2-Clause
/*
 * operator new at the end of memory (R46), under RLIMIT_AS of 128 MiB. One case a run:
 *
 *     reserve   a new-handler that gives up a reserve lets new char[50M] succeed
 *     throw     without a handler: std::bad_alloc
 *     nothrow   nullptr, and the handler is asked first
 *     derived   what a handler throws passes through, by its own type
 *     remove    a handler that takes itself away ends in bad_alloc after one call
 *     aligned   the same three for aligned new
 *     loop      fill memory with small blocks until bad_alloc, free all, go on
 */
#include "api_check.h"

#include <new>
#include <sys/resource.h>

namespace {

constexpr size_t kLimit = size_t{128} << 20;
constexpr size_t kReserve = size_t{80} << 20;
constexpr size_t kWanted = size_t{50} << 20;
constexpr size_t kTooMuch = size_t{512} << 20;
constexpr std::align_val_t kAlign{4096};

char *reserve;
int calls;

struct NoMemory : std::bad_alloc {
    int id = 46;
};

void limit_memory()
{
    rlimit limit{kLimit, kLimit};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

void give_up_reserve()
{
    calls++;
    if (!reserve)
        throw std::bad_alloc();
    delete[] reserve;
    reserve = nullptr;
}

void throw_derived()
{
    calls++;
    throw NoMemory();
}

void remove_myself()
{
    calls++;
    std::set_new_handler(nullptr);
}

char *get(size_t size, bool aligned)
{
    void *p = aligned ? ::operator new[](opaque(size), kAlign) : ::operator new[](opaque(size));
    return static_cast<char *>(opaque_ptr(p));
}

void put(char *p, bool aligned)
{
    if (aligned)
        ::operator delete[](p, kAlign);
    else
        ::operator delete[](p);
}

void with_reserve(bool aligned)
{
    reserve = static_cast<char *>(opaque_ptr(new char[kReserve]));
    std::set_new_handler(give_up_reserve);
    char *p = get(kWanted, aligned);
    CHECK(p && calls >= 1 && reserve == nullptr);
    p[0] = p[kWanted - 1] = 1;
    put(p, aligned);
    std::set_new_handler(nullptr);
}

void without_handler(bool aligned)
{
    bool caught = false;
    try {
        put(get(kTooMuch, aligned), aligned);
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    CHECKF(caught, "new of %zu bytes under a limit of %zu gave no bad_alloc", kTooMuch, kLimit);
}

void nothrow(bool aligned)
{
    for (int handler = 0; handler < 2; handler++) {
        std::set_new_handler(handler ? throw_derived : nullptr);
        calls = 0;
        void *p = aligned ? ::operator new[](opaque(kTooMuch), kAlign, std::nothrow)
                          : ::operator new[](opaque(kTooMuch), std::nothrow);
        void *q = aligned ? ::operator new(opaque(kTooMuch), kAlign, std::nothrow)
                          : ::operator new(opaque(kTooMuch), std::nothrow);
        CHECK(opaque_ptr(p) == nullptr && opaque_ptr(q) == nullptr);
        CHECKF(calls == 2 * handler, "nothrow new asked the handler %d times", calls);
    }
}

void derived(bool aligned)
{
    std::set_new_handler(throw_derived);
    calls = 0;
    bool caught = false;
    try {
        put(get(kTooMuch, aligned), aligned);
    } catch (const NoMemory &e) {
        caught = e.id == 46;
    }
    CHECKF(caught && calls == 1, "a handler's own exception did not pass through (%d calls)", calls);
}

void removed()
{
    std::set_new_handler(remove_myself);
    bool caught = false;
    try {
        put(get(kTooMuch, false), false);
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    CHECKF(caught && calls == 1, "a handler that removed itself was called %d times", calls);
}

struct Node {
    Node *next;
    char body[4000];
};

size_t fill_up(Node *&list)
{
    size_t n = 0;
    try {
        for (;;) {
            Node *node = static_cast<Node *>(opaque_ptr(new Node));
            node->next = list;
            node->body[3999] = 1;
            list = node;
            n++;
        }
    } catch (const std::bad_alloc &) {
    }
    return n;
}

void loop()
{
    size_t first = 0;
    for (int round = 0; round < 4; round++) {
        Node *list = nullptr;
        size_t n = fill_up(list);
        while (list) {
            Node *next = list->next;
            delete list;
            list = next;
        }
        if (round == 0)
            first = n;
        CHECKF(n > kLimit / 2 / sizeof(Node), "only %zu blocks of %zu fit", n, sizeof(Node));
        CHECKF(n > first / 2, "first %zu blocks fit, in round %d only %zu", first, round, n);
    }
}

} // namespace

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "reserve";
    limit_memory();
    if (strcmp(what, "reserve") == 0)
        with_reserve(false);
    else if (strcmp(what, "throw") == 0)
        without_handler(false);
    else if (strcmp(what, "nothrow") == 0)
        nothrow(false);
    else if (strcmp(what, "derived") == 0)
        derived(false);
    else if (strcmp(what, "remove") == 0)
        removed();
    else if (strcmp(what, "loop") == 0)
        loop();
    else if (strcmp(what, "aligned") == 0) {
        without_handler(true);
        nothrow(true);
        derived(true);
        with_reserve(true);
    } else
        FAILF("what is %s?", what);
    return 0;
}
