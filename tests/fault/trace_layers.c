/* SPDX-License-Identifier: BSD-2-Clause */
/* Traces over the layers of pages: regions, the zone, slabs, each called by its own names. */
#include "trace.h"

#include "tests/unit/unit.h"

#include "compat/os/vm.h"
#include "core/large.h"
#include "core/pcp.h"
#include "core/reclaim.h"
#include "core/region.h"
#include "core/slab.h"
#include "core/zone.h"

#define MIB(n) ((size_t)(n) << 20)

static uint64_t last_id;

/* A word at the beginning of every so many bytes: which block it is, and where in it. */
static void words_write(char *p, size_t size, size_t step, uint64_t id)
{
    for (size_t at = 0; at < size; at += step)
        *(uint64_t *)(p + at) = id << 32 | at / step;
}

static void words_look(const char *p, size_t size, size_t step, uint64_t id)
{
    for (size_t at = 0; at < size; at += step)
        MUST(*(const uint64_t *)(p + at) == (id << 32 | at / step));
}

static void words_zero(const char *p, size_t from, size_t to, size_t step)
{
    for (size_t at = from; at < to; at += step)
        MUST(*(const uint64_t *)(p + at) == 0);
}

/* ---- regions ---- */

enum { REGIONS = 12, REGION_STEP = 1 << 20 };

static struct {
    struct region *r;
    uint64_t id;
} regions[REGIONS];

static size_t region_bytes(uint64_t *seed)
{
    size_t most = unit_below(seed, 4) == 0 ? MIB(100) : MIB(20);
    return (1 + unit_below(seed, most / vm_page_size())) * vm_page_size();
}

static void region_take(int i, uint64_t *seed)
{
    size_t size = region_bytes(seed), align = vm_page_size() << unit_below(seed, 11);
    struct region *r = unit_below(seed, 3) == 0 ? region_map_own(size, align) : region_map_large(size, align);
    if (r == NULL) {
        trace_refused++;
        return;
    }
    MUST(r->size == size && (uintptr_t)r->base % align == 0);
    words_zero(r->base, 0, size, REGION_STEP);
    regions[i].r = r;
    regions[i].id = ++last_id;
    words_write(r->base, size, REGION_STEP, last_id);
}

static void region_drop(int i)
{
    struct region *r = regions[i].r;
    words_look(r->base, r->size, REGION_STEP, regions[i].id);
    if (region_unmap_large(r) == 0) {
        regions[i].r = NULL;
        return;
    }
    trace_refused++; /* OWN: still ours, contents too */
    words_look(r->base, r->size, REGION_STEP, regions[i].id);
}

static void region_change(int i, uint64_t *seed)
{
    struct region *r = regions[i].r;
    size_t old = r->size, size = region_bytes(seed), kept = old < size ? old : size, what = unit_below(seed, 3);
    bool done = what == 0 && size > old ? region_grow(r, size)
                : what == 1 && size < old ? region_shrink(r, size)
                                          : region_remap_large(r, size);
    words_look(r->base, done ? kept : old, REGION_STEP, regions[i].id);
    MUST(r->size == (done ? size : old));
    if (!done) {
        trace_refused++;
        return;
    }
    if (size > old) /* from the next os page on, what is new reads as zero */
        words_zero(r->base, (old + REGION_STEP - 1) & ~(size_t)(REGION_STEP - 1), size, REGION_STEP);
    words_write(r->base, size, REGION_STEP, regions[i].id);
}

static void region_step(uint64_t *seed)
{
    int i = (int)unit_below(seed, REGIONS);
    if (regions[i].r == NULL)
        region_take(i, seed);
    else if (unit_below(seed, 2) == 0)
        region_drop(i);
    else
        region_change(i, seed);
}

static void region_verify(void)
{
    for (int i = 0; i < REGIONS; i++)
        if (regions[i].r != NULL)
            words_look(regions[i].r->base, regions[i].r->size, REGION_STEP, regions[i].id);
}

static void region_end(void)
{
    for (int tries = 0; tries < 3; tries++)
        for (int i = 0; i < REGIONS; i++)
            if (regions[i].r != NULL)
                region_drop(i);
    for (int i = 0; i < REGIONS; i++)
        regions[i].r = NULL;
}

/* ---- zone ---- */

enum { RUNS = 40 };

static struct {
    struct page *pg;
    uint64_t id;
} runs[RUNS];

static size_t run_bytes(int i)
{
    return runs[i].pg->npages * PAGE_BYTES;
}

static void run_take(int i, uint64_t *seed)
{
    size_t n = 1 + unit_below(seed, unit_below(seed, 5) == 0 ? 200 : 20);
    struct page *pg = zone_alloc(NODE, n, (size_t)1 << unit_below(seed, 3));
    if (pg == NULL) {
        trace_refused++;
        return;
    }
    MUST(pg->npages == n);
    if (pg->zeroed)
        words_zero(page_address(pg), 0, n * PAGE_BYTES, PAGE_BYTES);
    runs[i].pg = pg;
    runs[i].id = ++last_id;
    words_write(page_address(pg), run_bytes(i), PAGE_BYTES, last_id);
}

static void run_drop(int i)
{
    words_look(page_address(runs[i].pg), run_bytes(i), PAGE_BYTES, runs[i].id);
    zone_free(runs[i].pg, runs[i].pg->npages, false);
    runs[i].pg = NULL;
}

static void run_change(int i, uint64_t *seed)
{
    struct page *pg = runs[i].pg;
    size_t old = pg->npages, n = 1 + unit_below(seed, 2 * old);
    words_look(page_address(pg), run_bytes(i), PAGE_BYTES, runs[i].id);
    pg->zeroed = false; /* it was written */
    if (n < old) {
        zone_shrink(pg, n);
        pg->npages = (uint32_t)n;
    } else if (n > old && zone_grow(pg, n)) {
        MUST(pg->npages == n);
    }
    words_write(page_address(pg), run_bytes(i), PAGE_BYTES, runs[i].id);
}

static void zone_step(uint64_t *seed)
{
    int i = (int)unit_below(seed, RUNS);
    size_t what = unit_below(seed, 20);
    if (what == 0)
        zone_purge(NODE, unit_below(seed, 2) * MIB(1));
    else if (what == 1)
        zone_relax(NODE, unit_below(seed, 2) == 0);
    else if (runs[i].pg == NULL)
        run_take(i, seed);
    else if (what < 12)
        run_drop(i);
    else
        run_change(i, seed);
}

static void zone_verify(void)
{
    for (int i = 0; i < RUNS; i++)
        if (runs[i].pg != NULL)
            words_look(page_address(runs[i].pg), run_bytes(i), PAGE_BYTES, runs[i].id);
}

static void zone_end(void)
{
    for (int i = 0; i < RUNS; i++)
        if (runs[i].pg != NULL)
            run_drop(i);
    zone_purge(NODE, 0);
}

/* ---- slabs ---- */

enum { CLASSES = 4, OBJS = 4000 };

static struct {
    class_t class;
    size_t size;
    unsigned n;
    struct {
        void *p;
        uint64_t id;
    } obj[OBJS];
} cache[CLASSES];

static void slab_setup(void)
{
    static const size_t sizes[CLASSES] = {32, 224, 2048, 24576};
    for (int i = 0; i < CLASSES; i++) {
        cache[i].class = size_to_class(sizes[i]);
        cache[i].size = sizes[i];
    }
}

static void objects_take(int i, uint64_t *seed)
{
    void *out[256];
    unsigned want = 1 + (unsigned)unit_below(seed, 200), most = i == 3 ? 200 : OBJS;
    if (cache[i].n + sizeof out / sizeof *out > most)
        return;
    unsigned n = slab_alloc_bulk(cache[i].class, NODE, out, want, sizeof out / sizeof *out);
    if (n == 0)
        trace_refused++;
    for (unsigned k = 0; k < n; k++) {
        unit_stamp(out[k], cache[i].size, ++last_id);
        cache[i].obj[cache[i].n].p = out[k];
        cache[i].obj[cache[i].n++].id = last_id;
    }
}

static void objects_drop(int i, unsigned n, uint64_t *seed)
{
    void *out[256];
    n = n < cache[i].n ? n : cache[i].n;
    n = n < 256 ? n : 256;
    for (unsigned k = 0; k < n; k++) {
        size_t at = seed == NULL ? cache[i].n - 1 : unit_below(seed, cache[i].n);
        MUST(unit_stamped(cache[i].obj[at].p, cache[i].size, cache[i].obj[at].id));
        out[k] = cache[i].obj[at].p;
        cache[i].obj[at] = cache[i].obj[--cache[i].n];
    }
    slab_free_bulk(cache[i].class, NODE, out, n, "free");
}

static void slab_step(uint64_t *seed)
{
    if (cache[0].size == 0)
        slab_setup();
    int i = (int)unit_below(seed, CLASSES);
    size_t what = unit_below(seed, 20);
    if (what < 9)
        objects_take(i, seed);
    else if (what < 16)
        objects_drop(i, 1 + (unsigned)unit_below(seed, 200), seed);
    else if (what < 17)
        slab_trim(cache[i].class, NODE);
    else if (what < 19)
        slab_holes(cache[i].class, NODE, MIB(8));
    else
        pcp_drain();
}

static void slab_verify_all(void)
{
    for (int i = 0; i < CLASSES; i++)
        for (unsigned k = 0; k < cache[i].n; k++)
            MUST(unit_stamped(cache[i].obj[k].p, cache[i].size, cache[i].obj[k].id));
}

static void slab_end(void)
{
    for (int i = 0; i < CLASSES; i++)
        while (cache[i].n > 0)
            objects_drop(i, 256, NULL);
    reclaim_trim(0);
}

const struct trace trace_region = {"region", 80, region_step, region_verify, region_end};
const struct trace trace_zone = {"zone", 150, zone_step, zone_verify, zone_end};
const struct trace trace_slab = {"slab", 100, slab_step, slab_verify_all, slab_end};
