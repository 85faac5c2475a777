/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/pcp.h: runs are taken and given back on one cpu and another, in the three ways of counting, with drains, ageing, and
 * frees past the lists. No page is handed out twice, zero and clean are so; pages on the lists and in hand are all that is
 * out of the zone. pcp_check and zone_check after every step.
 */
#include "pages.h"

#include "compat/os/vm.h"
#include "core/clean.h"
#include "core/opt.h"
#include "core/pcp.h"
#include "core/pcp_tune.h"
#include "core/zone.h"

#include <sched.h>

const char fuzz_name[] = "pcp";

static struct opt defaults;
static size_t out_before;
static cpu_set_t all_cpus;

/* To the n-th of the cpus we may use: another shard. */
static void go_to(size_t n)
{
    cpu_set_t one;
    n %= (size_t)CPU_COUNT(&all_cpus);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all_cpus) && n-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

void fuzz_setup(void)
{
    vm_use_libc();
    opt.thp = OPT_THP_NEVER;
    defaults = opt;
    sched_getaffinity(0, sizeof all_cpus, &all_cpus);
}

static void do_alloc(struct fuzz *f)
{
    unsigned order = (unsigned)fuzz_below(f, RUN_ORDER_MAX + 1);
    struct pages *h = pages_unused();
    if (h == NULL)
        return;
    struct page *pg = pcp_alloc(NODE, order);
    MUST(pg != NULL && pg->order == order);
    MUST((uintptr_t)page_address(pg) % (PAGE_BYTES << order) == 0);
    pages_took(h, pg, (size_t)1 << order);
}

static void do_free(struct pages *h)
{
    if (h == NULL)
        return;
    pages_intact(h);
    pcp_free(h->pg, h->pg->order, h->id == 0 && h->pg->zeroed);
    h->pg = NULL;
}

/* As many in a row as there are: a run of frees passes its marks. */
static void do_free_many(struct fuzz *f)
{
    for (size_t n = fuzz_below(f, PAGES_HELD) + 1; n > 0; n--)
        do_free(pages_any(f));
}

static void do_fill(struct fuzz *f)
{
    for (size_t n = fuzz_below(f, PAGES_HELD) + 1; n > 0; n--)
        do_alloc(f);
}

static void step(struct fuzz *f)
{
    struct pages *h;
    switch (fuzz_byte(f) % 32) {
    case 0 ... 6: do_alloc(f); break;
    case 7 ... 13: do_free(pages_any(f)); break;
    case 14 ... 16: do_fill(f); break;
    case 17 ... 18: do_free_many(f); break;
    case 19 ... 20:
        if ((h = pages_any(f)) != NULL)
            pages_write(h, f);
        break;
    case 21: pcp_note_free(fuzz_between(f, 1, 300)); break;
    case 22: pcp_note_alloc(); break;
    case 23: pcp_spike_over(); break;
    case 24: pcp_mark_passed(); break;
    case 25: pcp_age((unsigned)fuzz_below(f, 16)); break;
    case 26:
        pcp_drain();
        MUST(pcp_stats().bytes == 0);
        break;
    case 27: opt.pcp_free_count = fuzz_below(f, 3); break;
    case 28: go_to(fuzz_byte(f)); break;
    case 29: zone_relax(NODE, fuzz_chance(f, 128)); break;
    case 30: fuzz_madvise_fails(f); break;
    default: fuzz_madvise_works(); break;
    }
}

/* What lies on lists costs no memory only where its masks say so. */
static void compare(void)
{
    struct pcp_stats p = pcp_stats();
    pcp_check();
    zone_check(NODE);
    MUST(zone_stats(NODE).out == out_before + p.bytes + (pages_sum() << PAGE_SHIFT));
    MUST(p.resident <= p.bytes);
    fuzz_heap_charged();
}

void fuzz_run(struct fuzz *f)
{
    unsigned kind = fuzz_byte(f);
    opt.madv_free = (kind & 1) != 0;
    opt.decay_ms = (kind & 2) != 0 ? 0 : 1u << 30;
    opt.pcp_free_count = (kind >> 2) % 3;
    pages_begin();
    fuzz_madvise_works();
    go_to(0);
    pcp_drain();
    out_before = zone_stats(NODE).out;
    while (fuzz_more(f)) {
        step(f);
        compare();
    }
    for (struct pages *h = pages_held; h < pages_held + PAGES_HELD; h++)
        do_free(h->pg == NULL ? NULL : h);
    compare();
    fuzz_madvise_works();
    opt = defaults;
    pcp_drain();
    pcp_spike_over();
    zone_purge(NODE, 0);
    compare();
    MUST(pcp_stats().bytes == 0 && zone_stats(NODE).dirty == 0 && zone_stats(NODE).out == out_before);
}
