/* SPDX-License-Identifier: BSD-2-Clause */
#include "slab.h"

#include "dbg.h"
#include "limit.h"
#include "meta.h"
#include "misuse.h"
#include "opt.h"
#include "pcp.h"
#include "rank.h"
#include "slab_impl.h"
#include "zone.h"

#include <string.h>

enum {
    LOOK_AHEAD = 32,
    INLINE_WORDS = 2,
    LIMIT_LOOKS = 32, /* slabs looked at for one whose pages are charged already, where the hard limit refuses more */
};

struct slabs all_slabs[NUMA_NODES][SIZE_CLASSES];

/* ---- geometry ---- */

static struct page *head_of(struct page *pg)
{
    return pg != NULL && pg->kind == PAGE_SLAB_TAIL ? pg->head : pg;
}

static struct page *slab_of(const void *p)
{
    return head_of(pmap_page(p));
}

static struct page *fullest(const struct slabs *s)
{
    for (int b = 0; b <= SLAB_BUCKETS; b++)
        if (s->list[b].head != NULL)
            return s->list[b].head;
    return NULL;
}

/* ---- a slab's life ---- */

static size_t bits_bytes(class_t c)
{
    return slab_words(c) * sizeof(uint64_t);
}

static void fill_bits(struct page *pg, class_t c)
{
    unsigned objs = size_info[c].objs;
    memset(pg->bits, 0xff, bits_bytes(c));
    if (objs % 64 != 0)
        pg->bits[objs / 64] = ((uint64_t)1 << (objs % 64)) - 1;
}

/* Make a slab of a run of pages. Nobody else sees it yet: no lock. Fails: false, the pages have gone back. */
static bool dress_slab(struct page *pg, class_t c, unsigned node)
{
    pg->order = size_info[c].order;
    pg->bits = slab_words(c) <= INLINE_WORDS ? pg->inline_bits : meta_alloc(bits_bytes(c));
    if (pg->bits == NULL) {
        pcp_free(pg, pg->order, pg->zeroed);
        return false;
    }
    pg->class = (uint8_t)c;
    fill_bits(pg, c);
    pg->nfree = size_info[c].objs;
    pg->bucket = NO_BUCKET;
    pg->nclean = (uint8_t)clean_count(pg);
    pg->flight = pg->epoch = 0;
    page_set_kind(pg, PAGE_SLAB);
    for (size_t i = 1; i < pg->npages; i++) {
        struct page *tail = pmap_page_init(page_address(pg) + i * PAGE_BYTES);
        tail->head = pg;
        page_set_kind(tail, PAGE_SLAB_TAIL);
    }
    pmap_set_tags(pg, pg->npages, tag_make(c, node)); /* INV-PMAP-1 */
    limit_uncharge((size_t)pg->nclean << clean_shift()); /* INV-SLAB-6 */
    return true;
}

/* Pages for the next slabs of a class: a class with many slabs takes several in one run, as many as it may keep empty, so
 * that its slabs lie together and leave long free runs behind when they go. */
static struct page *pages_for(const struct slabs *s, class_t c, unsigned node)
{
    unsigned order = size_info[c].order;
    size_t many = load_relaxed(&s->nslabs) >> SLAB_EMPTY_SHIFT, most = (size_t)SLAB_RUN_PAGES >> order;
    many = many < most ? many : most;
    struct page *run = many < 2 ? NULL : zone_alloc(node, many << order, 1);
    return run != NULL ? run : pcp_alloc(node, order);
}

/* New slabs, linked by next. Fails: NULL, no memory. */
static struct page *slabs_new(const struct slabs *s, class_t c, unsigned node)
{
    size_t npages = (size_t)1 << size_info[c].order;
    struct page *list = NULL, *pg = pages_for(s, c, node);
    while (pg != NULL) {
        struct page *rest = pg->npages > npages ? zone_split(pg, pg->npages - npages) : NULL;
        struct page *slab = rest != NULL ? rest : pg;
        if (dress_slab(slab, c, node)) {
            slab->next = list;
            list = slab;
        }
        pg = rest != NULL ? pg : NULL;
    }
    return list;
}

static void enter_locked(struct slabs *s, struct page *fresh)
{
    for (struct page *next; fresh != NULL; fresh = next) {
        next = fresh->next;
        slab_relist(s, fresh);
        owner_add(&s->nslabs, 1);
        owner_add(&s->free_objs, size_info[fresh->class].objs);
        s->clean += fresh->nclean;
        s->made++;
    }
}

/* Unlink a wholly free slab; from here on no pointer into it is valid. */
static void retire_locked(struct slabs *s, struct page *pg)
{
    slab_list_remove(&s->list[SLAB_BUCKETS], pg);
    s->nempty--;
    s->clean -= pg->nclean;
    owner_add(&s->nslabs, (size_t)-1);
    owner_add(&s->free_objs, -(size_t)size_info[pg->class].objs);
    s->released++;
    pmap_set_tags(pg, pg->npages, 0);
    page_set_kind(pg, PAGE_CACHED);
}

void slab_release(struct page *pg)
{
    for (struct page *next; pg != NULL; pg = next) {
        next = pg->next;
        bool zeroed = pg->nclean == clean_units(pg->npages); /* the masks stay with the pages */
        limit_charge_anyway((size_t)pg->nclean << clean_shift()); /* below, pages are charged as a whole */
        for (size_t i = 1; i < pg->npages; i++)
            page_set_kind(pmap_page(page_address(pg) + i * PAGE_BYTES), PAGE_NONE);
        if (pg->bits != pg->inline_bits)
            meta_free(pg->bits, bits_bytes(pg->class));
        pcp_free(pg, size_info[pg->class].order, zeroed);
    }
}

/* ---- taking objects ---- */

/* Take the rest of a cache line's group of objects behind bit i, as far as they are free and there is room. */
static unsigned take_group(uint64_t *bits, unsigned i, unsigned group, char *base, size_t size, void **out,
                           unsigned room)
{
    unsigned n = 0;
    while ((i + 1) % group != 0 && n < room && (*bits >> ((i + 1) % 64) & 1) != 0) {
        i++;
        *bits &= ~((uint64_t)1 << (i % 64));
        out[n++] = base + i * size;
    }
    return n;
}

static unsigned take(struct page *pg, void **out, unsigned want, unsigned room)
{
    class_t c = pg->class;
    size_t size = class_to_size(c);
    char *base = page_address(pg);
    unsigned n = 0, last = 0;
    uint64_t *word = NULL;
    for (unsigned w = 0, words = slab_words(c); w < words && n < want; w++) {
        uint64_t bits = pg->bits[w];
        if (bits == 0)
            continue;
        word = &pg->bits[w];
        for (; bits != 0 && n < want; bits &= bits - 1) {
            last = w * 64 + (unsigned)__builtin_ctzll(bits);
            out[n++] = base + last * size;
        }
        *word = bits;
    }
    if (n == want && n < room)
        n += take_group(word, last, size_info[c].group, base, size, out + n, room - n);
    pg->nfree = (uint16_t)(pg->nfree - n);
    return n;
}

/* Objects of a slab with clean os pages are handed out: what lies between the first and the last is clean no more. */
static void unclean_locked(struct slabs *s, struct page *pg, const char *first, const char *last)
{
    unsigned shift = clean_shift();
    unsigned from = (unsigned)((size_t)(first - page_address(pg)) >> shift);
    unsigned to = (unsigned)(((size_t)(last - page_address(pg)) + class_to_size(pg->class) - 1) >> shift);
    unsigned cleared = clean_clear(pg, from, to - from + 1);
    pg->nclean = (uint8_t)(pg->nclean - cleared);
    s->clean -= cleared;
    if (UNLIKELY(opt.hard_limit != 0)) /* all that were clean are charged: affordable() */
        limit_uncharge((size_t)pg->nclean << clean_shift());
    else
        limit_charge_anyway((size_t)cleared << clean_shift());
}

/* May the slab's clean os pages come into use? With a hard limit all of them are charged until it is known which do. */
static bool affordable(const struct page *pg)
{
    return LIKELY(opt.hard_limit == 0) || limit_charge((size_t)pg->nclean << clean_shift());
}

/* Where a limit refuses the fullest slab: one that costs nothing, among the first few. */
COLD static struct page *costless(const struct slabs *s)
{
    unsigned looks = 0;
    for (int b = 0; b <= SLAB_BUCKETS; b++)
        for (struct page *pg = s->list[b].head; pg != NULL && looks++ < LIMIT_LOOKS; pg = pg->next)
            if (pg->nclean == 0)
                return pg;
    return NULL;
}

/* fresh: a slab that was made for this, or NULL. */
static struct page *next_to_take(const struct slabs *s, struct page *fresh)
{
    struct page *pg = fullest(s);
    if (LIKELY(pg == NULL || pg->nclean == 0 || affordable(pg)) || (pg = costless(s)) != NULL)
        return pg;
    return fresh != NULL && fresh->nfree != 0 && affordable(fresh) ? fresh : NULL;
}

static unsigned take_locked(struct slabs *s, struct page *fresh, void **out, unsigned want, unsigned room)
{
    unsigned n = 0;
    while (n < want) {
        struct page *pg = next_to_take(s, fresh);
        if (pg == NULL)
            break;
        unsigned part = take(pg, out + n, want - n, room - n);
        if (pg->nclean != 0)
            unclean_locked(s, pg, out[n], out[n + part - 1]);
        n += part;
        slab_relist(s, pg);
    }
    owner_add(&s->free_objs, -(size_t)n);
    s->refills += n > 0;
    return n;
}

unsigned slab_alloc_bulk(class_t c, unsigned node, void **out, unsigned want, unsigned room)
{
    struct slabs *s = &all_slabs[node][c];
    struct page *fresh = NULL;
    unsigned most = want < room ? want : room;
    most = most < SLAB_HOLD_OBJS ? most : SLAB_HOLD_OBJS;
    for (bool again = true;; again = false) {
        lock_acquire(&s->lock, RANK_SLAB);
        enter_locked(s, fresh);
        unsigned n = take_locked(s, fresh, out, most, room);
        lock_release(&s->lock);
        if (n > 0 || !again || (fresh = slabs_new(s, c, node)) == NULL)
            return n;
    }
}

/* ---- giving objects back ---- */

static bool on_grid(const struct page *pg, class_t c, const void *p, unsigned *index)
{
    size_t offset = pmap_strip(p) - (uintptr_t)page_address(pg);
    *index = size_index(c, offset);
    return *index * class_to_size(c) == offset && *index < size_info[c].objs;
}

/* Its bit says so, or it lies in a hole that is being given back. Lock held. */
static bool is_free(const struct page *pg, unsigned i)
{
    return (pg->bits[i / 64] >> (i % 64) & 1) != 0 || (UNLIKELY(pg->flight != 0) && slab_hole_covers(pg, i));
}

/* Say what is wrong with a pointer that was taken for an object of class c. No lock held. */
COLD _Noreturn static void complain(const struct page *pg, class_t c, const void *p, const char *func)
{
    struct misuse m = {.func = func, .p = p, .size = class_to_size(c), .kind = "slab"};
    unsigned index;
    if (pg == NULL || pg->kind != PAGE_SLAB || pg->class != c) { /* its slab is gone: it was free before */
        m.base = (void *)(pmap_strip(p) & ~(PAGE_BYTES - 1));
        m.what = "double free";
        m.state = "already free";
    } else {
        m.base = page_address(pg);
        bool good = on_grid(pg, c, p, &index);
        m.what = good ? "double free" : "not the start of a block";
        m.state = good ? "already free" : NULL;
    }
    misuse_abort(&m);
}

/* Mark one object free. Fails: false, nothing changed: the pointer is wrong. */
static bool put_locked(struct slabs *s, class_t c, struct page *pg, const void *p)
{
    unsigned i;
    if (UNLIKELY(pg == NULL || pg->kind != PAGE_SLAB || pg->class != c || !on_grid(pg, c, p, &i) || is_free(pg, i)))
        return false;
    pg->bits[i / 64] |= (uint64_t)1 << (i % 64);
    pg->nfree++;
    slab_relist(s, pg);
    return true;
}

/* Mark up to LOOK_AHEAD objects free, their descriptors fetched ahead. Result: objects done; fewer: the next is wrong. */
static unsigned put_some_locked(struct slabs *s, class_t c, void *const *objs, unsigned n)
{
    struct page *pg[LOOK_AHEAD];
    for (unsigned i = 0; i < n; i++) {
        pg[i] = pmap_page(objs[i]);
        __builtin_prefetch(pg[i], 1);
    }
    for (unsigned i = 0; i < n; i++)
        if (UNLIKELY(!put_locked(s, c, head_of(pg[i]), objs[i])))
            return i;
    return n;
}

struct page *slab_collect_locked(struct slabs *s, size_t keep)
{
    struct page *list = NULL;
    for (unsigned n = 0; s->nempty > keep && n < SLAB_HOLD_SLABS; n++) {
        struct page *pg = s->list[SLAB_BUCKETS].head;
        retire_locked(s, pg);
        pg->next = list;
        list = pg;
    }
    return list;
}

static unsigned free_hold(struct slabs *s, class_t c, void *const *objs, unsigned n, struct page **retired)
{
    unsigned done = 0, part, got;
    lock_acquire(&s->lock, RANK_SLAB);
    do {
        part = n - done < LOOK_AHEAD ? n - done : LOOK_AHEAD;
        got = put_some_locked(s, c, objs + done, part);
        done += got;
    } while (got == part && done < n && done < SLAB_HOLD_OBJS);
    owner_add(&s->free_objs, done);
    s->flushed_objs += done;
    *retired = slab_collect_locked(s, slab_allowance(s));
    lock_release(&s->lock);
    return got == part ? done : done | 1u << 31;
}

void slab_free_bulk(class_t c, unsigned node, void *const *objs, unsigned n, const char *func)
{
    struct slabs *s = &all_slabs[node][c];
    for (unsigned done = 0; done < n;) {
        struct page *retired;
        unsigned got = free_hold(s, c, objs + done, n - done, &retired);
        if (UNLIKELY(got >> 31 != 0)) {
            const void *p = objs[done + (got & ~(1u << 31))];
            complain(slab_of(p), c, p, func);
        }
        done += got;
        slab_release(retired);
    }
}

void slab_verify(const void *p, const char *func)
{
    unsigned tag = pmap_tag(p);
    class_t c = tag_class(tag);
    if (tag == 0 || c >= SIZE_CLASSES)
        return;
    struct slabs *s = &all_slabs[tag >> TAG_NODE_SHIFT][c];
    unsigned i;
    lock_acquire(&s->lock, RANK_SLAB);
    struct page *pg = slab_of(p);
    bool good = pg != NULL && pg->kind == PAGE_SLAB && on_grid(pg, c, p, &i) && !is_free(pg, i);
    lock_release(&s->lock);
    if (!good)
        complain(pg, c, p, func);
}

size_t slab_trim(class_t c, unsigned node)
{
    struct slabs *s = &all_slabs[node][c];
    size_t n = 0, before, left;
    do {
        lock_acquire(&s->lock, RANK_SLAB);
        before = s->nempty;
        struct page *list = slab_collect_locked(s, 0);
        left = s->nempty;
        lock_release(&s->lock);
        slab_release(list);
        n += before - left;
    } while (left > 0);
    return n;
}

static bool mostly_free(const struct slabs *s, class_t c)
{
    return load_relaxed(&s->free_objs) * 2 > load_relaxed(&s->nslabs) * size_info[c].objs;
}

bool slab_draining(class_t c, unsigned node)
{
    const struct slabs *s = &all_slabs[node][c];
    return mostly_free(s, c) && load_relaxed(&s->free_objs) * class_to_size(c) > SLAB_DRAIN_BYTES;
}

bool slab_small_and_empty(class_t c, unsigned node)
{
    const struct slabs *s = &all_slabs[node][c];
    return load_relaxed(&s->nslabs) <= SLAB_FEW && mostly_free(s, c);
}

/* ---- looking at it ---- */

struct slab_stats slab_stats(class_t c, unsigned node)
{
    struct slabs *s = &all_slabs[node][c];
    lock_acquire(&s->lock, RANK_SLAB);
    struct slab_stats st = {
        .slabs = s->nslabs,
        .empty = s->nempty,
        .free_objs = s->free_objs + s->flight_objs,
        .clean = s->clean << clean_shift(),
        .made = s->made,
        .released = s->released,
        .refills = s->refills,
        .flushed_objs = s->flushed_objs,
        .hole_bytes = s->hole_bytes,
        .hole_calls = s->hole_calls,
        .hole_failures = s->hole_failures,
        .lock_acquired = s->lock.acquired,
        .lock_contended = s->lock.contended,
    };
    lock_release(&s->lock);
    return st;
}

/* Every object that touches a clean os page is free (INV-SLAB-5). */
static void check_clean(const struct page *pg, class_t c)
{
    size_t size = class_to_size(c);
    unsigned shift = clean_shift();
    CHECK_EQ(clean_count(pg), pg->nclean);
    for (unsigned i = 0; pg->nclean != 0 && i < size_info[c].objs; i++)
        for (size_t unit = i * size >> shift; unit <= ((i + 1) * size - 1) >> shift; unit++)
            CHECK(!clean_test(pg, (unsigned)unit) || is_free(pg, i));
}

static void check_slab(struct page *pg, class_t c, unsigned bucket)
{
    unsigned set = 0;
    for (unsigned w = 0; w < slab_words(c); w++)
        set += (unsigned)__builtin_popcountll(pg->bits[w]);
    CHECK_EQ(set, pg->nfree);
    if (size_info[c].objs % 64 != 0)
        CHECK_EQ(pg->bits[size_info[c].objs / 64] >> (size_info[c].objs % 64), 0);
    CHECK_EQ(pg->bucket, bucket);
    CHECK_EQ(pg->nfree == size_info[c].objs && pg->flight == 0, bucket == SLAB_BUCKETS);
    check_clean(pg, c);
    for (size_t i = 0; i < pg->npages; i++) {
        char *a = page_address(pg) + i * PAGE_BYTES;
        CHECK_EQ(tag_class(pmap_tag(a)), c);
        CHECK(slab_of(a) == pg);
    }
}

/* Slabs on no list are full; where none has pages in flight, only their ends can be clean. */
static void check_sums(const struct slabs *s, class_t c, size_t listed, size_t clean)
{
    size_t waste = (PAGE_BYTES << size_info[c].order) - size_info[c].objs * class_to_size(c);
    CHECK(listed <= s->nslabs);
    CHECK(clean <= s->clean);
    if (s->flight_objs == 0)
        CHECK(s->clean - clean <= (s->nslabs - listed) * (waste >> clean_shift()));
}

void slab_check(class_t c, unsigned node)
{
    struct slabs *s = &all_slabs[node][c];
    size_t free_objs = 0, listed[2] = {0}, clean = 0;
    lock_acquire(&s->lock, RANK_SLAB);
    for (unsigned b = 0; b <= SLAB_BUCKETS; b++) {
        struct page *last = NULL;
        for (struct page *pg = s->list[b].head; pg != NULL; last = pg, pg = pg->next) {
            CHECK(pg->prev == last);
            check_slab(pg, c, b);
            free_objs += pg->nfree;
            clean += pg->nclean;
            listed[b == SLAB_BUCKETS]++;
        }
        CHECK(s->list[b].tail == last);
    }
    CHECK_EQ(free_objs, s->free_objs);
    CHECK_EQ(listed[1], s->nempty);
    check_sums(s, c, listed[0] + listed[1], clean);
    lock_release(&s->lock);
}

void slab_fork_hold(void)
{
    for (unsigned n = 0; n < numa_count(); n++)
        for (class_t c = 0; c < SIZE_CLASSES; c++)
            lock_fork_hold(&all_slabs[n][c].lock, RANK_SLAB);
}

void slab_fork_open(bool child)
{
    if (child)
        slab_holes_fork_child();
    for (unsigned n = 0; n < numa_count(); n++)
        for (class_t c = 0; c < SIZE_CLASSES; c++)
            lock_fork_open(&all_slabs[n][c].lock);
}
