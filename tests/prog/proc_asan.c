/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For a sanitizer's runtime to find: writes one byte behind a block. Built by the test itself, with
 * -fsanitize=address, since the rest of the suite may be built by a compiler without that runtime.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    char *p = malloc(40);
    if (!p)
        return 3;
    memset(p, 1, 40);
    printf("before\n");
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "overflow") == 0)
        p[39 + argc - 1] = 2;
    printf("%d\n", p[0]);
    free(p);
    return 0;
}
