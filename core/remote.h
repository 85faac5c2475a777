/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects of other nodes that a thread has freed, on their way home. Level 9, beside tcache, over slab.
 *
 *     sheaf[node] -> objects of that node, of any class; NULL: none yet
 *
 * A thread's own sheaves hold objects of its home node only. The rest collects here and goes to its slabs a sheaf at a
 * time, class by class, so that one lock is taken for many objects. A mixed sheaf never enters a barn.
 *   INV-REMOTE-1 every object in sheaf[n] has a tag of node n.
 *   INV-REMOTE-2 a sheaf that is being emptied is in no place: who comes in between starts another one.
 * Owner: the thread; a fork child takes the sheaves of threads left behind, whose slots are written before n.
 * Source of the idea: the kernel's per-cpu sheaves send objects of remote nodes past the barn; collecting them is ours.
 */
#ifndef CORE_REMOTE_H
#define CORE_REMOTE_H

#include "sheaf.h"
#include "size.h"

struct remote {
    struct sheaf **sheaf; /* [numa_count()]; NULL: this thread never freed a remote object */
};

/* What: keep a free object of a node, or send it and what has collected home. Locks: none may be held. Cost: a store;
 * once in REMOTE_CAP frees a lock of each class that occurs. func: for misuse lines. */
void remote_put(struct remote *r, unsigned node, void *p, const char *func);

/* What: send all of one node's home. */
void remote_flush_node(struct remote *r, unsigned node, const char *func);

/* What: send everything home. The thread may go on. */
void remote_flush(struct remote *r, const char *func);

/* What: end of the thread, after remote_flush. */
void remote_end(struct remote *r);

/* What: detach one sheaf with objects. For a fork child, with no other thread about. Result: NULL when there are no more;
 * else *node is its node, and remote_send is to follow. */
struct sheaf *remote_take(struct remote *r, unsigned *node);

/* What: objects of a detached sheaf to their slabs; the array is freed. Locks: none may be held. */
void remote_send(struct sheaf *s, unsigned node, const char *func);

/* What: add the number of objects that wait to count[class]. A look from outside, late at worst. */
void remote_count(const struct remote *r, size_t count[SIZE_CLASSES]);

/* What: verify INV-REMOTE-1. Tests only. */
void remote_check(const struct remote *r);

#endif
