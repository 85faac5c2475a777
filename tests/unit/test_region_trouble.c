/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/region.h where something is refused or comes in between: purges, nodes of the tree and address space that cannot be
 * had, other threads, forks and signal handlers in the middle of it.
 */
#include "region_util.h"

#include "compat/os/bits.h"
#include "core/block.h"
#include "core/maple.h"
#include "core/meta.h"
#include "core/opt.h"
#include "core/pmap.h"

#include <sys/mman.h>
#include <sys/resource.h>

extern void tsan_init_name(void) __asm__("__tsan_init") __attribute__((weak));

/* ---- refusals ---- */

static struct region *dirty_block(size_t size, uint64_t id)
{
    struct region *r = region_map_large(size, 1);
    MUST(r != NULL && r->kind == REGION_LARGE);
    unit_stamp(r->base, 4 * PAGE_BYTES, id);
    return r;
}

/* Blocks that find no gap try stale regions again: one of them comes to lie here, and is zero. */
static bool found_again(const char *base, size_t size)
{
    struct region *r = NULL;
    for (int i = 0; i <= 1000 && (r == NULL || r->base != base); i++)
        MUST((r = region_map_large(size, 1)) != NULL);
    return r->base == base && unit_is_zero(base, size);
}

static void purge_refused(void *arg)
{
    vm_use_libc(); /* the suite's madvise */
    struct region *keep = dirty_block(64 * MIB, 1), *r = dirty_block(8 * MIB, 2), copy;
    MUST(keep->window == r->window || seen_windows() == 2);
    struct region *beside = dirty_block(8 * MIB, 3);
    char *base = r->base;
    unit_madvise_fails(1, true, arg != NULL ? 22 : -1);
    MUST(region_unmap_large(r) == 0);
    MUST(!region_is_gap(base) && region_find(base, &copy) && copy.kind == REGION_STALE);
    region_check();
    struct region *next = region_map_large(8 * MIB, 1);
    MUST(next != NULL && next->base != base && unit_is_zero(next->base, next->size));
    unit_madvise_fails(0, false, 0);
    MUST(region_unmap_large(next) == 0);
    MUST(found_again(base, 8 * MIB));
    MUST(unit_stamped(beside->base, 4 * PAGE_BYTES, 3) && unit_stamped(keep->base, 4 * PAGE_BYTES, 1));
    MUST(region_stats().bytes[REGION_STALE] == 0);
    region_check();
}

TEST(region, what_cannot_be_purged_is_no_gap)
{
    region_alone(purge_refused, NULL);
    region_alone(purge_refused, "errno");
}

/* With nothing live in it, the window goes, stale or not. */
static void stale_window_goes(void *arg)
{
    (void)arg;
    vm_use_libc();
    size_t gaps = region_stats().gaps;
    struct region *r = dirty_block(64 * MIB, 1);
    char *base = r->base;
    unit_madvise_fails(1, true, 22);
    MUST(region_unmap_large(r) == 0);
    MUST(seen_windows() == 0 && !region_contains(base) && !region_is_gap(base) && !vm_is_mapped(base));
    MUST(region_stats().bytes[REGION_STALE] == 0 && region_stats().gaps == gaps);
    region_check();
}

TEST(region, a_stale_window_goes)
{
    region_alone(stale_window_goes, NULL);
}

/* ---- no memory for bookkeeping ---- */

/* Take all metadata there is, and let none be mapped; `nodes` blocks of 256 bytes are had before. Thread sanitizer needs memory
 * of its own all the time, and an emulator no limits, so there the child ends well here. */
static void starve(unsigned nodes)
{
    if (tsan_init_name != NULL || !unit_limits_hold())
        _exit(0);
    static void *keep[64];
    for (unsigned i = 0; i < nodes; i++)
        MUST((keep[i] = meta_alloc(256)) != NULL);
    struct rlimit limit = {address_space(), RLIM_INFINITY};
    MUST(setrlimit(RLIMIT_AS, &limit) == 0);
    for (size_t size = 8192; size >= 64; size /= 2)
        while (meta_alloc(size) != NULL)
            continue;
    for (unsigned i = 0; i < nodes; i++)
        meta_free(keep[i], 256);
}

enum { CROWD = 400 };

/* Every second block goes, then all: with this many nodes to be had and no more. Freeing never fails, whatever the tree
 * can be told; afterwards, with memory again, everything is a gap. */
static void free_without_nodes(void *arg)
{
    static struct region *r[CROWD];
    unsigned nodes = *(unsigned *)arg;
    struct region *first = region_map_large(CROWD * 2 * MIB, 1);
    MUST(first != NULL && region_unmap_large(first) == 0);
    for (int i = 0; i < CROWD; i++)
        MUST((r[i] = region_map_large(2 * MIB, 1)) != NULL && r[i]->kind == REGION_LARGE);
    region_check();
    starve(nodes);
    uint64_t seed = nodes + 1;
    for (int i = 0; i < CROWD; i++) {
        size_t j = unit_below(&seed, CROWD);
        if (r[j] == NULL)
            continue;
        r[j]->base[5] = 1;
        if (i % 4 == 0) {
            region_shrink(r[j], MIB); /* may fail */
        } else {
            MUST(region_unmap_large(r[j]) == 0);
            r[j] = NULL;
        }
        if (i % 16 == 0)
            region_check();
    }
    struct region *more;
    while ((more = region_map_large(2 * MIB, 1)) != NULL && more->kind == REGION_LARGE)
        MUST(unit_is_zero(more->base, 4096));
    region_check();
}

TEST(region, every_node_may_be_refused)
{
    for (unsigned nodes = 0; nodes < 12; nodes++)
        region_alone(free_without_nodes, &nodes);
}

enum { MANY = 1200 };

static struct region *crowd[MANY];

/* Use up every node there is: each block that gets shorter adds a gap to the tree. Result: so many could not; from then on
 * the leaves are full. */
static int use_up_nodes(void)
{
    int refused = 0;
    struct region *first = region_map_large(MANY * 4 * MIB, 1);
    MUST(first != NULL && region_unmap_large(first) == 0);
    for (int i = 0; i < MANY; i++)
        MUST((crowd[i] = region_map_large(4 * MIB, 1)) != NULL && crowd[i]->kind == REGION_LARGE);
    struct region *own[20]; /* structs are not what is to be short */
    for (int i = 0; i < 20; i++)
        MUST((own[i] = region_map_own(PAGE_BYTES, 1)) != NULL);
    for (int i = 0; i < 20; i++)
        MUST(region_unmap_large(own[i]) == 0);
    starve(0);
    for (int i = 0; i < MANY; i++) {
        bool ok = region_shrink(crowd[i], 2 * MIB);
        MUST(crowd[i]->size == (ok ? 2 : 4) * MIB); /* unchanged if refused */
        refused += !ok;
    }
    region_check();
    MUST(refused > 0 && refused < MANY);
    return refused;
}

static void more_address_space(void)
{
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    MUST(setrlimit(RLIMIT_AS, &all) == 0);
}

enum { STAYED = 3 };

/* Freed, and zero, and no gap: it waits, and once there are nodes it is one. */
static void free_one(void *arg)
{
    struct region *r = arg, copy;
    char *base = r->base;
    *base = 1;
    MUST(region_unmap_large(r) == 0);
    region_check();
    if (region_is_gap(base))
        return;
    MUST(region_find(base, &copy) && copy.kind == REGION_STALE && copy.zero);
    more_address_space();
    MUST(found_again(base, 4 * MIB));
    region_check();
    _exit(STAYED);
}

/* Each in a child, since a free that can be entered gives nodes back. Two full leaves side by side, and the last range of
 * the left one goes: that erase needs nodes. */
static void erase_refused(void *arg)
{
    static struct unit_child c;
    int stayed = 0;
    (void)arg;
    use_up_nodes();
    for (int i = 0; i < MANY && stayed < 3; i++)
        if (crowd[i]->size == 4 * MIB) {
            unit_child(&c, free_one, crowd[i]);
            MUST(c.status == 0 || c.status == STAYED << 8);
            stayed += c.status != 0;
        }
    MUST(stayed > 0);
    for (int i = 0; i < MANY; i++)
        MUST(region_unmap_large(crowd[i]) == 0);
    region_check();
    MUST(region_stats().bytes[REGION_LARGE] == 0);
}

TEST(region, freeing_never_fails_for_want_of_nodes)
{
    region_alone(erase_refused, NULL);
}

enum { NONE_WAITED = 4 };

/* A mapping that the tree has no node for is not listed yet, but is there, and may go. How many fit into a leaf as it is
 * depends on where the kernel puts them: others before them make it fuller. */
static void waiting(void *arg)
{
    enum { N = 14 };
    for (int i = 0; i < *(int *)arg; i++)
        MUST(region_map_own(PAGE_BYTES, 1) != NULL);
    size_t own = region_stats().count[REGION_OWN]; /* other tests' */
    struct region *r[N], *room = region_map_own(PAGE_BYTES, 1), copy;
    int missing = 0;
    use_up_nodes();
    MUST(region_unmap_large(room) == 0); /* less than a chunk of metadata, when the first of these is mapped */
    for (int i = 0; i < N; i++) {
        MUST((r[i] = region_map_own(vm_page_size(), 1)) != NULL);
        missing += !region_find(r[i]->base, &copy);
    }
    if (missing == 0)
        _exit(NONE_WAITED);
    MUST(region_stats().count[REGION_OWN] == own + N);
    region_check();
    for (int i = 0; i < N; i += 2)
        MUST(region_unmap_large(r[i]) == 0);
    MUST(region_stats().count[REGION_OWN] == own + N / 2);
    more_address_space();
    region_check();
    for (int i = 1; i < N; i += 2) {
        MUST(region_find(r[i]->base, &copy) && copy.kind == REGION_OWN);
        MUST(region_unmap_large(r[i]) == 0);
    }
    region_check();
}

TEST(region, a_mapping_without_a_node_waits)
{
    if (vm_page_size() > 4096) /* so many mappings would need as much room as a chunk of metadata, which has the nodes */
        return;
    struct unit_child c = {.status = NONE_WAITED << 8};
    drop_empty_windows();
    for (int others = 0; others < 16 && c.status == NONE_WAITED << 8; others++)
        unit_child(&c, waiting, &others);
    if (c.status != 0)
        TEST_FAIL("child ended with status 0x%x: %s", c.status, c.text);
}

/* ---- in the middle of a purge: another thread's view, a fork ---- */

static struct region *purging;

static void look_and_fork(void)
{
    struct region copy;
    unit_madvise_hook = NULL;
    MUST(region_find(purging->base, &copy) && copy.kind == REGION_STALE && !region_is_gap(purging->base));
    struct region *r = region_map_large(8 * MIB, 1); /* no lock is held */
    MUST(r != NULL && r->base != copy.base && region_unmap_large(r) == 0);
    region_check();
}

static void from_a_shim(void *arg)
{
    (void)arg;
    vm_use_libc();
    struct region *keep = dirty_block(64 * MIB, 1);
    purging = dirty_block(8 * MIB, 2);
    char *base = purging->base;
    unit_madvise_hook = look_and_fork;
    MUST(region_unmap_large(purging) == 0);
    MUST(unit_madvise_hook == NULL && region_is_gap(base) && unit_is_zero(base, 8 * MIB));
    MUST(region_unmap_large(keep) == 0);
    region_check();
}

TEST(region, nothing_is_handed_out_while_it_is_purged)
{
    region_alone(from_a_shim, NULL);
}

static int at_purge; /* atomic: 1 the purger waits in madvise, 2 it may go on */

static void wait_in_purge(void)
{
    unit_madvise_hook = NULL;
    store_release(&at_purge, 1);
    while (load_acquire(&at_purge) != 2)
        cpu_relax();
}

static void purge_in_child(void *arg)
{
    struct region copy;
    char *base = arg;
    region_check();
    MUST(region_find(base, &copy) && copy.kind == REGION_STALE);
    MUST(found_again(base, 8 * MIB)); /* nobody's purge was ours to do again */
    region_check();
}

static void purger_or_forker(unsigned i)
{
    static char *base;
    if (i == 0) {
        base = purging->base;
        unit_madvise_hook = wait_in_purge;
        MUST(region_unmap_large(purging) == 0);
        MUST(region_is_gap(base));
        return;
    }
    while (load_acquire(&at_purge) != 1)
        cpu_relax();
    static struct unit_child c;
    unit_child(&c, purge_in_child, base);
    MUST(c.status == 0);
    store_release(&at_purge, 2);
}

static void fork_meanwhile(void *arg)
{
    (void)arg;
    unit_fork_handlers();
    vm_use_libc();
    struct region *keep = dirty_block(64 * MIB, 1);
    purging = dirty_block(8 * MIB, 2);
    unit_threads(2, purger_or_forker);
    MUST(region_unmap_large(keep) == 0);
    region_check();
}

TEST(region, a_fork_child_purges_what_was_being_purged)
{
    region_alone(fork_meanwhile, NULL);
}

/* ---- signal handlers ---- */

static int stop; /* atomic */

static struct region *found_in_handler;
static int handled, handled_found; /* atomic */

static void find_in_handler(int sig)
{
    struct region copy;
    (void)sig;
    bool found = region_find(found_in_handler->base + MIB, &copy);
    MUST(!found || (copy.base == found_in_handler->base && copy.size == 2 * MIB));
    add_relaxed(&handled, 1);
    add_relaxed(&handled_found, found);
}

static pthread_t changer;

static void send_signals(unsigned i)
{
    if (i == 0) {
        while (!load_acquire(&stop)) {
            pthread_kill(changer, SIGUSR1);
            for (int n = 0; n < 2000; n++)
                cpu_relax();
        }
        return;
    }
    for (int step = 0; step < 20000 && load_relaxed(&handled) < 3000; step++) {
        struct region *r[3];
        for (int k = 0; k < 3; k++)
            MUST((r[k] = region_map_large((2 + (size_t)k) * MIB, 1)) != NULL);
        region_grow(r[2], 6 * MIB);
        for (int k = 0; k < 3; k++)
            MUST(region_unmap_large(r[k]) == 0);
    }
    store_release(&stop, 1);
}

static void *change_thread(void *arg)
{
    (void)arg;
    send_signals(1);
    return NULL;
}

/* A handler that has interrupted a change of its own thread gets an answer: the right one, or "not ours"; never a wait. */
static void handlers(void *arg)
{
    (void)arg;
    struct sigaction act = {.sa_handler = find_in_handler, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &act, NULL) == 0);
    found_in_handler = region_map_large(2 * MIB, 1);
    MUST(found_in_handler != NULL);
    MUST(pthread_create(&changer, NULL, change_thread, NULL) == 0);
    send_signals(0);
    pthread_join(changer, NULL);
    MUST(handled > 0 && handled_found > 0);
    region_check();
}

TEST(region, found_in_a_handler_that_interrupts_a_change)
{
    region_alone(handlers, NULL);
}

/* ---- locked memory ---- */

/* What is mapped is resident at once, and cannot be purged: windows are as large as is needed, and go with their block. */
static void locked_memory(void *arg)
{
    enum { N = 16 };
    struct region *r[N];
    (void)arg;
    char *probe = mlockall(MCL_FUTURE) == 0 ? vm_map(vm_page_size(), false) : NULL;
    if (probe == NULL || vm_resident(probe, vm_page_size()) == 0)
        return; /* not allowed here, or a sanitizer is in the way */
    for (int i = 0; i < N; i++) {
        size_t before = region_stats().window_bytes;
        MUST((r[i] = region_map_large(4 * MIB, 1)) != NULL);
        MUST(i < N / 2 || region_stats().window_bytes <= before + 6 * MIB); /* one before was larger, which showed it */
    }
    struct region_stats s = region_stats();
    MUST(s.bytes[REGION_LARGE] + s.bytes[REGION_OWN] == N * 4 * MIB);
    for (int i = 0; i < N; i++)
        MUST(region_unmap_large(r[i]) == 0);
    MUST(region_stats().bytes[REGION_STALE] == 0 && region_stats().bytes[REGION_LARGE] == 0);
    region_check();
}

TEST(region, locked_memory_has_no_large_windows)
{
    region_alone(locked_memory, NULL);
}
