/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A module as php-fpm loads them, with RTLD_DEEPBIND: libc allocates for it, it frees. Where the two do not mean the
 * same heap the process dies.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int shim_deepbind(void);
int shim_deepbind(void)
{
    for (int i = 0; i < 100; i++) {
        char *text = NULL;
        if (asprintf(&text, "module %d", i) < 0)
            return 1;
        char *copy = strdup(text);
        free(text);
        if (!copy)
            return 1;
        free(copy);
    }
    return 0;
}
