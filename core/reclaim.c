/* SPDX-License-Identifier: BSD-2-Clause */
#include "reclaim.h"

#include "barn.h"
#include "compat/os/numa.h"
#include "large.h"
#include "limit.h"
#include "opt.h"
#include "pcp.h"
#include "slab.h"
#include "tcache.h"
#include "zone.h"

/* The caller's sheaves, all barns and empty slabs go down to the page lists. Result: objects and slabs moved. */
static size_t flush_caches(const char *func)
{
    size_t moved = large_drain(false);
    tcache_flush(func);
    for (unsigned node = 0; node < numa_count(); node++)
        for (class_t c = 0; c < SIZE_CLASSES; c++) {
            tcache_adopt(c);
            moved += barn_flush(c, node, func);
            moved += slab_trim(c, node);
        }
    return moved;
}

static size_t purge_all(size_t keep)
{
    size_t given = 0;
    pcp_drain();
    for (unsigned node = 0; node < numa_count(); node++)
        given += zone_purge(node, keep);
    return given;
}

static bool every_class(class_t c, unsigned node)
{
    (void)c, (void)node;
    return true;
}

/* Also those that the system refused lately: who trims wants to know now. */
static bool every_class_again(class_t c, unsigned node)
{
    slab_holes_retry(c, node);
    return true;
}

/* Holes of the classes that `which` says, at most so many bytes each. */
static size_t give_holes(bool (*which)(class_t, unsigned), size_t most)
{
    size_t given = 0;
    for (unsigned node = 0; node < numa_count(); node++)
        for (class_t c = 0; c < SIZE_CLASSES; c++)
            if (which(c, node))
                given += slab_holes(c, node, most);
    return given;
}

static void end_of_spike(const char *func)
{
    flush_caches(func);
    pcp_drain();
    for (unsigned node = 0; node < numa_count(); node++)
        zone_relax(node, true);
    give_holes(slab_draining, SPIKE_HOLE_BYTES);
}

void reclaim_poll(const char *func)
{
    if (UNLIKELY(pcp_mark_passed()))
        give_holes(slab_small_and_empty, SPIKE_HOLE_BYTES); /* the last of a spike, in random order, pins a slab each */
    if (UNLIKELY(pcp_spike_over()))
        end_of_spike(func);
    if (UNLIKELY(limit_soft_passed())) {
        flush_caches(func);
        purge_all(0);
        give_holes(slab_draining, SPIKE_HOLE_BYTES);
    }
}

bool reclaim_for_need(size_t size)
{
    if (size > limit_stats().charged || (size > LARGE_OWN_BYTES && opt.hard_limit == 0))
        return false;
    size_t moved = flush_caches("malloc");
    moved |= purge_all(0);
    if (opt.hard_limit != 0)
        moved |= give_holes(every_class, SIZE_MAX); /* holes are not charged */
    for (unsigned node = 0; node < numa_count(); node++)
        moved |= zone_await_purge(node);
    return moved != 0;
}

bool reclaim_trim(size_t keep)
{
    tcache_request_trim();
    flush_caches("malloc_trim");
    size_t given = give_holes(every_class_again, SIZE_MAX);
    given += purge_all(keep);
    return given != 0;
}
