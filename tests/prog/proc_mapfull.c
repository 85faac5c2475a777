/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process has as many mappings as the kernel allows, none of them ours, and still frees 10,000 blocks of all sizes
 * without a word (R10); what it allocates meanwhile is there or refused with ENOMEM. proc_mapfull [blocks]. Exit 77 where
 * the kernel never refuses.
 */
#include "proc_util.h"

#include <sys/mman.h>

enum { TRIES = 1000000 };

static char *range;
static size_t page;

/* Every other page of a range of our own gets a protection of its own, until the kernel refuses. */
static int fill(void)
{
    range = mmap(NULL, 2 * TRIES * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(range != MAP_FAILED);
    for (size_t i = 0; i < TRIES; i++)
        if (mprotect(range + 2 * i * page, page, PROT_READ) != 0)
            return errno == ENOMEM;
    return 0;
}

/* Blocks of all kinds: mostly small, some of hundreds of KiB, some so large that they may be mappings of their own. */
static size_t size_of(long i, uint64_t *seed)
{
    return i % 500 == 0 ? MiB(65) + (size_t)i * 100 : rng_size(seed, i % 20 == 0 ? 22 : 14);
}

int main(int argc, char **argv)
{
    long n = arg_count(argc, argv, 1, 10000);
    uint64_t seed = 10;
    struct block *b = calloc((size_t)n, sizeof *b);
    CHECK(b);
    for (long i = 0; i < n; i++)
        b[i] = block_new(size_of(i, &seed));
    page = (size_t)sysconf(_SC_PAGESIZE);
    if (!fill()) {
        fprintf(stderr, "the kernel takes any number of mappings\n");
        return 77;
    }
    for (long i = 0; i < n; i++) {
        errno = 1234;
        block_free(&b[i]);
        CHECK(errno == 1234);
    }
    for (long i = 0; i < n; i++) {
        size_t size = size_of(i, &seed);
        errno = 0;
        char *p = malloc(size);
        CHECK(p || errno == ENOMEM);
        if (p)
            p[0] = p[size - 1] = 1;
        free(p);
    }
    malloc_trim(0);
    CHECK(munmap(range, 2 * TRIES * page) == 0);
    check_heap(3000, NULL, 0);
    every_class(MiB(80));
    printf("done\n");
    return 0;
}
