/* SPDX-License-Identifier: BSD-2-Clause */
#include "dbg.h"

#include "compat/os/fmt.h"

void dbg_fail(const char *what, uint64_t a, uint64_t b)
{
    fmt_message("internal error: %s (%lu, %lu)", what, (unsigned long)a, (unsigned long)b);
    __builtin_abort();
}
