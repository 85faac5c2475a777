/* SPDX-License-Identifier: BSD-2-Clause */
#include "remote.h"

#include "barn.h"
#include "compat/os/numa.h"
#include "dbg.h"
#include "meta.h"
#include "pmap.h"
#include "slab.h"

enum { REMOTE_CAP = 124 }; /* an array of 1 KiB */

static class_t class_of(void *p)
{
    class_t c = tag_class(pmap_tag(p));
    return c < SIZE_CLASSES ? c : 0; /* freed twice, its slab is gone: the slab layer will say so */
}

/* Move the objects of one class to the end. Result: where they begin. */
static uint32_t gather(void **obj, uint32_t n, class_t c)
{
    uint32_t first = n;
    for (uint32_t i = n; i-- > 0;)
        if (class_of(obj[i]) == c) {
            void *p = obj[i];
            obj[i] = obj[--first];
            obj[first] = p;
        }
    return first;
}

static void send_home(struct sheaf *s, unsigned node, const char *func)
{
    void **obj = s->slot + 1;
    for (uint32_t n = s->n, first; n > 0; n = first) {
        class_t c = class_of(obj[n - 1]);
        first = gather(obj, n, c);
        slab_free_bulk(c, node, obj + first, n - first, func);
    }
    s->n = 0;
}

static struct sheaf *take(struct remote *r, unsigned node)
{
    struct sheaf *s = r->sheaf[node];
    store_relaxed(&r->sheaf[node], NULL);
    return s;
}

/* The sheaf to push to, with room for one. Fails: NULL, no memory. */
static struct sheaf *sheaf_with_room(struct remote *r, unsigned node, const char *func)
{
    if (UNLIKELY(r->sheaf == NULL)) {
        struct sheaf **table = meta_zalloc(numa_count() * sizeof *table);
        if (table == NULL)
            return NULL;
        store_release(&r->sheaf, table); /* pairs with the loads of remote_count */
    }
    struct sheaf *s = take(r, node);
    if (s != NULL && s->n == s->cap)
        send_home(s, node, func); /* may let others in, who start another one */
    if (s == NULL)
        s = barn_sheaf_new(REMOTE_CAP);
    return s;
}

void remote_put(struct remote *r, unsigned node, void *p, const char *func)
{
    struct sheaf *s = sheaf_with_room(r, node, func);
    if (UNLIKELY(s == NULL || r->sheaf[node] != NULL)) {
        if (s != NULL)
            barn_sheaf_free(s);
        slab_free_bulk(class_of(p), node, &p, 1, func);
        return;
    }
    store_relaxed(&s->slot[s->n + 1], p);
    store_release(&s->n, s->n + 1);   /* pairs with the stop that fork is, for the child's remote_take */
    store_release(&r->sheaf[node], s); /* pairs with remote_count */
}

void remote_send(struct sheaf *s, unsigned node, const char *func)
{
    send_home(s, node, func);
    barn_sheaf_free(s);
}

void remote_flush_node(struct remote *r, unsigned node, const char *func)
{
    struct sheaf *s = r->sheaf == NULL ? NULL : take(r, node);
    if (s != NULL)
        remote_send(s, node, func);
}

struct sheaf *remote_take(struct remote *r, unsigned *node)
{
    for (unsigned i = 0; r->sheaf != NULL && i < numa_count(); i++)
        if (r->sheaf[i] != NULL) {
            *node = i;
            return take(r, i);
        }
    return NULL;
}

void remote_flush(struct remote *r, const char *func)
{
    struct sheaf **table = r->sheaf;
    if (table == NULL)
        return;
    for (unsigned i = 0; i < numa_count(); i++)
        remote_flush_node(r, i, func);
}

void remote_end(struct remote *r)
{
    struct sheaf **table = r->sheaf;
    if (table == NULL)
        return;
    store_relaxed(&r->sheaf, NULL);
    meta_free(table, numa_count() * sizeof *table);
}

void remote_count(const struct remote *r, size_t count[SIZE_CLASSES])
{
    struct sheaf **table = load_acquire(&r->sheaf); /* pairs with sheaf_with_room */
    for (unsigned i = 0; table != NULL && i < numa_count(); i++) {
        struct sheaf *s = load_acquire(&table[i]); /* pairs with remote_put */
        uint32_t n = s == NULL ? 0 : load_acquire(&s->n);
        for (uint32_t k = 1; k <= n && k <= REMOTE_CAP; k++)
            count[class_of(load_relaxed(&s->slot[k]))]++;
    }
}

void remote_check(const struct remote *r)
{
    for (unsigned i = 0; r->sheaf != NULL && i < numa_count(); i++)
        for (uint32_t k = 1; r->sheaf[i] != NULL && k <= r->sheaf[i]->n; k++)
            CHECK_EQ(pmap_tag(r->sheaf[i]->slot[k]) >> TAG_NODE_SHIFT, i); /* INV-REMOTE-1 */
}
