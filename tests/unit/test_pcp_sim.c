/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shipped rules of core/pcp_tune.c on traces, over a model of lists and zone that only counts: holds of the zone's
 * lock and pages moved, each way. What each trace must give is worked out in the comment above it, by the rules as
 * pcp_tune.h states them; two shards, so batch 7, idle 16, most 64, a scaled batch 56. A drain takes whole runs, first of
 * the order just freed, at most 8 pages a hold.
 *
 * fc: free_count; c: pages on the shard; F and A: a free and an allocation of one page; F3: of a run of order 3.
 */
#include "unit.h"

#include "core/pcp_tune.h"

struct sim {
    struct pcp_limits limits;
    struct pcp_tune tune;
    enum pcp_mode mode;
    unsigned runs[RUN_ORDER_MAX + 1];
    unsigned count;
    unsigned refill_holds, refill_pages, drain_holds, drain_pages, hold_max; /* of the model zone */
    unsigned drains, free_highs, marks, spikes;
};

static struct sim sim_new(enum pcp_mode mode)
{
    return (struct sim){.limits = pcp_limits_for(2), .mode = mode};
}

static void sim_alloc(struct sim *s, unsigned order)
{
    pcp_count_alloc(&s->tune, s->mode, order);
    if (s->runs[order] == 0) {
        unsigned n = nr_pcp_alloc(&s->limits, &s->tune, s->count, order);
        EXPECT(n > 0 && n % (1u << order) == 0);
        s->runs[order] += n >> order;
        s->count += n;
        s->refill_holds++;
        s->refill_pages += n;
    }
    s->runs[order]--;
    s->count -= 1u << order;
    EXPECT(s->count <= s->limits.high_max); /* INV-TUNE-3 */
}

/* One hold: runs from this order on, around, while they fit. */
static unsigned sim_hold(struct sim *s, unsigned first, unsigned keep)
{
    unsigned moved = 0;
    for (unsigned i = 0; i <= RUN_ORDER_MAX; i++) {
        unsigned order = (first + i) % (RUN_ORDER_MAX + 1);
        for (; s->runs[order] > 0 && s->count > keep; s->runs[order]--) {
            if (moved > 0 && moved + (1u << order) > PCP_HOLD_PAGES)
                return moved;
            moved += 1u << order;
            s->count -= 1u << order;
        }
    }
    return moved;
}

static void sim_drain(struct sim *s, unsigned order, unsigned pages)
{
    unsigned keep = pages < s->count ? s->count - pages : 0;
    s->drains++;
    while (s->count > keep) {
        unsigned moved = sim_hold(s, order, keep);
        s->drain_holds++;
        s->drain_pages += moved;
        s->hold_max = moved > s->hold_max ? moved : s->hold_max;
    }
}

static void sim_free(struct sim *s, unsigned order)
{
    s->runs[order]++;
    s->count += 1u << order;
    struct pcp_verdict v = pcp_count_free(&s->limits, &s->tune, s->mode, s->count, order, false);
    if (v.drain > 0)
        sim_drain(s, order, v.drain);
    s->free_highs += v.free_high;
    s->marks += v.mark;
    s->spikes += v.spike;
    EXPECT(s->count <= s->limits.high_max);
    pcp_tune_check(&s->limits, &s->tune);
}

static void times(struct sim *s, void (*op)(struct sim *, unsigned), unsigned n, unsigned order)
{
    for (unsigned i = 0; i < n; i++)
        op(s, order);
}

static void expect_refills(const struct sim *s, unsigned holds, unsigned pages)
{
    EXPECT_EQ(s->refill_holds, holds);
    EXPECT_EQ(s->refill_pages, pages);
}

static void expect_drains(const struct sim *s, unsigned drains, unsigned holds, unsigned pages)
{
    EXPECT_EQ(s->drains, drains);
    EXPECT_EQ(s->drain_holds, holds);
    EXPECT_EQ(s->drain_pages, pages);
    EXPECT(s->hold_max <= PCP_HOLD_PAGES);
}

/* ---- bursty ---- */

/* 40 pages out, 40 back, ten times. Only the first round asks: 7, 14, 28 are 49 pages in 3 refills; 9 are left over, and
 * with the 40 frees c is 49, below high = 64 (16 + 7 + 14 + 28 = 65, cut). All modes alike: nothing is ever full. */
TEST(pcp_sim, small_bursts_stay_in_the_shard)
{
    for (enum pcp_mode m = PCP_EXACT; m <= PCP_THRESHOLD; m++) {
        struct sim s = sim_new(m);
        for (int round = 0; round < 10; round++) {
            times(&s, sim_alloc, 40, 0);
            EXPECT_EQ(s.count, 9);
            times(&s, sim_free, 40, 0);
            EXPECT_EQ(s.count, 49);
        }
        expect_refills(&s, 3, 49);
        expect_drains(&s, 0, 0, 0);
    }
}

/* 100 pages out, 100 back, twice.
 * Round 1. Refills 7 14 28, then 56 cut to a block, 32 and 32: 113 in 5; c = 13. The 51st free makes c = 64 = high with
 *   fc = 51: give min(51, 57), whole holds 48, in 6; c = 16. 48 frees later c = 64 with fc = 56: 56 in 7, c = 8; the
 *   last free: c = 9.
 * Round 2. 9 from the list (fc: exact 47, halved 0 after six). Frees have halved the factor to 0: 7 14 28 32 32 again,
 *   113 in 5: c = 9 + 113 - 100 = 22; fc = 0 in all modes. The 42nd free makes c = 64, fc = 42: 40 in 5, c = 24. 40 frees
 *   later c = 64, fc = 56 (82): 56 in 7, c = 8. 18 more: c = 26.
 * Together 10 refills of 226 pages; 4 drains, 6 + 7 + 5 + 7 = 25 holds, 48 + 56 + 40 + 56 = 200 pages. */
TEST(pcp_sim, large_bursts_drain_by_what_was_freed)
{
    for (enum pcp_mode m = PCP_EXACT; m <= PCP_THRESHOLD; m++) {
        struct sim s = sim_new(m);
        times(&s, sim_alloc, 100, 0);
        expect_refills(&s, 5, 113);
        times(&s, sim_free, 100, 0);
        EXPECT_EQ(s.count, 9);
        expect_drains(&s, 2, 13, 104);
        times(&s, sim_alloc, 100, 0);
        EXPECT_EQ(s.tune.free_count, 0);
        EXPECT_EQ(s.count, 22);
        times(&s, sim_free, 100, 0);
        EXPECT_EQ(s.count, 26);
        expect_refills(&s, 10, 226);
        expect_drains(&s, 4, 25, 200);
        EXPECT_EQ(s.marks, 0); /* no run of 128 */
    }
}

/* Four runs of 512 KiB out and back, three times. First round: 2 runs, high 23; 2 more, high 37; c = 32 after the frees.
 * exact: 32 < 37, and 32 net frees are not 56: nothing drains; each next round takes its 32 pages off fc and puts them
 *   on again. 2 refills in all.
 * halve: from the second free on fc >= 7: second free c = 16, empty, 2 holds; third and fourth 8 each, a hold each: 32
 *   pages in 3 drains and 4 holds, high back to 16 after each; so the next round refills as the first did, 16 and 16.
 *   Four allocations leave fc = 32 / 16 = 2, so the first free of a round makes it 10 at least.
 * threshold: at the second free fc was 8 or 10, not 15; at the third it was 16 or more: 24 in 3 holds, then 8 in 1. */
TEST(pcp_sim, bursts_of_runs_tell_the_modes_apart)
{
    static const unsigned drains[] = {0, 9, 6}, holds[] = {0, 12, 12}, pages[] = {0, 96, 96};
    for (enum pcp_mode m = PCP_EXACT; m <= PCP_THRESHOLD; m++) {
        struct sim s = sim_new(m);
        for (int round = 0; round < 3; round++) {
            times(&s, sim_alloc, 4, 3);
            EXPECT_EQ(s.count, 0);
            times(&s, sim_free, 4, 3);
            EXPECT_EQ(s.count, m == PCP_EXACT ? 32 : 0);
        }
        expect_refills(&s, m == PCP_EXACT ? 2 : 6, m == PCP_EXACT ? 32 : 96);
        expect_drains(&s, drains[m], holds[m], pages[m]);
        EXPECT_EQ(s.free_highs, drains[m]);
    }
}

/* ---- mixed: F F F A, 32 times: 64 pages more are freed than taken ---- */

/* exact: fc grows by 2 a round, as c does.
 * Round 8 begins at c = fc = 14; its second F: 16 = high. Give min(16, 16 - 7 = 9), whole holds 8, in 1; high = 16 + 7 =
 *   23; c = 8. F A: c = 8, fc = 16.
 * Rounds 9 to 15: c = 22, fc = 30. Round 16: its first F: c = 23 = high, fc = 31. Give min(31, 16) = 16 in 2; high = 38;
 *   c = 7. F F A: c = 8, fc = 32.
 * Rounds 17 to 30 (14): c = 36; fc = 32 + 24 = 56 after 12 rounds, then 55 after each (56 is its most, A takes one).
 *   Round 31: c 37, 38 = high, fc = 56. Give min(56, 31), whole holds 24, in 3; high = 63; c = 14. F A: c = 14.
 * Round 32: c = 16, fc = 55.
 * 3 drains, 6 holds, 48 pages: 8.0 a hold. */
TEST(pcp_sim, mixed_frees_in_exact_mode)
{
    struct sim s = sim_new(PCP_EXACT);
    for (int round = 1; round <= 32; round++) {
        times(&s, sim_free, 3, 0);
        sim_alloc(&s, 0);
        if (round == 8) {
            EXPECT_EQ(s.count, 8);
            EXPECT_EQ(s.tune.free_count, 16);
            EXPECT_EQ(s.tune.high, 23);
        } else if (round == 16) {
            EXPECT_EQ(s.count, 8);
            EXPECT_EQ(s.tune.free_count, 32);
            EXPECT_EQ(s.tune.high, 38);
        }
    }
    expect_refills(&s, 0, 0);
    expect_drains(&s, 3, 6, 48);
    EXPECT_EQ(s.count, 16);
    EXPECT_EQ(s.tune.free_count, 55);
    EXPECT_EQ(s.tune.high, 63);
}

/* halve, threshold: an A leaves at most (2 + 3) / 2 = 2 of fc, so it never passes 5; every drain is the least, 7 in one
 * hold, and high stays 16 (5 + 7 is less).
 * Round 8: its second F makes c = 16, give 7, c = 9; F A: c = 9. From 9: rounds begin at 9, 11, 13; the third one's third F
 *   makes 16: 9, A: 8. From 8: begin at 8, 10, 12, 14; the fourth one's second F: 9; F A: 9. So 3 rounds and a drain, 4
 *   rounds and a drain, in turn.
 * After round 8, 24 rounds: 3 4 3 4 3 4 are 21 and 6 drains, 3 more and the 7th, at c = 8. With the first: 8 drains of
 * 7, 8 holds, 56 pages: 7.0 a hold. */
TEST(pcp_sim, mixed_frees_in_the_halving_modes)
{
    for (enum pcp_mode m = PCP_HALVE; m <= PCP_THRESHOLD; m++) {
        struct sim s = sim_new(m);
        for (int round = 1; round <= 32; round++) {
            times(&s, sim_free, 3, 0);
            EXPECT(s.tune.free_count <= 5);
            sim_alloc(&s, 0);
        }
        expect_refills(&s, 0, 0);
        expect_drains(&s, 8, 8, 56);
        EXPECT_EQ(s.count, 8);
        EXPECT_EQ(s.tune.high, 16);
    }
}

/* The same with runs of 128 KiB (2 pages), 24 times.
 * exact: c and fc grow by 4 a round. Round 4 begins at 12; its second F: 16 = high, fc 16: min(16, 9), whole holds 8, in 1;
 *   high 23; c = 8 after F A. Round 8 begins at 20; second F: 24, fc 32: 16 in 2; high 39; c = 8. Round 16 begins at 36;
 *   second F: 40, fc 56: min(56, 39 - 7), 32 in 4; high 63; c = 8. 8 more: c = 40. fc is 56 in between, but no more than 6
 *   pages are ever freed in a row. 3 drains, 7 holds, 56 pages.
 * halve: round 1: c = 4, fc = 6 / 2. Round 2: fc was 3, 5, 7 (c = 10): empty, in 2; A asks: high 16 + 7, three runs, c = 4;
 *   fc = 9 / 2. Round 3: fc was 4, 6, 8: empty (10) in 2; A asks again; fc = 10 / 2 = 5, here and from now on. Round 4: fc
 *   was 5, 7 (c = 8): 8 in 1; F A: c = 0. Round 5: fc was 7 at c = 4, 9 at c = 6: less than a batch; A: c = 4. Round 6 as
 *   4. So each second one: 11 of them. 13 drains, 2 + 2 + 11 holds, 10 + 10 + 88 pages; 2 refills of 6.
 * threshold: fc never passes 11. Round 4: second F: c = 16, fc = 9: min(9, 9), 8 in 1; c = 8; 9 + 7 does not raise high.
 *   From 8, each second round: 11 drains of 8 in 1, c = 8. */
TEST(pcp_sim, mixed_frees_of_runs)
{
    static const unsigned drains[] = {3, 13, 11}, holds[] = {7, 15, 11}, pages[] = {56, 108, 88}, rows[] = {0, 13, 0};
    static const unsigned refills[] = {0, 2, 0}, left[] = {40, 0, 8};
    for (enum pcp_mode m = PCP_EXACT; m <= PCP_THRESHOLD; m++) {
        struct sim s = sim_new(m);
        for (int round = 1; round <= 24; round++) {
            times(&s, sim_free, 3, 1);
            sim_alloc(&s, 1);
        }
        expect_refills(&s, refills[m], 6 * refills[m]);
        expect_drains(&s, drains[m], holds[m], pages[m]);
        EXPECT_EQ(s.free_highs, rows[m]);
        EXPECT_EQ(s.count, left[m]);
    }
}

/* ---- pure frees ---- */

/* 300 single pages; no mode matters without an allocation.
 * c = 16 at F 16 (fc 16): 8 in 1, high 23, c = 8. F 31 (fc 31): c = 23: 16 in 2, high 38, c = 7. F 62 (fc 56): c = 38:
 * 24 (of 31) in 3, high 63, c = 14. F 111: c = 63: 56 in 7, c = 7. F 128: the mark: c = 24, all in 3. From here on a mark
 * each 16 frees, 16 pages in 2; they never reach high = 16 between: the 16th is the mark itself. Marks at 128, 144, ... 288:
 * 11; spikes at 128 and 256. 12 pages stay.
 * Drains 4 + 11 = 15; holds 1 + 2 + 3 + 7 + 3 + 10 x 2 = 36; pages 8 + 16 + 24 + 56 + 24 + 160 = 288. */
TEST(pcp_sim, a_pure_run_of_pages)
{
    for (enum pcp_mode m = PCP_EXACT; m <= PCP_THRESHOLD; m++) {
        struct sim s = sim_new(m);
        times(&s, sim_free, 127, 0);
        EXPECT_EQ(s.marks, 0);
        expect_drains(&s, 4, 13, 104);
        times(&s, sim_free, 1, 0);
        EXPECT_EQ(s.count, 0);
        EXPECT_EQ(s.spikes, 1);
        times(&s, sim_free, 172, 0);
        EXPECT_EQ(s.marks, 11);
        EXPECT_EQ(s.spikes, 2);
        EXPECT_EQ(s.count, 12);
        expect_drains(&s, 15, 36, 288);
        EXPECT_EQ(s.free_highs, 0);
    }
}

/* 40 runs of 256 KiB (4 pages); marks at the 32nd, 36th, 40th free.
 * exact: F4: c = 16, fc = 16: 8 in 1, high 23, c = 8. F8: c = 24, fc = 32: min(32, 16) = 16 in 2, high 39, c = 8. Then c
 *   grows by 4; at F15 fc was 56 (14 x 4): a row of runs, c = 8 + 28 = 36, in 5 holds (8 8 8 8 4), high 16. From then on
 *   fc stays 56 and each second free, c = 8 >= 7, empties: F17 19 ... 31, 8 times 8 in 1. F32 is the mark: 4 in 1. F36,
 *   F40: the reset took fc to 0, so it is 16 before the mark: 16 in 2 each.
 *   Drains 2 + 1 + 8 + 3 = 14, holds 1 + 2 + 5 + 8 + 1 + 4 = 21, pages 8 + 16 + 36 + 64 + 4 + 32 = 160.
 * halve: F3: fc was 8, c = 12: 12 in 2. Then each second: F5 7 ... 31, 14 times 8 in 1. F32: 4 in 1. F35: after the reset,
 *   fc was 8, c = 12 in 2. F36: 4 in 1. F39: 2, F40: 1. Drains 1 + 14 + 1 + 4 = 20, holds 2 + 14 + 1 + 6 = 23,
 *   pages 160; 17 of them by rows.
 * threshold: F4: fc was 12, not 15: c = 16 is full: 8 in 1, high 23, c = 8. F5: fc was 16: 12 in 2. F7 9 ... 31: 13 times 8
 *   in 1. F32: 4 in 1. F35: fc was 8. F36, F40: 16 in 2. Drains 1 + 1 + 13 + 3 = 18, holds 1 + 2 + 13 + 1 + 4 = 21. */
TEST(pcp_sim, a_pure_run_of_runs)
{
    static const unsigned drains[] = {14, 20, 18}, holds[] = {21, 23, 21}, rows[] = {9, 17, 14};
    for (enum pcp_mode m = PCP_EXACT; m <= PCP_THRESHOLD; m++) {
        struct sim s = sim_new(m);
        times(&s, sim_free, 40, 2);
        expect_drains(&s, drains[m], holds[m], 160);
        EXPECT_EQ(s.free_highs, rows[m]);
        EXPECT_EQ(s.marks, 3);
        EXPECT_EQ(s.spikes, 1);
        EXPECT_EQ(s.count, 0);
    }
}

/* An allocation in the middle ends the run: 127 frees, one allocation, 127 frees have no mark, one more has. */
TEST(pcp_sim, an_allocation_ends_the_run)
{
    for (enum pcp_mode m = PCP_EXACT; m <= PCP_THRESHOLD; m++) {
        struct sim s = sim_new(m);
        times(&s, sim_free, 127, 0);
        sim_alloc(&s, 0);
        times(&s, sim_free, 127, 0);
        EXPECT_EQ(s.marks, 0);
        sim_free(&s, 0);
        EXPECT_EQ(s.marks, 1);
    }
}

/* Any mix on any number of shards keeps what pcp_tune.h promises, which sim_alloc and sim_free look at. */
TEST(pcp_sim, invariants_hold_on_random_traces)
{
    static const size_t shards[] = {1, 2, 5, 16, 32, 33, 256};
    uint64_t seed = 6;
    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++)
        for (enum pcp_mode m = PCP_EXACT; m <= PCP_THRESHOLD; m++) {
            struct sim s = sim_new(m);
            s.limits = pcp_limits_for(shards[i]);
            for (int step = 0; step < 20000; step++) {
                unsigned order = (unsigned)unit_below(&seed, RUN_ORDER_MAX + 1);
                size_t lean = 1 + (size_t)(step / 500) % 9; /* whole phases of mostly frees, mostly allocations */
                if (unit_below(&seed, 10) < lean)
                    sim_free(&s, order);
                else
                    sim_alloc(&s, order);
            }
            EXPECT(s.refill_holds > 0 && s.drain_holds > 0);
        }
}
