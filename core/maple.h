/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A maple tree: ranges of numbers, each with a pointer. Level 3: over lock and atomic; it knows nothing of malloc and can
 * be used elsewhere with compat/os/ beside it.
 *
 * The whole line 0..UINTPTR_MAX is covered by inclusive ranges; one without an entry (NULL) is a gap. A B-tree of
 * 256-byte nodes holds them:
 *
 *     range node   count  pivot[15]          slot[16]              leaves, and internal nodes of a plain tree
 *     arange node  count  pivot[9]           slot[10]  gap[10]     internal nodes of a tree that tracks gaps
 *
 * pivot[i] is the last number of slot i, whose first is pivot[i-1] + 1; the last slot ends where its node ends. gap[i] is
 * the longest gap below slot i.
 *
 *   INV-MAPLE-1 All leaves lie at one depth, which the root word says. A node but the root has at least 7 (range) or 5
 *               (arange) entries, an internal root at least 2. Internal slots are never NULL.
 *   INV-MAPLE-2 Pivots rise, stay within the node's range, and the last entry's, if stored, is the node's last number;
 *               those behind it are UINTPTR_MAX, so that a search needs no count.
 *   INV-MAPLE-3 No two neighbouring ranges are gaps, across leaves either: no leaf but the last ends in a gap. So a gap
 *               lies in one leaf.
 *   INV-MAPLE-4 gap[i] is the longest gap of child i, exactly.
 *   INV-MAPLE-5 Each node is reachable once or spare or with the source; maple->nodes counts the reachable ones.
 *   INV-MAPLE-6 seq is odd exactly while a holder of the lock changes what readers can reach.
 *
 * Writers hold the tree's lock and write in place. Before the first change a write is classified and its nodes are
 * counted, exactly; they come from the tree's sheaf of spare nodes, which is filled from the caller's source with no lock
 * held. So a write either fails with nothing changed, or cannot fail any more.
 *
 * Readers take no lock. They read seq, and again before they follow a pointer and before they believe an entry; a change
 * in between sends them back to the root. After some rounds they take the lock. A reader in a signal handler that has
 * interrupted a change by its own thread is told MAPLE_BUSY (-EBUSY) instead.
 */
#ifndef CORE_MAPLE_H
#define CORE_MAPLE_H

#include "compat/os/atomic.h"
#include "compat/os/lock.h"

struct maple_node;

enum {
    MAPLE_NODE_BYTES = 256,
    MAPLE_NODE_ALIGN = 64, /* the root word keeps the height in the bits below */
    MAPLE_HEIGHT_MAX = 16, /* more than 2 * 7 * 5^14 ranges, 85 billion: memory ends first */
    MAPLE_SPARE_MAX = 64,  /* nodes the sheaf can hold */
    MAPLE_KEEP = 32,       /* nodes the sheaf is filled to, usually */
};

/*
 * Where nodes come from and go to. Both are called with no lock of the tree held, and may not call back into the tree.
 *   alloc: up to n nodes of MAPLE_NODE_BYTES at multiples of MAPLE_NODE_ALIGN; returns how many.
 *   free:  n nodes go back. Readers may still be looking at them: the memory must stay mapped, and until the tree is
 *          destroyed it is used as nodes of maple trees only. A list of free nodes may run through their first word, which
 *          readers never look at.
 */
struct maple_source {
    unsigned (*alloc)(void *ctx, void **nodes, unsigned n);
    void (*free)(void *ctx, void **nodes, unsigned n);
    void *ctx;
};

/* How a write changes the tree; see docs/design.md for the nodes each may need. */
enum maple_write {
    MAPLE_NOTHING,    /* a gap stored over a gap */
    MAPLE_EXACT_FIT,  /* one slot, whole */
    MAPLE_APPEND,     /* in the leaf's last slot, which it cuts: nothing moves */
    MAPLE_SLOT_STORE, /* the leaf keeps its number of entries: bounds move */
    MAPLE_NODE_STORE, /* entries of the leaf move */
    MAPLE_REBALANCE,  /* the leaf gets too empty: a sibling is merged or shared with */
    MAPLE_SPLIT,      /* the leaf gets too full: a sibling is pushed to, or a node added */
    MAPLE_SPANNING,   /* over the end of a leaf */
    MAPLE_NEW_ROOT,   /* the whole line, or the first write */
    MAPLE_WRITES
};

struct maple_stats {
    uint64_t writes[MAPLE_WRITES]; /* by type */
    uint64_t taken;                /* nodes set aside for writes */
    uint64_t returned;             /* of them: not needed. 0 unless `worst` is set */
    uint64_t freed;                /* nodes that writes made superfluous */
    uint64_t bytes_zeroed;         /* 0 unless `zero` is set */
    uint64_t refills, retries;     /* calls of source->alloc; writes that found too few nodes and began again */
    uint64_t reader_locks;         /* readers that gave up and took the lock */
    uint64_t lock_holds, lock_waits;
};

struct maple {
    /* Readers: seq and root are written under the lock, the rest is constant after init. */
    uint64_t seq;
    uintptr_t root; /* address of the root node | height; 0: all of the line is one gap */
    bool gaps;      /* track gaps */
    bool worst;     /* lab: set aside what the worst write of this height needs, give back what is left */
    bool zero;      /* lab: zero nodes when they are set aside */
    uint8_t rank;   /* of the lock */
    uint16_t keep;  /* nodes the sheaf is filled to; 0: only what a write needs (tests) */
    const struct maple_source *source;

    /* Writers, under the lock. */
    CACHE_ALIGNED struct lock lock;
    const void *owner; /* names the thread that holds the lock, or NULL; atomic */
    size_t nodes;      /* reachable ones */
    uint32_t nspare;   /* atomic: looked at without the lock */
    uint32_t nhand;    /* nodes set aside for the write under way */
    struct maple_node *gone;        /* chain of subtrees cut off by the write under way */
    struct maple_stats stats;       /* counters; written under the lock with relaxed stores */
    void *hand[MAPLE_HEIGHT_MAX + 1];
    void *spare[MAPLE_SPARE_MAX];   /* the sheaf */
};

/* What: an empty tree. Units: rank of its lock (core/rank.h). Owner: source must outlive the tree. */
#define MAPLE_INIT(gaps_, rank_, source_)                                                                              \
    {                                                                                                                  \
        .gaps = (gaps_), .rank = (rank_), .keep = MAPLE_KEEP, .source = (source_)                                      \
    }
void maple_init(struct maple *m, bool gaps, unsigned rank, const struct maple_source *source);

/* What: give all nodes back; the tree is then empty and may be used again. Locks: takes the tree's. Context: readers may
 * be under way. Cost: O(nodes). */
void maple_destroy(struct maple *m);

/* ---- reading: no lock, unless writers keep interfering ---- */

struct maple_range {
    uintptr_t first, last; /* inclusive */
    void *entry;
};

#define MAPLE_BUSY ((void *)-1)

/* What: the entry of the range that holds index, or NULL. Order: what was written before the entry was stored is visible.
 * Locks: may take the tree's, so none of its rank or above may be held. Fails: MAPLE_BUSY, if this thread is in the middle
 * of a change. Context: any, signal handlers included. Cost: O(log n). */
void *maple_load(struct maple *m, uintptr_t index);

/* What: the range that holds index, gaps included (entry NULL). Fails: -EBUSY. The rest as maple_load. */
int maple_at(struct maple *m, uintptr_t index, struct maple_range *out);

/* What: the first range with an entry that meets [from, to]; the last one. Fails: -ENOENT, -EBUSY; the rest as above. */
int maple_find(struct maple *m, uintptr_t from, uintptr_t to, struct maple_range *out);
int maple_find_last(struct maple *m, uintptr_t from, uintptr_t to, struct maple_range *out);

/* A place in the tree. It survives every change: it knows the last range it has given and goes on from its end (start),
 * whatever is there by then. While nothing changes a step costs O(1), no lock and no descent. */
struct maple_cursor {
    struct maple *maple;
    struct maple_range at; /* given last; before that [index, index] */
    bool started;
    uint64_t seq; /* of the tree when the fields below were read */
    struct maple_node *leaf;
    uintptr_t min, max;
    unsigned offset;
};

/* What: put a cursor on index: the first step, either way, may give the range that holds it. */
void maple_cursor_init(struct maple_cursor *c, struct maple *m, uintptr_t index);

/* What: the next (previous) range with an entry. Fails: -ENOENT at the end, -EBUSY; the cursor then stays. */
int maple_next(struct maple_cursor *c, struct maple_range *out);
int maple_prev(struct maple_cursor *c, struct maple_range *out);

/* What: call fn for each range with an entry, in order, until it returns other than 0; that is returned. */
int maple_walk(struct maple *m, int (*fn)(void *arg, const struct maple_range *r), void *arg);

/* ---- writing: each takes the tree's lock, and may call the source with no lock held ---- */

/* What: entry for all of [first, last], whatever was there; NULL makes a gap. Fails: -EINVAL (first > last, or entry is
 * MAPLE_BUSY), -ENOMEM; nothing changed. A store over exactly one range with another entry never fails. Locks: none of
 * the tree's rank or above may be held. Cost: O(log n), and O(what lies below) for what is overwritten. */
int maple_store(struct maple *m, uintptr_t first, uintptr_t last, void *entry);

/* What: as maple_store, if all of [first, last] is a gap. Fails: -EEXIST too. */
int maple_insert(struct maple *m, uintptr_t first, uintptr_t last, void *entry);

/* What: take out the range that holds index, all of it; out (unless NULL) says what it was. Fails: -ENOENT; -ENOMEM,
 * which needs two full leaves side by side and no node to be had: who cannot bear that stores a marker over it. */
int maple_erase(struct maple *m, uintptr_t index, struct maple_range *out);

/* What: the range that holds index ends at last from now on, if all of the way there is a gap. Fails: -ENOENT, -EEXIST,
 * -EINVAL (it ends there or later), -ENOMEM. */
int maple_grow(struct maple *m, uintptr_t index, uintptr_t last);

/* ---- gaps: trees with gaps only, -EINVAL for others. They take the lock ---- */

struct maple_want {
    uintptr_t from, to; /* inclusive; the place must lie within */
    uintptr_t size;     /* > 0 */
    uintptr_t align;    /* of its first number: a power of two */
    bool high;          /* the highest such place, not the lowest */
};

/* What: the lowest (highest) place for size numbers in a gap. Fails: -EBUSY if there is none, -EINVAL. Cost: O(log n)
 * if align is 1; else one more descent for each gap that is large enough but not when aligned. */
int maple_gap(struct maple *m, const struct maple_want *w, uintptr_t *first);

/* What: the same, and store entry there, under one hold of the lock. Fails: -ENOMEM too. */
int maple_place(struct maple *m, const struct maple_want *w, void *entry, uintptr_t *first);

/* ---- the rest ---- */

/* What: a look at the counters. Locks: none; a writer's may be half old. */
struct maple_stats maple_stats(const struct maple *m);

/* What: verify INV-MAPLE-1 to 5. Locks: takes the tree's. Cost: O(nodes). Tests only. Fails: dbg_fail. */
void maple_check(struct maple *m);

/* What: fork: hold and open the lock. Nodes on their way between source and sheaf are lost to the child. */
void maple_fork_hold(struct maple *m);
void maple_fork_open(struct maple *m);

#endif
