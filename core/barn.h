/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Barns: per class and node, stacks of full and of empty sheaves. Level 8, over slab and meta.
 *
 * A full sheaf has objects (n > 0, not always n == cap: a dead thread's are welcome); an empty one has none. Threads
 * exchange whole sheaves here, so a lock hold moves hundreds of objects.
 * Where a node has more than BARN_CPUS cpus, its barn has parts, one for so many cpus, each with lock, stacks and limit of its
 * own. A put goes to the caller's part, a get to the first part that has something, the caller's before others.
 *   INV-BARN-1 nfull, nempty and objs are the sums over the stacks.
 *   INV-BARN-2 every object in a barn of class c and node k belongs to a slab of that class and node.
 * What a barn keeps is limited in sheaves and in bytes. The limit begins small and doubles when a put found the barn full,
 * later a get found it empty, and now a put finds it full again: only then was the limit to blame.
 * Lock: rank BARN, one a part. Counters are paired: get and get_fail, put and put_fail.
 * Source of the idea: SLUB's node_barn (2025); the growing limit is ours.
 */
#ifndef CORE_BARN_H
#define CORE_BARN_H

#include "sheaf.h"
#include "size.h"

/* What: a full sheaf for class c; `empty`, if not NULL, goes in for it in the same hold.
 * Owner: on success the barn owns empty and the caller the result; on NULL nothing moves. Locks: takes BARN, none of that
 * rank or higher may be held. Order: objects' contents written before the put are visible. Fails: NULL, without the lock
 * where the barn looks empty. Cost: O(1). */
struct sheaf *barn_get_full(class_t c, unsigned node, struct sheaf *empty);

/* What: leave a full sheaf, unless the class is draining (slab_draining) or a spike is being given back (zone_spiking): then one sheaf of the barn goes to the slabs as
 * well, so that what pins slabs shrinks with every refusal. *empty becomes an empty one of capacity >= cap if there is one at hand, else NULL.
 * Owner: on true the barn owns full, the caller *empty. Fails: false, the barn is full: full stays the caller's, *empty is NULL.
 * Locks: none may be held. func: for misuse lines. */
bool barn_put_full(class_t c, unsigned node, struct sheaf *full, uint32_t cap, struct sheaf **empty, const char *func);

/* What: put back what barn_get_full gave, whatever the limit. Never fails. */
void barn_return_full(class_t c, unsigned node, struct sheaf *full);

/* What: an empty sheaf of capacity >= cap, from the barn or new. Locks: none may be held. Fails: NULL. */
struct sheaf *barn_get_empty(class_t c, unsigned node, uint32_t cap);

/* What: leave an empty sheaf; the array is freed if the barn has enough. */
void barn_put_empty(class_t c, unsigned node, struct sheaf *empty);

/* What: give all objects of all sheaves back to the slabs, and free the arrays. Result: objects given back.
 * Locks: none may be held. */
size_t barn_flush(class_t c, unsigned node, const char *func);

/* What: capacity a sheaf gets that must hold at least cap objects: its allocation is filled, up to most. */
uint32_t barn_sheaf_capacity(uint32_t cap, uint32_t most);

/* What: a new empty sheaf, or the end of one. Locks: none may be held. Fails: NULL. */
struct sheaf *barn_sheaf_new(uint32_t cap);
void barn_sheaf_free(struct sheaf *s);

struct barn_stats {
    size_t full, empty, objs, limit;
    size_t get, get_fail, put, put_fail;
    size_t lock_acquired, lock_contended;
};
struct barn_stats barn_stats(class_t c, unsigned node);

/* What: verify INV-BARN-1 and 2 and the sheaves' own invariants. Tests only. */
void barn_check(class_t c, unsigned node);

/* What: rows for so many nodes (nodes.h), each in parts for BARN_CPUS of its share of the cpus. What is in node 0's first
 * part stays. Context: our constructor, once and before there are threads. Fails: false, as it was. */
bool barn_nodes(unsigned count, unsigned cpus);

void barn_fork_hold(void);
void barn_fork_open(void);

#endif
