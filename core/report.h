/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where does the memory go? One snapshot, three printers. Level 10.
 *
 * Counters are read while other threads run: each is right at some moment near the call. A snapshot lies in metadata, so
 * taking one never calls malloc.
 */
#ifndef CORE_REPORT_H
#define CORE_REPORT_H

#include "compat/os/fmt.h"
#include "pcp.h"
#include "size.h"

struct report_class {
    size_t size;        /* bytes of one object */
    size_t slabs, objs; /* slabs, and objects they hold */
    size_t free;        /* objects free in slabs */
    size_t barn;        /* objects in full sheaves of barns */
    size_t cached;      /* objects in threads' sheaves */
    size_t live;        /* the rest: the program's */
    size_t waste;       /* bytes at slabs' ends */
    size_t clean;       /* bytes of free objects and slabs' ends that are not resident */
    size_t refills, flushed; /* slab list: refills served, objects flushed */
    size_t slab_locks, slab_waits, barn_locks, barn_waits;
    size_t barn_full, barn_limit, barn_get, barn_get_fail, barn_put, barn_put_fail;
};

struct report {
    struct report_class classes[SIZE_CLASSES];
    /* Bytes; the first group adds up to window_bytes, own and meta are mapped beside it. */
    size_t small_live, small_cached, small_barn, small_free, small_waste;
    size_t small_clean;                  /* of small_free and small_waste: not resident */
    size_t run_bytes, large_bytes;       /* by pages taken */
    size_t hot_bytes;                    /* free large blocks that wait for the next request, likewise */
    size_t pcp_bytes, zone_dirty, zone_lazy, zone_clean;
    size_t in_transit;                   /* window bytes in none of the above: pages that some thread is moving */
    size_t window_bytes, window_count;
    size_t own_bytes, own_count;         /* mappings of a block each, and blocks in huge windows */
    size_t stale_bytes;                  /* freed blocks in huge windows that the system has refused to take back */
    size_t gap_bytes;                    /* of windows: in use by nobody, not resident */
    size_t own_usable;                   /* the blocks in them, without those that wait */
    size_t hot_own_bytes;                /* and those: given back but for what a few milliseconds can touch */
    size_t run_count, large_count;
    size_t run_usable, large_usable;     /* by usable size */
    size_t run_stale, large_stale;       /* resident behind the usable bytes, from an earlier use */
    size_t meta_bytes, meta_used, leaf_bytes;
    size_t meta_static;                  /* of meta_bytes: lies in the library's own data */
    size_t edges;                        /* what was mapped around windows to align them, and other small mappings */
    size_t mapped;                       /* = windows + own + stale + gaps + meta - meta_static + leaves + edges */
    size_t purged, purge_calls, purge_failures, credit;
    size_t zone_locks, zone_waits;       /* holds of the zones' locks, and those that had to wait */
    size_t hole_bytes, hole_calls, hole_failures; /* likewise, inside slabs */
    size_t charged, limit_refusals, limit_last; /* limit.h */
    size_t meta_fresh, leaf_resident;    /* metadata not touched yet; what leaves cost so far */
    size_t resident;                     /* what all of this should cost in resident memory, outside of the library's data */
    struct pcp_stats pcp;
    size_t threads;
    size_t slow_alloc, slow_free, swaps, refills, flushes;
    size_t foreign, wrong_size;
};

/* What: take a snapshot. It is too large for a stack and lies in metadata. Owner: the caller, until report_done.
 * Locks: takes many, one at a time; none may be held. Fails: NULL, no memory. */
struct report *report_take(void);
void report_done(struct report *r);

/* What: the table for people, to a file descriptor. */
void report_print(int fd);

/* What: the snapshot as JSON, to a descriptor or into a file (created or truncated). Fails: one line on stderr. */
void report_json(int fd);
void report_json_file(const char *path);

#endif
