/* SPDX-License-Identifier: BSD-2-Clause */
#include "report.h"

#include "barn.h"
#include "compat/os/numa.h"
#include "compat/os/vm.h"
#include "large.h"
#include "limit.h"
#include "meta.h"
#include "misuse.h"
#include "opt.h"
#include "region.h"
#include "slab.h"
#include "tcache.h"
#include "zone.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static size_t minus(size_t a, size_t b)
{
    return a > b ? a - b : 0; /* counters of running threads may be a little apart */
}

static void snapshot_class(struct report *r, class_t c, size_t cached)
{
    struct report_class *rc = &r->classes[c];
    *rc = (struct report_class){.size = class_to_size(c), .cached = cached};
    for (unsigned node = 0; node < numa_count(); node++) {
        struct slab_stats s = slab_stats(c, node);
        struct barn_stats b = barn_stats(c, node);
        rc->slabs += s.slabs;
        rc->free += s.free_objs;
        rc->clean += s.clean;
        rc->refills += s.refills;
        rc->flushed += s.flushed_objs;
        rc->slab_locks += s.lock_acquired;
        rc->slab_waits += s.lock_contended;
        r->hole_bytes += s.hole_bytes;
        r->hole_calls += s.hole_calls;
        r->hole_failures += s.hole_failures;
        rc->barn += b.objs;
        rc->barn_full += b.full;
        rc->barn_limit += b.limit;
        rc->barn_get += b.get;
        rc->barn_get_fail += b.get_fail;
        rc->barn_put += b.put;
        rc->barn_put_fail += b.put_fail;
        rc->barn_locks += b.lock_acquired;
        rc->barn_waits += b.lock_contended;
    }
    rc->objs = rc->slabs * size_info[c].objs;
    rc->live = minus(rc->objs, rc->free + rc->barn + rc->cached);
    rc->waste = rc->slabs * ((PAGE_BYTES << size_info[c].order) - size_info[c].objs * rc->size);
    r->small_live += rc->live * rc->size;
    r->small_cached += rc->cached * rc->size;
    r->small_barn += rc->barn * rc->size;
    r->small_free += rc->free * rc->size;
    r->small_waste += rc->waste;
    r->small_clean += rc->clean;
}

static int add_region(void *arg, const struct region *region)
{
    struct region_stats *sum = arg;
    sum->bytes[region->kind] += region->size;
    sum->count[region->kind]++;
    return 0;
}

/* One walk of the tree names all that is mapped, by kind, but for gaps of windows and ends of less than a page of ours. */
static void snapshot_regions(struct report *r)
{
    struct region_stats sum = {.gaps = 0};
    region_walk(add_region, &sum);
    r->window_bytes = sum.bytes[REGION_ZONE];
    r->window_count = sum.count[REGION_ZONE];
    r->own_bytes = sum.bytes[REGION_LARGE] + sum.bytes[REGION_OWN];
    r->own_count = sum.count[REGION_LARGE] + sum.count[REGION_OWN];
    r->stale_bytes = sum.bytes[REGION_STALE];
    r->leaf_bytes = sum.bytes[REGION_LEAF];
    r->gap_bytes = region_stats().gaps;
}

static void snapshot_pages(struct report *r)
{
    for (unsigned node = 0; node < numa_count(); node++) {
        struct zone_stats z = zone_stats(node);
        r->zone_dirty += z.dirty;
        r->zone_lazy += z.lazy;
        r->zone_clean += z.clean;
        r->credit += z.credit;
        r->purged += z.purged;
        r->purge_calls += z.purge_calls;
        r->zone_locks += z.lock_acquired;
        r->zone_waits += z.lock_contended;
        r->purge_failures += z.purge_failures;
    }
    snapshot_regions(r);
    struct large_stats l = large_stats();
    r->run_bytes = l.run_pages << PAGE_SHIFT;
    r->large_bytes = l.large_pages << PAGE_SHIFT;
    r->run_count = l.run_count;
    r->large_count = l.large_count;
    r->run_usable = l.run_bytes;
    r->large_usable = l.large_bytes;
    r->run_stale = l.run_stale;
    r->large_stale = l.large_stale;
    r->own_usable = l.own_bytes;
    r->hot_bytes = l.hot_bytes;
    r->hot_own_bytes = l.hot_own_bytes;
    r->pcp = pcp_stats();
    r->pcp_bytes = r->pcp.bytes;
}

static void snapshot_threads(struct report *r)
{
    struct tcache_stats t;
    tcache_stats(&t);
    for (class_t c = 0; c < SIZE_CLASSES; c++)
        snapshot_class(r, c, t.cached[c]);
    r->threads = t.threads;
    r->slow_alloc = t.counts.slow_alloc;
    r->slow_free = t.counts.slow_free;
    r->swaps = t.counts.swaps;
    r->refills = t.counts.refills;
    r->flushes = t.counts.flushes;
}

static void snapshot_beside(struct report *r)
{
    struct meta_stats m = meta_stats();
    r->meta_bytes = m.mapped;
    r->meta_static = m.in_library;
    r->meta_used = m.used;
    r->meta_fresh = m.fresh;
    r->leaf_resident = pmap_resident_bytes();
    r->mapped = vm_mapped_bytes();
    r->edges = minus(r->mapped, r->window_bytes + r->own_bytes + r->stale_bytes + r->gap_bytes + r->meta_bytes -
                                    r->meta_static + r->leaf_bytes);
    struct limit_stats l = limit_stats();
    r->charged = l.charged;
    r->limit_refusals = l.refusals;
    r->limit_last = l.last_refused;
    r->foreign = misuse_foreign_count();
    r->wrong_size = misuse_wrong_size_count();
}

/* What the parts should cost in memory, if the program has touched what it holds. */
static size_t resident_by_parts(const struct report *r)
{
    size_t small = r->small_live + r->small_cached + r->small_barn + r->small_free + r->small_waste;
    size_t blocks = r->run_usable + r->run_stale + r->large_usable + r->large_stale + r->own_usable + r->hot_bytes;
    size_t pages = r->pcp.resident + r->zone_dirty + r->zone_lazy;
    return minus(small, r->small_clean) + blocks + pages + r->stale_bytes + minus(r->meta_bytes, r->meta_static + r->meta_fresh) +
           r->leaf_resident;
}

_Static_assert(sizeof(struct report) <= (size_t)1 << META_MAX_SHIFT, "a snapshot must fit a block of metadata");

struct report *report_take(void)
{
    struct report *r = meta_zalloc(sizeof *r);
    if (r == NULL)
        return NULL;
    snapshot_threads(r);
    snapshot_pages(r);
    size_t named = r->small_live + r->small_cached + r->small_barn + r->small_free + r->small_waste + r->run_bytes +
                   r->large_bytes + r->hot_bytes + r->pcp_bytes + r->zone_dirty + r->zone_lazy + r->zone_clean;
    r->in_transit = minus(r->window_bytes, named);
    snapshot_beside(r);
    r->resident = resident_by_parts(r);
    return r;
}

void report_done(struct report *r)
{
    meta_free(r, sizeof *r);
}

/* For the two printers: a snapshot, or one line why there is none. */
static struct report *take_or_say(void)
{
    struct report *r = report_take();
    if (r == NULL)
        fmt_message("no memory for statistics");
    return r;
}

/* ---- for people ---- */

static void row(struct fmt *f, const char *name, size_t bytes, size_t count)
{
    fmt_add(f, "  %-34s %14zu", name, bytes);
    if (count != SIZE_MAX)
        fmt_add(f, "  in %zu", count);
    fmt_add(f, "\n");
}

static void print_classes(struct fmt *f, const struct report *r)
{
    fmt_add(f, "%8s %8s %10s %10s %10s %10s %10s %10s %10s %10s %10s\n", "size", "slabs", "live", "cached", "in barns",
            "free", "waste B", "clean B", "barn lock", "slab lock", "waits");
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        const struct report_class *k = &r->classes[c];
        if (k->slabs != 0)
            fmt_add(f, "%8zu %8zu %10zu %10zu %10zu %10zu %10zu %10zu %10zu %10zu %10zu\n", k->size, k->slabs, k->live,
                    k->cached, k->barn, k->free, k->waste, k->clean, k->barn_locks, k->slab_locks,
                    k->barn_waits + k->slab_waits);
    }
}

static void print_barns(struct fmt *f, const struct report *r)
{
    fmt_add(f, "%8s %10s %10s %10s %10s %10s %10s\n", "barns of", "full", "limit", "get", "get fail", "put",
            "put fail");
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        const struct report_class *k = &r->classes[c];
        if (k->barn_get + k->barn_put + k->barn_get_fail + k->barn_put_fail != 0)
            fmt_add(f, "%8zu %10zu %10zu %10zu %10zu %10zu %10zu\n", k->size, k->barn_full, k->barn_limit, k->barn_get,
                    k->barn_get_fail, k->barn_put, k->barn_put_fail);
    }
}

static void print_totals(struct fmt *f, const struct report *r)
{
    fmt_add(f, "windows (bytes)\n");
    row(f, "small objects, live", r->small_live, SIZE_MAX);
    row(f, "small objects, threads' sheaves", r->small_cached, r->threads);
    row(f, "small objects, barns", r->small_barn, SIZE_MAX);
    row(f, "small objects, free in slabs", r->small_free, SIZE_MAX);
    row(f, "ends of slabs", r->small_waste, SIZE_MAX);
    row(f, "page runs to 512 KiB", r->run_bytes, r->run_count);
    row(f, "large blocks", r->large_bytes, r->large_count);
    row(f, "large blocks, for the next request", r->hot_bytes, SIZE_MAX);
    row(f, "pcp lists", r->pcp_bytes, SIZE_MAX);
    row(f, "zone, dirty", r->zone_dirty, SIZE_MAX);
    row(f, "zone, lazily given back", r->zone_lazy, SIZE_MAX);
    row(f, "zone, clean (not resident)", r->zone_clean, SIZE_MAX);
    row(f, "in transit", r->in_transit, SIZE_MAX);
    row(f, "= windows", r->window_bytes, r->window_count);
    row(f, "in slabs, clean (not resident)", r->small_clean, SIZE_MAX);
    fmt_add(f, "beside them\n");
    row(f, "blocks with their own mapping", r->own_bytes, r->own_count);
    row(f, "of these, for the next request", r->hot_own_bytes, SIZE_MAX);
    row(f, "freed, refused by the system", r->stale_bytes, SIZE_MAX);
    row(f, "gaps in windows (not resident)", r->gap_bytes, SIZE_MAX);
    row(f, "metadata", r->meta_bytes - r->meta_static, SIZE_MAX);
    row(f, "page map leaves", r->leaf_bytes, SIZE_MAX);
    row(f, "edges", r->edges, SIZE_MAX);
    row(f, "= mapped, with the windows", r->mapped, SIZE_MAX);
    row(f, "resident by these figures", r->resident, SIZE_MAX);
    row(f, "charged against the limits", r->charged, SIZE_MAX);
    row(f, "metadata in the library's data", r->meta_static, SIZE_MAX);
    row(f, "purged so far", r->purged, r->purge_calls);
    row(f, "holes in slabs given back so far", r->hole_bytes, r->hole_calls);
    fmt_add(f, "page lists: malloc %zu, free %zu; from the zone %zu pages in %zu holds, to it %zu in %zu; taken %zu\n",
            r->pcp.alloc, r->pcp.free, r->pcp.refill_pages, r->pcp.refill_holds, r->pcp.drain_pages, r->pcp.drain_holds,
            r->pcp.alloc_busy + r->pcp.free_busy);
    fmt_add(f, "slow calls: malloc %zu, free %zu; swaps %zu, refills %zu, flushes %zu\n", r->slow_alloc, r->slow_free,
            r->swaps, r->refills, r->flushes);
    fmt_add(f, "foreign pointers %zu, wrong sizes %zu\n", r->foreign, r->wrong_size);
}

static void print_failure(struct fmt *f)
{
    struct vm_failure v = vm_last_failure();
    struct limit_stats l = limit_stats();
    if (l.refusals != 0)
        fmt_add(f, "hard_limit refused %zu requests, the last of %zu bytes\n", l.refusals, l.last_refused);
    if (v.call == NULL)
        return;
    fmt_add(f, "last system call refused: %s of %zu bytes, errno %d\n", v.call, v.size, v.error);
    if (v.limit_as != 0 || v.limit_data != 0)
        fmt_add(f, "limits at the start (0: none): address space %zu, data %zu bytes\n", v.limit_as, v.limit_data);
}

void report_print(int fd)
{
    char buf[512];
    struct fmt f = {.buf = buf, .cap = sizeof buf, .fd = fd};
    struct report *r = take_or_say();
    if (r == NULL)
        return;
    fmt_add(&f, "sheaf statistics\n");
    print_classes(&f, r);
    print_barns(&f, r);
    print_totals(&f, r);
    report_done(r);
    print_failure(&f);
    fmt_add(&f, "options\n");
    opt_print(&f);
    fmt_flush(&f);
}

/* ---- for programs ---- */

NOINLINE static void json_class(struct fmt *f, const struct report_class *k, const char *sep)
{
    fmt_add(f,
            "%s\n    {\"size\": %zu, \"slabs\": %zu, \"objs\": %zu, \"live\": %zu, \"cached\": %zu, \"barn\": %zu, "
            "\"free\": %zu, \"waste_bytes\": %zu, \"clean_bytes\": %zu, \"barn_locks\": %zu, \"barn_waits\": %zu, \"slab_locks\": %zu, "
            "\"slab_waits\": %zu, \"barn_full\": %zu, \"barn_limit\": %zu, \"barn_get\": %zu, \"barn_get_fail\": %zu, "
            "\"barn_put\": %zu, \"barn_put_fail\": %zu, \"refills\": %zu, \"flushed\": %zu}",
            sep, k->size, k->slabs, k->objs, k->live, k->cached, k->barn, k->free, k->waste, k->clean, k->barn_locks,
            k->barn_waits, k->slab_locks, k->slab_waits, k->barn_full, k->barn_limit, k->barn_get, k->barn_get_fail,
            k->barn_put, k->barn_put_fail, k->refills, k->flushed);
}

NOINLINE static void json_totals(struct fmt *f, const struct report *r)
{
    const struct {
        const char *name;
        size_t value;
    } v[] = {
        {"small_live", r->small_live},     {"small_cached", r->small_cached}, {"small_barn", r->small_barn},
        {"small_free", r->small_free},     {"small_waste", r->small_waste},   {"run", r->run_bytes},
        {"large", r->large_bytes},         {"pcp", r->pcp_bytes},             {"zone_dirty", r->zone_dirty},
        {"zone_lazy", r->zone_lazy},
        {"zone_clean", r->zone_clean},     {"in_transit", r->in_transit},     {"windows", r->window_bytes},
        {"own", r->own_bytes},             {"meta", r->meta_bytes},           {"leaves", r->leaf_bytes},
        {"meta_static", r->meta_static},   {"edges", r->edges},
        {"stale", r->stale_bytes},         {"gaps", r->gap_bytes},
        {"mapped", r->mapped},             {"purged", r->purged},             {"purge_calls", r->purge_calls},
        {"threads", r->threads},           {"slow_alloc", r->slow_alloc},     {"slow_free", r->slow_free},
        {"swaps", r->swaps},               {"refills", r->refills},           {"flushes", r->flushes},
        {"foreign", r->foreign},           {"wrong_size", r->wrong_size},
        {"run_usable", r->run_usable},     {"run_stale", r->run_stale},       {"large_usable", r->large_usable},
        {"large_stale", r->large_stale},   {"pcp_resident", r->pcp.resident}, {"meta_fresh", r->meta_fresh},
        {"leaf_resident", r->leaf_resident}, {"resident", r->resident},       {"credit", r->credit},
        {"charged", r->charged},           {"limit_refusals", r->limit_refusals},
        {"limit_last", r->limit_last},     {"purge_failures", r->purge_failures},
        {"small_clean", r->small_clean},   {"hole_bytes", r->hole_bytes},     {"hole_calls", r->hole_calls},
        {"hole_failures", r->hole_failures}, {"zone_locks", r->zone_locks},   {"zone_waits", r->zone_waits},
        {"hot", r->hot_bytes},             {"hot_own", r->hot_own_bytes},     {"own_usable", r->own_usable},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        fmt_add(f, "%s\n  \"%s\": %zu", i == 0 ? "" : ",", v[i].name, v[i].value);
}

NOINLINE static void json_pcp(struct fmt *f, const struct pcp_stats *p)
{
    fmt_add(f,
            ",\n  \"pages\": {\"alloc\": %zu, \"alloc_busy\": %zu, \"free\": %zu, \"free_busy\": %zu, "
            "\"refill\": %zu, \"refill_fail\": %zu, \"drain\": %zu, \"free_high\": %zu, \"mark\": %zu, "
            "\"spike\": %zu, ",
            p->alloc, p->alloc_busy, p->free, p->free_busy, p->refill, p->refill_fail, p->drain, p->free_high, p->mark,
            p->spike);
    fmt_add(f,
            "\"refill_holds\": %zu, \"refill_pages\": %zu, \"drain_holds\": %zu, \"drain_pages\": %zu, "
            "\"resident\": %zu, \"locks\": %zu, \"waits\": %zu}",
            p->refill_holds, p->refill_pages, p->drain_holds, p->drain_pages, p->resident, p->lock_acquired,
            p->lock_contended);
}

void report_json(int fd)
{
    char buf[512];
    struct fmt f = {.buf = buf, .cap = sizeof buf, .fd = fd};
    struct report *r = take_or_say();
    if (r == NULL)
        return;
    fmt_add(&f, "{\"sheaf\": 1,");
    json_totals(&f, r);
    json_pcp(&f, &r->pcp);
    fmt_add(&f, ",\n  \"classes\": [");
    const char *sep = "";
    for (class_t c = 0; c < SIZE_CLASSES; c++)
        if (r->classes[c].refills != 0) { /* ever used */
            json_class(&f, &r->classes[c], sep);
            sep = ",";
        }
    report_done(r);
    fmt_add(&f, "\n  ]\n}\n");
    fmt_flush(&f);
}

/* The path with %p replaced by the process's number: children inherit the option. */
static void expand(struct fmt *f, const char *path)
{
    const char *mark;
    for (; (mark = strstr(path, "%p")) != NULL; path = mark + 2) {
        for (; path < mark; path++)
            fmt_add(f, "%c", *path);
        fmt_add(f, "%d", (int)getpid());
    }
    fmt_add(f, "%s", path);
}

void report_json_file(const char *pattern)
{
    static char path[1100]; /* at exit only; too large for a stack frame of ours */
    struct fmt f = {.buf = path, .cap = sizeof path - 1, .fd = -1};
    expand(&f, pattern);
    path[f.len] = '\0';
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        fmt_message("stats_json: cannot write %s", path);
        return;
    }
    report_json(fd);
    close(fd);
}
