/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory is given back through libc's munmap, mremap and madvise, where caches of registered memory hook them (R73): the
 * program stands before all three and must see every call that the kernel sees.
 */
#include "proc_calls.h"

#include <stdarg.h>
#include <sys/mman.h>

static atomic_long hooked;

int munmap(void *p, size_t size)
{
    atomic_fetch_add(&hooked, 1);
    return (int)syscall(SYS_munmap, p, size);
}

int madvise(void *p, size_t size, int advice)
{
    atomic_fetch_add(&hooked, 1);
    return (int)syscall(SYS_madvise, p, size, advice);
}

void *mremap(void *p, size_t from, size_t to, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    void *at = flags & MREMAP_FIXED ? va_arg(args, void *) : NULL;
    va_end(args);
    atomic_fetch_add(&hooked, 1);
    return (void *)syscall(SYS_mremap, p, from, to, flags, at);
}

static void work(void)
{
    enum { BLOCKS = 64 };
    char *small[BLOCKS];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            small[i] = malloc(MiB(1));
            CHECK(small[i]);
            memset(small[i], 1, MiB(1));
        }
        char *large = malloc(MiB(70));
        CHECK(large);
        for (size_t mib = 80; mib <= 120; mib += 10) {
            large = realloc(large, MiB(mib));
            CHECK(large);
        }
        large = realloc(large, MiB(75));
        CHECK(large);
        free(large);
        free(aligned_alloc(MiB(4), MiB(66)));
        for (int i = 0; i < BLOCKS; i++)
            free(small[i]);
        malloc_trim(0);
    }
}

int main(void)
{
    calls_watch();
    atomic_store(&hooked, 0);
    work();
    long seen = calls_of(SYS_munmap) + calls_of(SYS_madvise) + calls_of(SYS_mremap);
    if (seen != atomic_load(&hooked))
        FAIL("the kernel saw %ld calls that give memory back, the hooks %ld", seen, atomic_load(&hooked));
    if (seen == 0)
        FAIL("%s", "nothing was given back: this proved nothing");
    printf("done\n");
    return 0;
}
