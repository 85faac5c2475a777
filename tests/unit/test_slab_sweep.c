/* SPDX-License-Identifier: BSD-2-Clause */
/* core/slab.h, slab_holes: what others do while holes are in flight, refusals, forks. INV-HOLE-1 and 2. */
#include "unit.h"

#include "compat/os/vm.h"
#include "core/clean.h"
#include "core/opt.h"
#include "core/reclaim.h"
#include "core/slab.h"
#include "core/slab_impl.h"

#include <errno.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

/* Objects of 32 KiB in slabs of 256 KiB: there are holes whatever the kernel's page size. Of the eight of a slab, 0 and 3
 * stay: two holes, or one with pages of 64 KiB. Forty slabs have more holes than can be in flight. */
enum { C = SIZE_CLASSES - 1, SIZE = 32 << 10, PER = 8, SLABS = 40, N = SLABS * PER };

static void *objs[N];
static unsigned nslabs, calls, refuse_at;

static struct page *head(const void *p)
{
    struct page *pg = pmap_page(p);
    return pg->kind == PAGE_SLAB_TAIL ? pg->head : pg;
}

static void *take(void)
{
    void *p = NULL;
    MUST(slab_alloc_bulk(C, NODE, &p, 1, 1) == 1);
    return p;
}

static void give(void *p)
{
    slab_free_bulk(C, NODE, &p, 1, "free");
}

/* A word in every 512 bytes: whole os pages go, so that is enough. */
static void mark(void *p, size_t id)
{
    for (size_t i = 0; i < SIZE / sizeof id; i += 512 / sizeof id)
        ((size_t *)p)[i] = id;
}

static bool still_marked(const void *p, size_t id)
{
    for (size_t i = 0; i < SIZE / sizeof id; i += 512 / sizeof id)
        if (((const size_t *)p)[i] != id)
            return false;
    return true;
}

static bool stays(unsigned i)
{
    return i % PER == 0 || i % PER == 3;
}

static void make_holes(unsigned slabs)
{
    MUST(class_to_size(C) == SIZE && size_info[C].objs == PER);
    unit_fresh();
    nslabs = slabs;
    for (unsigned i = 0; i < nslabs * PER; i++)
        mark(objs[i] = take(), i);
    for (unsigned i = 0; i < nslabs * PER; i++)
        if (!stays(i))
            give(objs[i]);
}

static void expect_whole(void)
{
    for (unsigned i = 0; i < nslabs * PER; i++)
        MUST(!stays(i) || still_marked(objs[i], i));
    slab_check(C, NODE);
}

static void nothing_is_left(void)
{
    slab_check(C, NODE);
    struct slab_stats s = slab_stats(C, NODE);
    MUST(s.free_objs == s.slabs * PER);
    unit_fresh();
    MUST(slab_stats(C, NODE).slabs == 0);
}

static void free_all(void)
{
    expect_whole();
    for (unsigned i = 0; i < nslabs * PER; i++)
        if (stays(i))
            give(objs[i]);
    nothing_is_left();
}

/* Run a body that needs our madvise in a child of its own. */
static void run(void *arg)
{
    void (*body)(void);
    memcpy(&body, arg, sizeof body);
    vm_use_libc();
    calls = 0;
    body();
    unit_madvise_hook = NULL;
}

static void alone(void (*body)(void))
{
    unit_alone(run, &body);
}

/* ---- a shim in the middle of a purge ---- */

static void *kept[100];

static void expect_no_one_elses(const void *p)
{
    for (unsigned i = 0; i < nslabs * PER; i++)
        MUST(!stays(i) || objs[i] != p);
}

static void use_the_class(void)
{
    static void *mine[100];
    unit_madvise_hook = NULL;
    slab_check(C, NODE);
    struct slab_stats s = slab_stats(C, NODE);
    MUST(s.slabs * PER == s.free_objs + nslabs * 2); /* those in flight count as free */
    MUST(slab_holes(C, NODE, SIZE_MAX) == 0);        /* one sweep at a time */
    MUST(slab_holes(C - 1, NODE, SIZE_MAX) == 0);
    for (unsigned i = 0; i < 100; i++) {
        mark(mine[i] = take(), i + N);
        expect_no_one_elses(mine[i]);
    }
    slab_check(C, NODE);
    for (unsigned i = 0; i < 100; i++) {
        MUST(still_marked(mine[i], i + N));
        if (i % 3 != 0)
            give(mine[i]);
        else
            kept[calls++] = mine[i];
    }
    slab_check(C, NODE);
}

static void shim_uses_the_class(void)
{
    make_holes(SLABS);
    unit_madvise_hook = use_the_class;
    MUST(slab_holes(C, NODE, SIZE_MAX) > 0);
    MUST(calls == 34);
    for (unsigned i = 0; i < calls; i++) {
        MUST(still_marked(kept[i], i * 3 + N));
        give(kept[i]);
    }
    free_all();
}

TEST(slab_sweep, a_shim_may_use_the_class)
{
    alone(shim_uses_the_class);
}

/* All that pins a slab goes while its holes are in flight: the slab may only go afterwards. */
static void free_all_that_stays(void)
{
    unit_madvise_hook = NULL;
    for (unsigned i = 0; i < N; i++)
        if (stays(i))
            give(objs[i]);
    slab_trim(C, NODE);
    slab_check(C, NODE);
    for (unsigned i = 0; i < N; i += PER)
        calls += pmap_tag(objs[i]) == tag_make(C, NODE);
    MUST(calls == slab_stats(C, NODE).slabs);
}

static void slabs_outlive_their_holes(void)
{
    make_holes(SLABS);
    unit_madvise_hook = free_all_that_stays;
    MUST(slab_holes(C, NODE, SIZE_MAX) > 0);
    MUST(calls > 0 && calls < SLABS);
    slab_check(C, NODE);
    slab_trim(C, NODE);
    MUST(slab_stats(C, NODE).slabs == 0);
}

TEST(slab_sweep, a_slab_with_holes_in_flight_is_not_retired)
{
    alone(slabs_outlive_their_holes);
}

/* The end of a slab that no object reaches may be a hole without objects: it holds its slab all the same. */
enum { C20K = SIZE_CLASSES - 4, WASTE = (256 << 10) - 12 * 20480 };
static void *large[12];

static void free_the_rest(void)
{
    unit_madvise_hook = NULL;
    slab_free_bulk(C20K, NODE, large + 1, 11, "free");
    MUST(slab_trim(C20K, NODE) == 0);
    MUST(slab_stats(C20K, NODE).slabs == 1);
    slab_check(C20K, NODE);
    calls++;
}

static void hole_in_the_waste(void)
{
    size_t own = 20480 / vm_page_size() * vm_page_size();
    MUST(class_to_size(C20K) == 20480 && size_info[C20K].objs == 12);
    unit_fresh();
    unit_pin();
    void *used = unit_malloc(256 << 10);
    memset(used, 1, 256 << 10);
    unit_free(used);
    for (unsigned got = 0; got < 12;)
        got += slab_alloc_bulk(C20K, NODE, large + got, 12 - got, 12 - got);
    MUST(head(large[0])->nclean == 0); /* the same pages, so the waste is dirty */
    slab_free_bulk(C20K, NODE, large, 1, "free");
    MUST(slab_holes(C20K, NODE, own) == own);
    unit_madvise_hook = free_the_rest;
    MUST(slab_holes(C20K, NODE, SIZE_MAX) == WASTE);
    MUST(calls == 1);
    slab_check(C20K, NODE);
    MUST(slab_trim(C20K, NODE) == 1);
    unit_unpin();
}

TEST(slab_sweep, a_hole_without_objects_holds_its_slab)
{
    if (vm_page_size() <= WASTE)
        alone(hole_in_the_waste);
}

/* ---- wrong use meanwhile ---- */

static void *in_hole; /* the first object of a hole, and one that is not */

static void free_in_flight(void)
{
    give(in_hole);
}

static void verify_in_flight(void)
{
    slab_verify(in_hole, "free");
}

static void sweep_beside(void *arg)
{
    memcpy(&unit_madvise_hook, arg, sizeof unit_madvise_hook);
    vm_use_libc();
    slab_holes(C, NODE, SIZE_MAX);
}

TEST(slab_sweep, a_double_free_of_an_object_in_flight_says_so)
{
    char line[256];
    void (*hooks[])(void) = {free_in_flight, verify_in_flight};
    make_holes(1);
    for (int i = 0; i < 4; i++) {
        in_hole = objs[i < 2 ? 4 : 6];
        snprintf(line, sizeof line, "sheaf: free(%p): double free: class 32768, region slab %p, already free", in_hole,
                 (void *)page_address(head(objs[0])));
        unit_dies(sweep_beside, &hooks[i % 2], line);
    }
    free_all();
}

/* ---- refusals ---- */

static void refuse(void)
{
    if (++calls == refuse_at)
        unit_madvise_error = EPERM;
}

/* A sweep whose k-th madvise is refused; then one that is not. Result: was there a k-th? */
static bool refuse_the_kth(unsigned slabs, unsigned k, size_t all)
{
    make_holes(slabs);
    calls = 0;
    refuse_at = k;
    struct slab_stats before = slab_stats(C, NODE);
    size_t given = slab_holes(C, NODE, SIZE_MAX);
    struct slab_stats s = slab_stats(C, NODE);
    unsigned made = calls;
    bool refused = k <= made;
    MUST(s.clean - before.clean == given && s.free_objs == before.free_objs);
    MUST(s.hole_failures - before.hole_failures == refused);
    MUST((given < all) == refused);
    expect_whole();
    for (int i = 0; refused && i < HOLE_SKIP; i++)
        MUST(slab_holes(C, NODE, SIZE_MAX) == 0 && calls == made); /* remembered for a while */
    MUST(given + slab_holes(C, NODE, SIZE_MAX) == all);
    free_all();
    return refused;
}

static void refuse_each(void)
{
    make_holes(SLABS);
    size_t all = slab_holes(C, NODE, SIZE_MAX);
    free_all();
    MUST(all > 0 && all % SLABS == 0);
    unit_madvise_hook = refuse;
    unsigned k = 1;
    while (refuse_the_kth(4, k, all / SLABS * 4))
        k++;
    MUST(k > 4);
    for (k = HOLE_SCAN_SLABS - 3; refuse_the_kth(SLABS, k, all); k += 37) /* in the second batch, too */
        ;
    MUST(k > HOLE_SCAN_SLABS);
}

TEST(slab_sweep, a_refused_purge_ends_the_sweep_and_breaks_nothing)
{
    alone(refuse_each);
}

static void refuse_then_ask_again(void)
{
    make_holes(4);
    unit_madvise_hook = refuse;
    calls = 0;
    refuse_at = 1;
    MUST(slab_holes(C, NODE, SIZE_MAX) == 0 && calls == 1);
    MUST(slab_holes(C, NODE, SIZE_MAX) == 0 && calls == 1); /* remembered */
    size_t clean = slab_stats(C, NODE).clean;
    MUST(reclaim_trim(0)); /* not by who asks for it */
    MUST(slab_stats(C, NODE).clean > clean);
    free_all();
}

TEST(slab_sweep, a_trim_does_not_mind_an_earlier_refusal)
{
    alone(refuse_then_ask_again);
}

static void sweep_without_purge(void *arg)
{
    (void)arg;
    make_holes(1);
    opt.purge = OPT_PURGE_OFF;
    struct slab_stats s = slab_stats(C, NODE);
    MUST(slab_holes(C, NODE, SIZE_MAX) == 0);
    MUST(slab_stats(C, NODE).hole_calls == s.hole_calls && slab_stats(C, NODE).clean == s.clean);
    opt.purge = OPT_PURGE_ON;
    MUST(slab_holes(C, NODE, SIZE_MAX) > 0);
    free_all();
}

TEST(slab_sweep, purge_off_means_nothing_is_given_back)
{
    unit_alone(sweep_without_purge, NULL);
}

/* ---- fork ---- */

static uint32_t in_flight, forked; /* relaxed: the locks of the fork order the rest */

static void wait_for(const uint32_t *word)
{
    while (load_acquire(word) == 0)
        sched_yield();
}

static void wait_for_fork(void)
{
    unit_madvise_hook = NULL;
    store_release(&in_flight, 1);
    wait_for(&forked);
}

static void *sweeper(void *arg)
{
    unit_madvise_hook = wait_for_fork;
    *(size_t *)arg = slab_holes(C, NODE, SIZE_MAX);
    return NULL;
}

/* In the child: the holes are there, free, and not known to be clean. */
static void child_of_a_sweep(const struct slab_stats *before)
{
    const struct slabs *s = slabs_of(NODE, C);
    expect_whole();
    MUST(s->flight_objs == 0 && !s->sweeping);
    for (unsigned i = 0; i < N; i += PER)
        MUST(head(objs[i])->flight == 0);
    struct slab_stats now = slab_stats(C, NODE);
    MUST(now.free_objs == before->free_objs && now.clean == before->clean);
    MUST(slab_holes(C, NODE, SIZE_MAX) > 0);
    free_all();
    _exit(0);
}

static void expect_child(pid_t pid)
{
    int status;
    MUST(pid > 0 && waitpid(pid, &status, 0) == pid);
    MUST(status == 0);
}

static void fork_beside_a_sweep(void)
{
    pthread_t t;
    size_t given = 0;
    unit_fork_handlers();
    make_holes(SLABS);
    struct slab_stats before = slab_stats(C, NODE);
    MUST(pthread_create(&t, NULL, sweeper, &given) == 0);
    wait_for(&in_flight);
    MUST(slabs_of(NODE, C)->flight_objs > 0);
    pid_t pid = fork();
    if (pid == 0)
        child_of_a_sweep(&before);
    store_release(&forked, 1);
    pthread_join(t, NULL);
    expect_child(pid);
    MUST(given > 0);
    free_all();
}

TEST(slab_sweep, a_fork_child_finds_holes_in_flight_as_free_objects)
{
    alone(fork_beside_a_sweep);
}

/* The thread that sweeps forks, in a shim: both sides go on with the purge. */
static void fork_here(void)
{
    unit_madvise_hook = NULL;
    pid_t pid = fork();
    if (pid != 0)
        expect_child(pid);
    else
        calls++;
    MUST(slab_holes(C, NODE, SIZE_MAX) == 0);
    slab_check(C, NODE);
}

static void fork_inside_a_sweep(void)
{
    unit_fork_handlers();
    make_holes(SLABS);
    unit_madvise_hook = fork_here;
    size_t given = slab_holes(C, NODE, SIZE_MAX);
    MUST(given > 0 && slab_stats(C, NODE).hole_bytes >= given);
    MUST(slab_holes(C, NODE, SIZE_MAX) == 0);
    free_all();
    if (calls != 0)
        _exit(0);
}

TEST(slab_sweep, a_fork_inside_the_purge_goes_on_on_both_sides)
{
    alone(fork_inside_a_sweep);
}

/* ---- threads: nothing is handed out while it is being zeroed ---- */

enum { SWEEPS = 15 };
static uint32_t stop, steps, lost, sweeps;

static void user(unsigned thread)
{
    enum { MINE = 60 };
    static __thread void *mine[MINE];
    uint64_t seed = thread + 200;
    memset(mine, 0, sizeof mine);
    while (load_relaxed(&stop) == 0) {
        unsigned i = (unsigned)unit_below(&seed, MINE);
        if (mine[i] == NULL) {
            mark(mine[i] = take(), i << 8 | thread);
        } else {
            if (!still_marked(mine[i], i << 8 | thread))
                store_relaxed(&lost, 1);
            give(mine[i]);
            mine[i] = NULL;
        }
        add_relaxed(&steps, 1);
    }
    for (unsigned i = 0; i < MINE; i++)
        if (mine[i] != NULL)
            give(mine[i]);
}

/* In the middle of a purge: the others get time for some steps. */
static void let_others_run(void)
{
    for (uint32_t from = load_relaxed(&steps); load_relaxed(&steps) - from < 6;)
        sched_yield();
}

static void sweep_or_use(unsigned thread)
{
    if (thread != 0) {
        user(thread);
        return;
    }
    unit_madvise_hook = let_others_run;
    while (sweeps < SWEEPS && load_relaxed(&lost) == 0) {
        sweeps += slab_holes(C, NODE, SIZE_MAX) > 0;
        sched_yield();
    }
    unit_madvise_hook = NULL;
    store_relaxed(&stop, 1);
}

static void sweep_beside_users(void)
{
    unit_fresh();
    stop = steps = lost = sweeps = 0;
    unit_threads(UNIT_THREADS, sweep_or_use);
}

/* INV-HOLE-1 */
TEST(slab_sweep, objects_in_use_are_never_zeroed)
{
    sweep_beside_users();
    EXPECT_EQ(lost, 0);
    EXPECT_EQ(sweeps, SWEEPS);
    nothing_is_left();
}

static void users_in_child(void)
{
    sweep_beside_users();
    MUST(lost == 0 && sweeps == SWEEPS);
    nothing_is_left();
}

/* The same where others have time to run in the middle of each purge. */
TEST(slab_sweep, objects_in_use_are_never_zeroed_by_a_slow_purge)
{
    alone(users_in_child);
}

enum { LOST = 42 };

static void users_with_swapped_steps(void *arg)
{
    (void)arg;
    vm_use_libc();
    slab_holes_swapped = true;
    sweep_beside_users();
    _exit(lost != 0 ? LOST : 0);
}

/* Does the test above find what it is for? Objects are marked after the purge: one in use must be seen to change. */
TEST(slab_sweep, marking_after_the_purge_is_found_out)
{
    struct unit_child c;
    unit_child(&c, users_with_swapped_steps, NULL);
    if (!WIFEXITED(c.status) || WEXITSTATUS(c.status) != LOST)
        TEST_FAIL("child ended with status 0x%x: %s", c.status, c.text);
}
