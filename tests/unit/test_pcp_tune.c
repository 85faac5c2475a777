/* SPDX-License-Identifier: BSD-2-Clause */
/* core/pcp_tune.h: each rule by a table whose answers are worked out beside it. Pages of 64 KiB throughout. */
#include "unit.h"

#include "core/pcp_tune.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Two shards: batch 7, kept when idle 32 / 2 = 16, at most 64; a scaled batch is 7 << 3 = 56. */
static const struct pcp_limits two = {.batch = 7, .high_min = 16, .high_max = 64};
/* Many shards: batch 3, nothing kept when idle, at most 12; a scaled batch is 3 << 3 = 24. */
static const struct pcp_limits many = {.batch = 3, .high_min = 0, .high_max = 12};

static const enum pcp_mode modes[] = {PCP_EXACT, PCP_HALVE, PCP_THRESHOLD};

TEST(pcp_tune, limits_share_the_totals)
{
    static const struct {
        size_t shards;
        unsigned batch, high_min, high_max;
    } rows[] = {
        {1, 7, 32, 64},   /* idle 32; busy 512, cut to 64 a shard */
        {2, 7, 16, 64},   /* 32 / 2; 256, cut */
        {8, 7, 4, 64},    /* 32 / 8; 64, as it is */
        {16, 7, 2, 32},   /* 32 / 16; 512 / 16 */
        {32, 7, 1, 28},   /* 16 would be less than four batches of 7 */
        {64, 3, 0, 12},   /* more than 32 shards: batch 3; 8 would be less than four batches of 3 */
        {1024, 3, 0, 12}, /* the total follows the number of cpus from here on */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct pcp_limits l = pcp_limits_for(rows[i].shards);
        EXPECT_EQ(l.batch, rows[i].batch);
        EXPECT_EQ(l.high_min, rows[i].high_min);
        EXPECT_EQ(l.high_max, rows[i].high_max);
        EXPECT(l.high_min * rows[i].shards <= 32); /* 2 MiB when idle */
        EXPECT(l.high_max >= 4 * l.batch);
    }
}

/* free_count before, order, and what is left in exact and in the two halving modes. */
TEST(pcp_tune, an_allocation_counts_by_its_mode)
{
    static const struct {
        unsigned before, order, exact, halved;
    } rows[] = {
        {56, 0, 55, 28}, /* 56 - 1; 56 / 2 */
        {56, 3, 48, 28}, /* 56 - 8 */
        {9, 3, 1, 4},    /* 9 - 8; 9 / 2 */
        {8, 3, 0, 4},    /* just nothing */
        {7, 3, 0, 3},    /* floor: 7 - 8 is 0, not 65535 */
        {0, 0, 0, 0},    /* floor */
        {1, 0, 0, 0},    {5, 1, 3, 2}, {5, 2, 1, 2},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t m = 0; m < COUNT(modes); m++) {
            struct pcp_tune t = {
                .free_count = (uint16_t)rows[i].before, .run_pages = 77, .run_next = 80, .run_spike = 90};
            pcp_count_alloc(&t, modes[m], rows[i].order);
            EXPECT_EQ(t.free_count, modes[m] == PCP_EXACT ? rows[i].exact : rows[i].halved);
            EXPECT_EQ(t.run_pages + t.run_next + t.run_spike, 0); /* any allocation ends the run */
        }
}

/* A free adds its pages in every mode, at most to a scaled batch, and halves the growth of refills. */
TEST(pcp_tune, a_free_counts_its_pages)
{
    static const struct {
        unsigned before, order, after;
    } rows[] = {
        {0, 0, 1},   {0, 1, 2},   {0, 2, 4},   {0, 3, 8},
        {47, 3, 55}, {48, 3, 56}, {49, 3, 56}, /* saturates: 57 is 56 */
        {55, 0, 56}, {56, 0, 56}, {56, 3, 56},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t m = 0; m < COUNT(modes); m++) {
            struct pcp_tune t = {.high = 64, .free_count = (uint16_t)rows[i].before, .alloc_factor = 3};
            struct pcp_verdict v = pcp_count_free(&two, &t, modes[m], 10, rows[i].order, false);
            EXPECT_EQ(v.drain, 0); /* 10 is below 64 */
            EXPECT_EQ(t.free_count, rows[i].after);
            EXPECT_EQ(t.alloc_factor, 1); /* 3 / 2 */
            EXPECT_EQ(t.run_before, rows[i].order > 0);
            EXPECT_EQ(t.run_pages, 1 << rows[i].order);
        }
}

TEST(pcp_tune, nr_pcp_alloc)
{
    static const struct {
        const struct pcp_limits *l;
        unsigned high, factor, count, order; /* before */
        unsigned take, high_after, factor_after;
    } rows[] = {
        /* Fresh: n = 7, high = 16 + 7 = 23, room 23, limit 23 - 7 = 16: 7 fit, so the next is doubled. */
        {&two, 0, 0, 0, 0, 7, 23, 1},
        {&two, 0, 0, 0, 1, 6, 23, 1},    /* three whole runs of 2 in 7 */
        {&two, 0, 0, 0, 2, 8, 23, 1},    /* one run of 4 in 7, but two is the least */
        {&two, 0, 0, 0, 3, 16, 23, 1},   /* none of 8, but two is the least, and 23 has room for them */
        {&two, 23, 1, 0, 0, 14, 37, 2},  /* n = 14 <= 37 - 7 */
        {&two, 37, 2, 0, 0, 28, 64, 3},  /* 37 + 28 = 65, cut to 64; 28 <= 57 */
        {&two, 64, 3, 0, 0, 32, 64, 3},  /* 56 <= 57, but a block holds 32; the factor has its most */
        {&two, 64, 3, 0, 2, 32, 64, 3},  /* eight runs of 4 */
        {&two, 64, 3, 40, 0, 17, 64, 3}, /* room 24, limit 24 - 7 = 17 < 56: cut, not doubled */
        {&two, 64, 0, 50, 0, 7, 64, 1},  /* room 14, limit max(7, 7): just fits */
        {&two, 64, 0, 51, 0, 7, 64, 1},  /* room 13, limit max(6, 7) */
        {&two, 64, 0, 60, 0, 4, 64, 0},  /* room 4, limit 4 */
        {&two, 64, 3, 64, 0, 1, 64, 3},  /* full of other orders: one run */
        {&two, 64, 3, 64, 3, 8, 64, 3},
        {&two, 64, 3, 70, 1, 2, 64, 3},      /* count above high: no wrap */
        {&two, 64, 0, 49, 3, 8, 64, 1},      /* room 15: 7 fit, but there is no room for two runs of 8 */
        {&two, 64, 0, 48, 3, 16, 64, 1},     /* room 16 */
        {&two, 30, 0, 20, 0, 10 - 3, 37, 1}, /* room 37 - 20 = 17, limit 10, n = 7 */
        /* Many shards. n = 3, high = 0 + 3, room 3, limit max(0, 3). */
        {&many, 0, 0, 0, 0, 3, 3, 1},
        {&many, 0, 0, 0, 1, 2, 3, 1},  /* one run of 2; two would be 4 of 3 */
        {&many, 0, 0, 0, 3, 8, 3, 1},  /* more than the shard may hold: the one that was asked for */
        {&many, 3, 1, 0, 0, 6, 9, 2},  /* n = 6, room 9, limit 6 */
        {&many, 9, 2, 0, 0, 9, 12, 2}, /* n = 12, high 21 cut to 12, limit 9 */
        {&many, 9, 2, 0, 3, 8, 12, 2}, /* 9 holds one run of 8 */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct pcp_tune t = {.high = (uint16_t)rows[i].high, .alloc_factor = (uint8_t)rows[i].factor};
        unsigned n = nr_pcp_alloc(rows[i].l, &t, rows[i].count, rows[i].order);
        EXPECT_EQ(n, rows[i].take);
        EXPECT_EQ(t.high, rows[i].high_after);
        EXPECT_EQ(t.alloc_factor, rows[i].factor_after);
        pcp_tune_check(rows[i].l, &t);
    }
}

TEST(pcp_tune, nr_pcp_high)
{
    static const struct {
        const struct pcp_limits *l;
        unsigned high, free_count, count; /* before */
        bool free_high;
        unsigned answer, high_after;
    } rows[] = {
        {&two, 0, 0, 5, false, 16, 16},    /* never used: high_min */
        {&two, 40, 9, 39, false, 40, 40},  /* not full: unchanged */
        {&two, 40, 9, 40, false, 40, 40},  /* full, but 9 + 7 is less */
        {&two, 40, 50, 39, false, 40, 40}, /* not full */
        {&two, 40, 50, 40, false, 40, 57}, /* full: 50 + 7, for the next time; this one still drains */
        {&two, 40, 56, 41, false, 40, 63},  {&two, 60, 56, 60, false, 60, 63},
        {&two, 64, 56, 64, false, 64, 64},                                   /* at its most already */
        {&two, 16, 0, 16, false, 16, 16},   {&two, 64, 56, 20, true, 0, 16}, /* 64 - 56 = 8, at least 16 */
        {&two, 16, 8, 20, true, 0, 16},                                      /* 16 - 56: no wrap */
        {&many, 0, 0, 0, false, 0, 3},      /* count 0 >= high 0: a batch from now on */
        {&many, 0, 8, 8, false, 0, 11},     /* 8 + 3 */
        {&many, 11, 24, 11, false, 11, 12}, /* 24 + 3, cut to 12 */
        {&many, 12, 24, 8, true, 0, 0},     /* 12 - 24, at least 0 */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct pcp_tune t = {.high = (uint16_t)rows[i].high, .free_count = (uint16_t)rows[i].free_count};
        EXPECT_EQ(nr_pcp_high(rows[i].l, &t, rows[i].count, rows[i].free_high), rows[i].answer);
        EXPECT_EQ(t.high, rows[i].high_after);
        EXPECT_EQ(t.free_count, rows[i].free_count);
    }
}

TEST(pcp_tune, nr_pcp_free)
{
    static const struct {
        const struct pcp_limits *l;
        unsigned free_count, count, high;
        unsigned give;
    } rows[] = {
        {&two, 0, 64, 64, 7},                                                  /* at least a batch */
        {&two, 7, 64, 64, 7},   {&two, 8, 64, 64, 8},   {&two, 15, 64, 64, 8}, /* 15, without the 7 that would need a hold of their own */
        {&two, 16, 64, 64, 16}, {&two, 56, 64, 64, 56},                        /* most: 64 - 7 = 57 */
        {&two, 56, 63, 63, 56},                                                /* most: 56 */
        {&two, 56, 40, 40, 32},                                                /* most: 33, whole holds 32 */
        {&two, 56, 16, 16, 8},                                                 /* most: 9 */
        {&two, 56, 14, 14, 7},                                                 /* most: max(14 - 7, 14 / 2) */
        {&two, 56, 10, 10, 5},                                                 /* high < 2 batches: half */
        {&two, 0, 10, 10, 5},                                                  /* no batch either */
        {&two, 56, 7, 7, 3},                                                   /* high < batch + 1: half */
        {&two, 56, 1, 1, 1},                           /* half of 1 is nothing, but one must go */
        {&two, 0, 71, 64, 7},                          /* a run of 8 on 63: 7 above high, and 7 go anyway */
        {&two, 0, 17, 10, 7},                          /* half is 5, but 7 are above high */
        {&two, 0, 30, 0, 30},                          /* emptied */
        {&two, 56, 56, 0, 56},  {&two, 56, 60, 0, 56}, /* at most a scaled batch at once */
        {&two, 0, 0, 0, 1},                            /* asked without need: one, and the caller finds none */
        {&many, 24, 12, 12, 8},                        /* most: 12 - 3 = 9, whole holds 8 */
        {&many, 0, 12, 12, 3},  {&many, 24, 4, 4, 2},   {&many, 0, 8, 0, 8},   {&many, 0, 30, 0, 24},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct pcp_tune t = {.high = (uint16_t)rows[i].high, .free_count = (uint16_t)rows[i].free_count};
        EXPECT_EQ(nr_pcp_free(rows[i].l, &t, rows[i].count, rows[i].high), rows[i].give);
    }
}

/* A row of runs empties the shard once, before this free, free_count has reached: exact 56 (and the run too), halve 7,
 * threshold 7 + 8. */
TEST(pcp_tune, a_row_of_runs_empties_the_shard)
{
    static const struct {
        unsigned free_count, run_pages, count, order;
        bool before; /* the free before was of a run too */
        bool exact, halve, threshold;
    } rows[] = {
        {6, 6, 20, 1, true, false, false, false},
        {7, 7, 20, 1, true, false, true, false},
        {14, 14, 20, 1, true, false, true, false},
        {15, 15, 20, 1, true, false, true, true},
        {55, 60, 20, 1, true, false, true, true},
        {56, 55, 20, 1, true, false, true, true}, /* 56 net, but by an allocation less in a row */
        {56, 0, 20, 1, true, false, true, true},
        {56, 56, 20, 1, true, true, true, true},
        {56, 70, 20, 2, true, true, true, true},
        {56, 56, 20, 3, true, true, true, true},
        {56, 56, 20, 0, true, false, false, false},  /* a page is no run */
        {56, 56, 20, 3, false, false, false, false}, /* nor one run a row */
        {56, 56, 7, 1, true, true, true, true},
        {56, 56, 6, 1, true, false, false, false}, /* less than a batch may stay */
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t m = 0; m < COUNT(modes); m++) {
            struct pcp_tune t = {.high = 64,
                                 .free_count = (uint16_t)rows[i].free_count,
                                 .run_pages = rows[i].run_pages,
                                 .run_before = rows[i].before};
            bool expect = modes[m] == PCP_EXACT   ? rows[i].exact
                          : modes[m] == PCP_HALVE ? rows[i].halve
                                                  : rows[i].threshold;
            struct pcp_verdict v = pcp_count_free(&two, &t, modes[m], rows[i].count, rows[i].order, false);
            EXPECT_EQ(v.free_high, expect);
            EXPECT_EQ(v.drain, expect ? rows[i].count : 0);
            EXPECT_EQ(t.high, expect ? 16 : 64); /* 64 - 56, at least 16 */
            EXPECT(!v.mark && !v.spike);
        }
}

TEST(pcp_tune, decay)
{
    static const struct {
        const struct pcp_limits *l;
        unsigned high, count;
        unsigned give, high_after;
    } rows[] = {
        {&two, 64, 64, 8, 56},                         /* 64 - 8 */
        {&two, 64, 20, 0, 56},  {&two, 63, 63, 8, 55}, /* an eighth, rounded up: 63 - 8 */
        {&two, 17, 17, 1, 16},                         /* 17 - 3 = 14, at least 16 */
        {&two, 16, 16, 0, 16},  {&two, 0, 0, 0, 16},
        {&two, 0, 20, 4, 16},   /* never used, and 16 is what it may hold */
        {&two, 20, 71, 54, 17}, /* 20 - 3 = 17; 71 - 56 = 15 is less */
        {&two, 20, 75, 56, 19}, /* 75 - 56 = 19: no more than a scaled batch at a time */
        {&many, 12, 12, 2, 10}, /* 12 - 2 */
        {&many, 1, 1, 1, 0},    /* an eighth of 1 is 1: it does reach 0 */
        {&many, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct pcp_tune t = {.high = (uint16_t)rows[i].high};
        EXPECT_EQ(pcp_decay(rows[i].l, &t, rows[i].count), rows[i].give);
        EXPECT_EQ(t.high, rows[i].high_after);
    }
}

/* From its most to idle: 64 56 49 42 36 31 27 23 20 17 16: ten steps. */
TEST(pcp_tune, decay_ends_at_what_idle_shards_keep)
{
    struct pcp_tune t = {.high = 64};
    unsigned steps = 0;
    for (; t.high > 16; steps++)
        pcp_decay(&two, &t, 0);
    EXPECT_EQ(steps, 10);
    EXPECT_EQ(t.high, 16);
}

/* ---- the run ---- */

TEST(pcp_tune, a_run_is_told_at_its_marks)
{
    struct pcp_tune t = {0};
    /* 15 runs of 8 are 120, the 16th makes 128: first mark and a spike. Then each second one, until 256: twice. */
    for (unsigned pages = 8; pages <= 512; pages += 8) {
        struct pcp_verdict v = pcp_count_run(&t, 8, false);
        EXPECT_EQ(v.mark, pages >= 128 && (pages - 128) % 16 == 0);
        EXPECT_EQ(v.spike, pages == 128 || pages == 256 || pages == 512);
    }
    pcp_count_alloc(&t, PCP_EXACT, 0);
    EXPECT(!pcp_count_run(&t, 127, false).mark); /* begins anew */
    EXPECT(pcp_count_run(&t, 1, false).spike);
}

TEST(pcp_tune, a_run_while_spiking_is_told_early)
{
    struct pcp_tune t = {0};
    EXPECT(!pcp_count_run(&t, 31, true).mark);
    struct pcp_verdict v = pcp_count_run(&t, 1, true); /* 32 */
    EXPECT(v.mark && v.spike);
    EXPECT(!pcp_count_run(&t, 15, true).mark);
    v = pcp_count_run(&t, 1, false); /* 48: once begun, the steps go on, spiking or not */
    EXPECT(v.mark && !v.spike);
    v = pcp_count_run(&t, 16, false); /* 64: twice 32 */
    EXPECT(v.mark && v.spike);
}

/* A block of 1 GiB is 16,384 pages: one mark, and the next is a step further. */
TEST(pcp_tune, a_large_block_is_one_mark)
{
    struct pcp_tune t = {0};
    EXPECT(pcp_count_run(&t, 16384, false).spike);
    EXPECT(!pcp_count_run(&t, 15, false).mark);
    struct pcp_verdict v = pcp_count_run(&t, 1, false);
    EXPECT(v.mark && !v.spike);
    v = pcp_count_run(&t, 16384, false); /* 32,784, past 32,768 */
    EXPECT(v.mark && v.spike);
}

TEST(pcp_tune, a_run_does_not_wrap)
{
    struct pcp_tune t = {0};
    EXPECT(pcp_count_run(&t, SIZE_MAX, false).spike);
    EXPECT_EQ(t.run_pages, UINT32_MAX - 16);
    for (int i = 0; i < 100; i++)
        EXPECT(!pcp_count_run(&t, SIZE_MAX, false).mark);
    pcp_count_alloc(&t, PCP_EXACT, 0);
    EXPECT(!pcp_count_run(&t, 8, false).mark);
}

/* At a mark everything goes, and the purge that follows uses up what was counted. */
TEST(pcp_tune, a_mark_empties_the_shard)
{
    for (size_t m = 0; m < COUNT(modes); m++) {
        struct pcp_tune t = {.high = 64, .free_count = 56, .run_pages = 120, .run_before = true, .alloc_factor = 3};
        struct pcp_verdict v = pcp_count_free(&two, &t, modes[m], 40, 3, false);
        EXPECT(v.mark && v.spike && !v.free_high);
        EXPECT_EQ(v.drain, 40);
        EXPECT_EQ(t.free_count, 0);
        EXPECT_EQ(t.high, 16);
        EXPECT_EQ(t.alloc_factor, 0);
        EXPECT_EQ(t.run_pages, 128); /* the run goes on */
    }
}

TEST(pcp_tune, check_knows_its_invariants)
{
    struct pcp_tune good = {.high = 64, .free_count = 56, .alloc_factor = 3};
    pcp_tune_check(&two, &good);
    pcp_tune_check(&many, &(struct pcp_tune){0});
}
