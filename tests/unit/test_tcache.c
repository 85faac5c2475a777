/* SPDX-License-Identifier: BSD-2-Clause */
/* core/tcache.h: the thread cache. Tests run in threads of their own, which begin without a cache and nothing earned. */
#include "unit.h"

#include "compat/os/vm.h"
#include "core/barn.h"
#include "core/opt.h"
#include "core/pmap.h"
#include "core/reclaim.h"
#include "core/slab.h"
#include "core/tcache.h"
#include "core/zone.h"

#include <sched.h>
#include <unistd.h>

enum { C16 = 0, C48 = 2, C64 = 3, C1024 = 19, C32K = SIZE_CLASSES - 1, MOST = 4096 };

/* malloc and free of one class, as fast.h does it. */
static void *get(class_t c)
{
    void *p = sheaf_pop(&tcache_self()->top[c]);
    return p != NULL ? p : tcache_alloc_slow(c);
}

static void put(class_t c, void *p)
{
    if (!sheaf_push(&tcache_self()->top[c], p))
        tcache_free_slow(c, p, "free");
}

static const struct tcache_bin *bin(class_t c)
{
    return &tcache_self()->bin[c];
}

static size_t cached(class_t c)
{
    static struct tcache_stats st;
    tcache_stats(&st);
    return st.cached[c];
}

static void check_all(class_t c)
{
    tcache_check();
    barn_check(c, NODE);
    slab_check(c, NODE);
}

/* Every object of a class is somewhere: in slabs, barns, caches, or live. */
static void all_accounted(class_t c, size_t live)
{
    struct slab_stats s = slab_stats(c, NODE);
    MUST(s.slabs * size_info[c].objs == s.free_objs + barn_stats(c, NODE).objs + cached(c) + live);
}

/* ---- states ---- */

static void begins_with_nothing(void *arg)
{
    (void)arg;
    struct tcache *tc = tcache_self();
    MUST(tc->state == TCACHE_NONE);
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        void **top = tc->top[c];
        MUST(sheaf_pop(&top) == NULL); /* empty and full at once */
        MUST(!sheaf_push(&top, &top));
    }
    tcache_check(); /* INV-TCACHE-1 for the constant image */
    MUST(tcache_attach() && tcache_attach());
    MUST(tcache_self() != tc && tcache_self()->state == TCACHE_LIVE);
    for (class_t c = 0; c < SIZE_CLASSES; c++)
        MUST(tcache_self()->top[c] == tc->top[c] && bin(c)->main == NULL && bin(c)->spare == NULL);
    tcache_check();
}

/* INV-TCACHE-1 */
TEST(tcache, thread_begins_with_the_constant_image)
{
    unit_thread(begins_with_nothing, NULL);
}

/* The first START_OPS operations of a class go one by one; objects below a cache line come by the line from the start. */
static void small_start(void *arg)
{
    (void)arg;
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        void *p[START_OPS];
        int one_by_one = class_to_size(c) >= CACHE_LINE ? START_OPS : 0;
        for (int i = 0; i < one_by_one; i++) {
            p[i / 2] = i % 2 == 0 ? get(c) : (put(c, p[i / 2]), NULL);
            MUST(bin(c)->main == NULL && cached(c) == 0);
            all_accounted(c, i % 2 == 0);
        }
        void *q = get(c);
        MUST(q != NULL && bin(c)->main != NULL && bin(c)->spare == NULL);
        MUST(bin(c)->main->cap * class_to_size(c) <= SMALL_SHEAF_BYTES || bin(c)->main->cap == 2);
        put(c, q);
        check_all(c);
        all_accounted(c, 0);
    }
}

TEST(tcache, starts_small)
{
    unit_fresh();
    unit_thread(small_start, NULL);
}

/* ---- traces ---- */

struct trace {
    class_t c;
    void *p[MOST];
    unsigned live, most;
    uint64_t seed;
};
static struct trace trace;

static void trace_alloc(struct trace *t)
{
    void *p = get(t->c);
    MUST(p != NULL && pmap_tag(p) == tag_make(t->c, NODE));
    unit_stamp(p, class_to_size(t->c), (uintptr_t)p);
    t->p[t->live++] = p;
}

static void trace_free(struct trace *t)
{
    size_t i = unit_below(&t->seed, t->live), size = class_to_size(t->c);
    void *p = t->p[i];
    MUST(unit_stamped(p, size, (uintptr_t)p)); /* handed out twice: somebody else's stamp or the fill below */
    memset(p, 0xdf, size);
    t->p[i] = t->p[--t->live];
    put(t->c, p);
}

static void run_trace(void *arg)
{
    struct trace *t = arg;
    unsigned batch = 0;
    bool up = true;
    for (int step = 0; step < 6000; step++) {
        if (batch-- == 0) {
            batch = (unsigned)unit_below(&t->seed, 300);
            up = unit_below(&t->seed, 2) != 0;
        }
        bool alloc = unit_below(&t->seed, 8) == 0 ? !up : up;
        if (alloc && t->live < t->most)
            trace_alloc(t);
        else if (!alloc && t->live > 0)
            trace_free(t);
        if (step % 8 == 0)
            tcache_check();
        if (step % 64 == 0) {
            check_all(t->c);
            all_accounted(t->c, t->live);
        }
    }
    while (t->live > 0)
        trace_free(t);
    check_all(t->c);
    all_accounted(t->c, 0);
}

static void trace_class(class_t c, uint64_t seed)
{
    unsigned most = (8 << 20) / (unsigned)class_to_size(c);
    trace = (struct trace){.c = c, .seed = seed, .most = most < MOST ? most : MOST};
    unit_thread(run_trace, &trace);
}

/* INV-TCACHE-1, INV-TCACHE-2, INV-TCACHE-4, in each class */
TEST(tcache, random_trace_of_every_class)
{
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        unit_fresh();
        trace_class(c, c + 80);
    }
}

TEST(tcache, random_trace_with_the_lab_options)
{
    static const struct {
        uintptr_t sheaf_cap, keep_spare, barn_max, hardened;
    } labs[] = {{1, 1, 0, 0}, {2, 1, 0, 0}, {3, 0, 1, 0}, {4, 1, 0, 0}, {7, 0, 2, 0}, {100000, 1, 0, 0},
              {(uintptr_t)1 << 32, 1, 0, 0}, {0, 1, 0, 1}};
    struct opt before = opt;
    for (size_t i = 0; i < sizeof labs / sizeof *labs; i++) {
        unit_fresh();
        opt.sheaf_cap = labs[i].sheaf_cap;
        opt.keep_spare = labs[i].keep_spare;
        opt.barn_max = labs[i].barn_max;
        opt.hardened = labs[i].hardened;
        trace_class(C48, 200 + i);
        trace_class(C1024, 300 + i);
        opt = before;
    }
}

/* ---- capacities ---- */

static void all_at_once(class_t c, void **p, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        MUST((p[i] = get(c)) != NULL);
    for (unsigned i = 0; i < n; i++)
        put(c, p[i]);
}

static void grow(void *arg)
{
    static void *p[MOST];
    (void)arg;
    all_at_once(C64, p, 8);
    uint32_t first = bin(C64)->cap;
    MUST(first > 0);
    uint32_t last = first;
    for (int i = 0; i < 200; i++) {
        all_at_once(C64, p, MOST);
        MUST(bin(C64)->cap >= last);
        last = bin(C64)->cap;
        check_all(C64);
    }
    MUST(last >= 8 * first);
    MUST(sheaf_bytes(last) <= 4096 && last * 64u <= SHEAF_BYTES_MAX);
    MUST(tcache_self()->earned <= CACHE_THREAD_MAX);

    all_at_once(C32K, p, 200); /* a few large objects are as much as many small ones */
    for (int i = 0; i < 50; i++)
        all_at_once(C32K, p, 200);
    MUST(bin(C32K)->cap * class_to_size(C32K) <= SHEAF_BYTES_MAX);
    MUST(bin(C32K)->cap > 2);
}

TEST(tcache, sheaves_grow_with_traffic_to_a_bound)
{
    unit_fresh();
    unit_thread(grow, NULL);
}

/* INV-TCACHE-4: all classes together earn no more than the thread's share. */
static void earn(void *arg)
{
    static void *p[MOST];
    (void)arg;
    for (int i = 0; i < 12; i++)
        for (class_t c = SIZE_CLASSES; c-- > 0;)
            all_at_once(c, p, 100 + (1u << 18) / (unsigned)class_to_size(c) % MOST);
    tcache_check();
    size_t first = 0; /* the first sheaf of a class need not be earned */
    for (class_t c = 0; c < SIZE_CLASSES; c++)
        first += 2 * (2 * class_to_size(c) > SMALL_SHEAF_BYTES ? 2 * class_to_size(c) : SMALL_SHEAF_BYTES);
    MUST(tcache_self()->earned > CACHE_THREAD_MAX / 2);
    MUST(tcache_self()->earned <= CACHE_THREAD_MAX + first);
}

TEST(tcache, all_classes_share_one_budget)
{
    unit_fresh();
    unit_thread(earn, NULL);
}

static void idle(void *arg)
{
    static void *p[MOST];
    (void)arg;
    for (int i = 0; i < 60; i++)
        all_at_once(C64, p, 2000);
    uint32_t earned = bin(C64)->cap;
    size_t kept = cached(C64);
    MUST(earned >= 100 && kept >= earned && bin(C64)->spare != NULL);
    for (int scans = 0; scans < 3;) { /* the first marks, the others shrink */
        uint32_t ticks = tcache_self()->ticks;
        all_at_once(C32K, p, 100);
        scans += tcache_self()->ticks < ticks;
    }
    MUST(bin(C64)->cap == earned / 4);
    MUST(bin(C64)->spare == NULL);
    MUST(cached(C64) < kept);
    check_all(C64);
    for (int scans = 0; scans < 20;) {
        uint32_t ticks = tcache_self()->ticks;
        all_at_once(C32K, p, 100);
        scans += tcache_self()->ticks < ticks;
    }
    MUST(bin(C64)->cap > 0 && bin(C64)->cap <= 27); /* no lower than a first sheaf */
    MUST(bin(C32K)->cap > 2);                       /* the busy class keeps what it has earned */
    all_at_once(C64, p, 2000);
    check_all(C64);
}

TEST(tcache, idle_classes_shrink)
{
    unit_fresh();
    unit_thread(idle, NULL);
}

static void fixed(void *arg)
{
    static void *p[MOST];
    (void)arg;
    for (int i = 0; i < 20; i++) {
        all_at_once(C64, p, 500);
        MUST(bin(C64)->main->cap == 5 && (bin(C64)->spare == NULL || bin(C64)->spare->cap == 5));
    }
}

TEST(tcache, lab_option_fixes_the_capacity)
{
    unit_fresh();
    opt.sheaf_cap = 5;
    unit_thread(fixed, NULL);
    opt.sheaf_cap = 0;
}

/* ---- order and exchange ---- */

static void ascending(void *arg)
{
    (void)arg;
    void *last = get(C16);
    unsigned up = 0;
    for (int i = 0; i < 500; i++) {
        void *p = get(C16);
        up += (char *)p == (char *)last + 16;
        last = p;
    }
    MUST(up >= 480); /* each refill is popped from its lowest address on */
}

TEST(tcache, fresh_objects_come_in_ascending_order)
{
    unit_fresh();
    unit_thread(ascending, NULL);
    unit_fresh();
}

/* ---- end of a thread ---- */

static size_t threads_now(void)
{
    static struct tcache_stats st;
    tcache_stats(&st);
    return st.threads;
}

static size_t threads_before;

static void work_and_die(void *arg)
{
    void *p[100];
    (void)arg;
    all_at_once(C64, p, 100);
    MUST(threads_now() == threads_before + 1);
    MUST(cached(C64) > 0);
    tcache_detach();
    MUST(tcache_self()->state == TCACHE_DEAD);
    MUST(threads_now() == threads_before && cached(C64) == 0);
    MUST(!tcache_attach());
    tcache_check();
    for (int i = 0; i < 100; i++) { /* a destructor that comes later still may allocate */
        MUST((p[i] = get(C64)) != NULL);
        unit_stamp(p[i], 64, (uint64_t)i);
    }
    for (int i = 0; i < 100; i++) {
        MUST(unit_stamped(p[i], 64, (uint64_t)i));
        put(C64, p[i]);
    }
    MUST(cached(C64) == 0);
    check_all(C64);
    all_accounted(C64, 0);
    tcache_detach(); /* once more is nothing */
    tcache_flush("free");
    MUST(threads_now() == threads_before);
}

TEST(tcache, dead_thread_still_works)
{
    unit_fresh();
    MUST(cached(C64) == 0);
    threads_before = threads_now();
    unit_thread(work_and_die, NULL);
    EXPECT_EQ(threads_now(), threads_before);
}

static void leave_objects(void *arg)
{
    (void)arg;
    void *p[300];
    all_at_once(C48, p, 300);
    MUST(cached(C48) > 0);
}

TEST(tcache, end_of_a_thread_gives_its_objects_back)
{
    unit_fresh();
    threads_before = threads_now();
    unit_thread(leave_objects, NULL);
    EXPECT_EQ(threads_now(), threads_before);
    EXPECT_EQ(cached(C48), 0);
    all_accounted(C48, 0);
    check_all(C48);
}

static void some_of_each(unsigned thread)
{
    struct trace *t = malloc(sizeof *t);
    MUST(t != NULL);
    *t = (struct trace){.c = C1024, .seed = thread + 90, .most = 500};
    for (int step = 0; step < 20000; step++) {
        if (unit_below(&t->seed, 1000) < 500 + (step / 1000 % 2 == 0 ? 100u : 0u) && t->live < t->most)
            trace_alloc(t);
        else if (t->live > 0)
            trace_free(t);
        if (step % 1000 == 0)
            tcache_check();
    }
    while (t->live > 0)
        trace_free(t);
    free(t);
}

TEST(tcache, threads_attach_and_detach_side_by_side)
{
    unit_fresh();
    threads_before = threads_now();
    for (int round = 0; round < 3; round++)
        unit_threads(UNIT_THREADS, some_of_each);
    EXPECT_EQ(threads_now(), threads_before);
    EXPECT_EQ(cached(C1024), 0);
    check_all(C1024);
    all_accounted(C1024, 0);
}

/* ---- trim ---- */

static uint32_t stage;

static void wait_for_stage(uint32_t n)
{
    while (load_acquire(&stage) < n)
        sched_yield();
}

static void obey_trim(unsigned thread)
{
    static void *p[MOST];
    if (thread == 0) {
        all_at_once(C48, p, 500);
        MUST(cached(C48) > 0);
        store_release(&stage, 1);
        wait_for_stage(2);
        MUST(cached(C48) > 0); /* nothing happens behind a thread's back */
        void *q = get(C32K);   /* its next slow call */
        MUST(cached(C48) == 0);
        tcache_check();
        put(C32K, q);
        return;
    }
    wait_for_stage(1);
    tcache_request_trim();
    store_release(&stage, 2);
}

TEST(tcache, trim_request_is_obeyed_at_the_next_slow_call)
{
    unit_fresh();
    stage = 0;
    unit_threads(2, obey_trim);
}

/* ---- fork ---- */

static size_t left_behind;

static void adopt(void *arg)
{
    (void)arg;
    struct barn_stats b = barn_stats(C48, NODE);
    MUST(threads_now() <= 1);
    MUST(cached(C48) == left_behind);
    MUST(tcache_adopt(C48));
    MUST(barn_stats(C48, NODE).objs == b.objs + left_behind);
    MUST(cached(C48) == 0);
    MUST(!tcache_adopt(C48));
    check_all(C48);
    struct slab_stats s = slab_stats(C48, NODE);
    void *p[26];
    for (int i = 0; i < 26; i++)
        MUST((p[i] = get(C48)) != NULL);
    MUST(slab_stats(C48, NODE).refills == s.refills); /* it lives on what was left */
    for (int i = 0; i < 26; i++)
        put(C48, p[i]);
    check_all(C48);
    all_accounted(C48, 0);
}

static void adopt_unasked(void *arg)
{
    (void)arg;
    barn_flush(C48, NODE, "free");
    struct slab_stats s = slab_stats(C48, NODE);
    void *p[26];
    for (int i = 0; i < 26; i++)
        MUST((p[i] = get(C48)) != NULL);
    MUST(slab_stats(C48, NODE).refills == s.refills);
    all_accounted(C48, 26);
    MUST(cached(C48) + barn_stats(C48, NODE).objs == left_behind - 26);
}

static void fork_beside_a_thread(unsigned thread)
{
    static void *p[MOST];
    if (thread == 0) {
        all_at_once(C48, p, 600);
        left_behind = cached(C48);
        MUST(left_behind > 26);
        store_release(&stage, 1);
        wait_for_stage(2);
        MUST(cached(C48) == left_behind); /* the child's adoption is its own */
        all_at_once(C48, p, 600);
        tcache_check();
        return;
    }
    wait_for_stage(1);
    void (*const bodies[])(void *) = {adopt, adopt_unasked};
    for (int i = 0; i < 2; i++) {
        struct unit_child c;
        unit_child(&c, bodies[i], NULL);
        if (c.status != 0)
            fprintf(stderr, "%s", c.text);
        MUST(c.status == 0);
    }
    store_release(&stage, 2);
}

TEST(tcache, child_adopts_the_sheaves_of_threads_that_are_gone)
{
    unit_fork_handlers();
    unit_fresh();
    EXPECT_EQ(cached(C48), 0);
    stage = 0;
    unit_threads(2, fork_beside_a_thread);
    all_accounted(C48, 0);
}

/* Forks in the middle of everything: the child must find a heap that works, whatever the other threads were doing. */
static void child_works(void *arg)
{
    struct trace *t = arg;
    for (class_t c = 0; c < SIZE_CLASSES; c += 7) {
        t->c = c;
        for (int i = 0; i < 100; i++)
            trace_alloc(t);
        while (t->live > 0)
            trace_free(t);
        check_all(c);
    }
    zone_check(NODE);
}

static void fork_amid_traffic(unsigned thread)
{
    if (thread != 0) {
        while (load_acquire(&stage) == 0) {
            void *p[200];
            all_at_once((class_t)(thread * 7), p, 200);
        }
        return;
    }
    for (int i = 0; i < 20; i++) {
        struct unit_child c;
        trace = (struct trace){.seed = (uint64_t)i, .most = MOST};
        unit_child(&c, child_works, &trace);
        if (c.status != 0)
            fprintf(stderr, "%s", c.text);
        MUST(c.status == 0);
    }
    store_release(&stage, 1);
}

TEST(tcache, fork_amid_traffic_leaves_a_heap_that_works)
{
    unit_fork_handlers();
    stage = 0;
    unit_threads(UNIT_THREADS, fork_amid_traffic);
}

/* ---- INV-TCACHE-3: who comes in between finds a smaller cache, never a shared one ---- */

static unsigned shim_calls;

/* As a memory registration cache that mallocs when pages go. */
static void malloc_in_madvise(void)
{
    static void *mine[64];
    unit_madvise_hook = NULL;
    shim_calls++;
    for (int i = 0; i < 64; i++) {
        mine[i] = get(C32K);
        MUST(mine[i] != NULL);
        memset(mine[i], 0x77, 64);
    }
    tcache_check();
    for (int i = 0; i < 64; i++)
        put(C32K, mine[i]);
    tcache_check();
    unit_madvise_hook = malloc_in_madvise;
}

static void purge_with_a_shim(void *arg)
{
    enum { N = 1500 }; /* 48 MiB */
    static void *p[N];
    (void)arg;
    shim_calls = 0;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < N; i++) {
            MUST((p[i] = get(C32K)) != NULL);
            unit_stamp(p[i], 256, (uintptr_t)p[i]);
        }
        unit_madvise_hook = malloc_in_madvise;
        for (int i = 0; i < N; i++) {
            MUST(unit_stamped(p[i], 256, (uintptr_t)p[i]));
            put(C32K, p[i]);
        }
        reclaim_trim(0); /* puts may purge nothing: earlier tests in this process may have left a regret */
        unit_madvise_hook = NULL;
        check_all(C32K);
        all_accounted(C32K, 0);
    }
    MUST(shim_calls >= 5);
}

static void shim_in_child(void *arg)
{
    (void)arg;
    opt.keep = 1 << 20; /* purge eagerly */
    vm_use_libc();
    unit_thread(purge_with_a_shim, NULL);
}

/* INV-TCACHE-3 */
TEST(tcache, malloc_inside_madvise_finds_a_cache_of_its_own)
{
    unit_fresh();
    unit_alone(shim_in_child, NULL);
}

/* ---- hardened ---- */

static void free_twice(void *arg)
{
    (void)arg;
    opt.hardened = 1;
    void *p = get(C48);
    put(C48, p);
    MUST(cached(C48) == 0);
    put(C48, p);
}

TEST(tcache, hardened_notices_a_double_free_at_the_call)
{
    unit_fresh();
    unit_dies_saying(free_twice, NULL, "sheaf: free(0x");
}

/* ---- the check itself ---- */

static void wrong_class_cached(void *arg)
{
    (void)arg;
    void *p = get(C48);
    for (int i = 0; i < 10; i++)
        put(C64, get(C64));
    MUST(bin(C64)->main != NULL);
    put(C64, p);
    tcache_check();
}

/* INV-TCACHE-2 */
TEST(tcache, check_notices_an_object_of_another_class)
{
    unit_dies_saying(wrong_class_cached, NULL, "sheaf: internal error: pmap_tag(s->slot[i]) == tag");
}
