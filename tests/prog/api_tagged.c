/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * arm64 ignores the top byte of an address, and programs keep tags there (field report: pointers given to free with a tag).
 * Blocks of every layer are freed, resized and measured by tagged pointers. Elsewhere such a pointer cannot be used at
 * all: exit 77.
 */
#define _GNU_SOURCE
#include "api_check.h"

#include <malloc.h>

#if defined(__aarch64__)

static const size_t sizes[] = {1, 64, 1000, 32768, 40000, 500000, 600000, 8 << 20, 70 << 20};

static void *tagged(void *p, unsigned tag)
{
    return opaque_ptr((void *)((uintptr_t)p | (uintptr_t)tag << 56));
}

static void *plain(void *p)
{
    return (void *)((uintptr_t)p << 8 >> 8);
}

static void one(size_t size, unsigned tag)
{
    char *p = malloc(size);
    CHECK(p);
    CHECKF((uintptr_t)p >> 56 == 0, "malloc hands out a tag: %p", (void *)p);
    CHECKF(malloc_usable_size(tagged(p, tag)) == malloc_usable_size(p), "%zu bytes, tag %#x: usable %zu, not %zu", size,
           tag, malloc_usable_size(tagged(p, tag)), malloc_usable_size(p));
    pattern_fill(p, size, tag);
    CHECK(pattern_diff(tagged(p, tag), size, tag) == size);
    char *q = realloc(tagged(p, tag), size + size / 2 + 1);
    CHECKF(q, "realloc of %zu bytes with tag %#x: NULL", size, tag);
    CHECKF(pattern_diff(q, size, tag) == size, "realloc of %zu bytes with tag %#x lost contents", size, tag);
    free(tagged(plain(q), tag));
}

/* Freed by a tagged pointer means free: the same blocks come again, and the heap stays as it is. */
static void comes_back(size_t size)
{
    struct mallinfo2 before = mallinfo2();
    for (unsigned i = 0; i < 10000; i++)
        free(tagged(malloc(size), i & 0xff));
    struct mallinfo2 after = mallinfo2();
    CHECKF(after.uordblks <= before.uordblks + (64 << 10) + 4 * size, "%zu bytes: %zu in use before, %zu after", size,
           before.uordblks, after.uordblks);
}

int main(void)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned tag = 0; tag < 256; tag += sizes[i] > 100000 ? 85 : 17)
            one(sizes[i], tag);
    comes_back(64);
    comes_back(100000);
    return 0;
}

#else

int main(void)
{
    SKIPF("the top byte of an address counts on this machine");
}

#endif
