/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mallopt says yes to what people set (R32), and nothing else changes: blocks keep their contents and calloc still
 * gives zeroes, whatever M_PERTURB was told.
 */
#define _GNU_SOURCE
#include "api_check.h"

#include <malloc.h>

static const struct {
    const char *name;
    int param, value;
} settings[] = {
    {"M_MXFAST", M_MXFAST, 64},
    {"M_TRIM_THRESHOLD", M_TRIM_THRESHOLD, 128 << 10},
    {"M_TOP_PAD", M_TOP_PAD, 64 << 10},
    {"M_MMAP_THRESHOLD", M_MMAP_THRESHOLD, 1 << 20},
    {"M_MMAP_MAX", M_MMAP_MAX, 1000},
    {"M_CHECK_ACTION", M_CHECK_ACTION, 3},
    {"M_PERTURB", M_PERTURB, 0x5A},
    {"M_ARENA_TEST", M_ARENA_TEST, 1},
    {"M_ARENA_MAX", M_ARENA_MAX, 2},
};

static void works(size_t size)
{
    unsigned char *p = malloc(size), *z = calloc(1, size);
    CHECK(p && z);
    CHECKF(nonzero_at(z, size) == size, "calloc of %zu bytes is not zero", size);
    pattern_fill(p, size, size);
    p = realloc(p, size * 2);
    CHECK(p);
    CHECKF(pattern_diff(p, size, size) == size, "realloc of %zu bytes lost contents", size);
    CHECK(malloc_usable_size(z) >= size && nonzero_at(z, size) == size);
    free(p);
    free(z);
}

int main(void)
{
    void *before = malloc(1000);
    CHECK(before);
    pattern_fill(before, 1000, 32);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        errno = ERRNO_MARK;
        int got = mallopt(settings[i].param, settings[i].value);
        CHECKF(got == 1, "mallopt(%s, %d) is %d", settings[i].name, settings[i].value, got);
        CHECKF(errno == ERRNO_MARK, "mallopt(%s) set errno to %d", settings[i].name, errno);
        for (size_t size = 1; size <= (4u << 20); size = size * 3 + 5)
            works(size);
    }
    CHECK(pattern_diff(before, 1000, 32) == 1000);
    free(before);
    return 0;
}
