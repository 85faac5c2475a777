/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The C library's own allocator, for `off:true`. Level 10.
 *
 * Found in our constructor (dlsym is not for malloc paths). Blocks that we handed out before then remain ours.
 */
#ifndef CORE_LIBC_H
#define CORE_LIBC_H

#include "compat/os/cc.h"

struct libc_calls {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*memalign)(size_t, size_t);
    void (*free)(void *);
    size_t (*usable)(void *);
};

extern struct libc_calls libc_calls; /* all NULL unless off; constant after libc_init */

/* What: are calls passed on? Cost: a load. */
static inline bool libc_in_use(void)
{
    return libc_calls.malloc != NULL;
}

/* What: look the functions up. Fails: false: a libc without those names; Sheaf then stays in use. Context: constructor. */
bool libc_init(void);

#endif
