/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What never lies on huge pages: bookkeeping, and what is small. Where the system gives huge pages unasked, a page of either
 * would cost 2 MiB; and where part of a huge page was given back, the system would fill the hole again. Level 2.
 */
#ifndef CORE_THP_H
#define CORE_THP_H

#include "compat/os/vm.h"
#include "opt.h"
#include "tunables.h"

/* What: may we say so? purge:off means no madvise unless it is asked for. */
static inline bool thp_may_refuse(void)
{
    return opt.thp == OPT_THP_NEVER || opt.purge == OPT_PURGE_ON;
}

/* What: memory for bookkeeping, as vm_map gives it. What is shorter than a huge page needs no word: only beside its like
 * could it become one. */
static inline void *thp_map_small(size_t size)
{
    void *p = vm_map(size, false);
    if (p != NULL && size >= (size_t)1 << BLOCK_SHIFT && thp_may_refuse())
        vm_small_pages(p, size);
    return p;
}

#endif
