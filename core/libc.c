/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "libc.h"

#include <dlfcn.h>

EARLY_DATA struct libc_calls libc_calls;

bool libc_init(void)
{
    struct libc_calls c;
    *(void **)&c.malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&c.calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&c.realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&c.memalign = dlsym(RTLD_NEXT, "memalign");
    *(void **)&c.free = dlsym(RTLD_NEXT, "free");
    *(void **)&c.usable = dlsym(RTLD_NEXT, "malloc_usable_size");
    if (!c.malloc || !c.calloc || !c.realloc || !c.memalign || !c.free || !c.usable)
        return false;
    libc_calls = c;
    return true;
}
