/* SPDX-License-Identifier: BSD-2-Clause */
#include "tcache.h"

#include "barn.h"
#include "compat/os/clock.h"
#include "compat/os/lock.h"
#include "compat/os/numa.h"
#include "compat/os/tls.h"
#include "dbg.h"
#include "large.h"
#include "meta.h"
#include "opt.h"
#include "pcp.h"
#include "pmap.h"
#include "rank.h"
#include "slab.h"
#include "zone.h"

#include <string.h>

/* The sheaf of capacity 0. Nothing is ever stored into it: a pop finds NULL, a push finds END. */
static const struct sheaf nothing = {.slot = {NULL, SHEAF_END}};
#define NOTHING_TOP ((void **)(uintptr_t)&nothing.slot[0])

/* The part of a struct tcache that is looked at before the thread is known to be live. */
struct tcache_image {
    void **top[SIZE_CLASSES];
    uint32_t node_tag, state;
};
_Static_assert(offsetof(struct tcache_image, state) == offsetof(struct tcache, state), "an image begins like a tcache");

static const struct tcache_image image_none = {.top = {[0 ... SIZE_CLASSES - 1] = NOTHING_TOP}, .state = TCACHE_NONE};
static const struct tcache_image image_dead = {.top = {[0 ... SIZE_CLASSES - 1] = NOTHING_TOP}, .state = TCACHE_DEAD};

TLS_IE struct tcache *tcache_tls = (struct tcache *)(uintptr_t)&image_none;

_Static_assert(SIZE_CLASSES <= 64, "threads.adopted has a bit for each class");

static struct {
    struct lock lock;
    struct tcache *live;    /* THREADS lock */
    struct tcache *orphans; /* THREADS lock; also peeked at */
    uint64_t adopted;       /* a bit for each class whose orphaned sheaves have all been taken; as orphans */
    struct tcache *unused;  /* THREADS lock: type-stable, never given back */
    uint32_t nlive;         /* also read without the lock */
    uint32_t trim_requests; /* relaxed counter */
    uint64_t aged_ms;       /* when caches last grew older; relaxed */
    struct tcache_counts ended;
} threads;

/* ---- capacities ---- */

static uint32_t cap_first(class_t c)
{
    size_t n = SMALL_SHEAF_BYTES / class_to_size(c);
    return (uint32_t)(n < 2 ? 2 : n > 27 ? 27 : n); /* what a 256-byte array holds */
}

static uint32_t cap_most(class_t c)
{
    /* What a thread holds when it moves to another node it goes on using there, until its first slow call: so half. */
    unsigned part = UNLIKELY(numa_count() > 1) ? 2 : 1;
    size_t size = class_to_size(c), usual = SHEAF_BYTES_USUAL / part / size, most = SHEAF_BYTES_MAX / part / size;
    size_t n = usual > SHEAF_OBJS_USUAL / part ? usual : SHEAF_OBJS_USUAL / part, room = sheaf_room(4096);
    n = n < most ? n : most;
    return (uint32_t)(n < room ? n : room);
}

static bool is_small(const struct sheaf *s, class_t c)
{
    return opt.sheaf_cap == 0 && s->cap <= cap_first(c);
}

static size_t share_of_budget(void)
{
    size_t n = load_relaxed(&threads.nlive);
    size_t share = CACHE_BUDGET / (n == 0 ? 1 : n);
    return share > CACHE_THREAD_MAX ? CACHE_THREAD_MAX : share < CACHE_THREAD_MIN ? CACHE_THREAD_MIN : share;
}

static void set_cap(struct tcache *tc, class_t c, uint32_t cap)
{
    struct tcache_bin *b = &tc->bin[c];
    tc->earned += 2 * class_to_size(c) * cap - 2 * class_to_size(c) * b->cap;
    b->cap = (uint16_t)cap;
    b->visits = 0;
}

/* Count a visit to barn or slab; a class that keeps coming earns sheaves of twice the size, unless memory is being given
 * back just now. */
static void note_visit(struct tcache *tc, class_t c)
{
    struct tcache_bin *b = &tc->bin[c];
    b->idle = 0;
    if (opt.sheaf_cap != 0 || ++b->visits < GROW_VISITS || slab_draining(c, tc->node) || zone_spiking(tc->node))
        return;
    b->visits = 0;
    uint32_t most = cap_most(c);
    if (b->cap >= most)
        return;
    uint32_t cap = barn_sheaf_capacity(b->cap * 2u < most ? b->cap * 2u : most, most);
    if (tc->earned + 2 * class_to_size(c) * (cap - b->cap) <= share_of_budget())
        set_cap(tc, c, cap);
}

/* ---- changing a bin ---- */

/* More than one word of a bin changes: a fork child must not trust the bin meanwhile. Order: release fence after the
 * mark, release at its end; pairs with the stop that fork itself is, for the child's reads. It nests. */
static uint32_t moving_begin(struct tcache *tc, class_t c)
{
    uint32_t before = tc->moving;
    store_relaxed(&tc->moving, c + 1);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return before;
}

static void moving_end(struct tcache *tc, uint32_t before)
{
    store_release(&tc->moving, before);
}

static void set_main(struct tcache *tc, class_t c, struct sheaf *s, uint32_t n)
{
    uint32_t m = moving_begin(tc, c);
    store_relaxed(&tc->bin[c].main, s);
    store_release(&tc->top[c], s == NULL ? NOTHING_TOP : s->slot + n);
    moving_end(tc, m);
}

/* Whoever counts from outside must not follow the pointer: the sheaf may be freed by then. So its n stands here too. */
static void set_spare(struct tcache_bin *b, struct sheaf *s)
{
    store_relaxed(&b->spare_n, s == NULL ? 0 : (uint16_t)s->n);
    store_release(&b->spare, s); /* pairs with the stop that fork is: a child trusts what it finds */
}

/* Take the main sheaf out of its bin (INV-TCACHE-3); its n is set. */
static struct sheaf *take_main(struct tcache *tc, class_t c)
{
    struct sheaf *s = tc->bin[c].main;
    if (s != NULL) {
        s->n = sheaf_count(s, tc->top[c]);
        set_main(tc, c, NULL, 0);
    }
    return s;
}

static struct sheaf *take_spare(struct tcache *tc, class_t c)
{
    struct sheaf *s = tc->bin[c].spare;
    set_spare(&tc->bin[c], NULL);
    return s;
}

/* ---- letting go of a sheaf that is in no bin ---- */

/* An empty array: to the barn if it is of the size in use there, else freed. */
static void drop_empty(struct tcache *tc, class_t c, struct sheaf *s)
{
    s->n = 0;
    if (is_small(s, c) || s->cap < tc->bin[c].cap)
        barn_sheaf_free(s);
    else
        barn_put_empty(c, tc->node, s);
}

static void flush_objects(struct tcache *tc, class_t c, struct sheaf *s, const char *func)
{
    uint32_t n = s->n;
    s->n = 0;
    slab_free_bulk(c, tc->node, s->slot + 1, n, func);
    owner_add(&tc->counts.flushes, 1);
}

/* Give a sheaf with objects away: at least half full to the barn, else its objects to the slabs. */
static void give_away(struct tcache *tc, class_t c, struct sheaf *s, const char *func)
{
    struct sheaf *empty = NULL;
    if (s->n * 2 >= s->cap && s->n > 0 && !is_small(s, c) && barn_put_full(c, tc->node, s, UINT32_MAX, &empty, func))
        return;
    if (s->n > 0)
        flush_objects(tc, c, s, func);
    drop_empty(tc, c, s);
}

/* Both sheaves of a class go. */
static void empty_bin(struct tcache *tc, class_t c, const char *func)
{
    struct sheaf *main = take_main(tc, c), *spare = take_spare(tc, c);
    if (main != NULL)
        give_away(tc, c, main, func);
    if (spare != NULL)
        give_away(tc, c, spare, func);
}

/* Make a sheaf the spare (the main) one, or, if somebody came in between, find it another place. */
static void install_spare(struct tcache *tc, class_t c, struct sheaf *s, const char *func)
{
    struct tcache_bin *b = &tc->bin[c];
    if (LIKELY(b->spare == NULL))
        set_spare(b, s);
    else
        give_away(tc, c, s, func);
}

static void install_main(struct tcache *tc, class_t c, struct sheaf *s, const char *func)
{
    if (LIKELY(tc->bin[c].main == NULL))
        set_main(tc, c, s, s->n);
    else
        install_spare(tc, c, s, func);
}

/* ---- moving objects between main and spare ---- */

/* Main is empty, spare is not: take all of it if the thread has been allocating, else its newer half, so that the next
 * boundary is half a sheaf away in both directions. */
static void spare_to_main(struct tcache *tc, class_t c)
{
    struct tcache_bin *b = &tc->bin[c];
    struct sheaf *spare = b->spare, *main = b->main;
    uint32_t m = moving_begin(tc, c), n = spare->n, half = n - n / 2;
    if (b->dir == DIR_ALLOC || half > main->cap) {
        main->n = 0;
        set_spare(b, main);
        store_relaxed(&b->main, spare);
        store_release(&tc->top[c], spare->slot + n);
    } else {
        memcpy(main->slot + 1, spare->slot + 1 + (n - half), half * sizeof(void *));
        spare->n = n - half;
        set_spare(b, spare);
        store_release(&tc->top[c], main->slot + half);
    }
    moving_end(tc, m);
    owner_add(&tc->counts.swaps, 1);
}

/* Main is full, spare has room: hand it all of main if it is empty and the thread has been freeing, else main's older
 * half, or as much as fits. */
static void main_to_spare(struct tcache *tc, class_t c)
{
    struct tcache_bin *b = &tc->bin[c];
    struct sheaf *spare = b->spare, *main = b->main;
    uint32_t m = moving_begin(tc, c), n = sheaf_count(main, tc->top[c]);
    if (spare->n == 0 && (b->dir == DIR_FREE || n < 4)) {
        main->n = n;
        set_spare(b, main);
        store_relaxed(&b->main, spare);
        store_release(&tc->top[c], spare->slot);
    } else {
        uint32_t room = spare->cap - spare->n, part = (n + 1) / 2 < room ? (n + 1) / 2 : room;
        memcpy(spare->slot + 1 + spare->n, main->slot + 1, part * sizeof(void *));
        spare->n += part;
        set_spare(b, spare);
        memmove(main->slot + 1, main->slot + 1 + part, (n - part) * sizeof(void *));
        store_release(&tc->top[c], main->slot + (n - part));
    }
    moving_end(tc, m);
    owner_add(&tc->counts.swaps, 1);
}

/* ---- allocation ---- */

static void *pop_installed(struct tcache *tc, class_t c)
{
    void *p = sheaf_pop(&tc->top[c]);
    return p != NULL ? p : tcache_alloc_slow(c); /* NULL only if somebody came in between and took all */
}

/* Slabs hand out ascending addresses; the stack is popped from its end: turn it round. */
static void reverse(void **slot, uint32_t n)
{
    for (uint32_t i = 0, j = n; i + 1 < j; i++) {
        void *p = slot[i];
        slot[i] = slot[--j];
        slot[j] = p;
    }
}

/* Fill a sheaf that is in no bin from slabs. Half, so that frees that follow find room; all of it for a thread that
 * only allocates. */
static bool refill(struct tcache *tc, class_t c, struct sheaf *s)
{
    uint32_t want = tc->bin[c].dir == DIR_ALLOC || s->cap < 4 ? s->cap : s->cap / 2;
    if (s->cap > SLAB_GROUP_EXTRA && want > s->cap - SLAB_GROUP_EXTRA)
        want = s->cap - SLAB_GROUP_EXTRA;
    s->n = slab_alloc_bulk(c, tc->node, s->slot + 1, want, s->cap);
    reverse(s->slot + 1, s->n);
    owner_add(&tc->counts.refills, 1);
    return s->n > 0;
}

/* The array to refill: the main one if it is as large as the class has earned, else a larger one. */
static struct sheaf *array_for_refill(struct tcache *tc, class_t c, struct sheaf *main)
{
    if (main->cap >= tc->bin[c].cap)
        return main;
    struct sheaf *larger = barn_get_empty(c, tc->node, tc->bin[c].cap);
    if (larger == NULL)
        return main;
    drop_empty(tc, c, main);
    return larger;
}

/* A full sheaf from the barn larger than what this thread has earned: copy what we may hold, put the rest back. */
static struct sheaf *copy_share(struct tcache *tc, class_t c, struct sheaf *main, struct sheaf *full)
{
    uint32_t n = full->n < main->cap ? full->n : main->cap;
    memcpy(main->slot + 1, full->slot + 1 + (full->n - n), n * sizeof(void *));
    main->n = n;
    full->n -= n;
    if (full->n > 0)
        barn_return_full(c, tc->node, full);
    else
        drop_empty(tc, c, full);
    return main;
}

/* A sheaf with objects out of the barn, in exchange for the empty `main` (which is in no bin). Fails: NULL. */
static struct sheaf *from_barn(struct tcache *tc, class_t c, struct sheaf *main)
{
    struct sheaf *give = is_small(main, c) ? NULL : main;
    struct sheaf *full = barn_get_full(c, tc->node, give);
    if (full == NULL && tcache_adopt(c))
        full = barn_get_full(c, tc->node, give);
    if (full == NULL)
        return NULL;
    owner_add(&tc->counts.barn_get, 1);
    if (give != NULL)
        return full; /* traffic has earned at least the barn's kind of sheaf */
    if (full->n > tc->bin[c].cap)
        return copy_share(tc, c, main, full);
    barn_sheaf_free(main);
    return full;
}

static void *alloc_from_below(struct tcache *tc, class_t c)
{
    struct tcache_bin *b = &tc->bin[c];
    struct sheaf *main = take_main(tc, c);
    note_visit(tc, c);
    struct sheaf *s = from_barn(tc, c, main);
    if (s == NULL) {
        s = array_for_refill(tc, c, main);
        if (!refill(tc, c, s)) {
            install_main(tc, c, s, "malloc");
            return NULL;
        }
        if (!opt.keep_spare && b->spare != NULL && b->spare->n == 0)
            drop_empty(tc, c, take_spare(tc, c));
    }
    install_main(tc, c, s, "malloc");
    b->dir = DIR_ALLOC;
    return pop_installed(tc, c);
}

/* ---- the first operations of a class in a thread ---- */

static void *alloc_one(class_t c, unsigned node)
{
    void *p;
    return slab_alloc_bulk(c, node, &p, 1, 1) == 1 ? p : NULL;
}

/* Is it time for a first sheaf? Objects below a cache line always come by the line, so they need one at once. */
static bool start_sheaf(struct tcache *tc, class_t c)
{
    struct tcache_bin *b = &tc->bin[c];
    if (opt.sheaf_cap == 0 && size_info[c].size >= CACHE_LINE && b->ops < START_OPS) {
        b->ops++;
        return false;
    }
    size_t want = opt.sheaf_cap == 0 ? cap_first(c) : opt.sheaf_cap;
    uint32_t most = sheaf_room(4096), cap = want < most ? (uint32_t)want : most;
    struct sheaf *s = barn_sheaf_new(cap);
    if (s == NULL)
        return false;
    if (b->cap == 0)
        set_cap(tc, c, cap);
    install_main(tc, c, s, "malloc");
    return true;
}

/* ---- ticks: what slow calls do now and then ---- */

/* A class that saw no barn visit since the last scan gives its spare away and earns half the capacity. */
static void shrink_idle(struct tcache *tc, const char *func)
{
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        struct tcache_bin *b = &tc->bin[c];
        if (b->main == NULL)
            continue;
        if (b->idle != 0 && opt.sheaf_cap == 0 && b->cap > cap_first(c)) {
            struct sheaf *spare = take_spare(tc, c);
            if (spare != NULL)
                give_away(tc, c, spare, func);
            set_cap(tc, c, b->cap / 2u > cap_first(c) ? b->cap / 2u : cap_first(c));
        }
        b->idle = 1;
    }
}

/* Once in decay_ms, by whoever comes first: page lists and zones grow older. What is to go then goes in small parts. */
static void age(void)
{
    uint64_t now = clock_coarse_ms(), last = load_relaxed(&threads.aged_ms), decay = opt.decay_ms == 0 ? 1 : opt.decay_ms;
    bool due = now - last >= decay && cas_acquire(&threads.aged_ms, &last, now); /* acquire: no partner, one winner */
    if (UNLIKELY(due)) {
        large_drain(true);
        pcp_age((now - last) / decay < AGE_STEPS_MAX ? (unsigned)((now - last) / decay) : AGE_STEPS_MAX);
    }
    for (unsigned node = 0; node < numa_count(); node++)
        if (UNLIKELY(due || zone_owes(node)))
            zone_relax(node, false);
}

static void tick(struct tcache *tc, const char *func)
{
    bool trim = tc->trim_seen != load_relaxed(&threads.trim_requests);
    if (LIKELY(++tc->ticks % AGE_TICKS != 0 && !trim))
        return;
    age();
    if (tc->ticks < IDLE_SCAN && !trim)
        return;
    tc->ticks = 0;
    if (tc->trim_seen != load_relaxed(&threads.trim_requests)) {
        tc->trim_seen = load_relaxed(&threads.trim_requests);
        tcache_flush(func);
    } else {
        shrink_idle(tc, func);
    }
}

/* ---- home nodes ---- */

/* Everything in the sheaves goes to the node it came from. What a class has earned stays. Fails: false, somebody came in
 * between (a shim's madvise) and started a sheaf anew. */
static bool leave_home(struct tcache *tc, const char *func)
{
    bool left = true;
    for (class_t c = 0; c < SIZE_CLASSES; c++)
        empty_bin(tc, c, func);
    for (class_t c = 0; c < SIZE_CLASSES; c++)
        left &= tc->bin[c].main == NULL && tc->bin[c].spare == NULL;
    return left;
}

/* The thread runs on another node now. A few times in a step of the coarse clock, so that one which is thrown to and fro
 * is not busy with it. */
COLD static void move_home(struct tcache *tc, unsigned here, const char *func)
{
    uint64_t now = clock_coarse_ms();
    tc->moves = now == tc->moved_ms ? tc->moves + 1 : 0;
    tc->moved_ms = now;
    if (tc->moves >= MOVES_MAX || !leave_home(tc, func))
        return;
    tc->node = here;
    tc->node_tag = here << TAG_NODE_SHIFT;
    owner_add(&tc->counts.moves, 1);
    remote_flush_node(&tc->remote, here, func); /* these are local now */
}

static void look_where_we_are(struct tcache *tc, const char *func)
{
    unsigned here = numa_here();
    if (UNLIKELY(here != tc->node))
        move_home(tc, here, func);
}

void tcache_look_home(const char *func)
{
    if (tcache_self()->state == TCACHE_LIVE)
        look_where_we_are(tcache_self(), func);
}

/* ---- slow calls ---- */

void *tcache_alloc_slow(class_t c)
{
    if (UNLIKELY(tcache_self()->state != TCACHE_LIVE) && !tcache_attach())
        return alloc_one(c, numa_here());
    struct tcache *tc = tcache_self();
    look_where_we_are(tc, "malloc");
    if (opt.hardened)
        return alloc_one(c, tc->node);
    tick(tc, "malloc");
    owner_add(&tc->counts.slow_alloc, 1);
    struct tcache_bin *b = &tc->bin[c];
    void *p = sheaf_pop(&tc->top[c]); /* not every caller has looked, and attach and tick may have let others in */
    if (p != NULL)
        return p;
    if (b->main == NULL && !start_sheaf(tc, c))
        return alloc_one(c, tc->node);
    if (b->spare != NULL && b->spare->n > 0) {
        spare_to_main(tc, c);
        b->dir = DIR_ALLOC;
        return pop_installed(tc, c);
    }
    return alloc_from_below(tc, c);
}

void *tcache_alloc_far(class_t c)
{
    unsigned home = numa_here();
    void *p = NULL;
    for (unsigned i = 1; i < numa_count() && p == NULL; i++)
        p = alloc_one(c, numa_nearest(home, i));
    return p;
}

/* Main and spare are full: the spare, the colder one, goes to the barn; if that is full, its objects go to the slabs.
 * Result: an empty sheaf, in no bin. Fails: NULL. */
static struct sheaf *empty_for_spare(struct tcache *tc, class_t c, const char *func)
{
    struct tcache_bin *b = &tc->bin[c];
    struct sheaf *spare = take_spare(tc, c), *empty = NULL;
    note_visit(tc, c);
    if (spare == NULL)
        return barn_get_empty(c, tc->node, b->cap);
    if (!is_small(spare, c) && barn_put_full(c, tc->node, spare, b->cap, &empty, func)) {
        owner_add(&tc->counts.barn_put, 1);
        return empty != NULL ? empty : barn_sheaf_new(b->cap);
    }
    flush_objects(tc, c, spare, func);
    if (spare->cap >= b->cap)
        return spare;
    barn_sheaf_free(spare);
    return barn_sheaf_new(b->cap);
}

static void free_one(class_t c, unsigned node, void *p, const char *func)
{
    slab_free_bulk(c, node, &p, 1, func);
}

void tcache_free_slow(class_t c, void *p, const char *func)
{
    unsigned node = pmap_tag(p) >> TAG_NODE_SHIFT;
    if (UNLIKELY(tcache_self()->state != TCACHE_LIVE) && !tcache_attach()) {
        free_one(c, node, p, func);
        return;
    }
    struct tcache *tc = tcache_self();
    if (opt.hardened) {
        free_one(c, node, p, func);
        return;
    }
    tick(tc, func);
    owner_add(&tc->counts.slow_free, 1);
    look_where_we_are(tc, func);
    if (UNLIKELY(node != tc->node)) {
        owner_add(&tc->counts.remote, 1);
        remote_put(&tc->remote, node, c, p, func);
        return;
    }
    struct tcache_bin *b = &tc->bin[c];
    if (b->main == NULL && !start_sheaf(tc, c)) {
        free_one(c, node, p, func);
        return;
    }
    if (sheaf_push(&tc->top[c], p)) /* a sheaf just made */
        return;
    if (b->spare == NULL || b->spare->n == b->spare->cap) {
        struct sheaf *empty = empty_for_spare(tc, c, func);
        if (empty != NULL)
            install_spare(tc, c, empty, func);
    }
    if (b->spare != NULL && b->spare->n < b->spare->cap && b->main != NULL)
        main_to_spare(tc, c);
    b->dir = DIR_FREE;
    if (!sheaf_push(&tc->top[c], p)) /* no memory for a sheaf */
        free_one(c, node, p, func);
}

/* ---- attach, flush, detach ---- */

static struct tcache *new_tcache(void)
{
    lock_acquire(&threads.lock, RANK_THREADS);
    struct tcache *tc = threads.unused;
    if (tc != NULL)
        threads.unused = tc->next;
    lock_release(&threads.lock);
    return tc != NULL ? tc : meta_alloc(sizeof *tc);
}

static void list_live(struct tcache *tc)
{
    lock_acquire(&threads.lock, RANK_THREADS);
    tc->next = threads.live;
    if (tc->next != NULL)
        tc->next->prev = tc;
    threads.live = tc;
    store_relaxed(&threads.nlive, threads.nlive + 1);
    lock_release(&threads.lock);
}

bool tcache_attach(void)
{
    if (tcache_self()->state != TCACHE_NONE)
        return tcache_self()->state == TCACHE_LIVE;
    struct tcache *tc = new_tcache();
    if (tc == NULL)
        return false;
    memset(tc, 0, sizeof *tc);
    memcpy(tc->top, image_none.top, sizeof tc->top);
    tc->state = TCACHE_LIVE;
    tc->node = numa_here();
    tc->node_tag = tc->node << TAG_NODE_SHIFT;
    tc->trim_seen = load_relaxed(&threads.trim_requests);
    list_live(tc);
    tcache_tls = tc;
    tls_exit_arm(); /* may allocate: we are attached by now */
    return true;
}

static void flush_all(struct tcache *tc, const char *func)
{
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        empty_bin(tc, c, func);
        if (tc->bin[c].main != NULL) /* somebody came in between (a shim's madvise) and started anew */
            continue;
        set_cap(tc, c, 0);
        tc->bin[c].ops = 0;
    }
    remote_flush(&tc->remote, func);
}

void tcache_flush(const char *func)
{
    if (tcache_self()->state == TCACHE_LIVE)
        flush_all(tcache_self(), func);
}

static void add_counts(struct tcache_counts *sum, const struct tcache_counts *c)
{
    const uint64_t *from = (const uint64_t *)c;
    uint64_t *to = (uint64_t *)sum;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        to[i] += load_relaxed(&from[i]);
}

static void unlink_locked(struct tcache **list, struct tcache *tc)
{
    if (tc->next != NULL)
        tc->next->prev = tc->prev;
    if (tc->prev != NULL)
        tc->prev->next = tc->next;
    else
        *list = tc->next;
    tc->next = tc->prev = NULL;
}

void tcache_detach(void)
{
    struct tcache *tc = tcache_self();
    if (tc->state != TCACHE_LIVE)
        return;
    tcache_tls = (struct tcache *)(uintptr_t)&image_dead; /* first: who comes in between must leave nothing behind */
    flush_all(tc, "thread exit");
    remote_end(&tc->remote);
    lock_acquire(&threads.lock, RANK_THREADS);
    unlink_locked(&threads.live, tc);
    store_relaxed(&threads.nlive, threads.nlive - 1);
    add_counts(&threads.ended, &tc->counts);
    tc->next = threads.unused;
    threads.unused = tc;
    lock_release(&threads.lock);
}

void tcache_request_trim(void)
{
    add_relaxed(&threads.trim_requests, 1);
}

/* ---- orphans: caches of threads that a fork left behind ---- */

/* Detach one sheaf of an orphan: cleared there first, then put. THREADS lock held. */
static bool adopt_sheaf(struct tcache *tc, class_t c, struct sheaf *s)
{
    if (s == NULL || s->n == 0)
        return false; /* an empty array is lost: a few hundred bytes */
    barn_return_full(c, tc->node, s);
    return true;
}

static bool adopt_from(struct tcache *tc, class_t c)
{
    if (load_acquire(&tc->moving) == c + 1) /* pairs with moving_end; its objects are lost */
        return false;
    struct sheaf *main = take_main(tc, c), *spare = take_spare(tc, c);
    bool found = adopt_sheaf(tc, c, main);
    return adopt_sheaf(tc, c, spare) || found;
}

/* Objects on their way to other nodes, a sheaf at a time: they go home with no lock held. */
static void adopt_remote(void)
{
    struct sheaf *s;
    unsigned node = 0;
    do {
        s = NULL;
        lock_acquire(&threads.lock, RANK_THREADS);
        for (struct tcache *tc = threads.orphans; tc != NULL && s == NULL; tc = tc->next)
            s = remote_take(&tc->remote, &node);
        lock_release(&threads.lock);
        if (s != NULL)
            remote_send(s, node, "fork");
    } while (s != NULL);
}

bool tcache_adopt(class_t c)
{
    if (LIKELY(load_relaxed(&threads.orphans) == NULL) || (load_relaxed(&threads.adopted) >> c & 1) != 0)
        return false;
    if (UNLIKELY(numa_count() > 1) && load_relaxed(&threads.adopted) == 0)
        adopt_remote();
    bool found = false;
    lock_acquire(&threads.lock, RANK_THREADS);
    for (struct tcache *tc = threads.orphans; tc != NULL; tc = tc->next)
        found |= adopt_from(tc, c);
    store_relaxed(&threads.adopted, threads.adopted | (uint64_t)1 << c);
    lock_release(&threads.lock);
    return found;
}

/* ---- looking at it ---- */

/* Two words of one bin, read one after the other, may belong to different sheaves: too large a distance is none. */
static uint32_t count_from_outside(const struct tcache *tc, class_t c)
{
    const struct sheaf *main = load_relaxed(&tc->bin[c].main);
    uintptr_t top = (uintptr_t)load_relaxed(&tc->top[c]);
    size_t in_main = main == NULL ? 0 : (top - (uintptr_t)main->slot) / sizeof(void *);
    return load_relaxed(&tc->bin[c].spare_n) + (in_main <= sheaf_room(4096) ? (uint32_t)in_main : 0);
}

static void count_cached(const struct tcache *tc, size_t cached[SIZE_CLASSES])
{
    for (class_t c = 0; c < SIZE_CLASSES; c++)
        cached[c] += count_from_outside(tc, c);
    remote_count(&tc->remote, cached);
}

void tcache_stats(struct tcache_stats *st)
{
    memset(st, 0, sizeof *st);
    lock_acquire(&threads.lock, RANK_THREADS);
    st->counts = threads.ended;
    st->threads = threads.nlive;
    for (struct tcache *tc = threads.live; tc != NULL; tc = tc->next) {
        add_counts(&st->counts, &tc->counts);
        count_cached(tc, st->cached);
    }
    for (struct tcache *tc = threads.orphans; tc != NULL; tc = tc->next)
        count_cached(tc, st->cached);
    lock_release(&threads.lock);
}

static void check_slots(const struct sheaf *s, uint32_t n, unsigned tag)
{
    CHECK(s->slot[0] == NULL);
    CHECK(s->slot[s->cap + 1] == SHEAF_END);
    CHECK(n <= s->cap);
    for (uint32_t i = 1; i <= n; i++)
        CHECK_EQ(pmap_tag(s->slot[i]), tag);
}

void tcache_check(void)
{
    const struct tcache *tc = tcache_self();
    size_t earned = 0;
    if (tc->state != TCACHE_LIVE) { /* an image: nothing but tops */
        for (class_t c = 0; c < SIZE_CLASSES; c++)
            CHECK(tc->top[c] == NOTHING_TOP);
        return;
    }
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        const struct tcache_bin *b = &tc->bin[c];
        if (b->main == NULL)
            CHECK(tc->top[c] == NOTHING_TOP);
        else
            check_slots(b->main, sheaf_count(b->main, tc->top[c]), tag_make(c, tc->node));
        if (b->spare != NULL)
            check_slots(b->spare, b->spare->n, tag_make(c, tc->node));
        CHECK_EQ(b->spare_n, b->spare == NULL ? 0 : b->spare->n);
        earned += 2 * class_to_size(c) * b->cap;
    }
    CHECK_EQ(earned, tc->earned);
    remote_check(&tc->remote);
}

void tcache_fork_hold(void)
{
    lock_fork_hold(&threads.lock, RANK_THREADS);
}

void tcache_fork_open(bool child)
{
    struct tcache *self = tcache_self();
    if (child) {
        if (self->state == TCACHE_LIVE)
            unlink_locked(&threads.live, self);
        struct tcache *last = threads.live;
        while (last != NULL && last->next != NULL)
            last = last->next;
        if (last != NULL) {
            last->next = threads.orphans;
            if (threads.orphans != NULL)
                threads.orphans->prev = last;
            store_relaxed(&threads.orphans, threads.live);
            store_relaxed(&threads.adopted, 0);
        }
        threads.live = self->state == TCACHE_LIVE ? self : NULL;
        threads.nlive = self->state == TCACHE_LIVE;
    }
    lock_fork_open(&threads.lock);
}
