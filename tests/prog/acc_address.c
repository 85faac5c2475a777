/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses, and what is resident at the start: acc_address [rss].
 *
 * By itself (R76): every block of every size lies below 2^47, where programs keep tags in the upper bits; and a look at any
 * number that is no address of a block is safe: its usable size is 0. rss (R57): prints what the process alone has in memory.
 */
#include "proc_util.h"

#define TOP ((uintptr_t)1 << 47)

static void below(const void *p, size_t size)
{
    CHECK(p);
    if ((uintptr_t)p >= TOP || (uintptr_t)p + size > TOP)
        FAIL("%zu bytes at %p", size, p);
}

static void no_block(uintptr_t n)
{
    size_t size = malloc_usable_size((void *)n);
    if (size != 0)
        FAIL("%zu bytes at %p, which is no block", size, (void *)n);
}

/* Anonymous memory and written pages of files. */
static void resident(void)
{
    char text[4096];
    free(malloc(100));
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    CHECK(n > 0);
    text[n] = 0;
    char *line = strstr(text, "\nPrivate_Dirty:");
    CHECK(line);
    n = snprintf(text, sizeof text, "private_kib=%ld\n", strtol(line + 15, NULL, 10));
    CHECK(write(1, text, (size_t)n) == n);
}

static void addresses(void)
{
    for (size_t size = 16; size <= MiB(256); size = next_size(size)) {
        char *p = malloc(size);
        below(p, size);
        p[0] = p[size - 1] = 1;
        free(p);
    }
    for (size_t align = 16; align <= ((size_t)1 << 32); align *= 2) {
        void *p = aligned_alloc(align, 100);
        below(p, 100);
        free(p);
    }
    uintptr_t p = (uintptr_t)malloc(100);
    const uintptr_t odd[] = {0, 1, 15, 16, 4095, TOP - 1, TOP, TOP + 16, p + ((uintptr_t)1 << 56), p + ((uintptr_t)1 << 63),
                             p ^ TOP, ((uintptr_t)1 << 56) - 1, (uintptr_t)1 << 63, UINTPTR_MAX - 15, UINTPTR_MAX};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        no_block(odd[i]);
    uint64_t seed = 76;
    for (int i = 0; i < 100000; i++)
        no_block(rng_next(&seed) | TOP); /* not where programs live */
    free((void *)p);
    printf("done\n");
}

int main(int argc, char **argv)
{
    if (argc < 2)
        addresses();
    else if (strcmp(argv[1], "rss") == 0)
        resident();
    else
        FAIL("unknown command %s", argv[1]);
    return 0;
}
