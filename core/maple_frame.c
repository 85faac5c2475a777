/* SPDX-License-Identifier: BSD-2-Clause */
/* The tree as a whole: its lock, its nodes, and the frame in which every write runs. */
#include "maple_edit.h"

#include "dbg.h"

#include <errno.h>
#include <string.h>

/* ---- the lock ---- */

const void *maple_self(void)
{
    return &errno; /* a name that costs no thread-local storage of ours */
}

void maple_lock(struct maple *m)
{
    lock_acquire(&m->lock, m->rank);
    store_relaxed(&m->owner, maple_self()); /* relaxed: only its own thread compares */
}

void maple_unlock(struct maple *m)
{
    store_relaxed(&m->owner, NULL);
    lock_release(&m->lock);
}

void maple_change_begin(struct maple *m)
{
    store_relaxed(&m->seq, m->seq + 1); /* seen no later than the changes, which are release stores */
}

void maple_change_end(struct maple *m)
{
    store_release(&m->seq, m->seq + 1); /* pairs with the acquire loads of readers */
}

/* ---- nodes ---- */

static void zero_node(struct maple *m, struct maple_node *n)
{
    uintptr_t *word = (uintptr_t *)(void *)n;
    for (size_t i = 0; i < MAPLE_NODE_BYTES / sizeof *word; i++)
        maple_put(&word[i], 0); /* a reader may still be here */
    owner_add(&m->stats.bytes_zeroed, (uint64_t)MAPLE_NODE_BYTES);
}

/* Set n nodes aside. */
static void hand_fill(struct maple *m, unsigned n)
{
    uint32_t left = m->nspare - n;
    for (unsigned i = 0; i < n; i++) {
        m->hand[i] = m->spare[left + i];
        if (m->zero)
            zero_node(m, m->hand[i]);
    }
    m->nhand = n;
    store_relaxed(&m->nspare, left);
    owner_add(&m->stats.taken, n);
}

static void hand_return(struct maple *m)
{
    uint32_t n = m->nspare;
    owner_add(&m->stats.returned, m->nhand);
    while (m->nhand > 0)
        m->spare[n++] = m->hand[--m->nhand];
    store_relaxed(&m->nspare, n);
}

struct maple_node *maple_take(struct maple *m)
{
    CHECK(m->nhand > 0); /* a write was counted short */
    m->nodes++;
    return m->hand[--m->nhand];
}

/* Those that are gone are chained through a word that no pointer to a child stands in. */
static void chain(struct maple *m, struct maple_node *n, unsigned level)
{
    maple_put(&maple_pivots(n)[0], (uintptr_t)m->gone | level);
    m->gone = n;
}

void maple_drop_node(struct maple *m, struct maple_node *n)
{
    m->nodes--;
    owner_add(&m->stats.freed, 1);
    n->count = 0;
    if (m->nspare + m->nhand < m->keep) {
        m->spare[m->nspare] = n;
        store_relaxed(&m->nspare, m->nspare + 1);
    } else {
        chain(m, n, 0);
    }
}

void maple_drop_subtree(struct maple *m, struct maple_node *n, unsigned level)
{
    chain(m, n, level);
}

/* Nodes on their way back to the source. */
struct batch {
    const struct maple_source *source;
    unsigned n;
    size_t live; /* that were in the tree when they were cut off */
    void *node[MAPLE_KEEP];
};

static void batch_flush(struct batch *b)
{
    if (b->n > 0)
        b->source->free(b->source->ctx, b->node, b->n);
    b->n = 0;
}

static void batch_add(struct batch *b, struct maple_node *n)
{
    if (n->count > 0)
        b->live++;
    n->count = 0;
    b->node[b->n++] = n;
    if (b->n == MAPLE_KEEP)
        batch_flush(b);
}

static void batch_add_subtree(struct batch *b, const struct maple *m, struct maple_node *n, unsigned level)
{
    void **slot = maple_slot_array(n, maple_kind(m, level));
    for (unsigned i = 0; level > 0 && i < n->count; i++)
        batch_add_subtree(b, m, slot[i], level - 1);
    batch_add(b, n);
}

/* Give the chain back, with the lock open: nobody can reach it any more. */
static NOINLINE void free_chain(struct maple *m, struct maple_node *n)
{
    struct batch b = {.source = m->source};
    while (n != NULL) {
        uintptr_t word = maple_pivots(n)[0];
        batch_add_subtree(&b, m, n, maple_height(word));
        n = maple_root(word);
    }
    batch_flush(&b);
    if (b.live > 0) {
        maple_lock(m);
        m->nodes -= b.live;
        owner_add(&m->stats.freed, b.live);
        maple_unlock(m);
    }
}

/* ---- refilling ---- */

/* Ask the source for what the sheaf lacks, with no lock held, then take the lock. Result: whether all was had. */
static NOINLINE bool refill_and_lock(struct maple *m, unsigned want)
{
    void *fresh[MAPLE_SPARE_MAX];
    unsigned have = load_relaxed(&m->nspare), n = 0;
    if (want > have)
        n = m->source->alloc(m->source->ctx, fresh, want - have);
    bool all = have + n >= want;
    maple_lock(m);
    owner_add(&m->stats.refills, 1);
    for (unsigned i = 0; i < n; i++) {
        struct maple_node *node = fresh[i];
        if (m->nspare < MAPLE_SPARE_MAX) {
            node->count = 0;
            m->spare[m->nspare] = node;
            store_relaxed(&m->nspare, m->nspare + 1);
        } else { /* others refilled as well */
            node->count = 0;
            chain(m, node, 0);
        }
    }
    return all;
}

/* ---- the frame of a write ---- */

static void unlock_and_free(struct maple *m)
{
    struct maple_node *gone = m->gone;
    m->gone = NULL;
    maple_unlock(m);
    if (UNLIKELY(gone != NULL))
        free_chain(m, gone);
}

static unsigned worst_need(const struct maple *m)
{
    return m->root == 0 ? 1 : maple_height(m->root) + 1;
}

int maple_write(struct maple *m, struct maple_edit *e)
{
    unsigned keep = m->keep;
    bool all = true;
    if (UNLIKELY(load_relaxed(&m->nspare) < keep / 4)) /* too few is found out below, under the lock */
        all = refill_and_lock(m, keep);
    else
        maple_lock(m);
    for (;;) {
        int error = maple_plan(m, e);
        if (error != 0 || e->type == MAPLE_NOTHING) {
            unlock_and_free(m);
            return error;
        }
        unsigned need = m->worst ? worst_need(m) : e->need;
        if (LIKELY(need <= m->nspare)) {
            if (need > 0)
                hand_fill(m, need);
            break;
        }
        owner_add(&m->stats.retries, 1);
        unlock_and_free(m);
        if (!all)
            return -ENOMEM; /* the source had not enough, and others took what there was */
        all = refill_and_lock(m, need > keep ? need : keep);
    }
    maple_change_begin(m);
    maple_apply(m, e);
    maple_change_end(m);
    owner_add(&m->stats.writes[e->type], 1);
    if (UNLIKELY(m->nhand > 0))
        hand_return(m);
    unlock_and_free(m);
    return 0;
}

/* ---- life ---- */

void maple_init(struct maple *m, bool gaps, unsigned rank, const struct maple_source *source)
{
    *m = (struct maple)MAPLE_INIT(gaps, (uint8_t)rank, source);
}

void maple_destroy(struct maple *m)
{
    void *spare[MAPLE_SPARE_MAX];
    maple_lock(m);
    if (m->root != 0) {
        maple_change_begin(m);
        maple_drop_subtree(m, maple_root(m->root), maple_height(m->root) - 1);
        maple_put(&m->root, 0);
        maple_change_end(m);
    }
    uint32_t n = m->nspare;
    memcpy(spare, m->spare, n * sizeof *spare);
    store_relaxed(&m->nspare, 0);
    unlock_and_free(m);
    if (n > 0)
        m->source->free(m->source->ctx, spare, n);
}

struct maple_stats maple_stats(const struct maple *m)
{
    struct maple_stats s;
    for (int i = 0; i < MAPLE_WRITES; i++)
        s.writes[i] = load_relaxed(&m->stats.writes[i]);
    s.taken = load_relaxed(&m->stats.taken);
    s.returned = load_relaxed(&m->stats.returned);
    s.freed = load_relaxed(&m->stats.freed);
    s.bytes_zeroed = load_relaxed(&m->stats.bytes_zeroed);
    s.refills = load_relaxed(&m->stats.refills);
    s.retries = load_relaxed(&m->stats.retries);
    s.reader_locks = load_relaxed(&m->stats.reader_locks);
    s.lock_holds = load_relaxed(&m->lock.acquired);
    s.lock_waits = load_relaxed(&m->lock.contended);
    return s;
}

void maple_fork_hold(struct maple *m)
{
    lock_fork_hold(&m->lock, m->rank);
}

void maple_fork_open(struct maple *m)
{
    lock_fork_open(&m->lock);
}
