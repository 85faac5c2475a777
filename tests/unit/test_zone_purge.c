/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/zone_purge.c where it meets others: threads that allocate (INV-ZONE-4), a system that refuses, a limit.
 *
 * The test of isolation runs twice: with the code as it is, and with zone_purge_swapped.c, which must be caught.
 */
#include "unit.h"

#include "compat/os/sys.h"
#include "compat/os/vm.h"
#include "core/limit.h"
#include "core/opt.h"
#include "core/region.h"
#include "core/zone.h"
#include "core/zone_impl.h"

#include <errno.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

size_t swapped_zone_purge(unsigned node, size_t keep); /* zone_purge_swapped.c */

typedef size_t purge_fn(unsigned node, size_t keep);

enum { RUN = 8, STEP = 2048 };

static void fill(struct page *pg, size_t npages, uint64_t id)
{
    char *a = page_address(pg);
    for (size_t i = 0; i < npages * PAGE_BYTES; i += STEP)
        *(uint64_t *)(a + i) = id * 0x9e3779b97f4a7c15u + i + 1;
}

static bool filled(struct page *pg, size_t npages, uint64_t id)
{
    char *a = page_address(pg);
    for (size_t i = 0; i < npages * PAGE_BYTES; i += STEP)
        if (*(uint64_t *)(a + i) != id * 0x9e3779b97f4a7c15u + i + 1)
            return false;
    return true;
}

/* ---- isolation, one thread: a shim's madvise that allocates ---- */

enum { GREEDY = 200 };
static struct page *greedy[GREEDY];
static unsigned ngreedy;

/* In the middle of a purge: take all that is to be had, and see whether it is what it says. */
static void allocate_in_madvise(void)
{
    unit_madvise_hook = NULL;
    struct page *pg;
    while (ngreedy < GREEDY && (pg = zone_try_alloc(NODE, RUN, 1)) != NULL) {
        if (pg->zeroed)
            MUST(unit_is_zero(page_address(pg), RUN * PAGE_BYTES));
        fill(pg, RUN, ngreedy);
        greedy[ngreedy++] = pg;
    }
}

static void purge_with_a_greedy_shim(void *arg)
{
    purge_fn *purge = *(purge_fn **)arg;
    vm_use_libc();
    struct page *pg = zone_alloc(NODE, 128, 1);
    MUST(pg != NULL);
    fill(pg, 128, 1);
    zone_free(pg, 128, false);
    ngreedy = 0;
    unit_madvise_hook = allocate_in_madvise;
    MUST(purge(NODE, 0) > 0);
    MUST(unit_madvise_hook == NULL);
    for (unsigned i = 0; i < ngreedy; i++)
        MUST(filled(greedy[i], RUN, i));
    for (unsigned i = 0; i < ngreedy; i++)
        zone_free(greedy[i], RUN, false);
    zone_check(NODE);
}

static void expect_caught(void (*body)(void *), purge_fn *purge)
{
    struct unit_child c;
    unit_child(&c, body, &purge);
    if (c.status == 0)
        TEST_FAIL("%s", "the swapped purge was not noticed");
    if (strstr(c.text, "FAIL") == NULL || strstr(c.text, "test_zone_purge.c") == NULL)
        TEST_FAIL("the swapped purge died of something else: %s", c.text);
}

TEST(zone_purge, isolates_before_it_purges)
{
    purge_fn *shipped = zone_purge;
    unit_alone(purge_with_a_greedy_shim, &shipped);
}

TEST(zone_purge, one_step_swapped_is_caught)
{
    expect_caught(purge_with_a_greedy_shim, swapped_zone_purge);
}

/* ---- isolation, beside threads ---- */

static uint32_t done;
static size_t taken; /* runs that the others took, by relaxed adds */
static purge_fn *purge_used;

/* The purging thread, where it has let go of the lock: let the others have a go at it. */
static void let_others_run(void)
{
    size_t from = load_relaxed(&taken);
    while (load_relaxed(&taken) < from + 2 && load_relaxed(&done) < UNIT_THREADS - 1)
        sched_yield();
}

static void purge_or_allocate(unsigned thread)
{
    uint64_t seed = 500 + thread;
    if (thread == 0) {
        unit_madvise_hook = let_others_run;
        while (load_relaxed(&done) < UNIT_THREADS - 1) {
            purge_used(NODE, 0);
            sched_yield();
        }
        unit_madvise_hook = NULL;
        return;
    }
    for (uint64_t i = 1; i <= 300; i++) {
        size_t n = 1 + unit_below(&seed, 48);
        struct page *pg = zone_alloc(NODE, n, 1);
        MUST(pg != NULL);
        if (pg->zeroed)
            MUST(unit_is_zero(page_address(pg), n * PAGE_BYTES));
        fill(pg, n, i);
        add_relaxed(&taken, 1);
        sched_yield();
        MUST(filled(pg, n, i));
        zone_free(pg, n, false);
    }
    add_relaxed(&done, 1);
}

static void purge_beside_threads(void *arg)
{
    purge_used = *(purge_fn **)arg;
    vm_use_libc();
    done = 0;
    taken = 0;
    size_t out = zone_stats(NODE).out;
    unit_threads(UNIT_THREADS, purge_or_allocate);
    MUST(zone_stats(NODE).out == out);
    zone_check(NODE);
}

TEST(zone_purge, threads_never_see_a_purge)
{
    purge_fn *shipped = zone_purge;
    unit_alone(purge_beside_threads, &shipped);
}

TEST(zone_purge, one_step_swapped_is_caught_by_threads)
{
    expect_caught(purge_beside_threads, swapped_zone_purge);
}

/* ---- a system that refuses ---- */

enum { NOTHING = -1, RUNS = 12, FAULT_STEPS = 72 };

static const int answers[] = {EPERM, ENOMEM, EINVAL, EAGAIN, NOTHING};

struct fault_run {
    struct page *pg;
    size_t npages;
    uint64_t id;
};

static void take_run(struct fault_run *r, uint64_t *seed, uint64_t id)
{
    r->npages = 1 + unit_below(seed, unit_below(seed, 4) == 0 ? 40 : 6);
    r->pg = zone_alloc(NODE, r->npages, 1);
    MUST(r->pg != NULL);
    if (r->pg->zeroed)
        MUST(unit_is_zero(page_address(r->pg), r->npages * PAGE_BYTES));
    else
        for (size_t i = 0; i < r->npages && r->npages <= BLOCK_PAGES; i++)
            if (r->pg[i].clean != 0)
                MUST(unit_is_zero(page_address(r->pg) + i * PAGE_BYTES, PAGE_BYTES));
    fill(r->pg, r->npages, r->id = id);
}

static void give_run(struct fault_run *r)
{
    MUST(filled(r->pg, r->npages, r->id));
    zone_free(r->pg, r->npages, false);
    r->pg = NULL;
}

/* A trace that purges often. However much is refused, it is used again: not much more is resident than was live. */
static void fault_trace(void)
{
    struct fault_run run[RUNS] = {{0}};
    uint64_t seed = 77;
    struct zone_stats before = zone_stats(NODE); /* other tests may have left dirty pages */
    size_t most = 0, now = 0, out = before.out;
    for (uint64_t i = 1; i <= FAULT_STEPS; i++) {
        struct fault_run *r = &run[unit_below(&seed, RUNS)];
        if (r->pg == NULL) {
            take_run(r, &seed, i);
            now += r->npages;
            most = now > most ? now : most;
        } else {
            now -= r->npages;
            give_run(r);
        }
        if (i % 8 == 0)
            zone_purge(NODE, unit_below(&seed, 20) * PAGE_BYTES);
        else if (i % 3 == 0)
            zone_relax(NODE, i % 2 == 0);
        zone_check(NODE);
        struct zone_stats z = zone_stats(NODE);
        MUST(z.out == out + now * PAGE_BYTES);
        MUST(z.out - out + z.dirty <= 2 * most * PAGE_BYTES + before.dirty);
    }
    for (int i = 0; i < RUNS; i++)
        if (run[i].pg != NULL)
            give_run(&run[i]);
}

/* The k-th madvise answers so, for every k that the trace comes to; then the same for all from the k-th on. */
static void each_madvise_fails(void *arg)
{
    int answer = *(const int *)arg;
    vm_use_libc();
    opt.keep = 512 << 10;
    for (int forever = 0; forever <= 1; forever++)
        for (long k = 1, met = k; met >= k; k += forever ? 9 : 1) {
            zones[NODE].relax_skip = 0;
            unit_madvise_fails(k, forever, answer);
            fault_trace();
            met = unit_madvise_fails(0, false, 0);
            MUST(k > 1 || met >= 10); /* else there was nothing to fail */
            zone_purge(NODE, 0);
            MUST(zone_stats(NODE).dirty == 0);
            MUST(unit_charged_whole() == zone_stats(NODE).out + region_stats().bytes[REGION_OWN]);
            zone_check(NODE);
        }
}

TEST(zone_purge, each_madvise_may_fail)
{
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        unit_alone(each_madvise_fails, (void *)(uintptr_t)&answers[i]);
}

/* Part of the free memory is locked: the system refuses that part, and takes the rest. */
static void purge_around_locked_pages(void *arg)
{
    (void)arg;
    zone_purge(NODE, 0);
    struct page *pg = zone_alloc(NODE, 512, 32); /* 32 MiB, one merged range */
    MUST(pg != NULL);
    fill(pg, 512, 3);
    char *locked = page_address(pg) + 300 * PAGE_BYTES;
    if (sys_call3(SYS_mlock, (long)locked, (long)vm_page_size(), 0) != 0) /* a sanitizer's mlock does nothing */
        return; /* not allowed to lock: nothing to see */
    zone_free(pg, 512, false);
    size_t given = zone_purge(NODE, 0);
    MUST(given >= 480 * PAGE_BYTES); /* all but its block */
    MUST(zone_stats(NODE).dirty <= 32 * PAGE_BYTES);
    MUST(zone_stats(NODE).purge_failures > 0);
    zone_check(NODE);
    MUST(zone_purge(NODE, 0) == 0); /* and says so */
    sys_call3(SYS_munlock, (long)locked, (long)vm_page_size(), 0);
    MUST(zone_purge(NODE, 0) == 32 * PAGE_BYTES);
    MUST(zone_stats(NODE).dirty == 0);
}

TEST(zone_purge, locked_pages_keep_only_their_block)
{
    unit_alone(purge_around_locked_pages, NULL);
}

/* More ranges are locked, one after the other, than a purge tries in a row. */
static void purge_around_many(void *arg)
{
    enum { BLOCKS = 32, LOCKED = 12 };
    (void)arg;
    zone_purge(NODE, 0);
    struct page *pg = zone_alloc(NODE, BLOCKS * BLOCK_PAGES, BLOCK_PAGES);
    MUST(pg != NULL);
    fill(pg, BLOCKS * BLOCK_PAGES, 3);
    char *locked = page_address(pg) + BLOCKS / 2 * BLOCK_BYTES; /* extents are purged from their ends, 16 blocks a round */
    for (size_t i = 0; i < LOCKED; i++)
        if (sys_call3(SYS_mlock, (long)(locked + i * BLOCK_BYTES), (long)vm_page_size(), 0) != 0)
            return;
    zone_free(pg, BLOCKS * BLOCK_PAGES, false);
    size_t failures = zone_stats(NODE).purge_failures;
    MUST(zone_purge(NODE, 0) == (BLOCKS - LOCKED) * BLOCK_PAGES * PAGE_BYTES);
    MUST(zone_stats(NODE).dirty == LOCKED * BLOCK_PAGES * PAGE_BYTES);
    failures = zone_stats(NODE).purge_failures - failures;
    MUST(failures >= LOCKED && failures <= 2 * LOCKED);
    zone_check(NODE);
    sys_call3(SYS_munlock, (long)locked, (long)(LOCKED * BLOCK_BYTES), 0);
    MUST(zone_purge(NODE, 0) == LOCKED * BLOCK_PAGES * PAGE_BYTES);
    zone_check(NODE);
}

TEST(zone_purge, what_follows_many_locked_ranges_still_goes)
{
    unit_alone(purge_around_many, NULL);
}

/* Where all is refused a purge gives up after a few calls, and relaxing hardly calls at all. */
static void refuse_all(void *arg)
{
    (void)arg;
    vm_use_libc();
    opt.keep = 1 << 20;
    zone_purge(NODE, 0);
    struct page *pg = zone_alloc(NODE, 1024, 32), *piece = pg;
    MUST(pg != NULL);
    for (int i = 0; i < 500; i++) { /* every other page: 500 ranges */
        struct page *one = piece;
        struct page *other = zone_split(one, 1);
        piece = zone_split(other, 1);
        zone_free(other, 1, false);
    }
    unit_madvise_fails(1, true, EPERM);
    MUST(zone_purge(NODE, 0) == 0);
    long calls = unit_madvise_fails(1, true, EPERM);
    MUST(calls >= 1 && calls <= 16);
    for (int i = 0; i < 1000; i++)
        zone_relax(NODE, true);
    calls = unit_madvise_fails(0, false, 0);
    MUST(calls >= 1 && calls <= 5 * 16);
    zone_check(NODE);
}

TEST(zone_purge, a_system_that_always_refuses_is_left_alone)
{
    unit_alone(refuse_all, NULL);
}

/* ---- fork inside our own purge ---- */

static void fork_in_madvise(void)
{
    unit_madvise_hook = NULL;
    pid_t pid = fork();
    if (pid > 0) {
        int status;
        while (waitpid(pid, &status, 0) < 0)
            MUST(errno == EINTR);
        MUST(status == 0);
    }
}

/* The child goes on with the purge where it is; both end with the same sums. */
static void purge_with_a_forking_shim(void *arg)
{
    (void)arg;
    pid_t parent = getpid();
    vm_use_libc();
    struct page *pg = zone_alloc(NODE, 64, 1);
    MUST(pg != NULL);
    fill(pg, 64, 1);
    zone_free(pg, 64, false);
    size_t dirty = zone_stats(NODE).dirty;
    unit_madvise_hook = fork_in_madvise;
    MUST(zone_purge(NODE, 0) == dirty);
    MUST(zone_stats(NODE).dirty == 0);
    MUST(unit_charged_whole() == zone_stats(NODE).out + region_stats().bytes[REGION_OWN]);
    zone_check(NODE);
    pg = zone_alloc(NODE, 64, 1);
    MUST(pg->zeroed && unit_is_zero(page_address(pg), 64 * PAGE_BYTES));
    if (getpid() != parent)
        _exit(0);
}

TEST(zone_purge, a_shim_may_fork)
{
    unit_fork_handlers();
    unit_alone(purge_with_a_forking_shim, NULL);
}

/* ---- a purge beside others has an end ---- */

static size_t freed_beside;

/* While we purge, others free as much as we purge, for ever. */
static void free_more(void)
{
    struct page *pg = zone_alloc(NODE, 64, 1);
    MUST(pg != NULL);
    zone_free(pg, 64, false);
    MUST(++freed_beside < 1000);
}

static void purge_against_the_stream(void *arg)
{
    (void)arg;
    vm_use_libc();
    struct page *pg = zone_alloc(NODE, 256, 1);
    MUST(pg != NULL);
    zone_free(pg, 256, false);
    unit_madvise_hook = free_more;
    zone_purge(NODE, 0);
    unit_madvise_hook = NULL;
    MUST(freed_beside > 0);
    zone_check(NODE);
}

TEST(zone_purge, ends_beside_threads_that_go_on_freeing)
{
    unit_alone(purge_against_the_stream, NULL);
}

/* ---- limits ---- */

static uint32_t refused_wrongly;
static size_t got[UNIT_THREADS];

/* Thread 0 asks for more than there may be, again and again; the others stay far below the limit, and grow. */
static void grow_beside_a_giant(unsigned thread)
{
    enum { EACH = 200 };
    struct page *run[EACH];
    if (thread == 0) {
        while (load_relaxed(&done) < UNIT_THREADS - 1)
            MUST(!limit_charge((size_t)1 << 40));
        return;
    }
    for (int i = 0; i < EACH; i++)
        if ((run[i] = zone_alloc(NODE, 16, 1)) == NULL)
            add_relaxed(&refused_wrongly, 1);
    for (int i = 0; i < EACH; i++)
        if (run[i] != NULL)
            zone_free(run[i], 16, true);
    add_relaxed(&done, 1);
}

static void limit_and_giant(void *arg)
{
    (void)arg;
    done = 0;
    opt.hard_limit = limit_stats().charged + ((size_t)4 << 30);
    unit_threads(UNIT_THREADS, grow_beside_a_giant);
    MUST(refused_wrongly == 0);
}

TEST(zone_purge, a_giant_request_is_refused_alone)
{
    unit_alone(limit_and_giant, NULL);
}

static void allocate_to_the_limit(unsigned thread)
{
    uint64_t seed = thread;
    struct page *run[200];
    for (int round = 0; round < 4; round++) {
        size_t n = 0, pages = 0;
        for (; n < 200; n++) {
            size_t npages = 1 + unit_below(&seed, 20);
            if ((run[n] = zone_alloc(NODE, npages, 1)) == NULL)
                break;
            MUST(limit_stats().charged <= opt.hard_limit);
            pages += npages;
        }
        got[thread] = pages > got[thread] ? pages : got[thread];
        while (n-- > 0)
            zone_free(run[n], run[n]->npages, unit_below(&seed, 2) == 0 && run[n]->zeroed);
    }
}

static void threads_and_limit(void *arg)
{
    (void)arg;
    size_t out = zone_stats(NODE).out, refusals = limit_stats().refusals, sum = 0;
    opt.hard_limit = limit_stats().charged + ((size_t)64 << 20);
    unit_threads(UNIT_THREADS, allocate_to_the_limit);
    MUST(limit_stats().refusals > refusals);
    for (int i = 0; i < UNIT_THREADS; i++)
        sum += got[i];
    MUST(sum > 0);
    struct zone_stats z = zone_stats(NODE);
    MUST(z.out == out);
    MUST(unit_charged_whole() == z.out + z.dirty + region_stats().bytes[REGION_OWN]);
    MUST(limit_stats().charged <= opt.hard_limit);
    zone_check(NODE);
    /* nothing is lost to the limit: all of it is to be had by one */
    zone_purge(NODE, 0);
    size_t room = (opt.hard_limit - limit_stats().charged) >> PAGE_SHIFT;
    struct page *all = zone_alloc(NODE, room, 1);
    MUST(all != NULL);
    MUST(zone_alloc(NODE, 1, 1) == NULL);
    zone_free(all, room, true);
}

TEST(zone_purge, hard_limit_holds_beside_threads)
{
    unit_alone(threads_and_limit, NULL);
}

/* ---- a request beside another thread's purge ---- */

static uint32_t stage;
static uint64_t asked_at;

/* In the middle of the purge: until the other thread has been refused, which it sees by the zone's lock. */
static void wait_for_the_request(void)
{
    unit_madvise_hook = NULL;
    store_release(&stage, 1);
    while (load_acquire(&stage) < 2 || load_relaxed(&zones[NODE].lock.acquired) < asked_at + 2)
        sched_yield();
}

static void purge_or_ask(unsigned thread)
{
    if (thread == 0) {
        unit_madvise_hook = wait_for_the_request;
        MUST(zone_purge(NODE, 0) > 0);
        MUST(unit_madvise_hook == NULL);
        return;
    }
    while (load_acquire(&stage) < 1)
        sched_yield();
    MUST(zone_stats(NODE).dirty == 0);
    asked_at = load_relaxed(&zones[NODE].lock.acquired);
    store_release(&stage, 2);
    struct page *pg = zone_alloc(NODE, 128, 1);
    MUST(pg != NULL); /* all that the limit allows is in flight */
    zone_free(pg, 128, false);
}

static void ask_beside_a_purge(void *arg)
{
    (void)arg;
    vm_use_libc();
    zone_purge(NODE, 0);
    struct page *pg = zone_alloc(NODE, 128, 1);
    MUST(pg != NULL);
    zone_free(pg, 128, false);
    opt.hard_limit = limit_stats().charged;
    store_relaxed(&stage, 0);
    unit_threads(2, purge_or_ask);
    MUST(!zone_await_purge(NODE));
    zone_check(NODE);
}

TEST(zone_purge, a_request_waits_for_pages_in_flight)
{
    unit_alone(ask_beside_a_purge, NULL);
}
