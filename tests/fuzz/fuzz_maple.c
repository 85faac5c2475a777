/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/maple.h beside a sorted array: every call, with nodes that run out, in trees with and without gaps, with another
 * thread's write in the middle of a call. maple_check after every step.
 */
#include "fuzz.h"
#include "unit/maple_model.h"

#include <errno.h>

const char fuzz_name[] = "maple";

static struct nodes ns;
static struct maple m;
static struct model md;

enum { RANGES_MAX = 3000, COMPARE_SMALL = 100, COMPARE_EVERY = 16 };

void fuzz_setup(void)
{
}

/* ---- numbers ---- */

/* One near a bound that there is, since most errors lie there. */
static uintptr_t near_a_bound(struct fuzz *f)
{
    if (md.n == 0)
        return 0;
    const struct maple_range *r = &md.r[fuzz_below(f, md.n)];
    switch (fuzz_below(f, 4)) {
    case 0: return r->first;
    case 1: return r->last;
    case 2: return r->first - 1;
    default: return r->last + 1;
    }
}

static uintptr_t number(struct fuzz *f)
{
    switch (fuzz_below(f, 8)) {
    case 0: return fuzz_below(f, 256);
    case 1: return fuzz_below(f, 1 << 16);
    case 2: return 100 * fuzz_below(f, 1 << 10);
    case 3: return UINTPTR_MAX - fuzz_below(f, 256);
    case 4: return fuzz_word(f);
    default: return near_a_bound(f);
    }
}

/* Two, mostly in order, mostly near each other. */
static void two_numbers(struct fuzz *f, uintptr_t *first, uintptr_t *last)
{
    *first = number(f);
    size_t kind = fuzz_below(f, 4);
    *last = kind == 0 ? number(f) : kind == 1 ? *first : *first + fuzz_between(f, 0, kind == 2 ? 300 : 20000);
}

/* ---- a rival ---- */

static struct {
    bool armed;
    uintptr_t first, last;
    void *entry;
} rival;

static void *rival_thread(void *arg)
{
    (void)arg;
    int rc = maple_store(&m, rival.first, rival.last, rival.entry);
    MUST(rc == 0 || (rc == -EINVAL && rival.first > rival.last) || (rc == -ENOMEM && ns.allow == 0));
    if (rc == 0)
        model_store(&md, rival.first, rival.last, rival.entry);
    return NULL;
}

/* While our call waits for nodes, another thread stores a range; whatever ours does comes after it. */
static void let_rival_in(void *arg)
{
    pthread_t t;
    (void)arg;
    if (!rival.armed)
        return;
    rival.armed = false;
    MUST(pthread_create(&t, NULL, rival_thread, NULL) == 0);
    MUST(pthread_join(t, NULL) == 0);
}

static void arm_rival(struct fuzz *f)
{
    two_numbers(f, &rival.first, &rival.last);
    rival.entry = fuzz_chance(f, 80) ? NULL : bounds_entry(rival.first, rival.last);
    rival.armed = md.n < RANGES_MAX;
}

/* ---- writes ---- */

/* Nodes ran out: only where the source has none, and nothing has changed. */
static bool refused(int rc)
{
    if (rc == -ENOMEM)
        MUST(ns.allow == 0);
    return rc == -ENOMEM;
}

static bool all_gap(uintptr_t first, uintptr_t last)
{
    struct maple_range r;
    return !model_find(&md, first, last, &r);
}

static void do_store(struct fuzz *f, bool clear)
{
    uintptr_t first, last;
    two_numbers(f, &first, &last);
    void *entry = clear ? NULL : bounds_entry(first, last);
    int rc = maple_store(&m, first, last, entry);
    if (first > last) {
        MUST(rc == -EINVAL);
        return;
    }
    struct maple_range at = model_at(&md, first);
    if (refused(rc)) {
        bool exact = entry != NULL && at.entry != NULL && at.first == first && at.last == last;
        MUST(!exact || m.worst); /* an exact fit needs no node */
        return;
    }
    MUST(rc == 0);
    model_store(&md, first, last, entry);
}

static void do_insert(struct fuzz *f)
{
    uintptr_t first, last;
    two_numbers(f, &first, &last);
    int rc = maple_insert(&m, first, last, bounds_entry(first, last));
    if (first > last) {
        MUST(rc == -EINVAL);
    } else if (!all_gap(first, last)) {
        MUST(rc == -EEXIST || refused(rc));
    } else if (!refused(rc)) {
        MUST(rc == 0);
        model_store(&md, first, last, bounds_entry(first, last));
    }
}

static void do_erase(struct fuzz *f)
{
    struct maple_range was = {0};
    uintptr_t index = number(f);
    int rc = maple_erase(&m, index, &was);
    struct maple_range at = model_at(&md, index);
    if (refused(rc))
        return;
    MUST(rc == (at.entry == NULL ? -ENOENT : 0));
    if (rc != 0)
        return;
    MUST(range_equal(&was, &at));
    model_store(&md, at.first, at.last, NULL);
}

static void do_grow(struct fuzz *f)
{
    uintptr_t index = number(f), last = fuzz_chance(f, 128) ? number(f) : index + fuzz_between(f, 0, 2000);
    int rc = maple_grow(&m, index, last);
    struct maple_range at = model_at(&md, index);
    if (refused(rc))
        return;
    if (at.entry == NULL) {
        MUST(rc == -ENOENT);
    } else if (last <= at.last) {
        MUST(rc == -EINVAL);
    } else if (!all_gap(at.last + 1, last)) {
        MUST(rc == -EEXIST);
    } else {
        MUST(rc == 0);
        model_store(&md, at.last + 1, last, at.entry);
        for (size_t i = 0; i + 1 < md.n; i++) /* the model has no way to grow: two ranges become one */
            if (md.r[i].first == at.first) {
                md.r[i].last = last;
                memmove(md.r + i + 1, md.r + i + 2, (md.n - i - 2) * sizeof *md.r);
                md.n--;
                break;
            }
    }
}

static void do_gap(struct fuzz *f, bool place)
{
    struct maple_want w = {.size = fuzz_between(f, 0, 1 << 16), .high = fuzz_chance(f, 128)};
    if (fuzz_chance(f, 128)) {
        w.to = UINTPTR_MAX;
    } else {
        w.from = number(f);
        w.to = number(f);
    }
    w.align = fuzz_chance(f, 128) ? (uintptr_t)1 << fuzz_below(f, 64) : 1;
    if (fuzz_chance(f, 20))
        w.size = fuzz_word(f);
    uintptr_t at = 0, want = 0;
    void *entry = &ns;
    int rc = place ? maple_place(&m, &w, entry, &at) : maple_gap(&m, &w, &at);
    if (!m.gaps || w.size == 0 || w.from > w.to) {
        MUST(rc == -EINVAL || (w.from > w.to && rc == -EBUSY));
        return;
    }
    bool found = model_gap(&md, &w, &want);
    if (place && refused(rc))
        return;
    MUST(rc == (found ? 0 : -EBUSY));
    MUST(!found || at == want);
    if (found && place)
        model_store(&md, at, at + w.size - 1, entry);
}

/* Many at once, so that trees become high. */
static void do_many(struct fuzz *f)
{
    size_t n = fuzz_below(f, 256) + 1;
    uintptr_t first = number(f), step = fuzz_between(f, 1, 1000), size = fuzz_below(f, step) + 1;
    bool down = fuzz_chance(f, 64);
    if (md.n + n > RANGES_MAX)
        return;
    for (size_t i = 0; i < n; i++) {
        uintptr_t a = down ? first - i * step : first + i * step, b = a + size - 1;
        int rc = maple_store(&m, a, b, bounds_entry(a, b));
        if (rc == -EINVAL && a > b)
            continue;
        if (refused(rc))
            continue;
        MUST(rc == 0);
        model_store(&md, a, b, bounds_entry(a, b));
    }
}

/* Erase so many, one after the other, from some place on: trees become low. */
static void do_thin(struct fuzz *f)
{
    size_t n = fuzz_below(f, 256), keep = fuzz_below(f, 4);
    uintptr_t index = number(f);
    struct maple_range r;
    for (size_t i = 0; i < n && model_find(&md, index, UINTPTR_MAX, &r); i++) {
        if (keep == 0 || i % (keep + 1) != 0) {
            int rc = maple_erase(&m, r.first, NULL);
            if (!refused(rc)) {
                MUST(rc == 0);
                struct maple_range gone = model_at(&md, r.first); /* a rival may have changed it */
                if (gone.entry != NULL)
                    model_store(&md, gone.first, gone.last, NULL);
            }
        }
        if (r.last == UINTPTR_MAX)
            break;
        index = r.last + 1;
    }
}

/* ---- reads ---- */

static void do_look(struct fuzz *f)
{
    uintptr_t from = number(f), to = number(f);
    struct maple_range want = model_at(&md, from), got;
    MUST(maple_load(&m, from) == want.entry);
    MUST(maple_at(&m, from, &got) == 0);
    MUST(range_equal(&got, &want));
    bool found = from <= to && model_find(&md, from, to, &want);
    MUST(maple_find(&m, from, to, &got) == (found ? 0 : -ENOENT));
    MUST(!found || range_equal(&got, &want));
    found = from <= to && model_find_last(&md, from, to, &want);
    MUST(maple_find_last(&m, from, to, &got) == (found ? 0 : -ENOENT));
    MUST(!found || range_equal(&got, &want));
}

static struct maple_cursor cursor;

/* A cursor that lives through changes: the next one is the first range behind the end of the last one given. */
static void do_cursor(struct fuzz *f)
{
    struct maple_range got, want;
    size_t what = fuzz_below(f, 3), steps = fuzz_below(f, 32) + 1;
    if (what == 0)
        maple_cursor_init(&cursor, &m, number(f));
    for (size_t i = 0; what != 0 && i < steps; i++) {
        struct maple_range at = cursor.at;
        bool begun = cursor.started, found;
        if (what == 1)
            found = !(begun && at.last == UINTPTR_MAX) &&
                    model_find(&md, begun ? at.last + 1 : at.first, UINTPTR_MAX, &want);
        else
            found = !(begun && at.first == 0) && model_find_last(&md, 0, begun ? at.first - 1 : at.last, &want);
        MUST((what == 1 ? maple_next(&cursor, &got) : maple_prev(&cursor, &got)) == (found ? 0 : -ENOENT));
        MUST(!found || range_equal(&got, &want));
        if (!found)
            break;
    }
}

/* ---- steps ---- */

static void accounts(void)
{
    struct maple_stats st = maple_stats(&m);
    MUST(ns.out == m.nodes + m.nspare && m.nhand == 0);
    MUST(m.worst || st.returned == 0);
    MUST(m.zero || st.bytes_zeroed == 0);
}

static void step(struct fuzz *f)
{
    unsigned what = fuzz_byte(f) % 32;
    if (md.n > RANGES_MAX && what < 24 && what != 10)
        what = 10;
    switch (what) {
    case 0 ... 5: do_store(f, false); break;
    case 6 ... 8: do_store(f, true); break;
    case 9: do_many(f); break;
    case 10: do_thin(f); break;
    case 11 ... 13: do_insert(f); break;
    case 14 ... 17: do_erase(f); break;
    case 18 ... 20: do_grow(f); break;
    case 21 ... 23: do_gap(f, true); break;
    case 24: do_gap(f, false); break;
    case 25: ns.allow = (long)fuzz_below(f, 12) - 1; break;
    case 26: ns.allow = -1; break;
    case 27: maple_destroy(&m); md.n = 0; break;
    case 28: arm_rival(f); break;
    case 29: do_cursor(f); break;
    default: do_look(f); break;
    }
    if (what != 28)
        rival.armed = false;
}

void fuzz_run(struct fuzz *f)
{
    unsigned kind = fuzz_byte(f);
    nodes_init(&ns);
    ns.rival = let_rival_in;
    maple_init(&m, (kind & 1) != 0, RANK_SPACE, &ns.source);
    m.worst = (kind & 2) != 0;
    m.zero = (kind & 4) != 0;
    m.keep = (kind & 8) != 0 ? 0 : MAPLE_KEEP;
    md.n = 0;
    rival.armed = false;
    maple_cursor_init(&cursor, &m, 0);
    for (unsigned i = 1; fuzz_more(f); i++) {
        step(f);
        accounts();
        if (md.n <= COMPARE_SMALL || i % COMPARE_EVERY == 0)
            model_compare(&md, &m);
        else
            maple_check(&m);
    }
    model_compare(&md, &m);
    maple_destroy(&m);
    nodes_fini(&ns);
}
