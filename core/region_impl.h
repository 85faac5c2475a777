/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the region_*.c files share. Level 4. Private to them.
 *
 * "held": with the REGION lock held. A function that may open the lock for a while, to ask for memory, says so: whatever
 * the caller knew of other regions than its own may have changed then.
 */
#ifndef CORE_REGION_IMPL_H
#define CORE_REGION_IMPL_H

#include "compat/os/lock.h"
#include "maple.h"
#include "region.h"
#include "tunables.h"

enum region_sort { REGION_PLAIN, REGION_HUGE, REGION_SORTS };

/* A mapping, or the part of one, that regions are cut from by gap search. Plain ones are the ends of mappings that the
 * zone had no use for at the time; they go, as structs, when they are full. */
struct region_window {
    struct region_window *next, *prev; /* windows of its sort, the one that was used last first */
    enum region_sort sort;
    unsigned purging;       /* regions in it that some thread is purging */
    char *base;
    size_t size;
    size_t live, stale;     /* bytes of LARGE (plain: of what was taken), and of STALE */
    char *map;              /* huge: the whole mapping */
    size_t map_size;
};

struct region_state {
    struct lock lock;
    const void *owner; /* names the thread that holds the lock, or NULL; atomic */
    struct region_window *window[REGION_SORTS];
    struct region *stale;   /* STALE regions */
    struct region *waiting; /* mapped, and not in the tree yet: there was no node */
    size_t empty_bytes;     /* huge windows without live blocks */
    size_t window_most;     /* largest window worth trying after a refusal, 0: any; relaxed, a hint */
    bool scarce;            /* address space is limited, or was refused: keep no empty window */
    bool locked;            /* mappings are resident at once (mlockall): map no more than is needed */
    struct region_stats stats;
};

extern struct region_state region_state;
extern struct maple region_space;
extern struct region region_foreign; /* the entry for all that is not ours */

/* region_space.c */

void region_lock(void);
void region_unlock(void);
/* What: a name for the calling thread. */
const void *region_self(void);
/* What: does this thread hold the lock? For signal handlers. */
bool region_locked_by_me(void);

/* What: begin an operation: see to it that the tree has its marker, and some nodes where many are needed. Held; may open the
 * lock. */
void region_ready(void);

/* What: memory for region structs and tree nodes, where they are few. Held; opens the lock. Fails: false: nothing was had. */
bool region_refill(void);

/* What: an unused struct, given these values. Held; may open the lock. Fails: NULL. */
struct region *region_new(enum region_kind kind, char *base, size_t size, unsigned node);
/* What: it is unused from now on. Held. It is in no list, and no entry of the tree. */
void region_put(struct region *r);

/* What: change what readers see of a region. Held. */
void region_set(struct region *r, enum region_kind kind, char *base, size_t size);

/* What: add to, or take from, the sums by kind. Held. */
void region_account(const struct region *r, bool in);

/* What: store over [base, base + size); entry NULL makes a gap. Held; may open the lock, with nothing stored yet.
 * Fails: false, no node. */
bool region_store(const char *base, size_t size, void *entry);

/* What: the range is not ours any more. Held; may open the lock if it is not one range of the tree. Fails: false, likewise;
 * never for the range of one entry. */
bool region_store_foreign(const char *base, size_t size);

/* What: enter a region of foreign space and account for it; if there is no node, it waits, and is entered later. Held; may
 * open the lock. */
void region_enter(struct region *r);
/* What: the opposite: its range is foreign. Held. Never fails. */
void region_leave(struct region *r);

/* What: enter what waits, new metadata, and the leaves for this range. Held; may open the lock. */
void region_enter_new(const char *base, size_t size);

/* region_window.c */

/* What: take a place in a window for r, whose size is set; base follows. Held; may open the lock.
 * Fails: false, no window has one. */
bool region_place(struct region *r, enum region_sort sort, size_t align);

/* What: map a huge window that holds a block of this size. Held; opens the lock. Fails: false. */
bool region_add_huge(size_t need);

/* What: a huge window that may have lost its last block: keep it, or unmap it. Held; may open the lock. w may be gone. */
void region_window_relax(struct region_window *w);

/* What: unmap all huge windows without live blocks, because address space is short. Held; opens the lock.
 * Result: was there any? */
bool region_drop_empty(void);

/* What: bytes of a window's gaps are live; live ones stale; stale ones gaps. Held. */
void region_window_take(struct region_window *w, size_t bytes);
void region_window_stale(struct region_window *w, size_t bytes);
void region_window_clean(struct region_window *w, size_t bytes);

/* What: an area for r, which has its node: a gap of a plain window, all of it; or a new mapping, whose ends become plain
 * windows. Held; may open the lock. Fails: false. */
bool region_take_plain(struct region *r, size_t need);
bool region_add_plain(struct region *r, size_t need);

/* region_block.c */

/* What: the list of STALE regions. Held. */
void region_stale_link(struct region *r);
void region_stale_unlink(struct region *r);

/* What: advise huge pages for a mapping of a block, or of a huge window. Locks: none. */
void region_advise(char *p, size_t size);

#endif
