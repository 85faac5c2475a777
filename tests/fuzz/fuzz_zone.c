/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/zone.h: runs of pages are taken, written to, split, made longer and shorter, given back, purged, with madvise that
 * fails. No page is handed out twice, what is called zero is zero, contents stay; a refusal is right when no piece fits;
 * sums follow. zone_check after every step.
 */
#include "pages.h"

#include "compat/os/vm.h"
#include "core/block.h"
#include "core/clean.h"
#include "core/limit.h"
#include "core/opt.h"
#include "core/region.h"
#include "core/zone.h"
#include "core/zone_impl.h"

const char fuzz_name[] = "zone";

enum { HELD_MOST = 1500 /* pages */ };

static struct opt defaults;
static size_t held_before; /* pages out of the zone that are not ours */

void fuzz_setup(void)
{
    vm_use_libc();
    opt.thp = OPT_THP_NEVER; /* one word in 2 MiB would cost all of it */
    defaults = opt;
    struct page *first = zone_alloc(NODE, 2048, 1); /* inputs share these windows, so most need no new one */
    MUST(first != NULL);
    zone_free(first, 2048, true);
}

static size_t length(struct fuzz *f)
{
    size_t kind = fuzz_below(f, 8);
    return kind < 4 ? 1 + fuzz_below(f, 8) : kind < 6 ? 1 + fuzz_below(f, 33) : fuzz_between(f, 1, 400);
}

static size_t alignment(struct fuzz *f)
{
    return fuzz_chance(f, 80) ? (size_t)1 << fuzz_below(f, 9) : 1;
}

static bool limited(void)
{
    return opt.hard_limit != 0;
}

static void take(struct page *pg, size_t npages, size_t align)
{
    MUST((uintptr_t)page_address(pg) % (align * PAGE_BYTES) == 0);
    pages_took(pages_unused(), pg, npages);
}

/* ---- what fits, by the masks of the blocks ---- */

struct look {
    unsigned order;
    bool fits;
};

FUZZ_MODEL static int look_into(void *arg, const struct region *r)
{
    struct look *l = arg;
    if (r->kind != REGION_ZONE)
        return 0;
    uintptr_t a = (uintptr_t)r->base & ~(BLOCK_BYTES - 1);
    for (; a < (uintptr_t)r->base + r->size && !l->fits; a += BLOCK_BYTES)
        l->fits = block_pieces(pmap_block((void *)a)->free, l->order) != 0;
    return l->fits;
}

static bool piece_fits(unsigned order)
{
    struct look l = {.order = order};
    region_walk(look_into, &l);
    return l.fits;
}

/* ---- steps ---- */

static void do_try(struct fuzz *f)
{
    size_t npages = length(f), align = alignment(f);
    unsigned order = 0;
    while ((size_t)1 << order < npages || (size_t)1 << order < align)
        order++;
    bool fits = order < BLOCK_ORDER && piece_fits(order);
    struct page *pg = zone_try_alloc(NODE, npages, align);
    if (order < BLOCK_ORDER)
        MUST((pg != NULL) == fits || (pg == NULL && limited()));
    if (pg != NULL)
        take(pg, npages, align);
}

static void do_some(struct fuzz *f)
{
    unsigned order = (unsigned)fuzz_below(f, RUN_ORDER_MAX + 1);
    size_t least = (size_t)1 << order, npages = least + fuzz_below(f, BLOCK_PAGES - least + 1);
    bool fits = piece_fits(order);
    struct page *pg = zone_try_alloc_some(NODE, order, npages);
    MUST((pg != NULL) == fits || (pg == NULL && limited()));
    if (pg == NULL)
        return;
    MUST(pg->npages <= npages && pg->npages >= least && pg->npages % least == 0);
    take(pg, pg->npages, least);
}

static void do_alloc(struct fuzz *f)
{
    size_t npages = length(f), align = alignment(f);
    struct page *pg = zone_alloc(NODE, npages, align);
    MUST(pg != NULL || limited());
    if (pg != NULL)
        take(pg, npages, align);
}

static void do_free(struct pages *h)
{
    pages_intact(h);
    zone_free(h->pg, h->npages, h->id == 0 && h->pg->zeroed);
    MUST(h->pg->kind == PAGE_NONE);
    h->pg = NULL;
}

static void do_free_list(struct fuzz *f)
{
    struct page *list = NULL;
    size_t n = 0, most = fuzz_below(f, 48) + 1;
    for (struct pages *h = pages_held; h < pages_held + PAGES_HELD && n < most; h++) {
        if (h->pg == NULL || !pages_masked(h))
            continue;
        pages_intact(h);
        h->pg->next = list;
        list = h->pg;
        h->pg = NULL;
        n++;
    }
    zone_free_list(list);
}

static void do_split(struct fuzz *f, struct pages *h)
{
    struct pages *rest = pages_unused();
    if (h->npages < 2 || rest == NULL || !pages_masked(h))
        return;
    size_t first = 1 + fuzz_below(f, h->npages - 1);
    *rest = (struct pages){zone_split(h->pg, first), h->npages - first, h->id};
    h->npages = first;
    MUST(h->pg->npages == first && rest->pg->npages == rest->npages && rest->pg == h->pg + first);
    MUST(rest->pg->zeroed == h->pg->zeroed && rest->pg->kind == h->pg->kind);
}

static void do_shrink(struct fuzz *f, struct pages *h)
{
    size_t npages = 1 + fuzz_below(f, h->npages);
    pages_intact(h);
    bool masked = pages_masked(h);
    zone_shrink(h->pg, npages);
    h->npages = npages;
    MUST(h->pg->npages == npages);
    if (!masked)
        pages_write_all(h); /* a short run now, whose masks nobody has set */
}

static void do_grow(struct fuzz *f, struct pages *h)
{
    size_t more = fuzz_chance(f, 128) ? 1 + fuzz_below(f, 4) : fuzz_between(f, 1, 100);
    pages_intact(h);
    bool zeroed = h->pg->zeroed;
    char *after = page_address(h->pg) + h->npages * PAGE_BYTES;
    bool room = true;
    for (size_t i = 0; i < more && room; i++) {
        const struct block *b = pmap_block(after + i * PAGE_BYTES);
        room = b != NULL && (b->free >> ((uintptr_t)(after + i * PAGE_BYTES) >> PAGE_SHIFT) % BLOCK_PAGES & 1) != 0;
    }
    bool grown = zone_grow(h->pg, h->npages + more);
    MUST(grown == room || (!grown && limited()));
    if (!grown)
        return;
    MUST(h->pg->npages == h->npages + more);
    MUST(zeroed || !h->pg->zeroed);
    for (size_t i = 0; h->pg->zeroed && i < more * PAGE_BYTES; i += vm_page_size())
        MUST(*(uint64_t *)(after + i) == 0);
    struct page *pg = h->pg;
    h->pg = NULL;
    for (struct pages *o = pages_held; o < pages_held + PAGES_HELD; o++)
        MUST(o->pg == NULL || pg >= o->pg + o->npages || o->pg >= pg + h->npages + more);
    h->pg = pg;
    h->npages += more;
    pages_write_all(h);
}

static void do_purge(struct fuzz *f, bool broken)
{
    size_t keep = fuzz_below(f, 4) * (PAGE_BYTES * 50 + 1), before = zone_stats(NODE).dirty;
    size_t given = zone_purge(NODE, keep), whole = keep & ~(PAGE_BYTES - 1), after = zone_stats(NODE).dirty;
    MUST(before - after == given);
    MUST(broken || after == (whole < before ? whole : before));
}

static void step(struct fuzz *f, bool *broken)
{
    unsigned what = fuzz_byte(f) % 32;
    struct pages *h = what < 12 ? NULL : pages_any(f);
    if (what < 12 && (pages_unused() == NULL || pages_sum() > HELD_MOST))
        return;
    if (what >= 12 && what < 26 && h == NULL)
        return;
    switch (what) {
    case 0 ... 3: do_try(f); break;
    case 4 ... 7: do_alloc(f); break;
    case 8 ... 11: do_some(f); break;
    case 12 ... 16: do_free(h); break;
    case 17 ... 18: do_split(f, h); break;
    case 19 ... 20: do_shrink(f, h); break;
    case 21 ... 22: do_grow(f, h); break;
    case 23 ... 25: pages_write(h, f); break;
    case 26: do_free_list(f); break;
    case 27: do_purge(f, *broken); break;
    case 28: zone_relax(NODE, fuzz_chance(f, 128)); break;
    case 29:
        fuzz_madvise_fails(f);
        *broken = true;
        break;
    case 30:
        fuzz_madvise_works();
        break;
    default:
        opt.keep = fuzz_below(f, 8) << 20;
        break;
    }
}

static void compare(void)
{
    struct zone_stats z = zone_stats(NODE);
    zone_check(NODE);
    MUST(z.out == (held_before + pages_sum()) << PAGE_SHIFT);
    fuzz_heap_charged();
}

void fuzz_run(struct fuzz *f)
{
    unsigned kind = fuzz_byte(f);
    bool broken = false;
    opt.madv_free = (kind & 1) != 0;
    opt.decay_ms = (kind & 2) != 0 ? 0 : 1u << 30; /* nothing ages by chance, or all does */
    pages_begin();
    fuzz_madvise_works();
    held_before = zone_stats(NODE).out >> PAGE_SHIFT;
    if ((kind & 12) == 12)
        opt.hard_limit = limit_stats().charged + ((1 + fuzz_below(f, 16)) << 20);
    while (fuzz_more(f)) {
        step(f, &broken);
        compare();
    }
    for (struct pages *h = pages_held; h < pages_held + PAGES_HELD; h++)
        if (h->pg != NULL)
            do_free(h);
    fuzz_madvise_works();
    opt = defaults;
    zone_purge(NODE, 0);
    compare();
    MUST(zone_stats(NODE).dirty == 0 && pages_sum() == 0);
}
