/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/zone.h against a model: one state for every page of every window, compared page by page after each step with what
 * the zone's blocks say. Each trace runs in a forked child, which may set limits and options as it likes.
 */
#include "unit.h"

#include "compat/os/bits.h"
#include "compat/os/vm.h"
#include "core/block.h"
#include "core/clean.h"
#include "core/large.h"
#include "core/limit.h"
#include "core/opt.h"
#include "core/region.h"
#include "core/zone.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- the model ---- */

enum state { ABSENT, OUT, CLEAN, DIRTY, LAZY };

enum { LEAVES = 16, HELD = 64, LEAF_PAGES = PMAP_LEAF_PAGES };

struct model_leaf {
    uintptr_t number; /* address >> PMAP_LEAF_SHIFT */
    unsigned char *page; /* enum state */
    uint16_t *clean;     /* of dirty pages: the mask that their last owner left */
    bool ours[PMAP_LEAF_BLOCKS]; /* blocks with pages of a window */
};

static struct {
    struct model_leaf leaf[LEAVES];
    unsigned leaves;
    size_t windows; /* bytes */
} model;

static unsigned char *leaf_pages(uintptr_t number, bool make)
{
    for (unsigned i = 0; i < model.leaves; i++)
        if (model.leaf[i].number == number)
            return model.leaf[i].page;
    if (!make)
        return NULL;
    MUST(model.leaves < LEAVES);
    struct model_leaf *l = &model.leaf[model.leaves++];
    l->number = number;
    l->page = calloc(LEAF_PAGES, 1);
    l->clean = calloc(LEAF_PAGES, sizeof *l->clean);
    MUST(l->page != NULL && l->clean != NULL);
    return l->page;
}

static unsigned char *at(const char *a)
{
    uintptr_t n = (uintptr_t)a;
    unsigned char *pages = leaf_pages(n >> PMAP_LEAF_SHIFT, true);
    for (unsigned i = 0; i < model.leaves; i++)
        if (model.leaf[i].page == pages)
            model.leaf[i].ours[n >> BLOCK_SHIFT & (PMAP_LEAF_BLOCKS - 1)] = true;
    return &pages[n >> PAGE_SHIFT & (LEAF_PAGES - 1)];
}

static uint16_t *clean_at(const char *a)
{
    uintptr_t n = (uintptr_t)a;
    for (unsigned i = 0; i < model.leaves; i++)
        if (model.leaf[i].number == n >> PMAP_LEAF_SHIFT)
            return &model.leaf[i].clean[n >> PAGE_SHIFT & (LEAF_PAGES - 1)];
    abort();
}

static enum state state_of(const char *a)
{
    uintptr_t n = (uintptr_t)a;
    const unsigned char *pages = leaf_pages(n >> PMAP_LEAF_SHIFT, false);
    return pages == NULL ? ABSENT : (enum state)pages[n >> PAGE_SHIFT & (LEAF_PAGES - 1)];
}

static enum state real_state(const struct block *b, unsigned page)
{
    uint32_t bit = (uint32_t)1 << page;
    MUST((b->flight & bit) == 0);
    return (b->free & bit) == 0 ? OUT : (b->dirty & bit) != 0 ? DIRTY : (b->lazy & bit) != 0 ? LAZY : CLEAN;
}

/* Take over the state of a window's pages as it is. A new one is all clean, but for what was taken at once. */
static void learn_window(const struct region *r)
{
    for (char *a = r->base; a < r->base + r->size; a += PAGE_BYTES) {
        MUST(state_of(a) == ABSENT);
        *at(a) = (unsigned char)real_state(pmap_block(a), (unsigned)((uintptr_t)a >> PAGE_SHIFT) % BLOCK_PAGES);
    }
    model.windows += r->size;
}

/* Windows that the model has not seen, by their free pages. */
static void learn(void)
{
    struct region r;
    if (model.windows == region_stats().bytes[REGION_ZONE])
        return;
    for (uintptr_t root = 0; root < 1u << PMAP_ROOT_BITS; root++) {
        uintptr_t a = root << PMAP_LEAF_SHIFT, end = pmap_root[root] == 0 ? a : a + ((uintptr_t)1 << PMAP_LEAF_SHIFT);
        for (; a < end; a += PAGE_BYTES) {
            char *p = (char *)a;
            if ((pmap_block(p)->free >> (a >> PAGE_SHIFT) % BLOCK_PAGES & 1) == 0 || state_of(p) != ABSENT)
                continue;
            MUST(region_find(p, &r) && r.kind == REGION_ZONE);
            learn_window(&r);
        }
    }
    MUST(model.windows == region_stats().bytes[REGION_ZONE]);
}

/* Everything is as the model says. */
static void compare(void)
{
    size_t sum[LAZY + 1] = {0};
    for (unsigned l = 0; l < model.leaves; l++)
        for (unsigned i = 0; i < LEAF_PAGES; i += BLOCK_PAGES) {
            const unsigned char *page = model.leaf[l].page + i;
            const struct block *b =
                pmap_block((char *)(model.leaf[l].number << PMAP_LEAF_SHIFT | (uintptr_t)i << PAGE_SHIFT));
            if (!model.leaf[l].ours[i / BLOCK_PAGES]) {
                MUST(b->free == 0);
                continue;
            }
            for (unsigned k = 0; k < BLOCK_PAGES; k++) {
                sum[page[k]]++;
                if (page[k] == ABSENT)
                    MUST((b->free >> k & 1) == 0);
                else
                    MUST(page[k] == real_state(b, k));
            }
        }
    struct zone_stats z = zone_stats(NODE);
    MUST(z.out == sum[OUT] << PAGE_SHIFT);
    MUST(z.dirty == sum[DIRTY] << PAGE_SHIFT);
    MUST(z.lazy == sum[LAZY] << PAGE_SHIFT);
    MUST(z.clean == sum[CLEAN] << PAGE_SHIFT);
    zone_check(NODE);
    /* what may be resident is charged, and nothing else */
    MUST(unit_charged_whole() == z.out + z.dirty + region_stats().bytes[REGION_OWN]);
}

static void forget(void)
{
    for (unsigned l = 0; l < model.leaves; l++) {
        free(model.leaf[l].page);
        free(model.leaf[l].clean);
    }
    memset(&model, 0, sizeof model);
}

/* ---- what a request could have had ---- */

/* The state that a whole range of pages shares, ABSENT if it differs or is not free. */
static enum state common_state(const char *a, size_t npages)
{
    enum state s = state_of(a);
    for (size_t i = 1; i < npages; i++)
        if (state_of(a + i * PAGE_BYTES) != s)
            return ABSENT;
    return s == OUT ? ABSENT : s;
}

static bool is_free(const char *a, size_t npages)
{
    for (size_t i = 0; i < npages; i++)
        if (state_of(a + i * PAGE_BYTES) <= OUT)
            return false;
    return true;
}

static size_t count_state(const char *a, size_t npages, enum state s)
{
    size_t n = 0;
    for (size_t i = 0; i < npages; i++)
        n += state_of(a + i * PAGE_BYTES) == s;
    return n;
}

struct view {
    bool fits;        /* a free aligned piece */
    bool dirty_fits;  /* one that is all dirty, in a block that is not wholly free */
    unsigned fullest; /* most pages in use of a block with a dirty fit, or else with any */
    unsigned fullest_dirty;
};

/* Pieces of up to 16 pages. */
static struct view look_for_piece(unsigned order)
{
    struct view v = {0};
    for (unsigned l = 0; l < model.leaves; l++)
        for (unsigned i = 0; i < LEAF_PAGES; i += BLOCK_PAGES) {
            const char *a = (char *)(model.leaf[l].number << PMAP_LEAF_SHIFT | (uintptr_t)i << PAGE_SHIFT);
            if (!model.leaf[l].ours[i / BLOCK_PAGES])
                continue;
            unsigned free = BLOCK_PAGES - (unsigned)(count_state(a, BLOCK_PAGES, OUT) + count_state(a, BLOCK_PAGES, ABSENT));
            if (free == 0)
                continue;
            for (unsigned k = 0; k < BLOCK_PAGES; k += 1u << order) {
                const char *piece = a + k * PAGE_BYTES;
                v.fits = v.fits || is_free(piece, (size_t)1 << order);
                if (free == BLOCK_PAGES || !is_free(piece, (size_t)1 << order))
                    continue;
                if (BLOCK_PAGES - free > v.fullest)
                    v.fullest = BLOCK_PAGES - free;
                if (common_state(piece, (size_t)1 << order) != DIRTY)
                    continue;
                v.dirty_fits = true;
                if (BLOCK_PAGES - free > v.fullest_dirty)
                    v.fullest_dirty = BLOCK_PAGES - free;
            }
        }
    return v;
}

/* Whole blocks, free and all dirty or all not: does an aligned run of them exist? */
static bool look_for_blocks(size_t nblocks, size_t align_blocks)
{
    for (unsigned l = 0; l < model.leaves; l++)
        for (uintptr_t i = 0; i < PMAP_LEAF_BLOCKS; i++) {
            uintptr_t number = model.leaf[l].number << (PMAP_LEAF_SHIFT - BLOCK_SHIFT) | i;
            if (number % align_blocks != 0 || !model.leaf[l].ours[i])
                continue;
            size_t dirty = 0, other = 0;
            for (size_t k = 0; k < nblocks; k++) {
                const char *a = (char *)((number + k) << BLOCK_SHIFT);
                if (!is_free(a, BLOCK_PAGES))
                    break;
                *(count_state(a, BLOCK_PAGES, DIRTY) != 0 ? &dirty : &other) += 1;
            }
            if (dirty == nblocks || other == nblocks)
                return true;
        }
    return false;
}

static unsigned in_use_beside(const char *a)
{
    const char *block = (char *)((uintptr_t)a & ~(BLOCK_BYTES - 1));
    return (unsigned)(count_state(block, BLOCK_PAGES, OUT) + count_state(block, BLOCK_PAGES, ABSENT));
}

/* ---- steps ---- */

struct held {
    struct page *pg;
    size_t npages;
    uint64_t id; /* 0: reads as zero */
};

static struct held held[HELD];
static size_t held_most;  /* pages that the trace may hold */
static size_t masks_kept; /* dirty pages that came back with something clean in them */

enum { STEP = 4096 };

static uint64_t word_for(uint64_t id, const char *a)
{
    return id == 0 ? 0 : (id * 0x9e3779b97f4a7c15u ^ (uintptr_t)a) | 1;
}

/* A word in every 4 KiB, at a place that differs from one to the next. */
static uint64_t *word_at(char *a)
{
    return (uint64_t *)(a + (uintptr_t)a / STEP * 8 % STEP);
}

static void mark(struct held *h, uint64_t id)
{
    char *a = page_address(h->pg);
    h->id = id;
    for (size_t i = 0; i < h->npages * PAGE_BYTES; i += STEP)
        *word_at(a + i) = word_for(id, a + i);
}

static bool intact(const struct held *h)
{
    char *a = page_address(h->pg);
    for (size_t i = 0; i < h->npages * PAGE_BYTES; i += STEP)
        if (*word_at(a + i) != word_for(h->id, a + i))
            return false;
    return true;
}

static size_t pages_held(void)
{
    size_t n = 0;
    for (int i = 0; i < HELD; i++)
        n += held[i].pg != NULL ? held[i].npages : 0;
    return n;
}

/* Of a dirty page: no more is clean than its last owner said, and each such os page reads as zero. */
static void clean_mask_is_true(const char *page, uint16_t clean)
{
    MUST((clean & ~*clean_at(page)) == 0);
    for (unsigned i = 0; i < clean_units(1); i++)
        if ((clean >> i & 1) != 0)
            MUST(unit_is_zero(page + ((size_t)i << clean_shift()), vm_page_size()));
    masks_kept += clean != 0;
}

/* Pages have left the zone: were they free, is what it says of them true? */
static void took(struct page *pg, size_t npages)
{
    char *a = page_address(pg);
    MUST(is_free(a, npages));
    MUST(pg->npages == npages && pg->kind == PAGE_CACHED && pg->node == NODE);
    MUST(pg->zeroed == (common_state(a, npages) == CLEAN)); /* lazy pages are not known to be zero */
    if (pg->zeroed)
        MUST(unit_is_zero(a, npages * PAGE_BYTES));
    for (size_t i = 0; i < npages; i++) {
        char *page = a + i * PAGE_BYTES;
        enum state s = state_of(page);
        if (npages <= BLOCK_PAGES && s == DIRTY)
            clean_mask_is_true(page, pg[i].clean);
        else if (npages <= BLOCK_PAGES)
            MUST(pg[i].clean == (s == CLEAN ? clean_all() : 0));
        if (s == CLEAN)
            MUST(*(uint64_t *)page == 0);
        *at(page) = OUT;
    }
}

static void gave(const char *a, size_t npages, enum state s)
{
    for (size_t i = 0; i < npages; i++) {
        *at(a + i * PAGE_BYTES) = (unsigned char)s;
        *clean_at(a + i * PAGE_BYTES) = 0;
    }
}

static size_t any_length(uint64_t *seed)
{
    size_t kind = unit_below(seed, 10);
    return kind < 6 ? 1 + unit_below(seed, 16) : kind < 8 ? 1 + unit_below(seed, 33) : 1 + unit_below(seed, 200);
}

static void hold(struct held *h, struct page *pg, uint64_t *seed, uint64_t id)
{
    h->pg = pg;
    h->npages = pg->npages;
    h->id = 0;
    if (!pg->zeroed || unit_below(seed, 4) != 0)
        mark(h, id);
}

/* Would the hard limit refuse so many pages? */
static bool limited(size_t pages)
{
    return opt.hard_limit != 0 && limit_stats().charged + pages * PAGE_BYTES > opt.hard_limit;
}

/* A request without a new window: it fails only where nothing fits, and takes what the header promises. */
static void step_try(struct held *h, uint64_t *seed, uint64_t id)
{
    size_t npages = any_length(seed), align = unit_below(seed, 3) != 0 ? 1 : (size_t)1 << unit_below(seed, 8);
    unsigned order = ilog2_up(npages) > ilog2_up(align) ? ilog2_up(npages) : ilog2_up(align);
    struct page *pg;
    if (order >= BLOCK_ORDER) {
        size_t nblocks = (npages + BLOCK_PAGES - 1) / BLOCK_PAGES;
        bool fits = look_for_blocks(nblocks, align <= BLOCK_PAGES ? 1 : align / BLOCK_PAGES);
        pg = zone_try_alloc(NODE, npages, align);
        MUST(pg != NULL || !fits || limited(npages));
    } else {
        struct view v = look_for_piece(order);
        pg = zone_try_alloc(NODE, npages, align);
        MUST((pg != NULL) == v.fits || (pg == NULL && limited(npages)));
        if (pg != NULL && npages == (size_t)1 << order && v.dirty_fits) {
            MUST(common_state(page_address(pg), npages) == DIRTY); /* dirty ones first, of the fullest block */
            MUST(in_use_beside(page_address(pg)) / 4 == v.fullest_dirty / 4);
        } else if (pg != NULL && common_state(page_address(pg), npages) == CLEAN && v.fullest > 0) {
            MUST(in_use_beside(page_address(pg)) / 4 == v.fullest / 4);
        }
    }
    if (pg == NULL)
        return;
    MUST((uintptr_t)page_address(pg) % (align * PAGE_BYTES) == 0);
    took(pg, npages);
    hold(h, pg, seed, id);
}

static void all_dirty_are(enum state s)
{
    for (unsigned l = 0; l < model.leaves; l++)
        for (unsigned i = 0; i < LEAF_PAGES; i++)
            if (model.leaf[l].page[i] == DIRTY)
                model.leaf[l].page[i] = (unsigned char)s;
}

static void step_alloc(struct held *h, uint64_t *seed, uint64_t id)
{
    size_t npages = any_length(seed), align = (size_t)1 << (unit_below(seed, 12) == 0 ? unit_below(seed, 11) : 0);
    size_t purged = zone_stats(NODE).purged;
    struct page *pg = zone_alloc(NODE, npages, align);
    if (zone_stats(NODE).purged != purged) /* where there is no space, or a limit, all dirty pages go first */
        all_dirty_are(opt.madv_free ? LAZY : CLEAN);
    size_t windows = model.windows;
    learn(); /* the run may lie in a new window: there it is OUT already, and was clean */
    if (pg == NULL) {
        MUST(zone_stats(NODE).dirty == 0);
        return;
    }
    if (model.windows != windows)
        for (size_t i = 0; i < npages; i++) {
            char *a = page_address(pg) + i * PAGE_BYTES;
            if (state_of(a) == OUT)
                *at(a) = CLEAN;
        }
    MUST((uintptr_t)page_address(pg) % (align * PAGE_BYTES) == 0);
    took(pg, npages);
    hold(h, pg, seed, id);
}

static void step_some(struct held *h, uint64_t *seed, uint64_t id)
{
    unsigned order = (unsigned)unit_below(seed, RUN_ORDER_MAX + 1);
    size_t npages = ((size_t)1 << order) + unit_below(seed, BLOCK_PAGES - ((size_t)1 << order) + 1);
    struct view v = look_for_piece(order);
    struct page *pg = zone_try_alloc_some(NODE, order, npages);
    MUST((pg != NULL) == v.fits || (pg == NULL && limited(npages)));
    if (pg == NULL)
        return;
    MUST(pg->npages <= npages && pg->npages % (1u << order) == 0 && pg->npages > 0);
    MUST((uintptr_t)page_address(pg) % (PAGE_BYTES << order) == 0);
    if (v.dirty_fits)
        MUST(common_state(page_address(pg), pg->npages) == DIRTY);
    took(pg, pg->npages);
    hold(h, pg, seed, id);
}

static void step_free(struct held *h)
{
    MUST(intact(h));
    gave(page_address(h->pg), h->npages, h->id == 0 ? CLEAN : DIRTY);
    zone_free(h->pg, h->npages, h->id == 0);
    MUST(h->pg->kind == PAGE_NONE);
    h->pg = NULL;
}

static void step_free_list(uint64_t *seed)
{
    struct page *list = NULL;
    for (int i = 0; i < HELD; i++) {
        struct held *h = &held[i];
        if (h->pg == NULL || h->npages > BLOCK_PAGES || unit_below(seed, 3) == 0)
            continue;
        MUST(intact(h));
        bool zeroed = h->id == 0 && unit_below(seed, 2) == 0;
        gave(page_address(h->pg), h->npages, zeroed ? CLEAN : DIRTY);
        for (size_t k = 0; k < h->npages; k++) { /* the masks: what is never written is zero, some of it was touched */
            h->pg[k].clean = zeroed ? clean_all() : h->id == 0 ? (uint16_t)(unit_random(seed) & clean_all()) : 0;
            *clean_at(page_address(h->pg) + k * PAGE_BYTES) = h->pg[k].clean;
        }
        h->pg->npages = (uint32_t)h->npages;
        h->pg->zeroed = zeroed;
        h->pg->next = list;
        list = h->pg;
        h->pg = NULL;
    }
    zone_free_list(list);
}

static void step_split(struct held *h, struct held *rest, uint64_t *seed)
{
    size_t first = 1 + unit_below(seed, h->npages - 1);
    bool zeroed = h->pg->zeroed;
    *rest = (struct held){zone_split(h->pg, first), h->npages - first, h->id};
    h->npages = first;
    MUST(h->pg->npages == first && rest->pg->npages == rest->npages);
    MUST(rest->pg->zeroed == zeroed && rest->pg->kind == h->pg->kind && rest->pg->node == NODE);
    MUST(page_address(rest->pg) == page_address(h->pg) + first * PAGE_BYTES);
}

static void step_shrink(struct held *h, uint64_t *seed)
{
    size_t npages = 1 + unit_below(seed, h->npages);
    gave(page_address(h->pg) + npages * PAGE_BYTES, h->npages - npages, DIRTY);
    zone_shrink(h->pg, npages);
    h->npages = npages;
    MUST(h->pg->npages == npages);
}

/* It grows just where what follows is free, and knows to be zero no more than it was. */
static void step_grow(struct held *h, uint64_t *seed, uint64_t id)
{
    size_t more = 1 + unit_below(seed, unit_below(seed, 2) == 0 ? 4 : 100);
    char *after = page_address(h->pg) + h->npages * PAGE_BYTES;
    bool room = is_free(after, more), zeroed = h->pg->zeroed && common_state(after, more) == CLEAN;
    bool grown = zone_grow(h->pg, h->npages + more);
    MUST(grown == room || (!grown && limited(count_state(after, more, CLEAN) + count_state(after, more, LAZY))));
    MUST(intact(h));
    if (!grown)
        return;
    MUST(h->pg->npages == h->npages + more && h->pg->zeroed == zeroed);
    gave(after, more, OUT);
    h->npages += more;
    mark(h, id);
}

static void step_purge(size_t keep)
{
    struct zone_stats before = zone_stats(NODE);
    size_t given = zone_purge(NODE, keep) >> PAGE_SHIFT, n = 0;
    enum state now = opt.madv_free ? LAZY : CLEAN;
    for (unsigned l = 0; l < model.leaves; l++)
        for (unsigned i = 0; i < LEAF_PAGES; i++)
            if (model.leaf[l].page[i] == DIRTY) {
                char *a = (char *)(model.leaf[l].number << PMAP_LEAF_SHIFT | (uintptr_t)i << PAGE_SHIFT);
                if (real_state(pmap_block(a), i % BLOCK_PAGES) == DIRTY)
                    continue;
                *at(a) = (unsigned char)now;
                n++;
            }
    MUST(n == given);
    keep &= ~(PAGE_BYTES - 1);
    MUST(zone_stats(NODE).dirty == (keep < before.dirty ? keep : before.dirty));
}

static void step(uint64_t *seed, uint64_t id)
{
    struct held *h = &held[unit_below(seed, HELD)], *slot = NULL;
    size_t what = unit_below(seed, 100);
    for (int i = 0; i < HELD; i++)
        if (held[i].pg == NULL)
            slot = &held[i];
    if (what < 8) {
        step_purge(unit_below(seed, 4) * (PAGE_BYTES * 50 + 1));
    } else if (what < 11) {
        step_free_list(seed);
    } else if (h->pg == NULL) {
        if (pages_held() > held_most)
            return;
        if (what < 40)
            step_try(h, seed, id);
        else if (what < 65)
            step_some(h, seed, id);
        else
            step_alloc(h, seed, id);
    } else if (what < 60) {
        step_free(h);
    } else if (what < 75 && h->npages > 1 && slot != NULL) {
        step_split(h, slot, seed);
    } else if (what < 85) {
        step_shrink(h, seed);
    } else {
        step_grow(h, seed, id);
    }
}

struct trace {
    uint64_t seed;
    unsigned steps;
    size_t held_most; /* pages */
    bool madv_free;
    size_t room;      /* RLIMIT_AS above what is mapped, 0: none */
    bool border;      /* windows that cross 4 GiB */
    size_t hard_limit;
    bool masks;       /* some dirty pages are to come back with clean parts */
};

/* The next window is to cross a border between two leaves: fill what lies above, and take what earlier windows have free.
 * Where the kernel lays things out otherwise, the trace runs where it is. */
static void move_to_a_border(void)
{
    enum { ABOVE = 24 << 20, RUN = 1024 * 4 /* pages: 256 MiB, a window of its own */, RUNS = 32 };
    struct page *pg[RUNS];
    int n = 0;
    char *probe = mmap(NULL, 512 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(probe != MAP_FAILED);
    munmap(probe, 512 << 20);
    uintptr_t end = (uintptr_t)probe + (512 << 20), border = end >> PMAP_LEAF_SHIFT << PMAP_LEAF_SHIFT;
    if (end - border > ABOVE)
        mmap(NULL, end - border - ABOVE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t windows = region_stats().bytes[REGION_ZONE];
    while (n < RUNS && region_stats().bytes[REGION_ZONE] == windows)
        MUST((pg[n++] = zone_alloc(NODE, RUN, 1)) != NULL);
    while (n > 0)
        zone_free(pg[--n], RUN, true);
}

static void limit_address_space(size_t room)
{
    struct rlimit lim;
    char line[64] = "";
    FILE *f = fopen("/proc/self/statm", "r");
    MUST(f != NULL && fgets(line, sizeof line, f) != NULL);
    fclose(f);
    lim.rlim_cur = lim.rlim_max = (size_t)strtoul(line, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE) + room;
    MUST(setrlimit(RLIMIT_AS, &lim) == 0);
}

static void run_trace(void *arg)
{
    const struct trace *t = arg;
    uint64_t seed = t->seed;
    if (t->border)
        move_to_a_border();
    opt.madv_free = t->madv_free;
    memset(held, 0, sizeof held);
    held_most = t->held_most;
    masks_kept = 0;
    learn();
    compare();
    size_t out = zone_stats(NODE).out;
    if (t->hard_limit != 0)
        opt.hard_limit = limit_stats().charged + t->hard_limit;
    if (t->room != 0)
        limit_address_space(t->room);
    for (uint64_t i = 1; i <= t->steps; i++) {
        step(&seed, i);
        compare();
    }
    for (int i = 0; i < HELD; i++)
        if (held[i].pg != NULL)
            step_free(&held[i]);
    opt.madv_free = false;
    step_purge(0);
    compare();
    MUST(masks_kept > 0 || !t->masks);
    MUST(zone_stats(NODE).out == out);
    MUST(unit_charged_whole() == out + region_stats().bytes[REGION_OWN]);
    forget();
}

static void trace(struct trace t)
{
    unit_alone(run_trace, &t);
}

TEST(zone_model, random_trace)
{
    trace((struct trace){.seed = 1, .steps = 1200, .held_most = 600});
    trace((struct trace){.seed = 2, .steps = 1200, .held_most = 2500, .masks = true});
}

TEST(zone_model, random_trace_with_lazy_purges)
{
    trace((struct trace){.seed = 3, .steps = 1200, .held_most = 600, .madv_free = true});
    trace((struct trace){.seed = 4, .steps = 1200, .held_most = 2500, .madv_free = true});
}

TEST(zone_model, random_trace_over_a_leaf_border)
{
    trace((struct trace){.seed = 5, .steps = 800, .held_most = 3000, .border = true});
}

/* Windows of less than 8 MiB begin at any page, so that neighbours share blocks. */
TEST(zone_model, random_trace_in_small_windows)
{
    trace((struct trace){.seed = 6, .steps = 1000, .held_most = 4000, .room = 48 << 20});
    trace((struct trace){.seed = 7, .steps = 1000, .held_most = 4000, .room = 24 << 20, .madv_free = true});
}

TEST(zone_model, random_trace_within_a_hard_limit)
{
    trace((struct trace){.seed = 8, .steps = 1000, .held_most = 4000, .hard_limit = 30 << 20});
}

/* Dirty pages keep the masks that their owner left, unless a neighbour in the block came back without any. */
static void masks_of_dirty_pages(void *arg)
{
    (void)arg;
    zone_purge(NODE, 0);
    for (int coarse = 0; coarse <= 1; coarse++) {
        struct page *pg = zone_alloc(NODE, 32, 32), *rest; /* a whole block, so nothing is known of it before */
        MUST(pg != NULL && pg->zeroed);
        rest = zone_split(pg, 8);
        struct page *last = zone_split(rest, 8);
        for (int i = 0; i < 8; i++)
            rest[i].clean = (uint16_t)(0x3 << i) & clean_all();
        rest->zeroed = false;
        rest->next = NULL;
        zone_free_list(rest);
        if (coarse)
            zone_free(last, 16, false);
        struct page *again = zone_try_alloc(NODE, 8, 1);
        MUST(again == rest && !again->zeroed);
        for (int i = 0; i < 8; i++)
            MUST(again[i].clean == (coarse ? 0 : (0x3 << i) & clean_all()));
        zone_free(again, 8, false);
        zone_free(pg, 8, false);
        if (!coarse)
            zone_free(last, 16, false);
        zone_purge(NODE, 0);
        zone_check(NODE);
    }
}

TEST(zone_model, dirty_pages_keep_their_clean_masks)
{
    unit_alone(masks_of_dirty_pages, NULL);
}
