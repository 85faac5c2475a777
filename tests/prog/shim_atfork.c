/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library with fork handlers of its own that allocate. Built three times, with SHIM_STAGE 1, 2 and 3: constructors of
 * priority 101, 200 and of none, so that one of them registers before and one after any allocator.
 *
 * Each handler allocates 100 sizes and frees what the handler before it left. The count of prepare and parent handlers
 * that ran is exported as shim_atfork_runs_STAGE.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifndef SHIM_STAGE
#define SHIM_STAGE 3
#endif
#if SHIM_STAGE == 1
#define CONSTRUCTOR __attribute__((constructor(101)))
#elif SHIM_STAGE == 2
#define CONSTRUCTOR __attribute__((constructor(200)))
#else
#define CONSTRUCTOR __attribute__((constructor))
#endif

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

enum { BLOCKS = 100 };

static void *blocks[BLOCKS];
static long runs;

static void replace_all(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = 16 + i * i * 37;
        void *fresh = malloc(size);
        if (!fresh)
            abort();
        memset(fresh, (int)i, size < 512 ? size : 512);
        free(blocks[i]);
        blocks[i] = fresh;
    }
}

static void in_prepare_or_parent(void)
{
    replace_all();
    runs++;
}

long JOIN(shim_atfork_runs_, SHIM_STAGE)(void);
long JOIN(shim_atfork_runs_, SHIM_STAGE)(void)
{
    return runs;
}

CONSTRUCTOR static void shim_atfork_start(void)
{
    replace_all();
    if (pthread_atfork(in_prepare_or_parent, in_prepare_or_parent, replace_all) != 0)
        abort();
}
