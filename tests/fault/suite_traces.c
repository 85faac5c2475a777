/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The k-th system call about memory fails, in a trace that a model watches. For k = 1, 2, ... until a run passes in which
 * the call was not reached; each k has a process of its own. In the short form k takes larger and larger steps.
 */
#include "fault.h"
#include "fault_check.h"
#include "trace.h"

#include "tests/made_up.h"
#include "tests/unit/region_util.h"

#include "compat/os/numa.h"
#include "core/life.h"
#include "core/limit.h"
#include "core/opt.h"

#include <dirent.h>
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_REACHED = 3, SEED = 20, ROUNDS_MOST = 12, CHILD_S = 120 };
enum { LIE = 0 };

/* ---- what must not grow ---- */

struct size {
    size_t mapped, charged, space, files;
};

static size_t open_files(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    MUST(d != NULL);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

static struct size measure(void)
{
    return (struct size){vm_mapped_bytes(), limit_stats().charged, address_space(), open_files()};
}

/* The largest of both; was the second within the first? A huge window that is made anew may be 2 MiB longer than the one
 * before, up to HUGE_STEP_BYTES: of address space a little more is the same. */
static bool within(struct size *most, const struct size *now)
{
    bool fits = now->mapped <= most->mapped + most->mapped / 256 && now->charged <= most->charged &&
                now->space <= most->space + most->space / 256 && now->files <= most->files;
    most->mapped = now->mapped > most->mapped ? now->mapped : most->mapped;
    most->charged = now->charged > most->charged ? now->charged : most->charged;
    most->space = now->space > most->space ? now->space : most->space;
    most->files = now->files > most->files ? now->files : most->files;
    return fits;
}

/* ---- one run ---- */

struct run {
    const struct trace *trace;
    enum fault_call call;
    long k;
    bool forever, nodes;
    int answer;
};

static void round_of(const struct trace *t)
{
    uint64_t seed = SEED;
    long seen = 0;
    for (unsigned i = 0; i < t->steps; i++) {
        t->step(&seed);
        bool hit = fault_hits() != seen;
        seen = fault_hits();
        if (hit)
            t->verify();
        if (hit || i % 8 == 0)
            fault_check_all();
    }
    t->verify();
    t->end();
    fault_check_all();
}

/* The same again without faults: everything is served, and after a few rounds nothing grows. */
static void stays_flat(const struct trace *t)
{
    struct size most = {0};
    unsigned flat = 0;
    for (unsigned i = 0; flat < 2; i++) {
        unsigned long refused = trace_refused;
        round_of(t);
        struct size now = measure();
        if (i + 3 > ROUNDS_MOST)
            fprintf(stderr, "round %u: mapped %zu, charged %zu, space %zu, files %zu\n", i, now.mapped, now.charged,
                    now.space, now.files);
        MUST(i < ROUNDS_MOST);
        flat = within(&most, &now) ? flat + 1 : 0;
        if (i > 0)
            MUST(trace_refused == refused || t == &trace_region); /* there a grow in place may find no room */
    }
}

static long say_two(unsigned long *mask, size_t bits)
{
    memset(mask, 0, bits / 8);
    mask[0] = 3;
    return 0;
}

static int say_count(void)
{
    return 2;
}

static int say_cpus(void)
{
    return 1024;
}

static int say_node(int cpu)
{
    return cpu % 2;
}

static int say_distance(int a, int b)
{
    return a == b ? 10 : 20;
}

static const struct numa_system two_nodes = {say_two, say_no_policy, say_first, say_yes, say_count,
                                             say_cpus, say_node, say_distance, close_nothing};

static void run_once(const struct run *r)
{
    alarm(CHILD_S);
    opt.thp = OPT_THP_NEVER; /* zeroing huge pages takes most of the time otherwise */
    opt.numa = r->nodes ? OPT_NUMA_BIND : opt.numa;
    fault_set(r->call, r->k, r->forever, r->answer);
    if (r->nodes)
        numa_init_from(&two_nodes, TAG_NODES_MAX, life_make_nodes);
    round_of(r->trace);
    long hits = fault_hits();
    fault_set(r->call, 0, false, 0);
    stays_flat(r->trace);
    _exit(hits > 0 ? 0 : NOT_REACHED);
}

static void run_child(void *arg)
{
    run_once(arg);
}

/* ---- all of them ---- */

static bool long_form(void)
{
    return getenv("SHEAF_TEST_LONG") != NULL;
}

static long next_k(long k, bool forever)
{
    return k == 1 ? 2 : !long_form() ? 16 * k - 8 : forever ? 2 * k : k + 1;
}

/* Result: how many calls were made to fail. */
static long all_k(struct run *r)
{
    struct unit_child c;
    long n = 0;
    for (r->k = 1; n < 2 || long_form() || !r->forever; r->k = next_k(r->k, r->forever), n++) {
        unit_child(&c, run_child, r);
        if (WIFEXITED(c.status) && WEXITSTATUS(c.status) == NOT_REACHED)
            return n;
        if (c.status != 0)
            TEST_FAIL("trace %s%s, %s number %ld%s says %d: ended with status %#x: %s", r->trace->name,
                      r->nodes ? " on two nodes" : "", fault_name[r->call], r->k, r->forever ? " and all after" : "",
                      r->answer, (unsigned)c.status, c.text);
    }
    return n;
}

/* A mapping or a move that only says so leaves nothing to work with; the others may lie. */
static bool may_lie(enum fault_call call)
{
    return call != FAULT_MMAP && call != FAULT_MREMAP;
}

static void all_answers(const struct trace *t, enum fault_call call, bool nodes)
{
    static const int answers[] = {ENOMEM, EPERM, EAGAIN, LIE};
    for (unsigned i = 0; i < sizeof answers / sizeof *answers; i++) {
        if (answers[i] == LIE && !may_lie(call))
            continue;
        for (int forever = 0; forever < 2; forever++) {
            /* Which errno it is means nothing to us. */
            if (!long_form() && answers[i] != LIE && answers[i] != (forever ? EPERM : ENOMEM))
                continue;
            struct run r = {.trace = t, .call = call, .nodes = nodes, .forever = forever, .answer = -answers[i]};
            long n = all_k(&r);
            if (n == 0)
                TEST_FAIL("trace %s makes no %s", t->name, fault_name[call]);
            if (long_form())
                fprintf(stderr, "fault: %s%s: %s%s says %d: %ld runs\n", t->name, nodes ? " on two nodes" : "",
                        fault_name[call], forever ? " and all after" : "", -answers[i], n);
        }
    }
}

#define TRACE_TEST(layer, call, which)                                                                                 \
    TEST(fault_##layer, call)                                                                                          \
    {                                                                                                                  \
        all_answers(&trace_##layer, which, false);                                                                     \
    }

TRACE_TEST(region, mmap, FAULT_MMAP)
TRACE_TEST(region, munmap, FAULT_MUNMAP)
TRACE_TEST(region, madvise, FAULT_MADVISE)
TRACE_TEST(region, mremap, FAULT_MREMAP)
TRACE_TEST(zone, mmap, FAULT_MMAP)
TRACE_TEST(zone, madvise, FAULT_MADVISE)
TRACE_TEST(slab, mmap, FAULT_MMAP)
TRACE_TEST(slab, madvise, FAULT_MADVISE)
TRACE_TEST(large, mmap, FAULT_MMAP)
TRACE_TEST(large, madvise, FAULT_MADVISE)
TRACE_TEST(grow, mmap, FAULT_MMAP)
TRACE_TEST(grow, munmap, FAULT_MUNMAP)
TRACE_TEST(grow, mremap, FAULT_MREMAP)
TRACE_TEST(tcache, mmap, FAULT_MMAP)
TRACE_TEST(tcache, madvise, FAULT_MADVISE)
TRACE_TEST(heap, mmap, FAULT_MMAP)
TRACE_TEST(heap, madvise, FAULT_MADVISE)

/* On a made-up machine with two nodes, the second of which the kernel has never heard of. */
TEST(fault_nodes, mbind)
{
    all_answers(&trace_heap, FAULT_MBIND, true);
}

TEST(fault_nodes, mmap)
{
    all_answers(&trace_heap, FAULT_MMAP, true);
}

TEST(fault_nodes, madvise)
{
    all_answers(&trace_heap, FAULT_MADVISE, true);
}
