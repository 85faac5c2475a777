/* SPDX-License-Identifier: BSD-2-Clause */
/* The environment, without getenv. Level 0. */
#ifndef COMPAT_OS_ENV_H
#define COMPAT_OS_ENV_H

#include "cc.h"

/* What: the value of a variable in env, or NULL; always NULL in a set-user-id or set-capability program (AT_SECURE),
 * where a stranger's environment must not weaken the heap. env NULL: libc's environ, which it may not have set yet.
 * Owner: the environment; do not keep it. Context: our constructor and later. */
const char *env_get(char **env, const char *name);

#endif
