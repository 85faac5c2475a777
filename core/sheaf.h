/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A sheaf: an array of object pointers used as a stack, with sentinels. Level 1; nothing else in this file.
 *
 *     slot[0]      1 ... n            n+1 .. cap   cap+1
 *     NULL    | objects (n of them) | garbage    | END
 *                            ^ top
 *
 * The owner keeps `top`, the address of the last object's slot; the count is top - slot, never stored while in use.
 *   INV-SHEAF-1 slot[0] is NULL and slot[cap+1] is END.
 *   INV-SHEAF-2 slots 1..n are neither NULL nor END; nothing above top and below END ever is END.
 * A sheaf of capacity 0, {NULL, END}, is empty and full at once: threads start with it, dying threads and every debug
 * mode point to it, so that the hit path has nothing else to test.
 * Source of the idea: Bonwick's magazines and the kernel's percpu sheaves; the sentinels are ours.
 */
#ifndef CORE_SHEAF_H
#define CORE_SHEAF_H

#include "compat/os/atomic.h"

struct sheaf {
    struct sheaf *next; /* barn lock: link in the full or empty stack */
    uint32_t cap;       /* constant while in use: where END stands */
    uint32_t n;         /* objects held while not some thread's main sheaf */
    uint32_t bytes;     /* size of the allocation this sheaf lives in; constant */
    uint32_t pad;
    void *slot[];
};

#define SHEAF_END ((void *)1)
enum { SHEAF_SENTINELS = 2 };

/* What: slots that fit an allocation of `bytes`, sentinels not counted. */
static inline uint32_t sheaf_room(size_t bytes)
{
    return (uint32_t)((bytes - sizeof(struct sheaf)) / sizeof(void *) - SHEAF_SENTINELS);
}

/* What: bytes of a sheaf of capacity cap. */
static inline size_t sheaf_bytes(size_t cap)
{
    return sizeof(struct sheaf) + (cap + SHEAF_SENTINELS) * sizeof(void *);
}

/* What: make raw memory of `bytes` an empty sheaf. Owner: the caller. Cost: clears the slots once, since a stale END
 * among them would make the sheaf look full early (INV-SHEAF-2). */
static inline void sheaf_init(struct sheaf *s, uint32_t cap, uint32_t bytes)
{
    s->next = NULL;
    s->n = 0;
    s->cap = cap;
    s->bytes = bytes;
    for (uint32_t i = 0; i <= cap; i++)
        s->slot[i] = NULL;
    s->slot[cap + 1] = SHEAF_END;
}

/* What: objects in a sheaf whose top is given. */
static inline uint32_t sheaf_count(const struct sheaf *s, void *const *top)
{
    return (uint32_t)(top - s->slot);
}

/* The two halves of the hit path. Slot first, then top: a signal handler or a fork child sees a consistent stack.
 * Order: top is stored with release (a plain store on x86); pairs with the adoption of orphans after fork. */
HOT_INLINE void *sheaf_pop(void ***top_word)
{
    void **top = *top_word;
    void *p = *top;
    if (LIKELY(p != NULL))
        store_release(top_word, top - 1);
    return p;
}

HOT_INLINE bool sheaf_push(void ***top_word, void *p)
{
    void **top = *top_word;
    if (UNLIKELY(top[1] == SHEAF_END))
        return false;
    top[1] = p;
    store_release(top_word, top + 1);
    return true;
}

#endif
