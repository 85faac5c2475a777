/* SPDX-License-Identifier: BSD-2-Clause */
/* Checks of our own state. Level 1. Wrong use by the program is misuse.h's business. */
#ifndef CORE_DBG_H
#define CORE_DBG_H

#include "compat/os/cc.h"

/* What: print "sheaf: internal error: what (a, b)" and abort. Context: anywhere; allocates nothing. */
COLD _Noreturn void dbg_fail(const char *what, uint64_t a, uint64_t b);

/* Always on: O(1), off the hit path. Both operands are printed. */
#define CHECK_EQ(a, b)                                                                                                 \
    do {                                                                                                               \
        if (UNLIKELY((a) != (b)))                                                                                      \
            dbg_fail(#a " == " #b, (uint64_t)(a), (uint64_t)(b));                                                      \
    } while (0)
#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        if (UNLIKELY(!(cond)))                                                                                         \
            dbg_fail(#cond, 0, 0);                                                                                     \
    } while (0)

/* Debug builds only; compiled in every build. */
#define ASSERT(cond)                                                                                                   \
    do {                                                                                                               \
        if (cfg_debug)                                                                                                 \
            CHECK(cond);                                                                                               \
    } while (0)

#endif
