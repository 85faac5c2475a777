/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The heap's size against soft_limit and hard_limit. Level 1.
 *
 * Charged is what may be resident on the program's behalf: pages that left the zones' clean state, until they are purged,
 * but for the clean os pages of slabs (never touched, or holes given back), and large mappings. Metadata is not (it is a few percent, and refusing it helps nobody). One counter, whatever the limits.
 * Order: relaxed; a refusal is exact: what does not fit is never added, so it is in nobody's way.
 */
#ifndef CORE_LIMIT_H
#define CORE_LIMIT_H

#include "compat/os/cc.h"

/* What: count bytes that are about to be handed out. Fails: false, nothing counted: the hard limit; the refusal is
 * remembered for the report. Passing the soft limit is noted for limit_soft_passed. Context: any lock may be held. */
bool limit_charge(size_t bytes);

/* What: count bytes that were not counted and can be resident from now on, whether the limits allow it or not: nobody asks
 * for them now. Context: any lock may be held. */
void limit_charge_anyway(size_t bytes);

/* What: bytes given back to the system. */
void limit_uncharge(size_t bytes);

/* What: the two steps of limit_soft_passed: has the heap passed the soft limit; and, of those who have heard so, one takes
 * the news, with the work to be done. */
bool limit_soft_heard(void);
bool limit_soft_take(void);

/* What: true once after the heap passed the soft limit, and again after each further 1/16 of it. Cost: a load. */
static inline bool limit_soft_passed(void)
{
    return UNLIKELY(limit_soft_heard()) && limit_soft_take();
}

struct limit_stats {
    size_t charged;      /* bytes */
    size_t refusals;     /* requests that the hard limit refused */
    size_t last_refused; /* bytes of the last one */
};
struct limit_stats limit_stats(void);

#endif
