/* SPDX-License-Identifier: BSD-2-Clause */
/* Traces over the calls that programs make: small blocks and threads (tcache), large ones and realloc (large), both. */
#include "trace.h"

#include "tests/unit/unit.h"

#include "core/alloc.h"
#include "core/reclaim.h"

#include <errno.h>

enum { SLOTS = 64, KEPT_ERRNO = 1234 };

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

unsigned long trace_refused;

static struct slot {
    unsigned char *p;
    size_t size;
    uint64_t id;
} slots[SLOTS];
static uint64_t last_id;
static int thread_steps;

/* ---- contents: all of a small block; of others the ends and a word a MiB ---- */

enum { WHOLE = 40000, WORD = 64 };

static void each_part(unsigned char *p, size_t from, size_t to, void (*fn)(unsigned char *, size_t, void *), void *arg)
{
    if (to - from <= WHOLE) {
        fn(p + from, to - from, arg);
        return;
    }
    fn(p + from, WORD, arg);
    for (size_t at = (from / MIB(1) + 1) * MIB(1); at + WORD <= to - WORD; at += MIB(1))
        fn(p + at, WORD, arg);
    fn(p + to - WORD, WORD, arg);
}

/* What byte i of block id holds: by its place, so that any part of a block can be looked at alone. */
static unsigned char byte_of(uint64_t id, size_t i)
{
    return (unsigned char)(id * 0x9d + i * 7 + (i >> 12) * 3 + 1);
}

struct part {
    unsigned char *base;
    uint64_t id;
};

static void part_write(unsigned char *p, size_t n, void *arg)
{
    const struct part *b = arg;
    for (size_t i = 0; i < n; i++)
        p[i] = byte_of(b->id, (size_t)(p + i - b->base));
}

static void part_look(unsigned char *p, size_t n, void *arg)
{
    const struct part *b = arg;
    for (size_t i = 0; i < n; i++)
        MUST(p[i] == byte_of(b->id, (size_t)(p + i - b->base)));
}

static void part_zero(unsigned char *p, size_t n, void *arg)
{
    (void)arg;
    MUST(unit_is_zero(p, n));
}

static void fill(struct slot *s)
{
    struct part b = {s->p, s->id};
    each_part(s->p, 0, s->size, part_write, &b);
}

static void look(const struct slot *s)
{
    struct part b = {s->p, s->id};
    each_part(s->p, 0, s->size, part_look, &b);
}

/* What a realloc has kept: the parts of the old block that lie in both. */
static void look_kept(unsigned char *q, const struct slot *old, size_t kept)
{
    struct part b = {q, old->id};
    if (old->size <= WHOLE) {
        part_look(q, kept, &b);
        return;
    }
    part_look(q, kept < WORD ? kept : WORD, &b);
    for (size_t at = MIB(1); at + WORD <= kept && at + WORD <= old->size - WORD; at += MIB(1))
        part_look(q + at, WORD, &b);
    if (kept == old->size)
        part_look(q + kept - WORD, WORD, &b);
}

/* ---- steps ---- */

static void *refused(void)
{
    trace_refused++;
    return NULL;
}

static void take(struct slot *s, size_t size, unsigned kind, uint64_t *seed)
{
    size_t align = kind == 2 ? (size_t)16 << unit_below(seed, size > KIB(32) ? 18 : 9) : 16;
    errno = KEPT_ERRNO;
    s->p = kind == 0 ? unit_malloc(size) : kind == 1 ? alloc_zeroed(size) : alloc_aligned(align, size, false);
    MUST(errno == KEPT_ERRNO);
    if (s->p == NULL) {
        refused();
        return;
    }
    MUST((uintptr_t)s->p % align == 0 && alloc_usable(s->p) >= size);
    s->size = size;
    s->id = ++last_id;
    if (kind == 1)
        each_part(s->p, 0, size, part_zero, NULL);
    fill(s);
}

static void drop(struct slot *s)
{
    look(s);
    errno = KEPT_ERRNO;
    unit_free(s->p);
    MUST(errno == KEPT_ERRNO);
    s->p = NULL;
}

static void resize(struct slot *s, size_t size)
{
    errno = KEPT_ERRNO;
    unsigned char *q = alloc_resize(s->p, size, "realloc");
    MUST(errno == KEPT_ERRNO);
    if (q == NULL) {
        MUST(size > s->size); /* a shrink never fails */
        refused();
        look(s);
        return;
    }
    look_kept(q, s, size < s->size ? size : s->size);
    *s = (struct slot){q, size, ++last_id};
    fill(s);
}

static void one(uint64_t *seed, size_t size)
{
    struct slot *s = &slots[unit_below(seed, SLOTS)];
    unsigned what = (unsigned)unit_below(seed, 10);
    if (s->p == NULL)
        take(s, size, what < 5 ? 0 : what < 8 ? 1 : 2, seed);
    else if (what < 6)
        drop(s);
    else
        resize(s, size);
}

static size_t small_size(uint64_t *seed)
{
    return 1 + unit_below(seed, (size_t)16 << unit_below(seed, 12));
}

static size_t large_size(uint64_t *seed)
{
    switch (unit_below(seed, 8)) {
    case 0:
        return MIB(65) + unit_below(seed, MIB(60));
    case 1:
        return MIB(2) + unit_below(seed, MIB(6));
    case 2:
    case 3:
        return KIB(513) + unit_below(seed, KIB(600));
    default:
        return KIB(33) + unit_below(seed, KIB(700));
    }
}

/* Many small blocks at once, so that slabs come and go, in a thread of its own: its cache begins and ends. */
static void crowd(void *arg)
{
    enum { MANY = 600 };
    static unsigned char *p[MANY];
    static size_t size[MANY];
    uint64_t *seed = arg;
    size_t most = (size_t)32 << unit_below(seed, 10);
    for (int i = 0; i < MANY; i++) {
        size[i] = 1 + unit_below(seed, most);
        p[i] = unit_malloc(size[i]);
        if (p[i] != NULL)
            memset(p[i], i & 0xff, size[i]);
        else
            refused();
    }
    for (int i = 0; i < thread_steps; i++)
        one(seed, small_size(seed));
    for (int i = 0; i < MANY; i++) {
        for (size_t b = 0; p[i] != NULL && b < size[i]; b++)
            MUST(p[i][b] == (unsigned char)i);
        unit_free(p[i]);
    }
}

static void tcache_step(uint64_t *seed)
{
    size_t what = unit_below(seed, 100);
    thread_steps = 50;
    if (what < 3)
        unit_thread(crowd, seed);
    else if (what < 4)
        crowd(seed);
    else if (what < 6)
        reclaim_trim(0);
    else
        one(seed, small_size(seed));
}

static void large_step(uint64_t *seed)
{
    if (unit_below(seed, 50) == 0)
        reclaim_trim(0);
    else
        one(seed, large_size(seed));
}

/* Few blocks, so large that each may have a mapping of its own, which is resized again and again. */
static void grow_step(uint64_t *seed)
{
    struct slot *s = &slots[unit_below(seed, 6)];
    size_t size = MIB(66) + unit_below(seed, MIB(100));
    if (s->p == NULL)
        take(s, size, 0, seed);
    else if (unit_below(seed, 4) == 0)
        drop(s);
    else
        resize(s, size);
}

static void heap_step(uint64_t *seed)
{
    if (unit_below(seed, 3) == 0)
        large_step(seed);
    else
        tcache_step(seed);
}

static void verify(void)
{
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].p != NULL)
            look(&slots[i]);
}

static void end(void)
{
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].p != NULL)
            drop(&slots[i]);
    reclaim_trim(0);
}

const struct trace trace_tcache = {"tcache", 300, tcache_step, verify, end};
const struct trace trace_large = {"large", 100, large_step, verify, end};
const struct trace trace_grow = {"grow", 30, grow_step, verify, end};
const struct trace trace_heap = {"heap", 150, heap_step, verify, end};
