/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One pointer that is not the allocator's, used once: misuse_foreign free|realloc|usable|free_sized. Prints its
 * address; exits 0 if the call came back as it should and the memory is as it was.
 */
#include "misuse_util.h"

extern void free_sized(void *p, size_t size) __attribute__((weak));

static char foreign[64] __attribute__((aligned(16))) = "untouched";

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    warm_up(SMALL);
    print_address(foreign);
    if (strcmp(argv[1], "free") == 0) {
        free(foreign);
    } else if (strcmp(argv[1], "realloc") == 0) {
        errno = 0;
        CHECK(realloc(foreign, 100) == NULL && errno == ENOMEM);
    } else if (strcmp(argv[1], "usable") == 0) {
        CHECK(malloc_usable_size(foreign) == 0);
    } else if (strcmp(argv[1], "free_sized") == 0) {
        if (!free_sized)
            return 77;
        free_sized(foreign, sizeof foreign);
    } else {
        FAIL("unknown command %s", argv[1]);
    }
    CHECK(strcmp(foreign, "untouched") == 0);
    check_heap(500, foreign, sizeof foreign);
    return 0;
}
