/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects of other nodes that a thread has freed, on their way home. Level 9, beside tcache, over slab.
 *
 *     node[n].sheaf -> objects of that node, of any class; NULL: none yet
 *
 * A thread's own sheaves hold objects of its home node only. The rest collects here. When the sheaf is full, the classes
 * that nearly fill a hold of a slab lock (128 objects), or have the most objects, go to their slabs in whole holds; those
 * with less than three quarters as many wait for more. When it has more than REMOTE_BYTES, those go that have the most
 * bytes, down to half as many. A thread that keeps coming earns a larger sheaf. A mixed sheaf never enters a barn.
 *   INV-REMOTE-1 every object in node[n].sheaf has a tag of node n.
 *   INV-REMOTE-2 a sheaf that is being emptied is in no place: who comes in between starts another one.
 *   INV-REMOTE-3 a sheaf holds at most REMOTE_BYTES and one object more.
 * Owner: the thread; a fork child takes the sheaves of threads left behind, whose slots are written before n.
 * Source of the idea: the kernel's per-cpu sheaves send objects of remote nodes past the barn; collecting them is ours.
 */
#ifndef CORE_REMOTE_H
#define CORE_REMOTE_H

#include "sheaf.h"
#include "size.h"

struct remote_node {
    struct sheaf *sheaf;
    size_t bytes; /* of the objects in it */
};

struct remote {
    struct remote_node *node; /* [numa_count()]; NULL: this thread never freed a remote object */
};

/* What: keep a free object of class c and of a node; first send some home if the sheaf is full. func: for misuse lines.
 * Locks: none may be held. Cost: a few stores; seldom a lock for each class that is sent. */
void remote_put(struct remote *r, unsigned node, class_t c, void *p, const char *func);

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
