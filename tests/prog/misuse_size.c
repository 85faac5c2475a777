/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wrong sizes: misuse_size overflow|sized.
 *
 * overflow: requests whose size cannot be give NULL and ENOMEM, in every mode. sized: free_sized with a size that is
 * not the block's; unless that is an error the block is freed all the same and memory does not grow.
 */
#include "misuse_util.h"

extern void free_sized(void *p, size_t size) __attribute__((weak));

#define EXPECT_ENOMEM(call)                                                                                            \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        CHECK((call) == NULL);                                                                                         \
        CHECK(errno == ENOMEM);                                                                                        \
    } while (0)

static void overflow(void)
{
    /* Volatile: the compiler would see through the sizes and warn. */
    volatile size_t huge = SIZE_MAX, half = SIZE_MAX / 2 + 2, small = 2;
    struct block kept = block_new(100);
    EXPECT_ENOMEM(malloc(huge));
    EXPECT_ENOMEM(malloc(huge - 4096));
    EXPECT_ENOMEM(malloc((size_t)PTRDIFF_MAX * small / 2 + 1));
    EXPECT_ENOMEM(calloc(half, small));
    EXPECT_ENOMEM(calloc(small, half));
    EXPECT_ENOMEM(calloc(huge, huge));
    EXPECT_ENOMEM(reallocarray(NULL, half, small));
    EXPECT_ENOMEM(reallocarray(kept.p, half, small));
    EXPECT_ENOMEM(realloc(kept.p, huge));
    EXPECT_ENOMEM(memalign(64, huge - 10));
    EXPECT_ENOMEM(aligned_alloc(4096, huge - 4095));
    block_free(&kept);
}

static int sized(void)
{
    if (!free_sized)
        return 77;
    void *p = malloc(SMALL);
    CHECK(p);
    print_address(p);
    free_sized(p, 1000);
    long before = status_kib("VmRSS:");
    for (int i = 0; i < 200000; i++) {
        CHECK((p = malloc(i % 2 ? SMALL : 2000)));
        memset(p, i, SMALL);
        free_sized(p, i % 2 ? 3000 : 8);
    }
    malloc_trim(0);
    if (status_kib("VmRSS:") > before + 8192)
        FAIL("%ld KiB before, %ld after", before, status_kib("VmRSS:"));
    check_heap(2000, NULL, 0);
    return 0;
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    warm_up(SMALL);
    if (strcmp(argv[1], "sized") == 0)
        return sized();
    CHECK(strcmp(argv[1], "overflow") == 0);
    overflow();
    return 0;
}
