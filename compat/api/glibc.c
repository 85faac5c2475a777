/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * glibc's calls beside the malloc family: statistics, trimming, tuning. Level 11.
 *
 * All of them print or return the one snapshot of core/report.h.
 */
#include "compat/os/cc.h"
#include "core/alloc.h"
#include "core/reclaim.h"
#include "core/report.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

/* Laid out as in glibc's malloc.h, which we do not include: it would give our definitions its attributes. */
struct mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

EXPORT struct mallinfo mallinfo(void);
EXPORT struct mallinfo2 mallinfo2(void);
EXPORT int mallopt(int parameter, int value);
EXPORT int malloc_trim(size_t keep);
EXPORT void malloc_stats(void);
EXPORT int malloc_info(int options, FILE *out);

static size_t live_bytes(const struct report *r)
{
    return r->small_live + r->run_usable + r->large_usable + r->own_bytes;
}

struct mallinfo2 mallinfo2(void)
{
    struct report *r = report_take();
    if (r == NULL)
        return (struct mallinfo2){0};
    struct mallinfo2 m = {
        .arena = r->window_bytes,
        .hblks = r->own_count,
        .hblkhd = r->own_bytes,
        .uordblks = live_bytes(r),
        .keepcost = r->zone_dirty,
    };
    size_t in_windows = m.uordblks - r->own_bytes;
    m.fordblks = m.arena > in_windows ? m.arena - in_windows : 0;
    for (class_t c = 0; c < SIZE_CLASSES; c++)
        m.ordblks += r->classes[c].free + r->classes[c].barn + r->classes[c].cached;
    report_done(r);
    return m;
}

static int saturate(size_t v)
{
    return v > INT_MAX ? INT_MAX : (int)v;
}

struct mallinfo mallinfo(void)
{
    struct mallinfo2 m = mallinfo2();
    return (struct mallinfo){
        .arena = saturate(m.arena),
        .ordblks = saturate(m.ordblks),
        .hblks = saturate(m.hblks),
        .hblkhd = saturate(m.hblkhd),
        .uordblks = saturate(m.uordblks),
        .fordblks = saturate(m.fordblks),
        .keepcost = saturate(m.keepcost),
    };
}

/* Parameters tune glibc's arenas, bins and thresholds, which do not exist here: accepted, without effect. */
int mallopt(int parameter, int value)
{
    (void)parameter;
    (void)value;
    return 1;
}

int malloc_trim(size_t keep)
{
    return reclaim_trim(keep);
}

void malloc_stats(void)
{
    report_print(2);
}

static void xml_sizes(struct fmt *f, const struct report *r)
{
    fmt_add(f, "<sizes>\n");
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        const struct report_class *k = &r->classes[c];
        size_t n = k->free + k->barn + k->cached;
        if (n != 0)
            fmt_add(f, "<size from=\"%zu\" to=\"%zu\" total=\"%zu\" count=\"%zu\"/>\n",
                    c == 0 ? (size_t)1 : class_to_size(c - 1) + 1, k->size, n * k->size, n);
    }
    fmt_add(f, "</sizes>\n");
}

static void xml_totals(struct fmt *f, const struct report *r)
{
    size_t cached = r->small_cached + r->small_barn, rest = r->small_free + r->pcp_bytes + r->zone_dirty;
    fmt_add(f, "<total type=\"fast\" count=\"0\" size=\"%zu\"/>\n", cached);
    fmt_add(f, "<total type=\"rest\" count=\"0\" size=\"%zu\"/>\n", rest);
    fmt_add(f, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n", r->own_count, r->own_bytes);
    fmt_add(f, "<system type=\"current\" size=\"%zu\"/>\n", r->mapped);
    fmt_add(f, "<aspace type=\"total\" size=\"%zu\"/>\n", r->window_bytes);
}

static void to_stream(void *out, const char *text, size_t len)
{
    fwrite(text, 1, len, out);
}

/* The outline of glibc's XML. The stream may be one in memory, and may allocate. */
int malloc_info(int options, FILE *out)
{
    char buf[512];
    struct fmt f = {.buf = buf, .cap = sizeof buf, .fd = -1, .sink = to_stream, .arg = out};
    if (options != 0)
        return EINVAL;
    struct report *r = report_take();
    if (r == NULL)
        return ENOMEM;
    fmt_add(&f, "<malloc version=\"1\">\n<heap nr=\"0\">\n");
    xml_sizes(&f, r);
    xml_totals(&f, r);
    fmt_add(&f, "</heap>\n");
    xml_totals(&f, r);
    fmt_add(&f, "</malloc>\n");
    report_done(r);
    fmt_flush(&f);
    return 0;
}
