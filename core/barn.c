/* SPDX-License-Identifier: BSD-2-Clause */
#include "barn.h"

#include "compat/os/bits.h"
#include "compat/os/cpu.h"
#include "compat/os/lock.h"
#include "compat/os/numa.h"
#include "dbg.h"
#include "meta.h"
#include "nodes.h"
#include "opt.h"
#include "pmap.h"
#include "rank.h"
#include "slab.h"
#include "zone.h"

/* The limit was to blame only if a put found the barn full, then a get found it empty, then a put full again. */
enum wish { WISH_NONE, WISH_WAS_FULL, WISH_THEN_EMPTY };

struct barn {
    struct lock lock;
    struct sheaf *full, *empty; /* everything here: BARN lock */
    uint32_t nfull, nempty;     /* also peeked at without it */
    uint32_t limit;             /* times BARN_FULL_MIN sheaves and BARN_BYTES_MIN bytes may be kept; 0: not used yet */
    uint32_t wish;              /* enum wish; also written without it */
    size_t objs;
    size_t get, get_fail, put, put_fail;
} CACHE_ALIGNED;

static struct barn barns_here[SIZE_CLASSES]; /* node 0's first part: valid before there are others */
static struct barn *barns_more;              /* the others; constant after barn_nodes, as the next */
EARLY_DATA static unsigned part_mask;        /* parts of a node, less one */

static struct barn *barn_part(unsigned node, class_t c, unsigned part)
{
    size_t row = (size_t)node * (part_mask + 1) + part;
    return LIKELY(row == 0) ? &barns_here[c] : &barns_more[(row - 1) * SIZE_CLASSES + c];
}

/* Where the calling thread's cpu leads: cpus with numbers near each other mostly share caches. */
static unsigned own_part(void)
{
    return LIKELY(part_mask == 0) ? 0 : cpu_current() / BARN_CPUS & part_mask;
}

static struct barn *barn_of(unsigned node, class_t c)
{
    return barn_part(node, c, own_part());
}

bool barn_nodes(unsigned count, unsigned cpus)
{
    unsigned parts = (unsigned)pow2_up((cpus + count * BARN_CPUS - 1) / (count * BARN_CPUS));
    if (count * parts == 1)
        return true;
    struct barn *rows = nodes_rows(count * parts, SIZE_CLASSES * sizeof *rows);
    if (rows == NULL)
        return false;
    barns_more = rows;
    part_mask = parts - 1;
    return true;
}

uint32_t barn_sheaf_capacity(uint32_t cap, uint32_t most)
{
    uint32_t room = sheaf_room(pow2_up(sheaf_bytes(cap)));
    return room < most ? room : most;
}

struct sheaf *barn_sheaf_new(uint32_t cap)
{
    size_t bytes = sheaf_bytes(cap);
    struct sheaf *s = meta_alloc_optional(bytes);
    if (s != NULL)
        sheaf_init(s, cap, (uint32_t)bytes);
    return s;
}

void barn_sheaf_free(struct sheaf *s)
{
    meta_free(s, s->bytes);
}

/* ---- stacks ---- */

static void push_full(struct barn *b, struct sheaf *s)
{
    s->next = b->full;
    b->full = s;
    store_relaxed(&b->nfull, b->nfull + 1);
    b->objs += s->n;
}

static struct sheaf *pop_full(struct barn *b)
{
    struct sheaf *s = b->full;
    if (s == NULL)
        return NULL;
    b->full = s->next;
    store_relaxed(&b->nfull, b->nfull - 1);
    b->objs -= s->n;
    return s;
}

static void push_empty(struct barn *b, struct sheaf *s)
{
    s->next = b->empty;
    b->empty = s;
    store_relaxed(&b->nempty, b->nempty + 1);
}

/* Only the top is looked at: a barn's empties are mostly of one capacity. */
static struct sheaf *pop_empty(struct barn *b, uint32_t cap)
{
    struct sheaf *s = b->empty;
    if (s == NULL || s->cap < cap)
        return NULL;
    b->empty = s->next;
    store_relaxed(&b->nempty, b->nempty - 1);
    return s;
}

/* ---- full sheaves ---- */

/* Our part, or, if nothing is there, the next one that has something: who takes may run far from who frees. A peek: at
 * worst the caller refills from slabs instead. Fails: NULL. */
static struct barn *part_with_full(class_t c, unsigned node)
{
    unsigned own = own_part();
    for (unsigned i = 0; i <= part_mask; i++) {
        struct barn *b = barn_part(node, c, (own + i) & part_mask);
        if (load_relaxed(&b->nfull) != 0)
            return b;
    }
    return NULL;
}

static void note_get_failed(struct barn *b)
{
    if (load_relaxed(&b->wish) == WISH_WAS_FULL)
        store_relaxed(&b->wish, WISH_THEN_EMPTY); /* racy: a hint */
    owner_add(&b->get_fail, 1); /* racy: a statistic */
}

struct sheaf *barn_get_full(class_t c, unsigned node, struct sheaf *empty)
{
    struct barn *b = part_with_full(c, node);
    if (b == NULL) {
        note_get_failed(barn_of(node, c));
        return NULL;
    }
    lock_acquire(&b->lock, RANK_BARN);
    struct sheaf *s = pop_full(b);
    if (s != NULL && empty != NULL)
        push_empty(b, empty);
    if (s != NULL)
        b->get++;
    lock_release(&b->lock);
    return s;
}

/* Room for one more? Grow the limit where it was too small before. */
static bool may_put(struct barn *b, class_t c, const struct sheaf *full)
{
    if (opt.barn_max != 0)
        return b->nfull < opt.barn_max;
    if (b->limit == 0)
        b->limit = 1;
    size_t bytes = (b->objs + full->n) * class_to_size(c);
    bool room = bytes <= (size_t)BARN_BYTES_MIN * b->limit && b->nfull < BARN_FULL_MIN * b->limit;
    if (!room && load_relaxed(&b->wish) == WISH_THEN_EMPTY && b->limit < BARN_LIMIT_MAX) {
        b->limit *= 2;
        store_relaxed(&b->wish, WISH_NONE);
        return true;
    }
    if (!room)
        store_relaxed(&b->wish, WISH_WAS_FULL);
    return room;
}

/* One full sheaf of the barn to the slabs. */
static void drain_one(class_t c, unsigned node, const char *func)
{
    struct sheaf *s = barn_get_full(c, node, NULL);
    if (s == NULL)
        return;
    slab_free_bulk(c, node, s->slot + 1, s->n, func);
    s->n = 0;
    barn_put_empty(c, node, s);
}

bool barn_put_full(class_t c, unsigned node, struct sheaf *full, uint32_t cap, struct sheaf **empty, const char *func)
{
    struct barn *b = barn_of(node, c);
    *empty = NULL;
    if (UNLIKELY(slab_draining(c, node) || zone_spiking(node)) && opt.barn_max == 0) {
        drain_one(c, node, func);
        return false;
    }
    lock_acquire(&b->lock, RANK_BARN);
    bool ok = may_put(b, c, full);
    if (ok) {
        push_full(b, full);
        *empty = pop_empty(b, cap);
        b->put++;
    } else {
        b->put_fail++;
    }
    lock_release(&b->lock);
    return ok;
}

void barn_return_full(class_t c, unsigned node, struct sheaf *full)
{
    struct barn *b = barn_of(node, c);
    lock_acquire(&b->lock, RANK_BARN);
    push_full(b, full);
    lock_release(&b->lock);
}

/* ---- empty sheaves ---- */

struct sheaf *barn_get_empty(class_t c, unsigned node, uint32_t cap)
{
    struct barn *b = barn_of(node, c);
    struct sheaf *s = NULL;
    if (load_relaxed(&b->nempty) != 0) { /* a peek, as above */
        lock_acquire(&b->lock, RANK_BARN);
        s = pop_empty(b, cap);
        lock_release(&b->lock);
    }
    return s != NULL ? s : barn_sheaf_new(cap);
}

void barn_put_empty(class_t c, unsigned node, struct sheaf *empty)
{
    struct barn *b = barn_of(node, c);
    bool keep = load_relaxed(&b->nempty) < BARN_EMPTY_MAX;
    if (keep) {
        lock_acquire(&b->lock, RANK_BARN);
        push_empty(b, empty);
        lock_release(&b->lock);
    } else {
        barn_sheaf_free(empty);
    }
}

static struct sheaf *take_all(struct barn *b, struct sheaf **empties)
{
    lock_acquire(&b->lock, RANK_BARN);
    struct sheaf *full = b->full;
    *empties = b->empty;
    b->full = b->empty = NULL;
    store_relaxed(&b->nfull, 0);
    store_relaxed(&b->nempty, 0);
    b->objs = 0;
    b->limit = 0; /* to be earned anew */
    lock_release(&b->lock);
    return full;
}

static size_t flush_part(class_t c, unsigned node, unsigned part, const char *func)
{
    struct sheaf *empties, *next;
    size_t objs = 0;
    for (struct sheaf *s = take_all(barn_part(node, c, part), &empties); s != NULL; s = next) {
        next = s->next;
        slab_free_bulk(c, node, s->slot + 1, s->n, func);
        objs += s->n;
        barn_sheaf_free(s);
    }
    for (; empties != NULL; empties = next) {
        next = empties->next;
        barn_sheaf_free(empties);
    }
    return objs;
}

size_t barn_flush(class_t c, unsigned node, const char *func)
{
    size_t objs = 0;
    for (unsigned part = 0; part <= part_mask; part++)
        objs += flush_part(c, node, part, func);
    return objs;
}

/* ---- looking at it ---- */

static void add_part(struct barn_stats *st, struct barn *b)
{
    lock_acquire(&b->lock, RANK_BARN);
    st->full += b->nfull;
    st->empty += b->nempty;
    st->objs += b->objs;
    st->limit += b->limit * BARN_FULL_MIN;
    st->get += b->get;
    st->get_fail += load_relaxed(&b->get_fail);
    st->put += b->put;
    st->put_fail += b->put_fail;
    st->lock_acquired += b->lock.acquired;
    st->lock_contended += b->lock.contended;
    lock_release(&b->lock);
}

struct barn_stats barn_stats(class_t c, unsigned node)
{
    struct barn_stats st = {0};
    for (unsigned part = 0; part <= part_mask; part++)
        add_part(&st, barn_part(node, c, part));
    return st;
}

static void check_sheaf(const struct sheaf *s, class_t c, unsigned node)
{
    CHECK(s->slot[0] == NULL);
    CHECK(s->slot[s->cap + 1] == SHEAF_END);
    CHECK(s->n <= s->cap);
    for (uint32_t i = 1; i <= s->n; i++)
        CHECK_EQ(pmap_tag(s->slot[i]), tag_make(c, node));
}

static void check_part(class_t c, unsigned node, unsigned part)
{
    struct barn *b = barn_part(node, c, part);
    size_t full = 0, empty = 0, objs = 0;
    lock_acquire(&b->lock, RANK_BARN);
    for (struct sheaf *s = b->full; s != NULL; s = s->next, full++) {
        check_sheaf(s, c, node);
        CHECK(s->n > 0);
        objs += s->n;
    }
    for (struct sheaf *s = b->empty; s != NULL; s = s->next, empty++) {
        check_sheaf(s, c, node);
        CHECK_EQ(s->n, 0);
    }
    CHECK_EQ(full, b->nfull);
    CHECK_EQ(empty, b->nempty);
    CHECK_EQ(objs, b->objs);
    lock_release(&b->lock);
}

void barn_check(class_t c, unsigned node)
{
    for (unsigned part = 0; part <= part_mask; part++)
        check_part(c, node, part);
}

static void for_each_lock(void (*what)(struct lock *l))
{
    for (unsigned row = 0; row < numa_count() * (part_mask + 1); row++)
        for (class_t c = 0; c < SIZE_CLASSES; c++)
            what(&barn_part(row / (part_mask + 1), c, row & part_mask)->lock);
}

static void hold_one(struct lock *l)
{
    lock_fork_hold(l, RANK_BARN);
}

void barn_fork_hold(void)
{
    for_each_lock(hold_one);
}

void barn_fork_open(void)
{
    for_each_lock(lock_fork_open);
}
