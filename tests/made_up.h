/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers of a struct numa_system that every made-up machine gives: no policy of the user's, the first node, distances there
 * are, nothing to close. */
#ifndef TESTS_MADE_UP_H
#define TESTS_MADE_UP_H

#include <stdbool.h>

static inline long say_no_policy(void)
{
    return 0;
}

static inline int say_first(void)
{
    return 0;
}

static inline bool say_yes(void)
{
    return true;
}

static inline void close_nothing(void)
{
}

#endif
