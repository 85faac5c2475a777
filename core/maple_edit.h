/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A write to a maple tree, from what is asked to what is done, and the functions the maple modules share. Level 3, for
 * them only. All of it happens under the tree's lock; levels count from the leaves, which are level 0.
 */
#ifndef CORE_MAPLE_EDIT_H
#define CORE_MAPLE_EDIT_H

#include "maple_node.h"

/* The way from the root to a number. */
struct maple_step {
    struct maple_node *node;
    uintptr_t min, max; /* first and last number of the node */
    unsigned offset;    /* of the number's entry */
};

struct maple_path {
    unsigned height;
    struct maple_step step[MAPLE_HEIGHT_MAX]; /* 0 is the leaf */
};

enum maple_ask { MAPLE_ASK_STORE, MAPLE_ASK_INSERT, MAPLE_ASK_ERASE, MAPLE_ASK_GROW, MAPLE_ASK_PLACE };

struct maple_edit {
    /* What is asked. */
    enum maple_ask ask;
    const struct maple_want *want; /* for PLACE */
    uintptr_t asked, asked_end;
    void *entry;

    /* What the plan found, anew in each round. A gap takes in its neighbours: first and last are what results. */
    uintptr_t index, end; /* what is to be stored over */
    uintptr_t first, last;
    void *old; /* entry where first is */
    enum maple_write type;
    unsigned need;     /* nodes */
    unsigned from, to; /* entries [from, to) of the leaf are replaced; SPANNING: from in its first leaf, to in its last */
    unsigned k;        /* by these: what is left of the first one, the entry, what is left of the last one */
    struct maple_item put[3];
    struct maple_node *beside; /* SPANNING: the next leaf, if all that changes is where it begins */
    struct maple_path path;    /* to first */
};

/* maple_frame.c */

/* What: what the name of the calling thread is. */
const void *maple_self(void);
void maple_lock(struct maple *m);
void maple_unlock(struct maple *m);
/* What: a node of those set aside. Cannot fail: they were counted. */
struct maple_node *maple_take(struct maple *m);
/* What: a node out of the tree goes back to the sheaf, or, if that is full, on the chain of those gone. */
void maple_drop_node(struct maple *m, struct maple_node *n);
/* What: the same for all below a child of a node of this level. Cost: O(1) here; O(nodes) after the lock is open. */
void maple_drop_subtree(struct maple *m, struct maple_node *n, unsigned level);
/* What: readers go back to the root from here on, until the end. */
void maple_change_begin(struct maple *m);
void maple_change_end(struct maple *m);
/* What: the frame of every write: lock, plan, count, refill if need be, apply. */
int maple_write(struct maple *m, struct maple_edit *e);

/* maple_write.c */

/* What: find out what a write does and how many nodes it needs. Fails: what the caller asked for cannot be. */
int maple_plan(struct maple *m, struct maple_edit *e);
/* What: do it. Cannot fail. */
void maple_apply(struct maple *m, struct maple_edit *e);

/* maple_path.c */

void maple_path_to(const struct maple *m, uintptr_t index, struct maple_path *path);
/* What: replace entries [from, to) of a node of range ..max by k others; the sum must fit. */
void maple_splice(struct maple_node *n, enum maple_kind kind, uintptr_t max, unsigned from, unsigned to,
                  const struct maple_item *put, unsigned k);
/* What: make the node consist of these. */
void maple_fill(struct maple_node *n, enum maple_kind kind, const struct maple_item *items, unsigned count);
/* What: the entries [from, to) of a node. Result: how many. */
unsigned maple_gather(struct maple_node *n, enum maple_kind kind, uintptr_t max, unsigned from, unsigned to,
                      struct maple_item *items);
void maple_set_root(struct maple *m, struct maple_node *n, unsigned height);

/* maple_gap.c */

/* What: longest gap in or below a node; 0 in trees that do not keep gaps. */
uintptr_t maple_node_gap(const struct maple *m, struct maple_node *n, unsigned level, uintptr_t min, uintptr_t max);
/* What: carry the gap of the path's node of this level up as far as it matters. */
void maple_raise_gap(struct maple *m, struct maple_path *path, unsigned level);
/* What: the same, if the longest gap of the path's leaf is known to be this. */
void maple_set_gap(struct maple_path *path, uintptr_t gap);
/* What: maple_gap, with the lock held. */
int maple_gap_locked(const struct maple *m, const struct maple_want *w, uintptr_t *first);

/* maple_split.c */

/* What: nodes that are needed if a node of the path comes to hold `count` entries, which is too many. */
unsigned maple_split_need(const struct maple *m, const struct maple_path *path, unsigned level, unsigned count);
/* What: replace entries [from, to) of the path's node of this level, splitting whatever gets too full. */
void maple_split(struct maple *m, struct maple_path *path, unsigned level, unsigned from, unsigned to,
                 const struct maple_item *put, unsigned k);
/* What: deal items out to n nodes of a level, as evenly as may be; none but the last of a leaf's ends in a gap. Result in
 * up: an entry for each, for the level above. */
void maple_deal(struct maple *m, unsigned level, uintptr_t min, const struct maple_item *items, unsigned count,
                struct maple_node *const *nodes, unsigned n, struct maple_item *up);

/* maple_span.c */

/* What: plan a write over the end of a leaf: edit->from is known; sets type, need, last, put. */
void maple_span_plan(const struct maple *m, struct maple_edit *e);
void maple_span(struct maple *m, struct maple_edit *e);

/* maple_rebalance.c */

/* What: put right every node on the way to index that has too few entries. Takes no node. */
void maple_rebalance(struct maple *m, uintptr_t index);

#endif
