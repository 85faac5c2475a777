/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The whole allocator as programs call it, with options of all kinds: blocks of all sizes are taken, zeroed, aligned,
 * resized, freed; by this thread, by threads that come and go, by two at once that hand blocks to each other, and by fork
 * children, also of a parent whose other thread is in the middle of it. No two blocks overlap, contents stay, zeroed is
 * zero, sizes are what they are said to be. At the end nothing is left.
 *
 * All is decided by the input but who of two threads comes first.
 */
#include "fuzz.h"

#include "compat/os/vm.h"
#include "core/alloc.h"
#include "core/barn.h"
#include "core/large.h"
#include "core/limit.h"
#include "core/opt.h"
#include "core/pcp.h"
#include "core/reclaim.h"
#include "core/region.h"
#include "core/report.h"
#include "core/slab.h"
#include "core/tcache.h"
#include "core/zone.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

const char fuzz_name[] = "api";

enum { LIVE = 96, CHILD_SECONDS = 20, FORKS_MOST = 2, THREADS_MOST = 4 };
#define BYTES_MOST ((size_t)256 << 20)

static struct fuzz_block live[LIVE];
static uint64_t last_id;
static unsigned forks, threads;
static struct opt defaults;

void fuzz_setup(void)
{
    vm_use_libc();
    unit_fork_handlers();
    opt.thp = OPT_THP_NEVER;
    defaults = opt;
}

/* ---- blocks ---- */

static size_t any_size(struct fuzz *f)
{
    switch (fuzz_below(f, 16)) {
    case 0 ... 7: return fuzz_between(f, 0, 2048);
    case 8 ... 11: return fuzz_between(f, 0, 40 << 10);
    case 12 ... 13: return fuzz_between(f, 32 << 10, 600 << 10);
    case 14: return fuzz_between(f, 512 << 10, 6 << 20);
    default: return fuzz_chance(f, 64) ? (size_t)64 << 20 | fuzz_below(f, 1 << 20) : fuzz_between(f, 1 << 20, 20 << 20);
    }
}

static size_t bytes_live(void)
{
    size_t n = 0;
    for (int i = 0; i < LIVE; i++)
        n += live[i].size;
    return n;
}

static struct fuzz_block *unused(void)
{
    for (int i = 0; i < LIVE; i++)
        if (live[i].p == NULL)
            return &live[i];
    return NULL;
}

static struct fuzz_block *any_live(struct fuzz *f)
{
    size_t from = fuzz_below(f, LIVE);
    for (size_t i = 0; i < LIVE; i++)
        if (live[(from + i) % LIVE].p != NULL)
            return &live[(from + i) % LIVE];
    return NULL;
}

/* All of its usable bytes are the program's. */
static void keep(struct fuzz_block *b, void *p, size_t size, size_t align)
{
    size_t usable = alloc_usable(p);
    MUST(usable >= size && (uintptr_t)p % (align < 16 ? 16 : align) == 0);
    MUST(!fuzz_overlaps(live, LIVE, p, usable));
    *b = (struct fuzz_block){p, usable, ++last_id};
    fuzz_stamp(p, usable, last_id);
}

static void intact(const struct fuzz_block *b)
{
    MUST(alloc_usable(b->p) == b->size);
    MUST(fuzz_stamped(b->p, b->size, b->id));
}

static bool may_fail(void)
{
    return opt.hard_limit != 0;
}

/* ---- steps ---- */

static void do_alloc(struct fuzz *f)
{
    size_t size = any_size(f), align = 1, kind = fuzz_below(f, 4);
    struct fuzz_block *b = unused();
    if (b == NULL || bytes_live() + size > BYTES_MOST)
        return;
    if (kind == 3)
        align = (size_t)1 << fuzz_below(f, 23);
    bool zero = kind == 1 || (kind == 3 && fuzz_chance(f, 128));
    void *p = kind == 3 ? alloc_aligned(align, size, zero) : zero ? alloc_zeroed(size) : unit_malloc(size);
    MUST(p != NULL || may_fail());
    if (p == NULL)
        return;
    MUST(!zero || fuzz_zero(p, size));
    MUST(alloc_usable(p) >= alloc_good_size(size, align));
    keep(b, p, size, align);
}

static void do_free(struct fuzz *f, struct fuzz_block *b)
{
    intact(b);
    size_t how = fuzz_below(f, 3);
    if (how == 0)
        alloc_check_size(b->p, b->size, 1, "free_sized");
    if (how == 1)
        alloc_free_slow(b->p, "free");
    else
        unit_free(b->p);
    b->p = NULL;
    b->size = 0;
}

/* The first bytes that both lengths have are told by a stamp of that length. */
static void do_resize(struct fuzz *f, struct fuzz_block *b)
{
    size_t size = fuzz_chance(f, 128) ? any_size(f) : b->size + fuzz_between(f, 0, b->size), old = b->size;
    size_t both = old < size ? old : size;
    if (size == 0 || bytes_live() + size > BYTES_MOST)
        return;
    intact(b);
    both = both < 1024 ? both : 1024; /* stamps of long blocks depend on where they lie */
    unit_stamp(b->p, both, 77);
    struct fuzz_block was = *b;
    b->p = NULL;
    void *p = alloc_resize(was.p, size, "realloc");
    MUST(p != NULL || (may_fail() && size > old));
    if (p == NULL) {
        p = was.p;
        MUST(alloc_usable(p) == old);
        size = old;
    }
    MUST(unit_stamped(p, both, 77));
    b->size = 0;
    keep(b, p, size, 1);
}

/* What is in the block stays: both ends of what it had, after it has become longer or shorter. */
static void do_resize_in_place(struct fuzz *f, struct fuzz_block *b)
{
    size_t size = b->size + fuzz_between(f, 0, b->size) - fuzz_between(f, 0, b->size - 1), old = b->size;
    if (bytes_live() + size > BYTES_MOST)
        return;
    intact(b);
    bool done = alloc_resize_in_place(b->p, size);
    size_t usable = alloc_usable(b->p);
    MUST(!done || usable >= size);
    MUST(size > old || done);
    MUST(usable >= (old < size ? old : size));
    if (usable < old)
        old = usable;
    else
        MUST(fuzz_stamped(b->p, old, b->id));
    void *p = b->p;
    b->p = NULL;
    keep(b, p, done ? size : old, 1);
}

static void do_impossible(struct fuzz *f)
{
    size_t size = (size_t)PTRDIFF_MAX + 1 + (size_t)fuzz_below(f, 2) * fuzz_word(f) / 4;
    MUST(unit_malloc(size) == NULL && alloc_zeroed(size) == NULL && alloc_good_size(size, 1) == 0);
    struct fuzz_block *b = any_live(f);
    if (b == NULL)
        return;
    MUST(alloc_resize(b->p, size, "realloc") == NULL);
    MUST(!alloc_resize_in_place(b->p, size));
    intact(b);
}

static void do_report(void)
{
    struct report *r = report_take();
    MUST(r != NULL);
    MUST(r->mapped == r->window_bytes + r->own_bytes + r->stale_bytes + r->gap_bytes + r->meta_bytes - r->meta_static +
                          r->leaf_bytes + r->edges);
    report_done(r);
}

static void check_all(void)
{
    tcache_check();
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        barn_check(c, NODE);
        slab_check(c, NODE);
    }
    pcp_check();
    zone_check(NODE);
    region_check();
}

/* Many of one size, so that sheaves fill and empty. */
static void do_many(struct fuzz *f)
{
    enum { MANY = 600 };
    static void *p[MANY];
    size_t size = fuzz_between(f, 1, 4096), n = 1 + fuzz_below(f, MANY), step = 1 + 2 * fuzz_below(f, 16), got = 0;
    for (; got < n && (p[got] = unit_malloc(size)) != NULL; got++) {
        MUST(!fuzz_overlaps(live, LIVE, p[got], size));
        if (size >= sizeof(uint64_t))
            *(uint64_t *)p[got] = got;
    }
    MUST(got == n || may_fail());
    for (size_t i = 0; i < got; i++)
        MUST(size < sizeof(uint64_t) || *(uint64_t *)p[i] == i);
    for (size_t first = 0; first < step; first++)
        for (size_t i = first; i < got; i += step)
            unit_free(p[i]);
}

static void step(struct fuzz *f, unsigned what);

/* ---- threads ---- */

/* The next steps of the input by a thread of its own, which then ends. */
static void some_steps(void *arg)
{
    struct fuzz *f = arg;
    for (size_t n = 1 + fuzz_below(f, 24); n > 0 && fuzz_more(f); n--)
        step(f, fuzz_byte(f) % 40);
    if (fuzz_chance(f, 128))
        tcache_check();
}

/* Two at once, each with its own part of the input, and mailboxes between them. */
enum { BOXES = 16 };

struct letter { /* at the begin of a block in a mailbox */
    uint64_t size, check;
};

static struct letter *box[BOXES];
static struct fuzz part[2];
static bool busy_stop; /* atomic */

static uint64_t letter_check(const struct letter *l)
{
    return ((uintptr_t)l * 0x9e3779b97f4a7c15u) ^ l->size;
}

static void open_letter(struct letter *l)
{
    if (l == NULL)
        return;
    MUST(l->check == letter_check(l) && alloc_usable(l) >= l->size);
    l->check = 0;
    unit_free(l);
}

static void write_letters(unsigned who)
{
    struct fuzz *f = &part[who];
    while (fuzz_more(f)) {
        size_t size = fuzz_between(f, sizeof(struct letter), fuzz_chance(f, 24) ? 300 << 10 : 2048);
        size_t where = fuzz_below(f, BOXES);
        struct letter *l = fuzz_chance(f, 64) ? NULL : unit_malloc(size);
        if (l != NULL) {
            l->size = size;
            l->check = letter_check(l);
        }
        open_letter(__atomic_exchange_n(&box[where], l, __ATOMIC_ACQ_REL));
        if (fuzz_chance(f, 4))
            reclaim_trim(0);
    }
}

static void do_two(struct fuzz *f)
{
    size_t n = fuzz_below(f, 256), left = (size_t)(f->end - f->at);
    n = n < left / 2 ? n : left / 2;
    part[0] = (struct fuzz){f->at, f->at + n};
    part[1] = (struct fuzz){f->at + n, f->at + 2 * n};
    f->at += 2 * n;
    unit_threads(2, write_letters);
    for (int i = 0; i < BOXES; i++) {
        open_letter(box[i]);
        box[i] = NULL;
    }
}

/* ---- fork ---- */

/* In the child: everything the parent had is there and can be freed, and the heap goes on. */
static void live_on(struct fuzz *f)
{
    alarm(CHILD_SECONDS);
    forks = FORKS_MOST;
    threads = THREADS_MOST;
    for (size_t n = fuzz_below(f, 16); n > 0 && fuzz_more(f); n--)
        step(f, fuzz_byte(f) % 40);
    for (int i = 0; i < LIVE; i++)
        if (live[i].p != NULL)
            do_free(f, &live[i]);
    check_all();
    fuzz_madvise_works();
    unit_fresh();
    _exit(0);
}

static void do_fork(struct fuzz *f)
{
    int status;
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0)
        live_on(f);
    while (waitpid(pid, &status, 0) < 0)
        MUST(errno == EINTR);
    if (status != 0)
        fprintf(stderr, "fork child: status 0x%x\n", (unsigned)status);
    MUST(status == 0);
}

static void be_busy(void *arg)
{
    struct fuzz *f = arg;
    uint64_t seed = fuzz_byte(f);
    void *p[64] = {0};
    while (!load_acquire(&busy_stop)) {
        void **q = &p[unit_below(&seed, 64)];
        unit_free(*q);
        *q = unit_malloc(unit_below(&seed, 16) == 0 ? unit_below(&seed, 300 << 10) : unit_below(&seed, 2048));
    }
    for (int i = 0; i < 64; i++)
        unit_free(p[i]);
}

static void *busy_thread(void *arg)
{
    unit_thread(be_busy, arg);
    return NULL;
}

/* A fork while another thread allocates and frees: what that had in hand may be lost to the child, nothing else. */
static void do_fork_beside(struct fuzz *f)
{
    pthread_t t;
    struct fuzz seed = {f->at, f->at + (fuzz_more(f) ? 1 : 0)};
    store_release(&busy_stop, false);
    MUST(pthread_create(&t, NULL, busy_thread, &seed) == 0);
    usleep((useconds_t)fuzz_below(f, 256) * 4);
    do_fork(f);
    store_release(&busy_stop, true);
    MUST(pthread_join(t, NULL) == 0);
}

/* ---- all of it ---- */

static void step(struct fuzz *f, unsigned what)
{
    struct fuzz_block *b = what >= 14 && what < 30 ? any_live(f) : NULL;
    if (what >= 14 && what < 30 && b == NULL)
        what = 0;
    switch (what) {
    case 0 ... 13: do_alloc(f); break;
    case 14 ... 22: do_free(f, b); break;
    case 23 ... 26: do_resize(f, b); break;
    case 27 ... 28: do_resize_in_place(f, b); break;
    case 29: intact(b); break;
    case 30: do_many(f); break;
    case 31: do_impossible(f); break;
    case 32: reclaim_trim(fuzz_below(f, 4) << 20); break;
    case 33: do_report(); break;
    case 34: fuzz_madvise_fails(f); break;
    case 35: fuzz_madvise_works(); break;
    case 36: check_all(); break;
    case 37:
        if (threads++ < THREADS_MOST)
            unit_thread(some_steps, f);
        break;
    case 38:
        if (threads++ < THREADS_MOST)
            do_two(f);
        break;
    default:
        if (forks++ >= FORKS_MOST)
            break;
        if (fuzz_chance(f, 80))
            do_fork_beside(f);
        else
            do_fork(f);
        break;
    }
    tcache_check();
}

static void set_options(struct fuzz *f)
{
    unsigned a = fuzz_byte(f), b = fuzz_byte(f), c = fuzz_byte(f);
    static const uintptr_t caps[] = {0, 0, 0, 1, 2, 7, 40, 0};
    opt.hardened = (a & 0x0f) == 0x0f;
    opt.madv_free = (a & 0x30) == 0x30;
    opt.purge = (a & 0xc0) == 0xc0 ? OPT_PURGE_OFF : OPT_PURGE_ON;
    opt.sheaf_cap = caps[b & 7];
    opt.keep_spare = (b & 8) == 0;
    opt.barn_max = (b & 0x30) == 0x30 ? 3 : 0;
    opt.pcp_free_count = (b >> 6) % 3;
    opt.decay_ms = (c & 1) != 0 ? 1u << 30 : 0;
    if ((c & 6) == 6)
        opt.hard_limit = limit_stats().charged + ((size_t)1 << 20 << (c >> 3) % 6);
    if ((c & 0xc0) == 0xc0)
        opt.soft_limit = limit_stats().charged + ((size_t)1 << 20);
}

static void nothing_is_left(void)
{
    struct large_stats st = large_stats();
    struct tcache_stats tc;
    tcache_stats(&tc);
    MUST(st.run_count == 0 && st.large_count == 0 && st.own_count == 0 && st.hot_bytes == 0 && st.hot_own_bytes == 0);
    MUST(st.run_bytes == 0 && st.large_bytes == 0 && st.own_bytes == 0 && tc.threads <= 1);
    MUST(pcp_stats().bytes == 0);
    for (class_t c = 0; c < SIZE_CLASSES; c++)
        MUST(slab_stats(c, NODE).slabs == 0 && barn_stats(c, NODE).objs == 0 && tc.cached[c] == 0);
}

void fuzz_run(struct fuzz *f)
{
    struct fuzz_heap before = fuzz_heap_begin();
    forks = threads = 0;
    set_options(f);
    for (unsigned i = 1; fuzz_more(f); i++) {
        step(f, fuzz_byte(f) % 40);
        if (i % 16 == 0)
            check_all();
    }
    fuzz_madvise_works();
    for (int i = 0; i < LIVE; i++)
        if (live[i].p != NULL)
            do_free(f, &live[i]);
    check_all();
    opt = defaults;
    fuzz_heap_end(&before);
    nothing_is_left();
}
