/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/barn.h: sheaves of two classes are filled, left, taken, put back, emptied, with limits and draining classes. Every
 * object is in one place: with us, in the barn, or free in its slab; what was written to it while it was ours is there
 * when it comes back. barn_check and slab_check after every step; at the end the barns are empty and every array is back.
 */
#include "fuzz.h"

#include "compat/os/vm.h"
#include "core/barn.h"
#include "core/meta.h"
#include "core/opt.h"
#include "core/region.h"
#include "core/slab.h"

const char fuzz_name[] = "barn";

enum { CLASSES = 2, HAND = 24, CAP_MAX = 256 };

struct hand {
    struct sheaf *s; /* NULL: none */
    int k;           /* of which class */
};

static struct hand hand[HAND];
static class_t classes[CLASSES];
static struct opt defaults;

void fuzz_setup(void)
{
    vm_use_libc();
    opt.thp = OPT_THP_NEVER;
    defaults = opt;
}

/* An object's first words say where it is. */
enum place { OURS = 0x6f757273, BARN = 0x6261726e };

static void mark(struct sheaf *s, uint64_t place)
{
    for (uint32_t i = 1; i <= s->n; i++) {
        uint64_t *w = s->slot[i];
        w[0] = place;
        w[1] = (uintptr_t)w ^ place;
    }
}

static void has_mark(const struct sheaf *s, uint64_t place)
{
    for (uint32_t i = 1; i <= s->n; i++) {
        const uint64_t *w = s->slot[i];
        MUST(w[0] == place && w[1] == ((uintptr_t)w ^ place));
    }
}

static void wipe(struct sheaf *s)
{
    for (uint32_t i = 1; i <= s->n; i++)
        *(uint64_t *)s->slot[i] = 0;
}

/* ---- the hand ---- */

static struct hand *unused(void)
{
    for (int i = 0; i < HAND; i++)
        if (hand[i].s == NULL)
            return &hand[i];
    return NULL;
}

/* One with objects, or one without. */
static struct hand *some(struct fuzz *f, bool objects)
{
    size_t from = fuzz_below(f, HAND);
    for (size_t i = 0; i < HAND; i++) {
        struct hand *h = &hand[(from + i) % HAND];
        if (h->s != NULL && (h->s->n > 0) == objects)
            return h;
    }
    return NULL;
}

static void sheaf_is_sound(const struct sheaf *s)
{
    MUST(s->slot[0] == NULL && s->slot[s->cap + 1] == SHEAF_END && s->n <= s->cap);
    MUST(s->cap <= sheaf_room(s->bytes));
    for (uint32_t i = 1; i <= s->cap; i++)
        MUST(s->slot[i] != SHEAF_END && (i > s->n || s->slot[i] != NULL));
}

static void hold(struct sheaf *s, int k)
{
    struct hand *h = unused();
    MUST(h != NULL);
    for (int i = 0; i < HAND; i++)
        MUST(hand[i].s != s);
    sheaf_is_sound(s);
    *h = (struct hand){s, k};
}

static void compare(void)
{
    for (int k = 0; k < CLASSES; k++) {
        class_t c = classes[k];
        struct barn_stats b = barn_stats(c, NODE);
        struct slab_stats st = slab_stats(c, NODE);
        size_t ours = 0;
        for (int i = 0; i < HAND; i++)
            if (hand[i].s != NULL && hand[i].k == k) {
                sheaf_is_sound(hand[i].s);
                has_mark(hand[i].s, OURS);
                ours += hand[i].s->n;
            }
        barn_check(c, NODE);
        slab_check(c, NODE);
        MUST(st.slabs * size_info[c].objs == st.free_objs + ours + b.objs);
        MUST((b.full == 0) == (b.objs == 0));
    }
}

/* ---- steps ---- */

static void do_new(struct fuzz *f, int k)
{
    uint32_t cap = 1 + (uint32_t)fuzz_below(f, CAP_MAX);
    if (unused() == NULL)
        return;
    struct sheaf *s = fuzz_chance(f, 128) ? barn_sheaf_new(cap) : barn_get_empty(classes[k], NODE, cap);
    MUST(s != NULL && s->n == 0 && s->cap >= cap);
    hold(s, k);
}

/* Objects from the slabs; such as are marked as ours already would have been handed out twice. */
static void do_fill(struct fuzz *f, struct hand *h)
{
    struct sheaf *s = h->s;
    uint32_t room = s->cap - s->n, want;
    if (room == 0)
        return;
    want = 1 + (uint32_t)fuzz_below(f, room);
    void **at = s->slot + s->n + 1;
    unsigned n = slab_alloc_bulk(classes[h->k], NODE, at, want, room);
    MUST(n > 0 && n <= room);
    for (unsigned i = 0; i < n; i++)
        MUST(*(uint64_t *)at[i] != OURS || ((uint64_t *)at[i])[1] != ((uintptr_t)at[i] ^ OURS));
    s->n += n;
    mark(s, OURS);
}

static void do_empty(struct hand *h)
{
    struct sheaf *s = h->s;
    wipe(s);
    slab_free_bulk(classes[h->k], NODE, s->slot + 1, s->n, "free");
    s->n = 0;
}

static void do_put_full(struct fuzz *f, struct hand *h)
{
    struct sheaf *empty = NULL;
    uint32_t cap = 1 + (uint32_t)fuzz_below(f, CAP_MAX);
    struct barn_stats before = barn_stats(classes[h->k], NODE);
    mark(h->s, BARN);
    bool in = barn_put_full(classes[h->k], NODE, h->s, cap, &empty, "free");
    struct barn_stats after = barn_stats(classes[h->k], NODE);
    if (!in) {
        MUST(empty == NULL && after.full <= before.full);
        mark(h->s, OURS);
        return;
    }
    MUST(after.objs == before.objs + h->s->n && after.full == before.full + 1);
    MUST(after.put == before.put + 1 && (opt.barn_max == 0 || after.full <= opt.barn_max));
    h->s = NULL;
    if (empty != NULL) {
        MUST(empty->n == 0 && empty->cap >= cap);
        hold(empty, h->k);
    }
}

static void do_get_full(struct fuzz *f, int k)
{
    struct hand *e = fuzz_chance(f, 128) ? some(f, false) : NULL;
    if (e != NULL)
        k = e->k;
    if (e == NULL && unused() == NULL)
        return;
    size_t full = barn_stats(classes[k], NODE).full;
    struct sheaf *s = barn_get_full(classes[k], NODE, e != NULL ? e->s : NULL);
    MUST((s != NULL) == (full > 0));
    if (s == NULL)
        return;
    if (e != NULL)
        e->s = NULL;
    MUST(s->n > 0);
    has_mark(s, BARN);
    if (fuzz_chance(f, 50)) {
        barn_return_full(classes[k], NODE, s);
        MUST(barn_stats(classes[k], NODE).full == full);
        return;
    }
    mark(s, OURS);
    hold(s, k);
}

static void do_drop(struct hand *h, bool to_barn)
{
    if (to_barn)
        barn_put_empty(classes[h->k], NODE, h->s);
    else
        barn_sheaf_free(h->s);
    h->s = NULL;
}

static void do_flush(int k)
{
    size_t objs = barn_stats(classes[k], NODE).objs;
    MUST(barn_flush(classes[k], NODE, "free") == objs);
    struct barn_stats after = barn_stats(classes[k], NODE);
    MUST(after.full == 0 && after.empty == 0 && after.objs == 0);
}

static void step(struct fuzz *f)
{
    unsigned what = fuzz_byte(f) % 32;
    int k = (int)fuzz_below(f, CLASSES);
    struct hand *h = what < 8 || what > 26 ? NULL : some(f, what != 8 && what < 20 && what > 12);
    if (h == NULL && what >= 8 && what <= 26)
        return;
    switch (what) {
    case 0 ... 3: do_new(f, k); break;
    case 4 ... 7: do_get_full(f, k); break;
    case 8 ... 12: do_fill(f, h); break;
    case 13 ... 17: do_put_full(f, h); break;
    case 18: do_fill(f, h); break;
    case 19: do_empty(h); break;
    case 20 ... 22: do_drop(h, true); break;
    case 23: do_drop(h, false); break;
    case 24 ... 26: do_fill(f, h); break;
    case 27: do_flush(k); break;
    case 28: opt.barn_max = fuzz_below(f, 16); break;
    case 29: slab_trim(classes[k], NODE); break;
    case 30: MUST(barn_sheaf_capacity(1 + (uint32_t)fuzz_below(f, 900), 1000) <= 1000); break;
    default: do_get_full(f, k); break;
    }
}

static size_t count_regions(void)
{
    struct region_stats st = region_stats();
    size_t n = 0;
    for (int k = 0; k < REGION_KINDS; k++)
        n += st.count[k];
    return n;
}

void fuzz_run(struct fuzz *f)
{
    struct fuzz_heap before = fuzz_heap_begin();
    size_t meta = meta_stats().used, regions = count_regions();
    classes[0] = (class_t)fuzz_below(f, SIZE_CLASSES);
    classes[1] = (classes[0] + 1 + (class_t)fuzz_below(f, SIZE_CLASSES - 1)) % SIZE_CLASSES;
    memset(hand, 0, sizeof hand);
    while (fuzz_more(f)) {
        step(f);
        compare();
    }
    for (int i = 0; i < HAND; i++)
        if (hand[i].s != NULL) {
            if (hand[i].s->n > 0)
                do_empty(&hand[i]);
            do_drop(&hand[i], true);
        }
    for (int k = 0; k < CLASSES; k++)
        do_flush(k);
    compare();
    opt = defaults;
    fuzz_heap_end(&before);
    MUST(count_regions() != regions || meta_stats().used == meta); /* a new region has a struct, and nodes */
    for (int k = 0; k < CLASSES; k++)
        MUST(slab_stats(classes[k], NODE).slabs == 0);
}
