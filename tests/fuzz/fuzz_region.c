/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/region.h: blocks in huge windows and with mappings of their own come, grow, shrink, move and go, with madvise that
 * fails, so that stale ranges collect. No two overlap, new ones read as zero, contents stay, a block grows just where a
 * gap follows, every address is found in the region it lies in. region_check after every step; at the end all windows go.
 *
 * Areas of the zone stay for ever, so two are mapped before the first input, and no more.
 */
#include "fuzz.h"

#include "compat/os/bits.h"
#include "compat/os/vm.h"
#include "core/block.h"
#include "core/maple.h"
#include "core/opt.h"
#include "core/pmap.h"
#include "core/region.h"
#include "core/region_impl.h"

const char fuzz_name[] = "region";

#define MIB ((size_t)1 << 20)
enum { LIVE = 24, ENDS = 64 };
#define BYTES_MOST (6144 * MIB) /* address space in use at a time */

static struct opt defaults;
static struct region *live[LIVE];
static uint64_t ids[LIVE], last_id;
static char *ends[ENDS]; /* last words of earlier blocks: there may be something left */
static unsigned nends;

void fuzz_setup(void)
{
    vm_use_libc();
    opt.thp = OPT_THP_NEVER;
    defaults = opt;
    MUST(region_map_window(12345, NODE) != NULL);
    MUST(region_map_window(3 * MIB, NODE) != NULL);
}

/* ---- contents: a word at the begin, at every MiB up to 32, at every eighth from there, at the end ---- */

static size_t next_word(size_t at)
{
    return at + (at < 32 * MIB ? MIB : 8 * MIB);
}

static uint64_t word_for(size_t offset, uint64_t id)
{
    return (offset * 0x9e3779b97f4a7c15u ^ id * 0xd6e8feb86659fd93u) | 1;
}

/* What `visit` says of each word; offsets count from the base, since a block may move. */
static bool words(char *base, size_t size, uint64_t id, bool (*visit)(uint64_t *w, uint64_t want))
{
    bool ok = visit((uint64_t *)base, word_for(0, id));
    for (size_t at = MIB; at + MIB / 2 < size; at = next_word(at))
        ok = visit((uint64_t *)(base + at), word_for(at, id)) && ok;
    return visit((uint64_t *)(base + size) - 1, word_for(size, id)) && ok;
}

static bool put_word(uint64_t *w, uint64_t want)
{
    *w = want;
    return true;
}

static bool has_word(uint64_t *w, uint64_t want)
{
    return *w == want;
}

static bool has_zero(uint64_t *w, uint64_t want)
{
    (void)want;
    return *w == 0;
}

static void note_end(char *end)
{
    ends[nends++ % ENDS] = end - sizeof(uint64_t);
}

static void is_zero(char *p, size_t size)
{
    MUST(words(p, size, 0, has_zero));
    for (int i = 0; i < ENDS; i++)
        if (ends[i] >= p && ends[i] < p + size)
            MUST(*(uint64_t *)ends[i] == 0);
}

static void write_block(size_t i)
{
    ids[i] = ++last_id;
    words(live[i]->base, live[i]->size, ids[i], put_word);
    note_end(live[i]->base + live[i]->size);
}

static void intact(size_t i)
{
    MUST(words(live[i]->base, live[i]->size, ids[i], has_word));
}

/* After a change of length: what both have, but for the end. */
static void same_begin(size_t i, size_t both)
{
    MUST(has_word((uint64_t *)live[i]->base, word_for(0, ids[i])));
    for (size_t at = MIB; at + MIB / 2 < both; at = next_word(at))
        MUST(has_word((uint64_t *)(live[i]->base + at), word_for(at, ids[i])));
}

/* ---- what is there ---- */

static size_t bytes_live(void)
{
    size_t n = 0;
    for (int i = 0; i < LIVE; i++)
        n += live[i] != NULL ? live[i]->size : 0;
    return n;
}

static bool overlaps(const char *p, size_t size)
{
    for (int i = 0; i < LIVE; i++)
        if (live[i] != NULL && p < live[i]->base + live[i]->size && live[i]->base < p + size)
            return true;
    return false;
}

static void is_found(const struct region *r)
{
    const char *at[] = {r->base, r->base + r->size / 2, r->base + r->size - 1};
    struct region copy;
    for (int i = 0; i < 3; i++) {
        MUST(region_find(at[i], &copy));
        MUST(copy.base == r->base && copy.size == r->size && copy.kind == r->kind);
        MUST(!region_is_gap(at[i]));
        MUST(pmap_page(at[i]) != NULL);
    }
}

static int count_one(void *arg, const struct region *r)
{
    size_t *n = arg;
    n[r->kind]++;
    return 0;
}

static void compare(void)
{
    struct region_stats st = region_stats();
    size_t bytes[REGION_KINDS] = {0}, count[REGION_KINDS] = {0}, met[REGION_KINDS] = {0};
    region_check();
    for (int i = 0; i < LIVE; i++)
        if (live[i] != NULL) {
            is_found(live[i]);
            bytes[live[i]->kind] += live[i]->size;
            count[live[i]->kind]++;
        }
    MUST(region_walk(count_one, met) == 0);
    for (int k = 0; k < REGION_KINDS; k++)
        MUST(met[k] == st.count[k]);
    for (int k = REGION_LARGE; k <= REGION_OWN; k++)
        MUST(st.bytes[k] == bytes[k] && st.count[k] == count[k]);
    MUST(st.lost == 0);
}

/* ---- steps ---- */

static size_t any_size(struct fuzz *f)
{
    size_t os = vm_page_size(), tail = fuzz_chance(f, 128) ? os * fuzz_below(f, 64) : 0;
    switch (fuzz_below(f, 8)) {
    case 0: return os * (1 + fuzz_below(f, 512)) + tail;
    case 1: return 2 * MIB;
    case 2 ... 3: return 2 * MIB * (1 + fuzz_below(f, 16)) + tail;
    case 4 ... 5: return MIB * (64 + fuzz_below(f, 256)) + tail;
    case 6: return 16 * MIB * (1 + fuzz_below(f, 80)) + tail;
    default: return MIB + tail;
    }
}

static size_t any_live(struct fuzz *f)
{
    size_t from = fuzz_below(f, LIVE);
    for (size_t i = 0; i < LIVE; i++)
        if (live[(from + i) % LIVE] != NULL)
            return (from + i) % LIVE;
    return LIVE;
}

static void do_map(struct fuzz *f, bool own)
{
    size_t size = any_size(f), align = fuzz_chance(f, 64) ? vm_page_size() << fuzz_below(f, 16) : 1, i = 0;
    while (i < LIVE && live[i] != NULL)
        i++;
    if (i == LIVE || bytes_live() + size > BYTES_MOST)
        return;
    struct region *r = own ? region_map_own(size, align) : region_map_large(size, align);
    MUST(r != NULL && r->size == size && (uintptr_t)r->base % align == 0);
    MUST(r->kind == REGION_LARGE || (r->kind == REGION_OWN && (own || opt.purge != OPT_PURGE_ON || size < BLOCK_BYTES ||
                                                                align > BLOCK_BYTES)));
    MUST(!overlaps(r->base, size));
    is_zero(r->base, size);
    live[i] = r;
    write_block(i);
}

static void do_unmap(size_t i)
{
    intact(i);
    struct region was = *live[i];
    MUST(region_unmap_large(live[i]) == 0);
    live[i] = NULL;
    struct region now;
    MUST(!region_find(was.base, &now) || now.kind == REGION_STALE || now.kind == REGION_META || now.kind == REGION_LEAF);
}

/* Is there room right behind a block? Regions begin at multiples of 2 MiB there, so these are what to look at. */
static bool room_behind(const struct region *r, size_t new_size)
{
    const char *end = r->base + new_size;
    if (r->kind != REGION_LARGE || end > r->window->base + r->window->size)
        return false;
    for (char *p = (char *)align_up((uintptr_t)r->base + r->size, BLOCK_BYTES); p < end; p += BLOCK_BYTES)
        if (!region_is_gap(p))
            return false;
    return region_is_gap(r->base + r->size); /* the end of a shrunk block may be stale */
}

static void do_grow(struct fuzz *f, size_t i)
{
    size_t old = live[i]->size, size = old + vm_page_size() * fuzz_below(f, 4) + MIB * fuzz_below(f, 100);
    intact(i);
    if (bytes_live() + size - old > BYTES_MOST)
        return;
    bool room = live[i]->kind == REGION_LARGE && (size == old || room_behind(live[i], size));
    bool grown = region_grow(live[i], size);
    MUST(grown == room);
    MUST(live[i]->size == (grown ? size : old));
    if (!grown || size == old)
        return;
    same_begin(i, old);
    is_zero(live[i]->base + old, size - old);
    write_block(i);
}

static void do_shrink(struct fuzz *f, size_t i)
{
    size_t os = vm_page_size(), old = live[i]->size, size = (1 + fuzz_between(f, 0, old / os - 1)) * os;
    intact(i);
    note_end(live[i]->base + old);
    MUST(region_shrink(live[i], size) && live[i]->size == size);
    same_begin(i, size);
    write_block(i);
}

static void do_remap(struct fuzz *f, size_t i)
{
    size_t old = live[i]->size, size = any_size(f), both = old < size ? old : size;
    intact(i);
    if (bytes_live() + size > BYTES_MOST + old)
        return;
    struct region *r = live[i];
    bool own = r->kind == REGION_OWN;
    MUST(region_remap_large(r, size) && r->size == size);
    MUST(!own || r->kind == REGION_OWN);
    live[i] = NULL;
    MUST(!overlaps(r->base, size));
    live[i] = r;
    same_begin(i, both);
    if (size > old)
        is_zero(r->base + old, size - old);
    write_block(i);
}

static void do_too_much(struct fuzz *f)
{
    MUST(region_map_large((size_t)1 << (48 + fuzz_below(f, 15)), 1) == NULL);
}

static void step(struct fuzz *f)
{
    unsigned what = fuzz_byte(f) % 32;
    size_t i = what < 10 ? LIVE : any_live(f);
    if (what >= 10 && what < 26 && i == LIVE)
        return;
    switch (what) {
    case 0 ... 7: do_map(f, false); break;
    case 8 ... 9: do_map(f, true); break;
    case 10 ... 14: do_unmap(i); break;
    case 15 ... 18: do_grow(f, i); break;
    case 19 ... 22: do_shrink(f, i); break;
    case 23 ... 25: do_remap(f, i); break;
    case 26: do_too_much(f); break;
    case 27: opt.purge = fuzz_chance(f, 64) ? OPT_PURGE_OFF : OPT_PURGE_ON; break;
    case 28 ... 29: fuzz_madvise_fails(f); break;
    default: fuzz_madvise_works(); break;
    }
}

/* All windows are empty, and a request that cannot be served lets go of them. */
static void let_windows_go(void)
{
    MUST(region_map_window((size_t)1 << 47, NODE) == NULL);
    struct region_stats st = region_stats();
    MUST(st.windows == 0 && st.window_bytes == 0 && st.bytes[REGION_STALE] == 0 && st.count[REGION_STALE] == 0);
    MUST(st.bytes[REGION_LARGE] == 0 && st.bytes[REGION_OWN] == 0);
}

void fuzz_run(struct fuzz *f)
{
    struct fuzz_heap before = fuzz_heap_begin();
    memset(ends, 0, sizeof ends);
    while (fuzz_more(f)) {
        step(f);
        compare();
    }
    fuzz_madvise_works();
    for (size_t i = 0; i < LIVE; i++)
        if (live[i] != NULL)
            do_unmap(i);
    opt = defaults;
    compare();
    let_windows_go();
    fuzz_heap_end(&before);
    region_check();
}
