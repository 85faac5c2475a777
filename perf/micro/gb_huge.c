/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gb_huge [MIB] [FREED]: how much of a block of MIB (256), written whole, lies on huge pages; then FREED (500) MiB, half
 * in one block and half in blocks of 64 KiB, are written and freed: how much of it is only lazily free.
 */
#define _GNU_SOURCE
#include "gb.h"

static void freed(size_t bytes)
{
    size_t n = bytes / 2 / GB_KIB(64);
    void *large = gb_block(bytes / 2, 1);
    void **last = NULL;
    for (size_t i = 0; i < n; i++) {
        void **p = gb_block(GB_KIB(64), i);
        *p = last;
        last = p;
    }
    gb_block_free(large, 1);
    while (last) {
        void **next = *last;
        free(last);
        last = next;
    }
}

int main(int argc, char **argv)
{
    size_t bytes = GB_MIB(gb_arg(argc, argv, 1, 256, 1));
    void *p = gb_block(bytes, 5);
    gb_say("huge_kib", gb_smaps_kib("\nAnonHugePages:"));
    gb_block_free(p, 5);
    freed(GB_MIB(gb_arg(argc, argv, 2, 500, 1)));
    gb_say("lazy_kib", gb_smaps_kib("\nLazyFree:"));
    gb_say("rss_kib", gb_rss_kib());
    return 0;
}
