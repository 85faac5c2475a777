/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many live blocks of 64 KiB, every other one freed: few mappings, and none refused (R10): proc_holes BLOCKS LINES.
 * /proc/self/maps may have at most LINES lines then.
 */
#include "proc_util.h"

static long maps_lines(void)
{
    static char text[1 << 16];
    long lines = 0;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < n; i++)
            lines += text[i] == '\n';
    close(fd);
    return lines;
}

int main(int argc, char **argv)
{
    long n = arg_count(argc, argv, 1, 20000), most = arg_count(argc, argv, 2, 100);
    long **block = calloc((size_t)n, sizeof *block);
    CHECK(block);
    for (long i = 0; i < n; i++) {
        block[i] = malloc(KiB(64));
        CHECK(block[i]);
        *block[i] = i;
    }
    for (long i = 0; i < n; i += 2)
        free(block[i]);
    long lines = maps_lines();
    for (long i = 1; i < n; i += 2)
        CHECK(*block[i] == i);
    malloc_trim(0);
    long trimmed = maps_lines();
    for (long i = 1; i < n; i += 2)
        CHECK(*block[i] == i);
    if (lines > most || trimmed > most)
        FAIL("%ld lines in maps, %ld after a trim, more than %ld", lines, trimmed, most);
    printf("done\n");
    return 0;
}
