/* SPDX-License-Identifier: BSD-2-Clause */
#include "remote.h"

#include "barn.h"
#include "compat/os/numa.h"
#include "dbg.h"
#include "meta.h"
#include "pmap.h"
#include "slab.h"

#include <string.h>

enum {
    REMOTE_CAP = 123,       /* objects of the first sheaf: an array of 1 KiB */
    REMOTE_CAP_MOST = 2042, /* 16 KiB: 24 classes can each wait for as many as one hold of a slab lock moves */
};
#define REMOTE_BYTES ((size_t)1 << 20) /* objects that one thread keeps from another node */

static class_t class_of(void *p)
{
    class_t c = tag_class(pmap_tag(p));
    return c < SIZE_CLASSES ? c : 0; /* freed twice, its slab is gone: the slab layer will say so */
}

/* Move `most` objects of one class, or all of it, to the end. Result: where they begin. */
static uint32_t gather(void **obj, uint32_t n, class_t c, uint32_t most)
{
    uint32_t first = n;
    for (uint32_t i = n; i-- > 0 && n - first < most;)
        if (class_of(obj[i]) == c) {
            void *p = obj[i];
            obj[i] = obj[--first];
            obj[first] = p;
        }
    return first;
}

/* What a class counts for: its objects, or, where it is the bytes that are too many, its bytes. */
static uint32_t weight(class_t c, uint32_t n, bool by_bytes)
{
    return by_bytes ? n * (uint32_t)class_to_size(c) : n;
}

/* Objects of each class. Result: the most that any of them counts for. */
static uint32_t count_classes(struct sheaf *s, bool by_bytes, uint16_t count[SIZE_CLASSES])
{
    uint32_t most = 0;
    for (uint32_t i = 1; i <= s->n; i++) {
        class_t c = class_of(s->slot[i]);
        uint32_t w = weight(c, ++count[c], by_bytes);
        most = w > most ? w : most;
    }
    return most;
}

/* Where objects are too many, a class that fills three quarters of a hold of its lock need not wait for more. */
static uint32_t least_weight(uint32_t most, bool by_bytes)
{
    return by_bytes ? most / 2 : (most < SLAB_HOLD_OBJS ? most : SLAB_HOLD_OBJS) * 3 / 4;
}

/* Of so many objects, those that fill whole holds, if there is one. */
static uint32_t whole_holds(uint32_t n)
{
    return n < SLAB_HOLD_OBJS ? n : n - n % SLAB_HOLD_OBJS;
}

/* Send the classes home that count for most. Result: bytes sent. */
static size_t send_home(struct sheaf *s, unsigned node, bool by_bytes, const char *func)
{
    uint16_t count[SIZE_CLASSES] = {0};
    uint32_t least = least_weight(count_classes(s, by_bytes, count), by_bytes);
    size_t bytes = 0;
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        if (count[c] == 0 || weight(c, count[c], by_bytes) < least)
            continue;
        uint32_t first = gather(s->slot + 1, s->n, c, by_bytes ? UINT32_MAX : whole_holds(count[c])), n = s->n - first;
        s->n = first;
        slab_free_bulk(c, node, s->slot + 1 + first, n, func);
        bytes += n * class_to_size(c);
    }
    return bytes;
}

static struct sheaf *take_sheaf(struct remote *r, unsigned node)
{
    struct sheaf *s = r->node[node].sheaf;
    store_relaxed(&r->node[node].sheaf, NULL);
    return s;
}

/* A sheaf that has filled up again is too small, unless its objects are large. */
static struct sheaf *larger(struct sheaf *s, size_t bytes)
{
    if (s->cap >= REMOTE_CAP_MOST || bytes > REMOTE_BYTES / 2)
        return s;
    struct sheaf *more = barn_sheaf_new(barn_sheaf_capacity(2 * s->cap, REMOTE_CAP_MOST));
    if (more == NULL)
        return s;
    memcpy(more->slot + 1, s->slot + 1, s->n * sizeof(void *));
    more->n = s->n;
    barn_sheaf_free(s);
    return more;
}

/* The sheaf to push to, with room for one, in no place; bytes: of what it holds. Fails: NULL, no memory. */
static struct sheaf *sheaf_with_room(struct remote *r, unsigned node, size_t *bytes, const char *func)
{
    *bytes = 0;
    if (UNLIKELY(r->node == NULL)) {
        struct remote_node *table = meta_zalloc(numa_count() * sizeof *table);
        if (table == NULL)
            return NULL;
        store_release(&r->node, table); /* pairs with the loads of remote_count */
    }
    struct sheaf *s = take_sheaf(r, node);
    if (s == NULL)
        return barn_sheaf_new(REMOTE_CAP);
    size_t had = *bytes = r->node[node].bytes;
    if (LIKELY(s->n < s->cap && had < REMOTE_BYTES))
        return s;
    *bytes -= send_home(s, node, s->n < s->cap, func); /* may let others in, who start another one */
    return larger(s, had);
}

void remote_put(struct remote *r, unsigned node, class_t c, void *p, const char *func)
{
    size_t bytes;
    struct sheaf *s = sheaf_with_room(r, node, &bytes, func);
    if (UNLIKELY(s == NULL || r->node[node].sheaf != NULL)) {
        if (s != NULL)
            remote_send(s, node, func);
        slab_free_bulk(c, node, &p, 1, func);
        return;
    }
    store_relaxed(&s->slot[s->n + 1], p);
    store_release(&s->n, s->n + 1); /* pairs with the stop that fork is, for the child's remote_take */
    r->node[node].bytes = bytes + class_to_size(c);
    store_release(&r->node[node].sheaf, s); /* pairs with remote_count */
}

void remote_send(struct sheaf *s, unsigned node, const char *func)
{
    while (s->n > 0)
        send_home(s, node, false, func);
    barn_sheaf_free(s);
}

void remote_flush_node(struct remote *r, unsigned node, const char *func)
{
    struct sheaf *s = r->node == NULL ? NULL : take_sheaf(r, node);
    if (s != NULL)
        remote_send(s, node, func);
}

struct sheaf *remote_take(struct remote *r, unsigned *node)
{
    for (unsigned i = 0; r->node != NULL && i < numa_count(); i++)
        if (r->node[i].sheaf != NULL) {
            *node = i;
            return take_sheaf(r, i);
        }
    return NULL;
}

void remote_flush(struct remote *r, const char *func)
{
    for (unsigned i = 0; r->node != NULL && i < numa_count(); i++)
        remote_flush_node(r, i, func);
}

void remote_end(struct remote *r)
{
    struct remote_node *table = r->node;
    if (table == NULL)
        return;
    store_relaxed(&r->node, NULL);
    meta_free(table, numa_count() * sizeof *table);
}

void remote_count(const struct remote *r, size_t count[SIZE_CLASSES])
{
    const struct remote_node *table = load_acquire(&r->node); /* pairs with sheaf_with_room */
    for (unsigned i = 0; table != NULL && i < numa_count(); i++) {
        struct sheaf *s = load_acquire(&table[i].sheaf); /* pairs with remote_put */
        uint32_t n = s == NULL ? 0 : load_acquire(&s->n);
        for (uint32_t k = 1; k <= n && k <= REMOTE_CAP_MOST; k++)
            count[class_of(load_relaxed(&s->slot[k]))]++;
    }
}

void remote_check(const struct remote *r)
{
    for (unsigned i = 0; r->node != NULL && i < numa_count(); i++) {
        const struct remote_node *rn = &r->node[i];
        size_t bytes = 0;
        for (uint32_t k = 1; rn->sheaf != NULL && k <= rn->sheaf->n; k++) {
            CHECK_EQ(pmap_tag(rn->sheaf->slot[k]) >> TAG_NODE_SHIFT, i); /* INV-REMOTE-1 */
            bytes += class_to_size(class_of(rn->sheaf->slot[k]));
        }
        CHECK(rn->sheaf == NULL || bytes == rn->bytes);
        CHECK(bytes <= REMOTE_BYTES + SIZE_SMALL_MAX); /* INV-REMOTE-3 */
    }
}
