/* SPDX-License-Identifier: BSD-2-Clause */
#include "zone.h"

#include "clean.h"
#include "compat/os/clock.h"
#include "compat/os/numa.h"
#include "compat/os/vm.h"
#include "dbg.h"
#include "limit.h"
#include "nodes.h"
#include "opt.h"
#include "rank.h"
#include "region.h"
#include "zone_impl.h"

struct zone zone_here;
struct zone *zones_more;

bool zone_nodes(unsigned count)
{
    zones_more = nodes_rows(count, sizeof *zones_more);
    for (unsigned node = 1; zones_more != NULL && node < count; node++)
        zone_of(node)->node = (uint16_t)node;
    return zones_more != NULL;
}

enum {
    DIRTY_LOOKS = 16, /* blocks looked at for a dirty run whose length is no power of two */
    ALLOC_WAITS = 4,  /* times that a request without memory waits for another thread's purge */
};

/* ---- lists of blocks ---- */

static unsigned list_for(const struct block *b, uint32_t mask)
{
    unsigned in_use = BLOCK_PAGES - block_count(b->free);
    return (BLOCK_PAGES - 1 - in_use) / (BLOCK_PAGES / FULLNESS) * BLOCK_ORDERS + block_order(mask);
}

/* Bits of the lists whose blocks have a piece of 2^order pages. */
static uint64_t lists_with(unsigned order)
{
    uint64_t row = (((uint64_t)1 << BLOCK_ORDERS) - 1) & ~(((uint64_t)1 << order) - 1), all = 0;
    for (unsigned f = 0; f < FULLNESS; f++)
        all |= row << (f * BLOCK_ORDERS);
    return all;
}

/* The fullest block of the lists that has a piece of 2^order pages. */
static struct block *fullest_block(const struct block_lists *l, unsigned order)
{
    uint64_t fit = l->used & lists_with(order);
    return fit == 0 ? NULL : l->head[__builtin_ctzll(fit)];
}

static uint64_t list_bit(unsigned list)
{
    return (uint64_t)1 << (list & 63);
}

static void partial_add(struct block_lists *l, struct block *b)
{
    unsigned i = list_for(b, b->free);
    b->list = (uint8_t)i;
    b->prev = NULL;
    b->next = l->head[i];
    if (b->next != NULL)
        b->next->prev = b;
    l->head[i] = b;
    l->used |= list_bit(i);
}

static void partial_remove(struct block_lists *l, struct block *b)
{
    if (b->next != NULL)
        b->next->prev = b->prev;
    if (b->prev != NULL)
        b->prev->next = b->next;
    else if ((l->head[b->list] = b->next) == NULL)
        l->used &= ~list_bit(b->list);
    b->list = NO_LIST;
}

static void dirty_add(struct block_lists *l, struct block *b)
{
    unsigned i = list_for(b, b->dirty);
    b->dirty_list = i & NO_LIST;
    b->dirty_prev = NULL;
    b->dirty_next = l->head[i];
    if (b->dirty_next != NULL)
        b->dirty_next->dirty_prev = b;
    l->head[i] = b;
    l->used |= list_bit(i);
}

static void dirty_remove(struct block_lists *l, struct block *b)
{
    if (b->dirty_next != NULL)
        b->dirty_next->dirty_prev = b->dirty_prev;
    if (b->dirty_prev != NULL)
        b->dirty_prev->dirty_next = b->dirty_next;
    else if ((l->head[b->dirty_list] = b->dirty_next) == NULL)
        l->used &= ~list_bit(b->dirty_list);
    b->dirty_list = NO_LIST;
}

/* ---- extents: runs of wholly free blocks of one state ---- */

static enum extent_state extent_state_of(const struct block *b)
{
    return b->dirty != 0 ? EXTENT_DIRTY : EXTENT_CLEAN;
}

static unsigned extent_bin(size_t nblocks)
{
    if (nblocks <= EXTENT_EXACT)
        return (unsigned)nblocks - 1;
    unsigned bin = EXTENT_EXACT + ilog2(nblocks) - ilog2(EXTENT_EXACT);
    return bin < EXTENT_BINS ? bin : EXTENT_BINS - 1;
}

static struct block *block_at(const struct block *b, ptrdiff_t distance)
{
    return pmap_block(block_address(b) + distance * (ptrdiff_t)BLOCK_BYTES);
}

static void extent_add(struct zone *z, struct block *first, size_t nblocks)
{
    enum extent_state s = extent_state_of(first);
    unsigned i = extent_bin(nblocks);
    first->nblocks = block_at(first, (ptrdiff_t)nblocks - 1)->nblocks = nblocks;
    first->prev = NULL;
    first->next = z->extent[s][i];
    if (first->next != NULL)
        first->next->prev = first;
    z->extent[s][i] = first;
    z->extent_used[s] |= (uint64_t)1 << i;
    first->list = 0;
}

static void extent_remove(struct zone *z, struct block *first)
{
    enum extent_state s = extent_state_of(first);
    unsigned i = extent_bin(first->nblocks);
    if (first->next != NULL)
        first->next->prev = first->prev;
    if (first->prev != NULL)
        first->prev->next = first->next;
    else if ((z->extent[s][i] = first->next) == NULL)
        z->extent_used[s] &= ~((uint64_t)1 << i);
    first->list = NO_LIST;
}

static bool in_extent(const struct zone *z, const struct block *b, enum extent_state s)
{
    return b != NULL && b->free == BLOCK_ALL && zone_of(b->node) == z && extent_state_of(b) == s;
}

/* The first block of the extent that holds b. Only its ends know its length, so from inside walk both ways at once, until
 * the first, which is on a list, or the last is met. Blocks are taken from an extent's start or end, or a request's length
 * from its end, so this takes no more steps than the request has blocks, however long the extent is. */
static struct block *extent_first(const struct zone *z, struct block *b)
{
    struct block *down = b, *up = b, *after;
    while (down->list == NO_LIST) {
        if (!in_extent(z, after = block_at(up, 1), extent_state_of(up)))
            return block_at(up, 1 - (ptrdiff_t)up->nblocks);
        up = after;
        down = block_at(down, -1);
    }
    return down;
}

/* Enter nblocks wholly free blocks of one state as an extent, with the neighbours of that state. */
static void extent_merge(struct zone *z, struct block *first, size_t nblocks)
{
    enum extent_state s = extent_state_of(first);
    struct block *before = block_at(first, -1), *after = block_at(first, (ptrdiff_t)nblocks);
    if (in_extent(z, after, s)) {
        nblocks += after->nblocks;
        extent_remove(z, after);
    }
    if (in_extent(z, before, s)) {
        first = block_at(before, 1 - (ptrdiff_t)before->nblocks);
        nblocks += first->nblocks;
        extent_remove(z, first);
    }
    extent_add(z, first, nblocks);
}

/* Take up to nblocks blocks from b on out of the extent that b lies in; what is before and behind stays one. Result: how
 * many. */
static size_t extent_leave(struct zone *z, struct block *b, size_t nblocks)
{
    struct block *first = extent_first(z, b);
    size_t all = first->nblocks, before = b->number - first->number, rest = all - before;
    extent_remove(z, first);
    if (before > 0)
        extent_add(z, first, before);
    if (rest <= nblocks)
        return rest;
    extent_add(z, block_at(b, (ptrdiff_t)nblocks), rest - nblocks);
    return nblocks;
}

/* ---- the two moves of a block ---- */

void block_detach(struct zone *z, struct block *b)
{
    if (b->free == BLOCK_ALL) {
        extent_leave(z, b, 1);
        return;
    }
    if (b->free != 0)
        partial_remove(&z->partial, b);
    if (b->dirty != 0)
        dirty_remove(&z->dirty, b);
}

void block_attach(struct zone *z, struct block *b)
{
    b->list = b->dirty_list = NO_LIST;
    if ((b->dirty | b->lazy) == 0)
        b->coarse = 0;
    if (b->free == BLOCK_ALL) {
        extent_merge(z, b, 1);
        return;
    }
    if (b->free != 0)
        partial_add(&z->partial, b);
    if (b->dirty != 0)
        dirty_add(&z->dirty, b);
}

static void count_pages(struct zone *z, const struct block *b, uint32_t mask, size_t sign)
{
    size_t dirty = block_count(b->dirty & mask), lazy = block_count(b->lazy & mask);
    owner_add(&z->dirty_pages, sign * dirty);
    z->lazy_pages += sign * lazy;
    z->clean_pages += sign * (block_count(mask) - dirty - lazy);
}

/* ---- ranges of pages that may cross blocks ---- */

struct range {
    struct block *b;
    unsigned first;
    size_t npages; /* still to go, those of the present block included */
};

static struct range range_of(const char *a, size_t npages)
{
    return (struct range){pmap_block(a), (unsigned)((uintptr_t)a >> PAGE_SHIFT) & (BLOCK_PAGES - 1), npages};
}

static unsigned range_part(const struct range *r)
{
    size_t room = BLOCK_PAGES - r->first;
    return (unsigned)(r->npages < room ? r->npages : room);
}

static void range_next(struct range *r)
{
    r->npages -= range_part(r);
    r->first = 0;
    if (r->npages > 0)
        r->b = block_at(r->b, 1);
}

/* How many free pages of a range are not resident. */
static size_t range_fresh(const char *a, size_t npages)
{
    size_t fresh = 0;
    for (struct range r = range_of(a, npages); r.npages > 0; range_next(&r))
        fresh += block_count(block_mask(r.first, range_part(&r)) & ~r.b->dirty);
    return fresh;
}

static bool range_whole_block(const struct range *r)
{
    return r->first == 0 && r->npages >= BLOCK_PAGES;
}

/* Clear the pages of a block that is on no list. Result: do all of them read as zero? */
static bool clear_pages(struct zone *z, struct block *b, uint32_t mask)
{
    bool zero = ((b->dirty | b->lazy) & mask) == 0;
    count_pages(z, b, mask, (size_t)-1);
    b->free &= ~mask;
    b->dirty &= ~mask;
    b->lazy &= ~mask;
    return zero;
}

/* Take free pages out: whole blocks by the extent, others block by block. Result: do all of them read as zero? */
static bool range_take(struct zone *z, const char *a, size_t npages)
{
    bool zero = true;
    for (struct range r = range_of(a, npages); r.npages > 0;) {
        if (range_whole_block(&r)) {
            size_t n = extent_leave(z, r.b, r.npages / BLOCK_PAGES);
            for (; n > 0; n--, range_next(&r)) {
                zero &= clear_pages(z, r.b, BLOCK_ALL);
                r.b->list = r.b->dirty_list = NO_LIST;
            }
        } else {
            block_detach(z, r.b);
            zero &= clear_pages(z, r.b, block_mask(r.first, range_part(&r)));
            block_attach(z, r.b);
            range_next(&r);
        }
    }
    owner_add(&z->out_pages, npages);
    giveback_dirty(&z->give, z->dirty_pages);
    return zero;
}

/* What is known of pages that come back: all of them read as zero; their clean masks do not count. */
struct put {
    bool zeroed, coarse;
};

static void set_pages(struct zone *z, struct block *b, uint32_t mask, struct put how)
{
    b->free |= mask;
    if (!how.zeroed) {
        b->dirty |= mask;
        b->coarse |= how.coarse;
    }
    count_pages(z, b, mask, 1);
}

static void range_put(struct zone *z, const char *a, size_t npages, struct put how)
{
    for (struct range r = range_of(a, npages); r.npages > 0;) {
        if (range_whole_block(&r)) {
            struct block *first = r.b;
            size_t nblocks = r.npages / BLOCK_PAGES;
            for (size_t n = nblocks; n > 0; n--, range_next(&r)) {
                r.b->coarse = 0;
                set_pages(z, r.b, BLOCK_ALL, how);
                r.b->list = r.b->dirty_list = NO_LIST;
            }
            extent_merge(z, first, nblocks);
        } else {
            block_detach(z, r.b);
            set_pages(z, r.b, block_mask(r.first, range_part(&r)), how);
            block_attach(z, r.b);
            range_next(&r);
        }
    }
    owner_add(&z->out_pages, -npages);
}

static bool range_is_free(const struct zone *z, const char *a, size_t npages)
{
    for (struct range r = range_of(a, npages); r.npages > 0; range_next(&r)) {
        if (r.b == NULL || zone_of(r.b->node) != z)
            return false;
        uint32_t mask = block_mask(r.first, range_part(&r));
        if ((r.b->free & mask) != mask)
            return false;
    }
    return true;
}

/* ---- finding pages ---- */

static char *page_of_block(const struct block *b, unsigned page)
{
    return block_address(b) + page * PAGE_BYTES;
}

static struct block *smallest_extent(const struct zone *z, enum extent_state s)
{
    uint64_t used = z->extent_used[s];
    return used == 0 ? NULL : z->extent[s][__builtin_ctzll(used)];
}

/* A free aligned piece of 2^order pages of a block whose first npages are all dirty. Fails: BLOCK_PAGES. */
static unsigned pick_dirty(const struct block *b, unsigned order, size_t npages)
{
    if (npages == (size_t)1 << order)
        return block_pick(b->dirty, order);
    for (uint32_t pieces = block_pieces(b->free, order); pieces != 0; pieces &= pieces - 1) {
        unsigned page = (unsigned)__builtin_ctz(pieces);
        uint32_t mask = block_mask(page, (unsigned)npages);
        if ((b->dirty & mask) == mask)
            return page;
    }
    return BLOCK_PAGES;
}

/* A free piece of 2^order pages whose first npages are dirty, of the fullest block. A length that is no power of two may
 * lie in a block whose largest dirty piece is smaller: a few are looked at. */
static char *find_dirty(const struct zone *z, unsigned order, size_t npages)
{
    unsigned looks = 0;
    for (uint64_t fit = z->dirty.used & lists_with(ilog2(npages)); fit != 0 && looks < DIRTY_LOOKS; fit &= fit - 1)
        for (struct block *b = z->dirty.head[__builtin_ctzll(fit)]; b != NULL && looks++ < DIRTY_LOOKS; b = b->dirty_next) {
            unsigned page = pick_dirty(b, order, npages);
            if (page != BLOCK_PAGES)
                return page_of_block(b, page);
        }
    struct block *b = smallest_extent(z, EXTENT_DIRTY);
    unsigned page = b == NULL ? BLOCK_PAGES : pick_dirty(b, order, npages);
    return page == BLOCK_PAGES ? NULL : page_of_block(b, page);
}

/* A free piece, of whatever state. */
static char *find_free(const struct zone *z, unsigned order)
{
    struct block *b = fullest_block(&z->partial, order);
    if (b == NULL)
        b = smallest_extent(z, EXTENT_CLEAN);
    if (b == NULL)
        b = smallest_extent(z, EXTENT_DIRTY);
    return b == NULL ? NULL : page_of_block(b, block_pick(b->free, order));
}

static size_t blocks_before(const struct block *b, size_t align_blocks)
{
    return -(size_t)b->number & (align_blocks - 1);
}

/* The shortest extent that holds nblocks aligned ones; in the bins of several lengths a few are looked at. */
static char *find_extent(const struct zone *z, enum extent_state s, size_t nblocks, size_t align_blocks)
{
    uint64_t bins = z->extent_used[s] & (~(uint64_t)0 << extent_bin(nblocks));
    for (; bins != 0; bins &= bins - 1) {
        struct block *b = z->extent[s][__builtin_ctzll(bins)];
        for (unsigned looks = 0; b != NULL && looks < ZONE_HOLD_BLOCKS; b = b->next, looks++) {
            size_t lead = blocks_before(b, align_blocks);
            if (b->nblocks >= lead + nblocks)
                return block_address(b) + lead * BLOCK_BYTES;
        }
    }
    return NULL;
}

/* A dirty extent that is too short alone, but not with the clean ones beside it: a large block that was purged in part
 * is whole again. The longest dirty extents are tried, a few. */
static char *find_mixed(const struct zone *z, size_t nblocks)
{
    for (uint64_t bins = z->extent_used[EXTENT_DIRTY]; bins != 0;) {
        unsigned i = 63 - (unsigned)__builtin_clzll(bins);
        bins &= ~((uint64_t)1 << i);
        struct block *b = z->extent[EXTENT_DIRTY][i];
        for (unsigned looks = 0; b != NULL && looks < 4; b = b->next, looks++) {
            struct block *before = block_at(b, -1), *after = block_at(b, (ptrdiff_t)b->nblocks);
            size_t more = in_extent(z, after, EXTENT_CLEAN) ? after->nblocks : 0;
            if (b->nblocks + more >= nblocks)
                return block_address(b);
            size_t less = in_extent(z, before, EXTENT_CLEAN) ? before->nblocks : 0;
            if (less + b->nblocks + more >= nblocks)
                return block_address(b) - (nblocks - b->nblocks - more) * BLOCK_BYTES;
        }
    }
    return NULL;
}

static char *find_blocks(const struct zone *z, size_t npages, size_t align_pages)
{
    size_t nblocks = (npages + BLOCK_PAGES - 1) / BLOCK_PAGES;
    size_t align_blocks = align_pages <= BLOCK_PAGES ? 1 : align_pages / BLOCK_PAGES;
    char *a = find_extent(z, EXTENT_DIRTY, nblocks, align_blocks);
    if (a == NULL && align_blocks == 1)
        a = find_mixed(z, nblocks);
    return a != NULL ? a : find_extent(z, EXTENT_CLEAN, nblocks, align_blocks);
}

/* ---- the interface ---- */

/* Describe pages that have just left the zone as a run. */
static struct page *dress_run(const struct zone *z, char *a, size_t npages, bool zeroed)
{
    struct page *pg = pmap_page_init(a);
    page_set_kind(pg, PAGE_CACHED);
    pg->node = z->node;
    pg->npages = (uint32_t)npages;
    pg->zeroed = zeroed;
    return pg;
}

/* The clean masks of a run's pages, by what the block says of them before they are taken: those of dirty pages stay as
 * their last owner left them. */
static void set_clean(struct page *pg, struct block was, unsigned first, unsigned npages)
{
    for (unsigned i = 0; i < npages; i++) {
        uint32_t bit = (uint32_t)1 << (first + i);
        if (((was.dirty | was.lazy) & bit) == 0)
            pg[i].clean = clean_all();
        else if (was.coarse || (was.lazy & bit) != 0)
            pg[i].clean = 0;
    }
}

/* Pages were taken that are not resident: was that a regret? */
static void note_fresh(struct zone *z, size_t fresh)
{
    if (fresh == 0 || z->give.gone == 0)
        return;
    struct give_view v = zone_view(z, clock_coarse_ms());
    giveback_wanted(&z->give, fresh, &v);
    store_relaxed(&z->spiking, z->give.spiking);
}

/* Take npages at a out of the zone, if the limits allow it. Lock held. */
static struct page *take_run(struct zone *z, char *a, size_t npages)
{
    struct block was = *pmap_block(a);
    unsigned first = (unsigned)((uintptr_t)a >> PAGE_SHIFT) & (BLOCK_PAGES - 1);
    size_t fresh = range_fresh(a, npages);
    if (!limit_charge(fresh * PAGE_BYTES))
        return NULL;
    note_fresh(z, fresh);
    struct page *pg = dress_run(z, a, npages, range_take(z, a, npages));
    if (first + npages <= BLOCK_PAGES)
        set_clean(pg, was, first, (unsigned)npages);
    return pg;
}

static unsigned piece_order(size_t npages, size_t align_pages)
{
    unsigned order = ilog2_up(npages), align = ilog2_up(align_pages);
    return order > align ? order : align;
}

/* Result as zone_try_alloc; *refused: there are pages, and the hard limit is in the way. */
static struct page *try_alloc(unsigned node, size_t npages, size_t align_pages, bool *refused)
{
    struct zone *z = zone_of(node);
    unsigned order = piece_order(npages, align_pages);
    lock_acquire(&z->lock, RANK_ZONE);
    char *a = NULL;
    if (order >= BLOCK_ORDER)
        a = find_blocks(z, npages, align_pages);
    else if ((a = find_dirty(z, order, npages)) == NULL)
        a = find_free(z, order);
    struct page *pg = a == NULL ? NULL : take_run(z, a, npages);
    *refused = a != NULL && pg == NULL;
    lock_release(&z->lock);
    return pg;
}

struct page *zone_try_alloc(unsigned node, size_t npages, size_t align_pages)
{
    bool refused;
    return try_alloc(node, npages, align_pages, &refused);
}

/* How many pages of the wanted ones a piece at a offers: as many as follow it in its state. */
static size_t run_at(const char *a, unsigned order, size_t npages)
{
    const struct block *b = pmap_block(a);
    unsigned first = (unsigned)((uintptr_t)a >> PAGE_SHIFT) & (BLOCK_PAGES - 1), skip;
    uint32_t mask = (b->dirty >> first & 1) != 0 ? b->dirty : b->free & ~b->dirty;
    size_t have = block_run(mask >> first, &skip);
    have = have < npages ? have : npages;
    return have >> order == 0 ? (size_t)1 << order : have >> order << order;
}

struct page *zone_try_alloc_some(unsigned node, unsigned order, size_t npages)
{
    struct zone *z = zone_of(node);
    lock_acquire(&z->lock, RANK_ZONE);
    char *a = find_dirty(z, order, (size_t)1 << order);
    if (a == NULL) {
        a = find_free(z, ilog2_up(npages));
        a = a != NULL ? a : find_free(z, order);
    }
    struct page *pg = a == NULL ? NULL : take_run(z, a, run_at(a, order, npages));
    lock_release(&z->lock);
    return pg;
}

/* Let the descriptors of a new window have their memory now, while no lock is held: the page fault of a first touch takes
 * longer than all else that a hold does. Only pages and whole blocks inside of it are sure to be ours: an os page of
 * descriptors of blocks that no whole one lies in is left to the hold. */
static void touch_descriptors(const struct region *r)
{
    char *end = r->base + r->size;
    size_t pages = vm_page_size() / sizeof(struct page), blocks = vm_page_size() / sizeof(struct block);
    for (char *a = r->base; a < end; a += pages * PAGE_BYTES)
        pmap_page_init(a);
    pmap_page_init(end - PAGE_BYTES);
    uintptr_t first = align_up((uintptr_t)r->base, BLOCK_BYTES), last = align_down((uintptr_t)end, BLOCK_BYTES);
    for (uintptr_t a = first; a < last; a += blocks * BLOCK_BYTES)
        pmap_block((void *)a)->number = (uint32_t)(a >> BLOCK_SHIFT);
    if (first < last)
        pmap_block((void *)(last - BLOCK_BYTES))->number = (uint32_t)((last - 1) >> BLOCK_SHIFT);
}

static bool add_window(unsigned node, size_t need)
{
    struct region *r = region_map_window(need, node);
    if (r == NULL)
        return false;
    touch_descriptors(r);
    struct zone *z = zone_of(node);
    size_t npages = r->size >> PAGE_SHIFT;
    lock_acquire(&z->lock, RANK_ZONE);
    for (struct range part = range_of(r->base, npages); part.npages > 0; range_next(&part)) {
        char *a = r->base + (npages - part.npages) * PAGE_BYTES;
        part.b->number = (uint32_t)((uintptr_t)a >> BLOCK_SHIFT);
        part.b->node = (uint16_t)node;
    }
    owner_add(&z->out_pages, npages);
    range_put(z, r->base, npages, (struct put){.zeroed = true});
    lock_release(&z->lock);
    return true;
}

/* Address space that is sure to hold the run, wherever it begins. */
static size_t window_need(size_t npages, size_t align_pages)
{
    unsigned order = piece_order(npages, align_pages);
    if (order < BLOCK_ORDER)
        return (PAGE_BYTES << order) * 2 - PAGE_BYTES;
    size_t align = align_pages < BLOCK_PAGES ? BLOCK_PAGES : align_pages;
    return align_up(npages * PAGE_BYTES, BLOCK_BYTES) + align * PAGE_BYTES - PAGE_BYTES;
}

struct page *zone_alloc(unsigned node, size_t npages, size_t align_pages)
{
    if (UNLIKELY(npages > (size_t)UINT32_MAX >> 1))
        return NULL;
    for (unsigned waits = 0;;) {
        bool refused;
        struct page *pg = try_alloc(node, npages, align_pages, &refused);
        if (pg != NULL)
            return pg;
        if (!refused && add_window(node, window_need(npages, align_pages)))
            continue;
        /* No address space left, or a limit: purged pages join clean neighbours, and are no longer charged. */
        if (zone_purge(node, 0) == 0 && (waits++ == ALLOC_WAITS || !zone_await_purge(node)))
            return zone_try_alloc(node, npages, align_pages);
    }
}

void zone_free(struct page *pg, size_t npages, bool zeroed)
{
    struct zone *z = zone_of(pg->node);
    page_set_kind(pg, PAGE_NONE);
    lock_acquire(&z->lock, RANK_ZONE);
    range_put(z, page_address(pg), npages, (struct put){.zeroed = zeroed, .coarse = true});
    if (zeroed)
        limit_uncharge(npages * PAGE_BYTES);
    lock_release(&z->lock);
}

void zone_free_list(struct page *list)
{
    if (list == NULL)
        return;
    struct zone *z = zone_of(list->node);
    lock_acquire(&z->lock, RANK_ZONE);
    for (struct page *pg = list, *next; pg != NULL; pg = next) {
        next = pg->next;
        page_set_kind(pg, PAGE_NONE);
        range_put(z, page_address(pg), pg->npages, (struct put){.zeroed = pg->zeroed});
        if (pg->zeroed)
            limit_uncharge(pg->npages * PAGE_BYTES);
    }
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
    if (rest != 0)
        zone_free(zone_split(pg, npages), rest, false);
}

bool zone_grow(struct page *pg, size_t npages)
{
    struct zone *z = zone_of(pg->node);
    char *after = page_address(pg) + pg->npages * PAGE_BYTES;
    size_t more = npages - pg->npages;
    lock_acquire(&z->lock, RANK_ZONE);
    bool ok = range_is_free(z, after, more);
    size_t fresh = ok ? range_fresh(after, more) : 0;
    ok = ok && limit_charge(fresh * PAGE_BYTES);
    if (ok) {
        note_fresh(z, fresh);
        pg->zeroed = range_take(z, after, more) && pg->zeroed;
        pg->npages = (uint32_t)npages;
    }
    lock_release(&z->lock);
    return ok;
}

/* ---- looking at it ---- */

size_t zone_in_use(unsigned node)
{
    const struct zone *z = zone_of(node);
    size_t out = load_relaxed(&z->out_pages), flight = load_relaxed(&z->flight_pages);
    return out > flight ? out - flight : 0;
}

struct zone_stats zone_stats(unsigned node)
{
    struct zone *z = zone_of(node);
    lock_acquire(&z->lock, RANK_ZONE);
    struct zone_stats s = {
        .dirty = z->dirty_pages << PAGE_SHIFT,
        .lazy = z->lazy_pages << PAGE_SHIFT,
        .clean = z->clean_pages << PAGE_SHIFT,
        .out = z->out_pages << PAGE_SHIFT,
        .purged = z->purged_pages << PAGE_SHIFT,
        .purge_calls = z->purge_calls,
        .purge_failures = z->purge_failures,
        .credit = z->give.credit << PAGE_SHIFT,
        .lock_acquired = z->lock.acquired,
        .lock_contended = z->lock.contended,
    };
    lock_release(&z->lock);
    return s;
}

struct page_sums {
    size_t dirty, lazy, clean;
};

static void check_block(const struct zone *z, const struct block *b, struct page_sums *sum)
{
    CHECK(zone_of(b->node) == z);
    CHECK(pmap_block(block_address(b)) == b);
    CHECK_EQ(b->dirty & ~b->free, 0); /* INV-ZONE-1 */
    CHECK_EQ(b->lazy & ~b->free, 0);
    CHECK_EQ(b->lazy & b->dirty, 0);
    CHECK_EQ(b->flight & b->free, 0);
    sum->dirty += block_count(b->dirty);
    sum->lazy += block_count(b->lazy);
    sum->clean += block_count(b->free & ~b->dirty & ~b->lazy);
}

static void check_lists(const struct zone *z, struct page_sums *sum)
{
    size_t dirty = 0;
    for (unsigned i = 0; i < BLOCK_LISTS; i++) {
        CHECK_EQ(z->partial.head[i] != NULL, (z->partial.used >> i & 1) != 0);
        CHECK_EQ(z->dirty.head[i] != NULL, (z->dirty.used >> i & 1) != 0);
        for (struct block *b = z->partial.head[i]; b != NULL; b = b->next) {
            CHECK(b->free != 0 && b->free != BLOCK_ALL);
            CHECK_EQ(list_for(b, b->free), i); /* INV-ZONE-2 */
            CHECK_EQ(b->list, i);
            check_block(z, b, sum);
        }
        for (struct block *b = z->dirty.head[i]; b != NULL; b = b->dirty_next) {
            CHECK(b->dirty != 0);
            CHECK_EQ(list_for(b, b->dirty), i);
            CHECK(b->list != NO_LIST);
            dirty += block_count(b->dirty);
        }
    }
    CHECK_EQ(dirty, sum->dirty);
}

static void check_extent(const struct zone *z, struct block *first, enum extent_state s, struct page_sums *sum)
{
    CHECK(!in_extent(z, block_at(first, -1), s)); /* INV-ZONE-5 */
    CHECK(!in_extent(z, block_at(first, (ptrdiff_t)first->nblocks), s));
    CHECK_EQ(block_at(first, (ptrdiff_t)first->nblocks - 1)->nblocks, first->nblocks);
    for (size_t i = 0; i < first->nblocks; i++) {
        struct block *b = block_at(first, (ptrdiff_t)i);
        CHECK(in_extent(z, b, s));
        CHECK_EQ(b->list != NO_LIST, i == 0);
        check_block(z, b, sum);
    }
}

void zone_check(unsigned node)
{
    struct zone *z = zone_of(node);
    struct page_sums sum = {0};
    lock_acquire(&z->lock, RANK_ZONE);
    check_lists(z, &sum);
    for (int s = 0; s < EXTENT_STATES; s++)
        for (unsigned i = 0; i < EXTENT_BINS; i++) {
            CHECK_EQ(z->extent[s][i] != NULL, (z->extent_used[s] >> i & 1) != 0);
            for (struct block *b = z->extent[s][i]; b != NULL; b = b->next) {
                CHECK_EQ(extent_bin(b->nblocks), i);
                check_extent(z, b, (enum extent_state)s, &sum);
            }
        }
    CHECK_EQ(sum.dirty, z->dirty_pages); /* INV-ZONE-3 */
    CHECK_EQ(sum.lazy, z->lazy_pages);
    CHECK_EQ(sum.clean, z->clean_pages);
    CHECK(z->flight != NULL || z->parked != NULL || z->flight_pages == 0);
    lock_release(&z->lock);
}
