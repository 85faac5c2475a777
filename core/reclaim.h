/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Giving back what lies above the zones: sheaves, barns, empty slabs, holes, page lists. Level 10, over all of them.
 *
 * The zone gives back its own pages by the rules of giveback.h. What caches hold pins pages that the zone never sees: a
 * thousand cached objects in random order pin a thousand slabs. So four events empty caches: the end of a spike, the soft
 * limit, a request that cannot be served, and malloc_trim.
 */
#ifndef CORE_RECLAIM_H
#define CORE_RECLAIM_H

#include "compat/os/cc.h"

/* What: after a free that was no hit: has a spike ended, or the soft limit been passed? Then give back. func: for misuse
 * lines. Locks: none may be held. Context: nothing of the caller's in transit. Cost: three loads; seldom madvise. */
void reclaim_poll(const char *func);

/* What: a request of so many bytes found no memory: empty the caller's sheaves, all barns, empty slabs, page lists and
 * zones, with a hard limit holes too, and wait for what another thread is giving back. Result: was there anything, so that another try is worth while? Nothing is done for more bytes than the heap has,
 * nor for a mapping of its own where no limit of ours refused it: pages given back leave address space as it was.
 * Locks: none may be held. */
bool reclaim_for_need(size_t size);

/* What: malloc_trim: give everything free back to the system, but for keep bytes; other threads follow at their next slow
 * call. Result: was anything given back? Context: any thread. */
bool reclaim_trim(size_t keep);

#endif
