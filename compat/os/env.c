/* SPDX-License-Identifier: BSD-2-Clause */
#include "env.h"

#include <string.h>
#include <sys/auxv.h>

extern char **environ;

const char *env_get(const char *name)
{
    if (environ == NULL || getauxval(AT_SECURE) != 0)
        return NULL;
    size_t len = strlen(name);
    for (char **e = environ; *e != NULL; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            return *e + len + 1;
    return NULL;
}
