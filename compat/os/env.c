/* SPDX-License-Identifier: BSD-2-Clause */
#include "env.h"

#include "sys.h"

#include <string.h>

extern char **environ;

const char *env_get(char **env, const char *name)
{
    if (env == NULL)
        env = environ;
    if (env == NULL || sys_auxv(AT_SECURE) != 0)
        return NULL;
    size_t len = strlen(name);
    for (char **e = env; *e != NULL; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            return *e + len + 1;
    return NULL;
}
