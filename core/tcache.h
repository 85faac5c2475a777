/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The thread cache: per thread and class a main and a spare sheaf. Level 9, over barn and slab.
 *
 *     TLS word -> tcache: top[class] -> slot of the newest object in the main sheaf   (the hit path sees only this)
 *                         bin[class]: main, spare, capacity earned
 *
 * A thread starts with a constant image whose tops all point at the constant sheaf {NULL, END}: empty and full at once,
 * so its first operation of each class is a slow call, which attaches the thread. A dead thread and every debug mode
 * look the same. There is no "initialised" test anywhere on the hit path.
 *   INV-TCACHE-1 top[c] lies in bin[c].main, or in the constant sheaf while bin[c].main is NULL.
 *   INV-TCACHE-2 every object in a thread's sheaves is of that class and of the thread's node.
 *   INV-TCACHE-3 a sheaf that a slow path works on while it calls down is in no bin: whoever comes in between (a signal
 *                handler, a shim's madvise) finds a smaller cache, never a shared one.
 *   INV-TCACHE-4 earned is the sum of 2 * cap * size over the bins that have a sheaf.
 * States: none -> live (first slow call) -> dead (late among the key destructors). A dead thread works on slabs directly.
 */
#ifndef CORE_TCACHE_H
#define CORE_TCACHE_H

#include "remote.h"
#include "sheaf.h"
#include "size.h"

enum tcache_state { TCACHE_NONE, TCACHE_LIVE, TCACHE_DEAD };
enum tcache_dir { DIR_NONE, DIR_ALLOC, DIR_FREE };

struct tcache_bin {
    struct sheaf *main, *spare; /* owner only, who stores atomically; a fork child reads them, tcache_stats looks at main */
    uint16_t spare_n;           /* objects in spare, for tcache_stats */
    uint16_t cap;               /* capacity earned: what the next sheaf gets */
    uint8_t ops;                /* operations done one by one before the first sheaf */
    uint8_t visits;             /* barn visits since cap last changed */
    uint8_t idle;               /* 1: not visited since the last idle scan */
    uint8_t dir;                /* enum tcache_dir of the last slow call */
};

struct tcache_counts {
    uint64_t slow_alloc, slow_free, swaps, refills, flushes, barn_get, barn_put, moves, remote;
};

struct tcache {
    void **top[SIZE_CLASSES]; /* owner only */
    uint32_t node_tag;        /* node << TAG_NODE_SHIFT: tag ^ node_tag - 1 is the class of a local small object */
    uint32_t state;           /* enum tcache_state; constant in the two images */
    /* ---- below: slow paths of live threads only; the constant images end here ---- */
    uint32_t moving;          /* class + 1 whose bin is being changed, 0 none; a fork child skips that bin */
    uint32_t ticks;           /* slow calls since the last idle scan */
    uint32_t trim_seen;       /* value of the trim request counter last obeyed */
    unsigned node;            /* home: what this thread allocates from */
    uint64_t moved_ms;        /* the clock when it last found itself elsewhere, and how often in this step of it */
    uint32_t moves;
    struct remote remote;     /* objects of other nodes that it has freed */
    size_t earned;            /* INV-TCACHE-4 */
    struct tcache *next, *prev; /* THREADS lock: live threads, orphans, or spare structs */
    struct tcache_counts counts; /* owner: relaxed stores; others may read late */
    struct tcache_bin bin[SIZE_CLASSES];
};

extern TLS_IE struct tcache *tcache_tls;

/* What: the calling thread's cache, or one of the two constant images. Cost: one load. */
HOT_INLINE struct tcache *tcache_self(void)
{
    return tcache_tls;
}

/* What: one object of a class, for a caller whose hit path found none or did not look. Locks: none may be held.
 * Fails: NULL, no memory. Context: any thread in any state. Cost: a swap mostly; a barn visit; a refill. */
void *tcache_alloc_slow(class_t c);

/* What: one object from another node, the nearest that has one. For when the home node has no memory. Fails: NULL. */
void *tcache_alloc_far(class_t c);

/* What: keep an object of class c when the main sheaf is full, or one of another node. func: for misuse lines. */
void tcache_free_slow(class_t c, void *p, const char *func);

/* What: is this thread's state live; attaches it first if it is none. Fails: false: work without a cache. */
bool tcache_attach(void);

/* What: does the thread still run on its home node? If not, its objects go there, and it gets a new one. What every slow call
 * of a small object does first; for the others. */
void tcache_look_home(const char *func);

/* What: give back all the calling thread holds: full sheaves to barns, the rest to slabs. It stays attached. */
void tcache_flush(const char *func);

/* What: end of the thread: flush, and from now on dead. Context: a late key destructor round. */
void tcache_detach(void);

/* What: ask every thread to flush at its next slow call. */
void tcache_request_trim(void);

/* What: take one class's sheaves of threads that a fork left behind, into the barn. Cheap when there are none.
 * Result: anything found? Locks: takes THREADS, then BARN. */
bool tcache_adopt(class_t c);

struct tcache_stats {
    size_t threads;
    struct tcache_counts counts;     /* live threads and those that have ended */
    size_t cached[SIZE_CLASSES];     /* objects in live threads' sheaves; a look from outside, late at worst */
};
void tcache_stats(struct tcache_stats *st);

/* What: verify INV-TCACHE-1, 2 and 4 of the calling thread. Tests only. */
void tcache_check(void);

void tcache_fork_hold(void);
void tcache_fork_open(bool child);

#endif
