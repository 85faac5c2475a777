/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/maple.h: readers without a lock against writers, on the shipped code.
 *
 * The traps stop a reader or a writer at a node of the test's choice: each node lies on a page of its own, the page is
 * closed, and the fault handler does what another thread might do meanwhile. So a reader can be held between any two steps
 * of its descent, every time. The threads find what nobody has thought of.
 */
#include "maple_model.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static struct nodes ns;
static struct maple m;

static void start(bool gaps, size_t stride)
{
    nodes_init(&ns);
    ns.stride = stride;
    maple_init(&m, gaps, RANK_REGION, &ns.source);
}

static void finish(void)
{
    maple_check(&m);
    maple_destroy(&m);
    nodes_fini(&ns);
}

/* ---- traps ---- */

static struct {
    char *page;
    size_t size;
    void (*meanwhile)(void);
    int sprung;
    struct sigaction old;
} trap;

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)context;
    char *at = info->si_addr;
    if (at < trap.page || at >= trap.page + trap.size) { /* a pointer that nobody should have followed */
        static const char text[] = "FAIL maple_readers: followed garbage\n";
        if (write(2, text, sizeof text - 1) < 0)
            _exit(2);
        abort();
    }
    MUST(mprotect(trap.page, trap.size, PROT_READ | PROT_WRITE) == 0);
    trap.sprung++;
    trap.meanwhile();
}

static void set_trap(struct maple_node *n, int protection, void (*meanwhile)(void))
{
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&act.sa_mask);
    trap.page = (char *)n;
    trap.size = (size_t)sysconf(_SC_PAGESIZE);
    trap.meanwhile = meanwhile;
    trap.sprung = 0;
    MUST(sigaction(SIGSEGV, &act, &trap.old) == 0);
    MUST(mprotect(trap.page, trap.size, protection) == 0);
}

static void open_trap(void)
{
    MUST(sigaction(SIGSEGV, &trap.old, NULL) == 0);
    MUST(mprotect(trap.page, trap.size, PROT_READ | PROT_WRITE) == 0);
}

enum { BLOCKS = 500 };

static uintptr_t key;

static void other_entry(void)
{
    MUST(maple_store(&m, key / 100 * 100, key / 100 * 100 + 99, &ns) == 0);
}

static void half_the_range(void)
{
    MUST(maple_store(&m, key, key + 9, &ns) == 0);
}

static void erased(void)
{
    MUST(maple_erase(&m, key, NULL) == 0);
}

static void many_erased(void)
{
    MUST(maple_store(&m, key > 5000 ? key - 5000 : 0, key + 5000, NULL) == 0);
}

/* Everything goes, and a larger tree of other ranges comes out of the same nodes: each of them is another node now, most
 * of those that were not leaves are leaves. Their entries are no addresses. */
static void all_reused(void)
{
    MUST(maple_store(&m, 0, UINTPTR_MAX, NULL) == 0);
    for (uintptr_t i = 900; i-- > 0;)
        MUST(maple_store(&m, 70 * i, 70 * i + 60, bounds_entry(70 * i, 70 * i + 60)) == 0);
}

/* The nodes are reused and the tree that was there before comes back, so that only the old nodes are wrong. */
static void all_rebuilt(void)
{
    all_reused();
    MUST(maple_store(&m, 0, UINTPTR_MAX, NULL) == 0);
    build_blocks(&m, NULL, BLOCKS);
}

static void all_gone(void)
{
    MUST(maple_store(&m, 0, UINTPTR_MAX, NULL) == 0);
}

static void (*const meanwhiles[])(void) = {other_entry, half_the_range, erased,  many_erased,
                                           all_reused,  all_rebuilt,    all_gone};
enum { MEANWHILES = sizeof meanwhiles / sizeof *meanwhiles };

/* Four ways to read around the key; whatever happened while the reader was held, it answers as one does who comes now. */
static void read_trapped(int way)
{
    struct maple_range got = {0}, want = {0};
    int error = 0, expect = 0;
    switch (way) {
    case 0:
        got.entry = maple_load(&m, key);
        break;
    case 1:
        error = maple_at(&m, key, &got);
        break;
    case 2:
        error = maple_find(&m, key, key + 10000, &got);
        break;
    default:
        error = maple_find_last(&m, key > 10000 ? key - 10000 : 0, key, &got);
        break;
    }
    MUST(trap.sprung == 1);
    switch (way) {
    case 0:
        want.entry = maple_load(&m, key);
        break;
    case 1:
        expect = maple_at(&m, key, &want);
        break;
    case 2:
        expect = maple_find(&m, key, key + 10000, &want);
        break;
    default:
        expect = maple_find_last(&m, key > 10000 ? key - 10000 : 0, key, &want);
        break;
    }
    MUST(error == expect);
    MUST(error != 0 || range_equal(&got, &want));
}

static void hold_at(bool gaps, unsigned level, void (*meanwhile)(void), int way)
{
    struct maple_path path;
    start(gaps, (size_t)sysconf(_SC_PAGESIZE));
    all_reused(); /* enough nodes with the source: no chunk is added in a handler */
    all_gone();
    build_blocks(&m, NULL, BLOCKS);
    maple_path_to(&m, key, &path);
    MUST(level < path.height);
    set_trap(path.step[level].node, PROT_NONE, meanwhile);
    read_trapped(way);
    open_trap();
    finish();
}

static void hold_everywhere(void *arg)
{
    bool gaps = *(bool *)arg;
    for (unsigned level = 0; level < 3; level++)
        for (int i = 0; i < MEANWHILES; i++)
            for (int way = 0; way < 4; way++)
                for (key = 1050; key < 60000; key += 40000)
                    hold_at(gaps, level, meanwhiles[i], way);
}

TEST(maple_readers, held_at_any_level_while_the_tree_changes)
{
    for (int gaps = 0; gaps < 2; gaps++)
        unit_alone(hold_everywhere, &(bool){gaps});
}

/* ---- a reader that interrupts a change by its own thread ---- */

static void read_in_handler(void)
{
    struct maple_range r;
    struct maple_cursor c;
    MUST(m.seq % 2 == 1);
    MUST(maple_load(&m, 99) == MAPLE_BUSY);
    MUST(maple_at(&m, 99, &r) == -EBUSY);
    MUST(maple_find(&m, 0, UINTPTR_MAX, &r) == -EBUSY);
    MUST(maple_find_last(&m, 0, UINTPTR_MAX, &r) == -EBUSY);
    maple_cursor_init(&c, &m, 0);
    MUST(maple_next(&c, &r) == -EBUSY);
    MUST(maple_prev(&c, &r) == -EBUSY);
}

static void interrupt_own_change(void *arg)
{
    struct maple_path path;
    (void)arg;
    alarm(30); /* a hang is a failure */
    start(true, (size_t)sysconf(_SC_PAGESIZE));
    build_blocks(&m, NULL, 300);
    maple_path_to(&m, 15000, &path);
    set_trap(path.step[0].node, PROT_READ, read_in_handler);
    MUST(maple_store(&m, 15010, 15020, &m) == 0);
    MUST(trap.sprung == 1);
    open_trap();
    MUST(maple_load(&m, 99) == bounds_entry(0, 99));
    MUST(maple_load(&m, 15015) == &m);
    MUST(maple_stats(&m).reader_locks == 0);
    finish();
}

TEST(maple_readers, own_change_interrupted_is_busy_not_a_hang)
{
    unit_alone(interrupt_own_change, NULL);
}

/* ---- a reader that finds the tree in a change all the time takes the lock ---- */

static void *late_reader(void *arg)
{
    struct maple_range r;
    (void)arg;
    MUST(maple_load(&m, 150) == bounds_entry(100, 199));
    MUST(maple_at(&m, 150, &r) == 0);
    return NULL;
}

TEST(maple_readers, hopeless_reader_waits_for_the_lock)
{
    pthread_t t;
    start(true, MAPLE_NODE_BYTES);
    build_blocks(&m, NULL, 300);
    maple_lock(&m);
    maple_change_begin(&m);
    MUST(pthread_create(&t, NULL, late_reader, NULL) == 0);
    while (load_relaxed(&m.lock.word) != 2) /* it sleeps */
        usleep(100);
    maple_change_end(&m);
    maple_unlock(&m);
    pthread_join(t, NULL);
    EXPECT(maple_stats(&m).reader_locks >= 1);
    finish();
}

/* ---- threads ---- */

/*
 * The line is cut into areas of 64 numbers. The first 16 of each are one range that is always there; the others are the
 * writers', who store and erase whole ranges in them. Each entry says its bounds, so whatever a reader gets can be judged.
 * A second tree on the same source is built and destroyed all the time, so that nodes come back as other nodes.
 */
enum { AREAS = 400, AREA = 64, FIXED = 16 };

static struct maple other;
static unsigned writers_left;

static void judge(const struct maple_range *r, uintptr_t index)
{
    MUST(r->first <= index && index <= r->last);
    if (r->entry != NULL)
        MUST(r->entry == bounds_entry(r->first, r->last));
    else if (index < AREAS * AREA)
        MUST(r->first % AREA >= FIXED && (r->first / AREA == r->last / AREA || r->last == UINTPTR_MAX));
}

static void judge_walk(uint64_t *seed)
{
    struct maple_cursor c;
    struct maple_range r;
    uintptr_t area = unit_below(seed, AREAS - 20), next = area;
    maple_cursor_init(&c, &m, area * AREA);
    while (next < area + 20) { /* no fixed range is passed over */
        MUST(maple_next(&c, &r) == 0);
        judge(&r, r.first);
        if (r.first % AREA == 0)
            MUST(r.first == next++ * AREA);
        else
            MUST(r.first / AREA == next - 1);
    }
    while (next > area) {
        if (r.first % AREA == 0)
            MUST(r.first == --next * AREA);
        if (next > area)
            MUST(maple_prev(&c, &r) == 0);
    }
}

static void read_all(unsigned i)
{
    uint64_t seed = i + 100;
    struct maple_range r;
    while (load_acquire(&writers_left) > 0) {
        uintptr_t index = unit_below(&seed, AREAS * AREA), area = index / AREA * AREA;
        MUST(maple_load(&m, area + index % FIXED) == bounds_entry(area, area + FIXED - 1));
        MUST(maple_at(&m, index, &r) == 0);
        judge(&r, index);
        MUST(maple_find(&m, index, UINTPTR_MAX, &r) == 0 || index >= (AREAS - 1) * AREA);
        MUST(maple_find_last(&m, 0, index, &r) == 0);
        MUST(r.first / AREA == index / AREA);
        if (index % 16 == 0)
            judge_walk(&seed);
    }
}

static void write_area(uint64_t *seed)
{
    uintptr_t area = unit_below(seed, AREAS) * AREA, first = area + FIXED + unit_below(seed, AREA - FIXED);
    uintptr_t last = first + unit_below(seed, 8);
    int error = 0;
    switch (unit_below(seed, 8)) {
    case 0: /* all of the area */
        error = maple_store(&m, area + FIXED, area + AREA - 1, bounds_entry(area + FIXED, area + AREA - 1));
        break;
    case 1:
        error = maple_store(&m, area + FIXED, area + AREA - 1, NULL);
        break;
    case 2:
    case 3:
        error = first % AREA < FIXED ? 0 : maple_erase(&m, first, NULL);
        break;
    default:
        if (last < area + AREA)
            error = maple_insert(&m, first, last, bounds_entry(first, last));
        break;
    }
    MUST(error == 0 || error == -EEXIST || error == -ENOENT);
}

static void churn_other(uint64_t *seed)
{
    for (int i = 0; i < 200; i++) {
        uintptr_t at = unit_below(seed, 3000);
        MUST(maple_store(&other, at, at + 2, bounds_entry(at, 1)) == 0);
    }
    maple_destroy(&other);
}

static void read_or_write(unsigned i)
{
    const char *longer = getenv("SHEAF_TEST_LONG");
    unsigned steps = longer != NULL && *longer == '1' ? 1000000 : 20000;
    uint64_t seed = i;
    if (i > 1) {
        read_all(i);
        return;
    }
    for (unsigned n = 0; n < steps; n++) {
        write_area(&seed);
        if (n % 500 == 0)
            churn_other(&seed);
    }
    __atomic_fetch_sub(&writers_left, 1, __ATOMIC_ACQ_REL);
}

static void against_writers(bool gaps)
{
    start(gaps, MAPLE_NODE_BYTES);
    maple_init(&other, !gaps, RANK_REGION, &ns.source);
    m.keep = other.keep = 2; /* nodes travel by way of the source */
    for (uintptr_t area = 0; area < AREAS * AREA; area += AREA)
        EXPECT_EQ(maple_store(&m, area, area + FIXED - 1, bounds_entry(area, area + FIXED - 1)), 0);
    writers_left = 2;
    unit_threads(UNIT_THREADS, read_or_write);
    EXPECT_EQ(maple_stats(&m).returned, 0);
    maple_destroy(&other);
    finish();
}

TEST(maple_readers, threads_against_writers_gaps)
{
    against_writers(true);
}

TEST(maple_readers, threads_against_writers_plain)
{
    against_writers(false);
}

/* The whole tree goes and comes: a reader sees the range it asks for, or a gap, and never another. */
enum { ROUND_BLOCKS = 400 };

static void come_and_go(unsigned i)
{
    uint64_t seed = i;
    if (i == 0) {
        for (int round = 0; round < 60; round++) {
            MUST(maple_store(&m, 0, UINTPTR_MAX, NULL) == 0);
            build_blocks(&m, NULL, ROUND_BLOCKS);
        }
        store_release(&writers_left, 0);
        return;
    }
    while (load_acquire(&writers_left) > 0) {
        struct maple_range r;
        uintptr_t index = unit_below(&seed, 100 * ROUND_BLOCKS);
        void *entry = maple_load(&m, index);
        MUST(entry == NULL || entry == bounds_entry(index / 100 * 100, index / 100 * 100 + 99));
        MUST(maple_at(&m, index, &r) == 0);
        MUST(r.entry == NULL ? r.last == UINTPTR_MAX : r.first == index / 100 * 100 && r.last == r.first + 99);
    }
}

TEST(maple_readers, tree_that_comes_and_goes)
{
    start(true, MAPLE_NODE_BYTES);
    m.keep = 2;
    writers_left = 1;
    unit_threads(UNIT_THREADS, come_and_go);
    finish();
}
