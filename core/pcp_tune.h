/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much a page list takes, keeps and gives back. Level 2: arithmetic on a few small numbers, with no list, lock or
 * page; pcp.c calls it under the shard's lock, the tests with numbers worked out by hand. All units are pages of 64 KiB.
 *
 *     high         what the shard may hold now; each refill and each long run of frees raises it, idleness lowers it
 *     free_count   frees not yet made good by allocations: sizes what a full shard gives back
 *     alloc_factor doublings of the next refill: allocations in a row raise it, a free halves it
 *     run_pages    pages freed since the last allocation: tells that a spike is over
 *
 * free_count has three modes (option pcp_free_count), which differ in two places only:
 *
 *     mode       on allocation        frees of runs empty the shard when free_count has reached
 *     exact      minus the pages      batch << PCP_SCALE_MAX, its most, and run_pages as well
 *     halve      halved               batch                     (Linux 6.7)
 *     threshold  halved               batch + high_min / 2      (Linux since 2025)
 *
 *   INV-TUNE-1 high_min <= high_max; once the shard was used, high <= high_max.
 *   INV-TUNE-2 free_count <= batch << PCP_SCALE_MAX; alloc_factor <= PCP_SCALE_MAX.
 *   INV-TUNE-3 a shard that obeys holds at most high_max pages after every operation.
 * A zero-filled struct pcp_tune is a shard that was never used.
 * Source of the ideas: the kernel's nr_pcp_alloc, nr_pcp_free, nr_pcp_high and decay_pcp_high. Different here: high_min
 * may be less than a batch, even 0; every order is scaled, as runs are our everyday; a run of order 3 is more than a
 * batch.
 */
#ifndef CORE_PCP_TUNE_H
#define CORE_PCP_TUNE_H

#include "tunables.h"

/* Position of the value in option pcp_free_count. */
enum pcp_mode { PCP_EXACT, PCP_HALVE, PCP_THRESHOLD };

/* The same for all shards. */
struct pcp_limits {
    uint16_t batch, high_min, high_max;
};

/* One shard's. */
struct pcp_tune {
    uint16_t high, free_count;
    uint8_t alloc_factor;
    bool run_before;    /* the last free was of order 1 to 3 */
    uint32_t run_pages; /* stops at its largest value */
    uint32_t run_next;  /* the run's next mark; 0: none passed yet */
    uint32_t run_spike; /* run_pages at which the spike is reported once more; 0: not reported yet */
};

/* What a free asks for. */
struct pcp_verdict {
    unsigned drain; /* pages to give back, at least; 0: none. Whole runs: up to 7 more may go */
    bool mark;      /* the run has passed a mark: drain is all, and the zone is to purge now */
    bool spike;     /* with it: the run is twice as long as when this was last so, or it is the first mark */
    bool free_high; /* drain is because of a row of runs, not because the shard is full */
};

/* What: limits for so many shards. Together they hold at most PCP_IDLE_PAGES when idle and at most the larger of
 * PCP_BUSY_PAGES and PCP_HIGH_BATCHES batches a shard when busy. */
struct pcp_limits pcp_limits_for(size_t shards);

/* What: an allocation of 2^order pages reached the shard. Changes free_count, ends the run. */
void pcp_count_alloc(struct pcp_tune *t, enum pcp_mode mode, unsigned order);

/* What: an allocation that reached no list: ends the run. */
void pcp_end_run(struct pcp_tune *t);

/* What: the list of that order is empty and count pages are on the others: how many to take from the zone, a multiple of
 * 2^order, the run asked for included. Raises high. Kernel: nr_pcp_alloc. */
unsigned nr_pcp_alloc(const struct pcp_limits *l, struct pcp_tune *t, unsigned count, unsigned order);

/* What: what the shard may hold before this free drains, 0 for a row of runs. May raise or lower high for the next one.
 * Kernel: nr_pcp_high. */
unsigned nr_pcp_high(const struct pcp_limits *l, struct pcp_tune *t, unsigned count, bool free_high);

/* What: pages to give back of count >= high, where high is nr_pcp_high's answer. At least 1. Kernel: nr_pcp_free. */
unsigned nr_pcp_free(const struct pcp_limits *l, const struct pcp_tune *t, unsigned count, unsigned high);

/* What: a run of 2^order pages was put on the shard, which now holds count. `spiking`: the zone is still giving back the
 * last spike's memory. All of the rules in their order. */
struct pcp_verdict pcp_count_free(const struct pcp_limits *l, struct pcp_tune *t, enum pcp_mode mode, unsigned count,
                                  unsigned order, bool spiking);

/* What: npages were freed that are on no list: the run alone. Result: drain is unused. */
struct pcp_verdict pcp_count_run(struct pcp_tune *t, size_t npages, bool spiking);

/* What: the shard has been emptied: back to what it may hold when idle, nothing counted. The run goes on. */
void pcp_tune_reset(const struct pcp_limits *l, struct pcp_tune *t);

/* What: one step of idleness: high falls by an eighth towards high_min, by no more than a scaled batch below count.
 * Result: pages of count to give back. Kernel: decay_pcp_high. */
unsigned pcp_decay(const struct pcp_limits *l, struct pcp_tune *t, unsigned count);

/* What: verify INV-TUNE-1 and 2. Tests only. */
void pcp_tune_check(const struct pcp_limits *l, const struct pcp_tune *t);

#endif
