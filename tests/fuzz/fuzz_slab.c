/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/slab.h: objects of up to three classes at a time are taken and given back in bulk and in any order, empty slabs and
 * holes inside of slabs are given back, with madvise that fails. No object is handed out twice, contents stay, sums
 * follow. slab_check after every step; at the end no slab is left.
 */
#include "fuzz.h"

#include "compat/os/vm.h"
#include "core/limit.h"
#include "core/opt.h"
#include "core/pcp.h"
#include "core/slab.h"
#include "core/zone.h"

const char fuzz_name[] = "slab";

enum { CLASSES = 3, OBJS = 1024, BULK = 128 };

struct objects {
    class_t c;
    unsigned n;
    char *p[OBJS];
    uint64_t id[OBJS];
};

static struct objects objects[CLASSES];
static struct opt defaults;
static uint64_t last_id;

void fuzz_setup(void)
{
    vm_use_libc();
    opt.thp = OPT_THP_NEVER;
    defaults = opt;
}

/* ---- the model ---- */

/* Sorting would cost more than looking: few objects, and overlaps show in the stamps as well. */
FUZZ_MODEL static bool known(const struct objects *o, const char *p)
{
    for (unsigned i = 0; i < o->n; i++)
        if (o->p[i] == p)
            return true;
    return false;
}

static void add(struct objects *o, char *p)
{
    size_t size = class_to_size(o->c);
    MUST(o->n < OBJS && (uintptr_t)p % 16 == 0 && !known(o, p));
    MUST(tag_class(pmap_tag(p)) == o->c && tag_class(pmap_tag(p + size - 1)) == o->c);
    o->p[o->n] = p;
    o->id[o->n] = ++last_id;
    fuzz_stamp(p, size, last_id);
    o->n++;
}

static char *take_out(struct objects *o, size_t i)
{
    char *p = o->p[i];
    MUST(fuzz_stamped(p, class_to_size(o->c), o->id[i]));
    o->p[i] = o->p[--o->n];
    o->id[i] = o->id[o->n];
    return p;
}

static void all_intact(const struct objects *o)
{
    for (unsigned i = 0; i < o->n; i++)
        MUST(fuzz_stamped(o->p[i], class_to_size(o->c), o->id[i]));
}

static void compare(void)
{
    for (int k = 0; k < CLASSES; k++) {
        const struct objects *o = &objects[k];
        struct slab_stats st = slab_stats(o->c, NODE);
        slab_check(o->c, NODE);
        MUST(st.slabs * size_info[o->c].objs == st.free_objs + o->n);
        MUST(st.made == st.released + st.slabs);
    }
    MUST(unit_charged_whole() == zone_stats(NODE).out + zone_stats(NODE).dirty);
}

/* ---- steps ---- */

static void do_alloc(struct fuzz *f, struct objects *o)
{
    void *out[BULK + SLAB_GROUP_EXTRA];
    unsigned want = 1 + (unsigned)fuzz_below(f, BULK), room = want + (unsigned)fuzz_below(f, SLAB_GROUP_EXTRA + 1);
    if (fuzz_chance(f, 20))
        room = 1 + (unsigned)fuzz_below(f, want);
    if (o->n + want + SLAB_GROUP_EXTRA > OBJS)
        return;
    unsigned n = slab_alloc_bulk(o->c, NODE, out, want, room);
    MUST(n <= room && n <= want + SLAB_GROUP_EXTRA && (n > 0 || opt.hard_limit != 0));
    for (unsigned i = 0; i < n; i++)
        add(o, out[i]);
}

/* Where from, and how far apart: whole slabs, or one object of each. */
static void do_free(struct fuzz *f, struct objects *o, size_t most)
{
    void *out[OBJS];
    unsigned n = 0;
    size_t want = 1 + fuzz_below(f, most), at = fuzz_below(f, OBJS), step = fuzz_below(f, 64);
    for (; n < want && o->n > 0; at += step)
        out[n++] = take_out(o, at % o->n);
    slab_free_bulk(o->c, NODE, out, n, "free");
}

/* All objects whose slab offset lies in a stretch: os pages become free as a whole. */
static void do_free_stretch(struct fuzz *f, struct objects *o)
{
    void *out[OBJS];
    unsigned n = 0;
    uintptr_t from = fuzz_below(f, 16) << 12, len = (1 + fuzz_below(f, 16)) << 12;
    for (size_t i = o->n; i-- > 0;)
        if (((uintptr_t)o->p[i] & (PAGE_BYTES - 1)) - from < len)
            out[n++] = take_out(o, i);
    slab_free_bulk(o->c, NODE, out, n, "free");
}

static void do_holes(struct fuzz *f, struct objects *o)
{
    size_t most = fuzz_chance(f, 128) ? SIZE_MAX : fuzz_between(f, 0, 1 << 20), clean = slab_stats(o->c, NODE).clean;
    size_t given = slab_holes(o->c, NODE, most);
    MUST(slab_stats(o->c, NODE).clean == clean + given);
    all_intact(o);
}

static void step(struct fuzz *f)
{
    unsigned what = fuzz_byte(f) % 32;
    struct objects *o = &objects[fuzz_below(f, CLASSES)];
    switch (what) {
    case 0 ... 8: do_alloc(f, o); break;
    case 9 ... 14: do_free(f, o, BULK); break;
    case 15 ... 16: do_free(f, o, OBJS); break;
    case 17 ... 19: do_free_stretch(f, o); break;
    case 20:
        slab_trim(o->c, NODE);
        MUST(slab_stats(o->c, NODE).empty == 0);
        break;
    case 21 ... 23: do_holes(f, o); break;
    case 24: slab_holes_retry(o->c, NODE); break;
    case 25:
        if (o->n > 0)
            slab_verify(o->p[fuzz_below(f, o->n)], "free");
        break;
    case 26: fuzz_madvise_fails(f); break;
    case 27: fuzz_madvise_works(); break;
    case 28: pcp_drain(); break;
    case 29: zone_purge(NODE, 0); break;
    case 30:
        slab_draining(o->c, NODE);
        slab_small_and_empty(o->c, NODE);
        break;
    default: all_intact(o); break;
    }
}

void fuzz_run(struct fuzz *f)
{
    unsigned kind = fuzz_byte(f);
    struct fuzz_heap before = fuzz_heap_begin();
    class_t c = (class_t)fuzz_below(f, SIZE_CLASSES);
    for (int k = 0; k < CLASSES; k++, c += 1 + (kind & 7)) { /* three different ones */
        objects[k].c = c % SIZE_CLASSES;
        objects[k].n = 0;
    }
    opt.madv_free = (kind & 16) != 0;
    opt.purge = (kind & 32) != 0 && (kind & 64) != 0 ? OPT_PURGE_OFF : OPT_PURGE_ON;
    if ((kind & 8) != 0 && (kind & 128) != 0)
        opt.hard_limit = limit_stats().charged + ((size_t)64 << 10 << fuzz_below(f, 7));
    while (fuzz_more(f)) {
        step(f);
        compare();
    }
    for (int k = 0; k < CLASSES; k++) {
        struct objects *o = &objects[k];
        void *out[OBJS];
        unsigned n = 0;
        while (o->n > 0)
            out[n++] = take_out(o, o->n - 1);
        slab_free_bulk(o->c, NODE, out, n, "free");
    }
    compare();
    opt = defaults;
    fuzz_heap_end(&before);
    for (int k = 0; k < CLASSES; k++)
        MUST(slab_stats(objects[k].c, NODE).slabs == 0 && slab_stats(objects[k].c, NODE).clean == 0);
}
