/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pointer into a block, not to its start: misuse_interior free|realloc SIZE OFFSET TRIGGER.
 */
#include "misuse_util.h"

static size_t offset;
static int by_realloc;

static void act(size_t size)
{
    /* Others of the size stay, so that the slab stays what it is. */
    static char *kept[2];
    kept[0] = malloc(size);
    char *p = malloc(size);
    kept[1] = malloc(size);
    CHECK(p && kept[0] && kept[1]);
    print_address(p + offset);
    if (by_realloc) {
        char *moved = realloc(p + offset, size * 3);
        CHECK(moved);
    } else {
        free(p + offset);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc > 4);
    by_realloc = strcmp(argv[1], "realloc") == 0;
    offset = (size_t)arg_count(argc, argv, 3, 8);
    return misuse_run(act, (size_t)arg_count(argc, argv, 2, SMALL), argv[4], 0);
}
