/* SPDX-License-Identifier: BSD-2-Clause */
/* The tree of regions: its lock, where its nodes and the region structs come from, and what is entered in it. */
#include "region_impl.h"

#include "compat/os/atomic.h"
#include "meta.h"
#include "opt.h"
#include "pmap.h"
#include "rank.h"

#include <errno.h>

enum {
    FIRST_NODES = 3,         /* nodes in the library's data: up to 32 ranges, so a program that does little needs no more */
    NODES_BYTES_FIRST = 2048, /* nodes are fetched from metadata by so many bytes at first ... */
    NODES_BYTES = 8192,       /* ... and then, if there are so many in one piece */
    STRUCTS_BYTES = 1024,
};

static unsigned nodes_alloc(void *ctx, void **nodes, unsigned n);
static void nodes_free(void *ctx, void **nodes, unsigned n);
static const struct maple_source node_source = {.alloc = nodes_alloc, .free = nodes_free};

struct region_state region_state;
struct region region_foreign;
/* keep: 0 until there is metadata for nodes, so that a small program's writes take what they need and no more */
struct maple region_space = {.gaps = true, .rank = RANK_SPACE, .source = &node_source};

static char first_nodes[FIRST_NODES][MAPLE_NODE_BYTES] __attribute__((aligned(MAPLE_NODE_ALIGN)));

/* Unused nodes and structs; never anything else again. REGION lock. */
static struct {
    void *nodes;              /* linked through the first word, which readers of the tree never look at */
    struct region *structs;   /* linked through next */
    unsigned first_used;      /* of first_nodes */
    bool grown;               /* nodes were fetched from metadata once */
    const struct meta_chunk *chunk_seen; /* this one and those before it are entered */
} pool;

/* ---- the lock ---- */

const void *region_self(void)
{
    return &errno; /* as in maple_frame.c */
}

void region_lock(void)
{
    lock_acquire(&region_state.lock, RANK_REGION);
    store_relaxed(&region_state.owner, region_self()); /* relaxed: only its own thread compares */
}

void region_unlock(void)
{
    store_relaxed(&region_state.owner, NULL);
    lock_release(&region_state.lock);
}

bool region_locked_by_me(void)
{
    return load_relaxed(&region_state.owner) == region_self();
}

/* ---- nodes: the tree calls these with the REGION lock held, so they do not ask for memory ---- */

static unsigned nodes_alloc(void *ctx, void **nodes, unsigned n)
{
    unsigned got = 0;
    (void)ctx;
    for (; got < n && pool.first_used < FIRST_NODES; got++)
        nodes[got] = first_nodes[pool.first_used++];
    for (; got < n && pool.nodes != NULL; got++) {
        nodes[got] = pool.nodes;
        pool.nodes = *(void **)nodes[got];
    }
    return got;
}

static void nodes_free(void *ctx, void **nodes, unsigned n)
{
    (void)ctx;
    for (unsigned i = 0; i < n; i++) {
        *(void **)nodes[i] = pool.nodes;
        pool.nodes = nodes[i];
    }
}

static void add_nodes(char *p, size_t size)
{
    for (size_t at = 0; at < size; at += MAPLE_NODE_BYTES) {
        void *node = p + at;
        nodes_free(NULL, &node, 1);
    }
    if (size == NODES_BYTES)
        region_space.keep = MAPLE_KEEP; /* a large program: writes are served from the tree's own sheaf */
    pool.grown = true;
}

static bool refill_nodes(void)
{
    size_t size = pool.grown ? NODES_BYTES : NODES_BYTES_FIRST;
    region_unlock();
    char *p;
    while ((p = meta_alloc(size)) == NULL && size > MAPLE_NODE_BYTES)
        size /= 2;
    region_lock();
    if (p != NULL)
        add_nodes(p, size);
    return p != NULL;
}

/* ---- structs ---- */

static void set_fields(struct region *r, enum region_kind kind, unsigned node, char *base, size_t size)
{
    store_relaxed(&r->version, r->version + 1); /* seen no later than the fields, which are release stores */
    store_release(&r->kind, (uint8_t)kind);
    store_release(&r->node, (uint16_t)node);
    store_release(&r->zero, false);
    store_release(&r->base, base);
    store_release(&r->size, size);
    store_release(&r->version, r->version + 1); /* pairs with the acquire loads in region_look.c */
}

void region_set(struct region *r, enum region_kind kind, char *base, size_t size)
{
    set_fields(r, kind, r->node, base, size);
}

void region_put(struct region *r)
{
    set_fields(r, REGION_STALE, 0, NULL, 0);
    r->next = pool.structs;
    pool.structs = r;
}

static bool refill_structs(void)
{
    size_t size = STRUCTS_BYTES;
    region_unlock();
    struct region *r;
    while ((r = meta_zalloc(size)) == NULL && size > 64)
        size /= 2;
    region_lock();
    for (size_t i = 0; r != NULL && i < size / sizeof *r; i++)
        region_put(&r[i]);
    return r != NULL;
}

static struct region *take_struct(enum region_kind kind, char *base, size_t size, unsigned node)
{
    struct region *r = pool.structs;
    if (r == NULL)
        return NULL;
    pool.structs = r->next;
    r->window = NULL;
    r->next = r->prev = NULL;
    r->purger = NULL;
    set_fields(r, kind, node, base, size);
    return r;
}

struct region *region_new(enum region_kind kind, char *base, size_t size, unsigned node)
{
    struct region *r;
    while ((r = take_struct(kind, base, size, node)) == NULL)
        if (!refill_structs())
            return NULL;
    return r;
}

/* ---- the tree ---- */

static uintptr_t last_of(const char *base, size_t size)
{
    return (uintptr_t)base + size - 1;
}

bool region_refill(void)
{
    return refill_nodes();
}

/* Once nodes are needed often, have some before they are: a wish, so it does not take what is set aside for needs. */
static void fill_ahead(void)
{
    if (pool.nodes != NULL || region_space.nspare >= region_space.keep / 4)
        return;
    region_unlock();
    char *p = meta_alloc_optional(NODES_BYTES);
    region_lock();
    if (p != NULL)
        add_nodes(p, NODES_BYTES);
}

void region_ready(void)
{
    fill_ahead();
    region_space.worst = opt.maple_prealloc == OPT_MAPLE_PREALLOC_WORST; /* read by writers alone, who hold the lock */
    region_space.zero = opt.maple_zero;
    while (region_space.root == 0) /* at most once: the first nodes are in the library */
        maple_store(&region_space, 0, UINTPTR_MAX, &region_foreign);
}

void region_account(const struct region *r, bool in)
{
    region_state.stats.bytes[r->kind] += in ? r->size : -r->size;
    region_state.stats.count[r->kind] += in ? 1 : (size_t)-1;
}

bool region_store(const char *base, size_t size, void *entry)
{
    int error;
    while ((error = maple_store(&region_space, (uintptr_t)base, last_of(base, size), entry)) == -ENOMEM)
        if (!refill_nodes())
            return false;
    return error == 0;
}

/* With the foreign space on both sides it is one range again, else the tree would fill with traces of old mappings. */
bool region_store_foreign(const char *base, size_t size)
{
    uintptr_t first = (uintptr_t)base, last = last_of(base, size);
    struct maple_range beside;
    if (first > 0 && maple_at(&region_space, first - 1, &beside) == 0 && beside.entry == &region_foreign)
        first = beside.first;
    if (last < UINTPTR_MAX && maple_at(&region_space, last + 1, &beside) == 0 && beside.entry == &region_foreign)
        last = beside.last;
    return maple_store(&region_space, first, last, &region_foreign) == 0 || region_store(base, size, &region_foreign);
}

void region_enter(struct region *r)
{
    region_account(r, true);
    if (!region_store(r->base, r->size, r)) {
        r->next = region_state.waiting;
        region_state.waiting = r;
    }
}

void region_leave(struct region *r)
{
    region_account(r, false);
    for (struct region **at = &region_state.waiting; *at != NULL; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            return;
        }
    region_store_foreign(r->base, r->size);
}

/* A waiting region may leave whenever the lock is open, so it is entered without opening it. */
static void enter_waiting(void)
{
    if (region_state.waiting == NULL)
        return;
    refill_nodes();
    for (struct region *r; (r = region_state.waiting) != NULL; region_state.waiting = r->next)
        if (maple_store(&region_space, (uintptr_t)r->base, last_of(r->base, r->size), r) != 0)
            return;
}

/* Enter what never goes away, unless it is there. Fails: false, no memory. */
static bool enter_for_good(enum region_kind kind, const void *base, size_t size)
{
    while (maple_load(&region_space, (uintptr_t)base) == &region_foreign) {
        struct region *r = take_struct(kind, (char *)(uintptr_t)base, size, 0);
        if (r == NULL) {
            if (!refill_structs())
                return false;
        } else if (maple_store(&region_space, (uintptr_t)base, last_of(r->base, size), r) == 0) {
            region_account(r, true);
        } else {
            region_put(r);
            if (!refill_nodes())
                return false;
        }
    }
    return true;
}

/* Metadata that was mapped since. Entering it may need more of it, which is then new as well. */
static void enter_chunks(void)
{
    for (const struct meta_chunk *newest; (newest = meta_chunks()) != pool.chunk_seen; pool.chunk_seen = newest)
        for (const struct meta_chunk *c = newest; c != NULL && c != pool.chunk_seen; c = c->next)
            if (!enter_for_good(REGION_META, c, c->size))
                return;
}

void region_enter_new(const char *base, size_t size)
{
    uintptr_t step = (uintptr_t)1 << PMAP_LEAF_SHIFT;
    uintptr_t a = (uintptr_t)base & ~(step - 1), end = (uintptr_t)base + size;
    enter_waiting();
    for (; a < end; a += step) {
        void *leaf = pmap_leaf(a);
        if (leaf != NULL && !enter_for_good(REGION_LEAF, leaf, pmap_leaf_bytes()))
            return;
    }
    enter_chunks();
}
