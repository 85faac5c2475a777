/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A constructor of the earliest priority that allocates, as C++ global maps do. Built twice, with SHIM_STAGE 1 and 2,
 * to stand before and after the allocator. What the constructor allocated is checked and freed at exit.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef SHIM_STAGE
#define SHIM_STAGE 1
#endif

enum { BLOCKS = 50 };

static char *blocks[BLOCKS];

__attribute__((constructor(101))) static void shim_ctor_start(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = i % 2 ? calloc(1, 16 + i * 90) : malloc(16 + i * 90);
        if (!blocks[i])
            abort();
        memset(blocks[i], 'a' + SHIM_STAGE, 16 + i * 90);
    }
    free(blocks[0]);
    blocks[0] = NULL;
}

__attribute__((destructor)) static void shim_ctor_end(void)
{
    static const char text[] = {'c', 't', 'o', 'r', ' ', '0' + SHIM_STAGE, '\n'};
    for (size_t i = 1; i < BLOCKS; i++) {
        for (size_t at = 0; at < 16 + i * 90; at++)
            if (blocks[i][at] != 'a' + SHIM_STAGE)
                abort();
        free(blocks[i]);
    }
    if (write(1, text, sizeof text) < 0)
        abort();
}
