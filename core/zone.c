/* SPDX-License-Identifier: BSD-2-Clause */
#include "zone.h"

#include "compat/os/bits.h"
#include "compat/os/lock.h"
#include "compat/os/numa.h"
#include "compat/os/vm.h"
#include "dbg.h"
#include "opt.h"
#include "rank.h"
#include "region.h"

enum run_state { DIRTY, CLEAN, STATES };
enum { RELAX_SKIP = 256 }; /* where madvise is refused, one call in so many tries again */
enum { EXACT_BINS = 64, BINS = 192, BIN_WORDS = BINS / 64 }; /* lengths 1..64, then four bins a doubling */

struct zone {
    struct lock lock;
    uint64_t used_bins[STATES][BIN_WORDS]; /* everything here: ZONE lock */
    struct page *bin[STATES][BINS];
    struct page *purging; /* isolated runs, linked by next; for a fork child */
    size_t pages[STATES]; /* also read without the lock, as a hint */
    size_t out_pages;     /* likewise */
    size_t relax_skip;    /* after a failed purge: this many calls of zone_relax do nothing; racy */
    size_t purged_pages, purge_calls, purge_failures;
    bool purge_running; /* one purge at a time; a shim's madvise may call malloc */
} CACHE_ALIGNED;

static struct zone zones[NUMA_NODES];

/* ---- bins ---- */

static unsigned bin_of(size_t npages)
{
    if (npages <= EXACT_BINS)
        return (unsigned)npages - 1;
    unsigned k = ilog2(npages); /* 6 and up */
    unsigned bin = EXACT_BINS + (k - 6) * 4 + (unsigned)(npages >> (k - 2) & 3);
    return bin < BINS ? bin : BINS - 1;
}

static enum run_state state_of(const struct page *pg)
{
    return pg->zeroed ? CLEAN : DIRTY;
}

static void bin_add(struct zone *z, struct page *pg)
{
    enum run_state s = state_of(pg);
    unsigned b = bin_of(pg->npages);
    pg->prev = NULL;
    pg->next = z->bin[s][b];
    if (pg->next != NULL)
        pg->next->prev = pg;
    z->bin[s][b] = pg;
    z->used_bins[s][b / 64] |= (uint64_t)1 << (b % 64);
    owner_add(&z->pages[s], pg->npages);
}

static void bin_remove(struct zone *z, struct page *pg)
{
    enum run_state s = state_of(pg);
    unsigned b = bin_of(pg->npages);
    if (pg->next != NULL)
        pg->next->prev = pg->prev;
    if (pg->prev != NULL)
        pg->prev->next = pg->next;
    else if ((z->bin[s][b] = pg->next) == NULL)
        z->used_bins[s][b / 64] &= ~((uint64_t)1 << (b % 64));
    owner_add(&z->pages[s], -(size_t)pg->npages);
}

/* First non-empty bin from b on, or BINS. */
static unsigned next_bin(const struct zone *z, enum run_state s, unsigned b)
{
    for (unsigned w = b / 64; w < BIN_WORDS; w++) {
        uint64_t bits = z->used_bins[s][w];
        if (w == b / 64)
            bits &= ~(uint64_t)0 << (b % 64);
        if (bits != 0)
            return w * 64 + (unsigned)__builtin_ctzll(bits);
    }
    return BINS;
}

/* ---- free runs ---- */

static struct page *page_after(const struct page *pg, size_t npages)
{
    return pmap_page(page_address(pg) + npages * PAGE_BYTES);
}

/* Describe a free run at both ends and enter it in its bin. */
static void run_add(struct zone *z, struct page *pg, size_t npages, bool zeroed)
{
    if (npages > 1) {
        struct page *last = pmap_page_init(page_address(pg) + (npages - 1) * PAGE_BYTES);
        page_set_kind(last, PAGE_FREE_LAST);
        last->npages = (uint32_t)npages;
        last->zeroed = zeroed;
    }
    page_set_kind(pg, PAGE_FREE);
    pg->npages = (uint32_t)npages;
    pg->zeroed = zeroed;
    bin_add(z, pg);
}

static void run_remove(struct zone *z, struct page *pg)
{
    bin_remove(z, pg);
    if (pg->npages > 1)
        page_set_kind(page_after(pg, pg->npages - 1), PAGE_NONE);
    page_set_kind(pg, PAGE_NONE);
}

/* The free run that ends just before pg, if there is one of that state. */
static struct page *run_before(const struct page *pg, bool zeroed)
{
    char *a = page_address(pg);
    struct page *last = pmap_page(a - PAGE_BYTES);
    enum page_kind kind = last == NULL ? PAGE_NONE : page_kind(last);
    if ((kind != PAGE_FREE && kind != PAGE_FREE_LAST) || last->zeroed != zeroed)
        return NULL;
    return kind == PAGE_FREE ? last : pmap_page(a - last->npages * PAGE_BYTES);
}

/* Enter a run, merged with neighbours of its state. PAGE_FREE before us may be the first page of a longer run only if
 * that run has a PAGE_FREE_LAST, which is what we see then; so PAGE_FREE next to us is a run of one page. */
static void run_insert(struct zone *z, struct page *pg, size_t npages, bool zeroed)
{
    struct page *before = run_before(pg, zeroed);
    struct page *after = page_after(pg, npages);
    if (after != NULL && page_kind(after) == PAGE_FREE && after->zeroed == zeroed && after->node == pg->node) {
        npages += after->npages;
        run_remove(z, after);
    }
    if (before != NULL && before->node == pg->node) {
        npages += before->npages;
        run_remove(z, before);
        page_set_kind(pg, PAGE_NONE);
        pg = before;
    }
    run_add(z, pg, npages, zeroed);
}

static size_t lead_pages(const struct page *pg, size_t align_pages)
{
    return (size_t)(-(uintptr_t)pg->pfn & (align_pages - 1));
}

static bool fits(const struct page *pg, size_t npages, size_t align_pages)
{
    return pg->npages >= lead_pages(pg, align_pages) + npages;
}

/* Smallest run that fits: exact bins hold one length each; in the others look along the list. */
static struct page *find_run(const struct zone *z, enum run_state s, size_t npages, size_t align_pages)
{
    for (unsigned b = next_bin(z, s, bin_of(npages)); b < BINS; b = next_bin(z, s, b + 1))
        for (struct page *pg = z->bin[s][b]; pg != NULL; pg = pg->next)
            if (fits(pg, npages, align_pages))
                return pg;
    return NULL;
}

/* Cut npages out of a free run; what is before and behind stays free. */
static struct page *carve(struct zone *z, struct page *run, size_t npages, size_t align_pages)
{
    size_t total = run->npages, lead = lead_pages(run, align_pages);
    bool zeroed = run->zeroed;
    uint16_t node = run->node;
    char *a = page_address(run);
    run_remove(z, run);
    struct page *pg = pmap_page_init(a + lead * PAGE_BYTES);
    pg->node = node;
    if (lead > 0)
        run_add(z, run, lead, zeroed);
    if (total > lead + npages) {
        struct page *rest = pmap_page_init(a + (lead + npages) * PAGE_BYTES);
        rest->node = node;
        run_add(z, rest, total - lead - npages, zeroed);
    }
    page_set_kind(pg, PAGE_CACHED);
    pg->npages = (uint32_t)npages;
    pg->zeroed = zeroed;
    owner_add(&z->out_pages, npages);
    return pg;
}

/* ---- the interface ---- */

struct page *zone_try_alloc(unsigned node, size_t npages, size_t align_pages)
{
    struct zone *z = &zones[node];
    lock_acquire(&z->lock, RANK_ZONE);
    struct page *run = find_run(z, DIRTY, npages, align_pages);
    if (run == NULL)
        run = find_run(z, CLEAN, npages, align_pages);
    struct page *pg = run == NULL ? NULL : carve(z, run, npages, align_pages);
    lock_release(&z->lock);
    return pg;
}

static bool add_window(unsigned node, size_t need)
{
    struct region *r = region_map_window(need);
    if (r == NULL)
        return false;
    struct zone *z = &zones[node];
    lock_acquire(&z->lock, RANK_ZONE);
    struct page *pg = pmap_page_init(r->base);
    pg->node = (uint16_t)node;
    run_insert(z, pg, r->size >> PAGE_SHIFT, true);
    lock_release(&z->lock);
    return true;
}

struct page *zone_alloc(unsigned node, size_t npages, size_t align_pages)
{
    size_t need = (npages + align_pages - 1) << PAGE_SHIFT;
    for (;;) {
        struct page *pg = zone_try_alloc(node, npages, align_pages);
        if (pg != NULL)
            return pg;
        if (add_window(node, need))
            continue;
        /* No address space left: purged pages merge with clean neighbours into longer runs. */
        if (zone_purge(node, 0) == 0)
            return zone_try_alloc(node, npages, align_pages);
    }
}

void zone_free(struct page *pg, size_t npages, bool zeroed)
{
    struct zone *z = &zones[pg->node];
    lock_acquire(&z->lock, RANK_ZONE);
    owner_add(&z->out_pages, -npages);
    run_insert(z, pg, npages, zeroed);
    lock_release(&z->lock);
}

struct page *zone_split(struct page *pg, size_t first_pages)
{
    struct page *second = pmap_page_init(page_address(pg) + first_pages * PAGE_BYTES);
    page_set_kind(second, page_kind(pg));
    second->node = pg->node;
    second->zeroed = pg->zeroed;
    second->npages = pg->npages - (uint32_t)first_pages;
    pg->npages = (uint32_t)first_pages;
    return second;
}

void zone_shrink(struct page *pg, size_t npages)
{
    size_t rest = pg->npages - npages;
    if (rest == 0)
        return;
    struct page *tail = zone_split(pg, npages);
    page_set_kind(tail, PAGE_CACHED);
    zone_free(tail, rest, false);
}

bool zone_grow(struct page *pg, size_t npages)
{
    struct zone *z = &zones[pg->node];
    size_t more = npages - pg->npages;
    lock_acquire(&z->lock, RANK_ZONE);
    struct page *after = page_after(pg, pg->npages);
    bool ok = after != NULL && page_kind(after) == PAGE_FREE && after->node == pg->node && after->npages >= more;
    if (ok) {
        page_set_kind(carve(z, after, more, 1), PAGE_NONE);
        pg->npages = (uint32_t)npages;
    }
    lock_release(&z->lock);
    return ok;
}

/* ---- giving back ---- */

/* Take the longest dirty runs out of the bins, none below shortest, at most max pages; they stand on z->purging
 * meanwhile. */
static struct page *isolate_locked(struct zone *z, size_t max_pages, size_t shortest)
{
    size_t taken = 0;
    struct page *list = NULL;
    for (int w = BIN_WORDS - 1; w >= 0; w--) {
        while (z->used_bins[DIRTY][w] != 0 && taken < max_pages) {
            unsigned b = (unsigned)w * 64 + 63 - (unsigned)__builtin_clzll(z->used_bins[DIRTY][w]);
            struct page *pg = z->bin[DIRTY][b];
            if (pg->npages < shortest)
                goto enough;
            size_t npages = pg->npages, want = max_pages - taken;
            if (npages > want)
                pg = carve(z, pg, npages = want, 1);
            else {
                run_remove(z, pg);
                owner_add(&z->out_pages, npages);
            }
            page_set_kind(pg, PAGE_CACHED);
            pg->npages = (uint32_t)npages;
            pg->next = list;
            list = pg;
            taken += npages;
        }
    }
enough:
    z->purging = list;
    return list;
}

static void put_back_locked(struct zone *z, bool clean)
{
    struct page *pg = z->purging, *next;
    z->purging = NULL;
    for (; pg != NULL; pg = next) {
        next = pg->next;
        owner_add(&z->out_pages, -(size_t)pg->npages);
        run_insert(z, pg, pg->npages, clean);
    }
}

/* One round: isolate, let go of the lock, purge, put back. Result: pages given back. */
static size_t purge_round(struct zone *z, size_t keep_pages, size_t shortest)
{
    size_t max = ZONE_PURGE_MAX >> PAGE_SHIFT, purged = 0;
    lock_acquire(&z->lock, RANK_ZONE);
    size_t dirty = z->pages[DIRTY];
    bool go = !z->purge_running && dirty > keep_pages;
    struct page *list = NULL;
    if (go) {
        z->purge_running = true;
        list = isolate_locked(z, dirty - keep_pages < max ? dirty - keep_pages : max, shortest);
    }
    lock_release(&z->lock);
    if (!go)
        return 0;
    bool clean = true;
    size_t calls = 0;
    for (struct page *pg = list; pg != NULL && clean; pg = pg->next, calls++) {
        clean = vm_purge(page_address(pg), pg->npages * PAGE_BYTES) == 0;
        if (clean)
            purged += pg->npages;
    }
    lock_acquire(&z->lock, RANK_ZONE);
    z->purge_calls += calls;
    z->purged_pages += purged;
    z->purge_failures += !clean;
    put_back_locked(z, clean); /* after a failure nothing is known: all of them are dirty */
    z->purge_running = false;
    lock_release(&z->lock);
    return clean ? purged : 0;
}

static size_t purge_down(unsigned node, size_t keep_pages, size_t shortest)
{
    size_t total = 0, round;
    if (opt.purge == OPT_PURGE_OFF)
        return 0;
    while ((round = purge_round(&zones[node], keep_pages, shortest)) != 0)
        total += round;
    return total;
}

size_t zone_purge(unsigned node, size_t keep)
{
    return purge_down(node, keep >> PAGE_SHIFT, 1) << PAGE_SHIFT;
}

bool zone_spiking(unsigned node)
{
    (void)node;
    return false;
}

void zone_relax(unsigned node, bool pure)
{
    (void)pure;
    struct zone *z = &zones[node];
    size_t keep = opt.keep >> PAGE_SHIFT;
    size_t share = load_relaxed(&z->out_pages) / 4; /* racy reads: a hint when to look */
    size_t allowed = keep > share ? keep : share;
    if (LIKELY(load_relaxed(&z->pages[DIRTY]) <= allowed))
        return;
    size_t skip = load_relaxed(&z->relax_skip);
    if (skip > 0)
        store_relaxed(&z->relax_skip, skip - 1);
    else if (purge_down(node, allowed / 2, ZONE_PURGE_RUN >> PAGE_SHIFT) == 0)
        store_relaxed(&z->relax_skip, RELAX_SKIP);
}

struct zone_stats zone_stats(unsigned node)
{
    struct zone *z = &zones[node];
    lock_acquire(&z->lock, RANK_ZONE);
    struct zone_stats s = {
        .dirty = z->pages[DIRTY] << PAGE_SHIFT,
        .clean = z->pages[CLEAN] << PAGE_SHIFT,
        .out = z->out_pages << PAGE_SHIFT,
        .purged = z->purged_pages << PAGE_SHIFT,
        .purge_calls = z->purge_calls,
        .purge_failures = z->purge_failures,
    };
    lock_release(&z->lock);
    return s;
}

void zone_check(unsigned node)
{
    struct zone *z = &zones[node];
    lock_acquire(&z->lock, RANK_ZONE);
    for (int s = 0; s < STATES; s++) {
        size_t pages = 0;
        for (unsigned b = 0; b < BINS; b++) {
            CHECK_EQ(z->bin[s][b] != NULL, (z->used_bins[s][b / 64] >> (b % 64) & 1) != 0);
            for (struct page *pg = z->bin[s][b]; pg != NULL; pg = pg->next) {
                CHECK_EQ(pg->kind, PAGE_FREE);
                CHECK_EQ(bin_of(pg->npages), b);
                CHECK_EQ(state_of(pg), (enum run_state)s);
                CHECK(run_before(pg, pg->zeroed) == NULL);
                if (pg->npages > 1)
                    CHECK_EQ(page_after(pg, pg->npages - 1)->kind, PAGE_FREE_LAST);
                pages += pg->npages;
            }
        }
        CHECK_EQ(pages, z->pages[s]);
    }
    lock_release(&z->lock);
}

void zone_fork_hold(void)
{
    for (unsigned n = 0; n < numa_count(); n++)
        lock_fork_hold(&zones[n].lock, RANK_ZONE);
}

void zone_fork_open(bool child)
{
    for (unsigned n = 0; n < numa_count(); n++) {
        struct zone *z = &zones[n];
        if (child) {
            put_back_locked(z, false);
            z->purge_running = false;
        }
        lock_fork_open(&z->lock);
    }
}
