/* SPDX-License-Identifier: BSD-2-Clause */
/* core/giveback.h: tables with figures worked out by hand. Units: pages of 64 KiB, milliseconds; the floor is 64 pages. */
#include "unit.h"

#include "core/giveback.h"

enum {
    FLOOR = 64,          /* 4 MiB */
    RUN_FLOOR = 16,      /* a quarter of it: what a pure run leaves */
    DECAY = 1000,        /* ms */
    CREDIT_MAX = 1024,   /* 64 MiB */
    START = 5000000,     /* ms: no test begins at 0, as no clock does */
};

static struct give_view view(size_t dirty, size_t out, uint64_t now)
{
    return (struct give_view){.dirty = dirty, .out = out, .floor = FLOOR, .now = now, .decay = DECAY};
}

static size_t keep(struct giveback *g, enum give_cause cause, size_t dirty, size_t out, uint64_t now)
{
    struct give_view v = view(dirty, out, now);
    return giveback_keep(g, cause, &v);
}

static void purged(struct giveback *g, enum give_cause cause, size_t n, size_t dirty, uint64_t now)
{
    struct give_view v = view(dirty, 0, now);
    giveback_purged(g, cause, n, &v);
}

static void wanted(struct giveback *g, size_t n, size_t out, uint64_t now)
{
    struct give_view v = view(0, out, now);
    giveback_wanted(g, n, &v);
}

TEST(giveback, figures_of_the_tests)
{
    EXPECT_EQ(GIVE_CREDIT_MAX >> PAGE_SHIFT, CREDIT_MAX);
    EXPECT_EQ(GIVE_FLOOR >> PAGE_SHIFT, FLOOR);
}

/* ---- the causes ---- */

TEST(giveback, pure_run_leaves_floor_and_credit)
{
    static const struct {
        size_t credit, out, dirty, keep;
    } rows[] = {
        {0, 0, 5000, 16},           /* a quarter of the floor alone */
        {0, 100000, 5000, 16},      /* whatever is out */
        {100, 0, 5000, 116},        /* and the credit */
        {1024, 0, 5000, 1040},      /* at its most with nothing out */
        {1500, 0, 5000, 1040},      /* INV-GIVE-1: what is out has fallen, so the credit counts for less */
        {1500, 800, 5000, 1440},    /* 1,024 + 800 / 2 = 1,424 */
        {1500, 8000, 5000, 1516},   /* 1,024 + 4,000 is more than it */
        {0, 0, 10, 16},             /* fewer than may stay: nothing is to go */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct giveback g = {.credit = rows[i].credit, .credit_ms = START};
        EXPECT_EQ(keep(&g, GIVE_RUN, rows[i].dirty, rows[i].out, START), rows[i].keep);
        EXPECT_EQ(g.credit, rows[i].credit);
    }
}

/* The cap is the larger of 4 floors = 256 and a quarter of what is out, above floor and credit. Passed, it is halved, but
 * never to less than floor and credit. */
TEST(giveback, mixed_traffic_has_a_cap)
{
    static const struct {
        size_t credit, out, dirty, keep;
    } rows[] = {
        {0, 0, 320, 320},        /* 256 + 64: at the cap */
        {0, 0, 321, 160},        /* above it: half of it */
        {0, 1000, 321, 160},     /* a quarter of what is out is less */
        {0, 4000, 1064, 1064},   /* 1,000 + 64 */
        {0, 4000, 1065, 532},
        {100, 0, 420, 420},      /* 256 + 64 + 100 */
        {100, 0, 421, 210},
        {1000, 0, 1320, 1320},   /* 256 + 64 + 1,000 */
        {1000, 0, 1321, 1064},   /* half were 660, less than what regrets have asked for */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct giveback g = {.credit = rows[i].credit, .credit_ms = START};
        EXPECT_EQ(keep(&g, GIVE_CAP, rows[i].dirty, rows[i].out, START), rows[i].keep);
    }
}

/* What nobody wanted in a whole epoch is the least number of dirty pages that was seen in it. */
TEST(giveback, epochs_age_what_is_idle)
{
    struct giveback g = {0};
    EXPECT_EQ(keep(&g, GIVE_AGE, 500, 0, START), 500);              /* the first look only begins an epoch */
    giveback_dirty(&g, 300);
    giveback_dirty(&g, 400);
    EXPECT_EQ(keep(&g, GIVE_AGE, 500, 0, START + DECAY - 1), 500);  /* it is not over */
    EXPECT_EQ(keep(&g, GIVE_AGE, 500, 0, START + DECAY), 264);      /* 300 were idle, 64 may stay: 236 of 500 go */
    EXPECT_EQ(g.low, 500);                                          /* a new epoch, nothing taken in it yet */
    EXPECT_EQ(g.epoch_ms, START + DECAY);
    purged(&g, GIVE_AGE, 236, 264, START + DECAY);
    EXPECT_EQ(g.low, 264);                                          /* a purge is a fall as well */
    EXPECT_EQ(keep(&g, GIVE_AGE, 264, 0, START + 2 * DECAY), 64);   /* untouched since: all but the floor */
    purged(&g, GIVE_AGE, 200, 64, START + 2 * DECAY);
    giveback_dirty(&g, 0);
    EXPECT_EQ(keep(&g, GIVE_AGE, 400, 0, START + 3 * DECAY), 400);  /* all was in use at some time */
    EXPECT_EQ(keep(&g, GIVE_AGE, 400, 0, START + 9 * DECAY), 64);   /* an epoch may be long: 400 idle */
}

TEST(giveback, idle_pages_may_stay_within_the_credit)
{
    struct giveback g = {.credit = 800, .credit_ms = START + DECAY};
    EXPECT_EQ(keep(&g, GIVE_AGE, 1000, 0, START), 1000);
    EXPECT_EQ(keep(&g, GIVE_AGE, 1000, 0, START + DECAY), 864);
    g = (struct giveback){.credit = 800, .credit_ms = START + DECAY};
    EXPECT_EQ(keep(&g, GIVE_AGE, 1000, 0, START), 1000);
    giveback_dirty(&g, 800); /* less than may stay: nothing goes, although 1,000 are dirty */
    EXPECT_EQ(keep(&g, GIVE_AGE, 1000, 0, START + DECAY), 1000);
}

/* ---- regrets ---- */

/* Between two purges the credit at most doubles, from two floors on. */
TEST(giveback, regrets_double_the_credit)
{
    struct giveback g = {0};
    purged(&g, GIVE_RUN, 5000, 64, START);
    EXPECT(g.spiking);
    wanted(&g, 10, 0, START + 1);
    EXPECT(!g.spiking);
    EXPECT_EQ(g.credit, 10);
    EXPECT_EQ(g.gone, 4990);
    wanted(&g, 50, 0, START + 2);
    EXPECT_EQ(g.credit, 60);
    wanted(&g, 4000, 0, START + 3);
    EXPECT_EQ(g.credit, 128); /* 2 x max(0, floor), as it was at the purge */
    wanted(&g, 900, 0, START + 3);
    EXPECT_EQ(g.credit, 128);
    EXPECT_EQ(g.gone, 40);
    purged(&g, GIVE_RUN, 1000, 64, START + 4);
    EXPECT_EQ(g.gone, 1040);
    wanted(&g, 1000, 0, START + 5);
    EXPECT_EQ(g.credit, 256);
    purged(&g, GIVE_RUN, 1000, 64, START + 6);
    purged(&g, GIVE_RUN, 1000, 64, START + 7); /* two purges without a regret between are one */
    wanted(&g, 100, 0, START + 8);
    EXPECT_EQ(g.credit, 356);
    wanted(&g, 2000, 0, START + 9);
    EXPECT_EQ(g.credit, 512);
    purged(&g, GIVE_RUN, 5000, 64, START + 10);
    wanted(&g, 5000, 0, START + 11);
    EXPECT_EQ(g.credit, 1024);
    purged(&g, GIVE_RUN, 5000, 64, START + 12);
    wanted(&g, 5000, 800, START + 13);
    EXPECT_EQ(g.credit, 1424); /* INV-GIVE-1: 1,024 + 800 / 2 */
    purged(&g, GIVE_RUN, 5000, 64, START + 14);
    wanted(&g, 5000, 0, START + 15);
    EXPECT_EQ(g.credit, 1424); /* a regret never lowers it; where it is used it counts as 1,024 */
}

TEST(giveback, only_what_was_purged_is_regretted)
{
    struct giveback g = {0};
    wanted(&g, 500, 0, START); /* nothing has gone: the heap grows */
    EXPECT_EQ(g.credit, 0);
    purged(&g, GIVE_RUN, 20, 64, START);
    wanted(&g, 500, 0, START + 1);
    EXPECT_EQ(g.credit, 20);
    wanted(&g, 500, 0, START + 2);
    EXPECT_EQ(g.credit, 20);
}

TEST(giveback, after_decay_ms_nobody_regrets)
{
    struct giveback g = {0};
    purged(&g, GIVE_RUN, 500, 64, START);
    wanted(&g, 100, 0, START + DECAY - 1);
    EXPECT_EQ(g.credit, 100);
    g = (struct giveback){0};
    purged(&g, GIVE_RUN, 500, 64, START);
    wanted(&g, 100, 0, START + DECAY);
    EXPECT_EQ(g.credit, 0);
    EXPECT_EQ(g.gone, 0);
    EXPECT(!g.spiking);
    purged(&g, GIVE_RUN, 500, 64, START);
    purged(&g, GIVE_RUN, 30, 64, START + DECAY); /* what went a decay_ms ago is forgotten */
    EXPECT_EQ(g.gone, 30);
}

TEST(giveback, credit_halves_with_each_decay_ms)
{
    static const struct {
        uint64_t after;
        size_t credit;
    } rows[] = {{0, 800},        {DECAY - 1, 800},  {DECAY, 400},    {2 * DECAY - 1, 400}, {2 * DECAY, 200},
                {3 * DECAY, 100}, {10 * DECAY, 0},  {31 * DECAY, 0}, {1000000 * (uint64_t)DECAY, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct giveback g = {.credit = 800, .credit_ms = START};
        EXPECT_EQ(keep(&g, GIVE_RUN, 5000, 0, START + rows[i].after), RUN_FLOOR + rows[i].credit);
    }
    /* Asked often or seldom, it is the same: 10,000 ms are ten halvings. */
    struct giveback often = {.credit = 1024, .credit_ms = START}, odd = often;
    for (uint64_t t = 0; t <= 10 * DECAY; t += 10)
        keep(&often, GIVE_RUN, 5000, 0, START + t);
    for (uint64_t t = 0; t <= 10 * DECAY; t += 1900)
        keep(&odd, GIVE_RUN, 5000, 0, START + t);
    EXPECT_EQ(keep(&often, GIVE_RUN, 5000, 0, START + 10 * DECAY), RUN_FLOOR + 1);
    EXPECT_EQ(keep(&odd, GIVE_RUN, 5000, 0, START + 10 * DECAY), RUN_FLOOR + 1);
}

/* A thread reads the clock before it takes the lock, so the rules may see times out of order: an earlier one is now. */
TEST(giveback, a_clock_that_lags_changes_nothing)
{
    struct giveback g = {.credit = 800, .credit_ms = START};
    EXPECT_EQ(keep(&g, GIVE_AGE, 1000, 0, START), 1000);
    EXPECT_EQ(keep(&g, GIVE_AGE, 1000, 0, START - 10), 1000); /* no new epoch */
    EXPECT_EQ(g.epoch_ms, START);
    EXPECT_EQ(keep(&g, GIVE_RUN, 5000, 0, START - 5 * DECAY), RUN_FLOOR + 800);
    purged(&g, GIVE_RUN, 100, 64, START);
    purged(&g, GIVE_RUN, 100, 64, START - 10);
    EXPECT_EQ(g.gone, 200);
    EXPECT_EQ(g.purged_ms, START);
    wanted(&g, 50, 0, START - 10); /* a regret all the same */
    EXPECT_EQ(g.credit, 850);
    EXPECT_EQ(g.credit_ms, START);
}

/* INV-GIVE-1, INV-GIVE-2 over any history. */
TEST(giveback, random_histories_keep_the_invariants)
{
    uint64_t seed = 3, now = START;
    struct giveback g = {0};
    for (int i = 0; i < 100000; i++) {
        size_t dirty = unit_below(&seed, 8000), out = unit_below(&seed, 20000), credit = g.credit;
        now += unit_below(&seed, 8) == 0 ? unit_below(&seed, 3 * DECAY) : unit_below(&seed, 20);
        size_t k = keep(&g, (enum give_cause)unit_below(&seed, 3), dirty, out, now);
        EXPECT(g.credit <= credit);
        size_t most = RUN_FLOOR + CREDIT_MAX + out / 2, run = keep(&g, GIVE_RUN, dirty, out, now);
        EXPECT(run >= RUN_FLOOR && run <= most);
        EXPECT(k >= dirty || k >= RUN_FLOOR);
        if (k < dirty && unit_below(&seed, 2) == 0)
            purged(&g, unit_below(&seed, 2) == 0 ? GIVE_RUN : GIVE_AGE, dirty - k, k, now);
        credit = g.credit;
        wanted(&g, 1 + unit_below(&seed, 500), out, now);
        EXPECT(g.credit >= credit || now - g.credit_ms < DECAY);
        EXPECT(g.credit <= (credit > FLOOR ? 2 * credit : 2 * FLOOR) || g.credit <= g.credit_most);
        EXPECT(g.credit <= CREDIT_MAX + 20000 / 2);
    }
}

/* ---- programs, simulated ---- */

struct sim {
    struct giveback g;
    size_t dirty, out, purges, faults;
    uint64_t now;
};

static void sim_take(struct sim *s, size_t n)
{
    size_t fresh = n > s->dirty ? n - s->dirty : 0;
    s->faults += fresh;
    struct give_view v = view(s->dirty, s->out, s->now);
    if (fresh > 0)
        giveback_wanted(&s->g, fresh, &v);
    s->dirty -= n - fresh;
    s->out += n;
    giveback_dirty(&s->g, s->dirty);
}

static void sim_give(struct sim *s, size_t n, enum give_cause cause)
{
    s->dirty += n;
    s->out -= n;
    struct give_view v = view(s->dirty, s->out, s->now);
    size_t may_stay = giveback_keep(&s->g, cause, &v);
    if (may_stay >= s->dirty)
        return;
    size_t gone = s->dirty - may_stay;
    s->dirty = may_stay;
    s->purges++;
    v.dirty = s->dirty;
    giveback_purged(&s->g, cause, gone, &v);
}

/*
 * A loop takes n pages and frees them, each free a pure run. By hand, credit after each regret (keep = 16 + credit):
 *      50 (3 MiB)   purge 34; 34; keep 50: steady after 1; likewise 64 and 96 (6 MiB)
 *     320 (20 MiB)  purge 304; min(304, 128) = 128, purge 176; min(304, 256) = 256, purge 48; 304, keep 320: after 3
 *    1024 (64 MiB)  128, 256, 512, then 512 + 496 = 1,008, keep 1,024: steady after 4; 1,040 likewise
 *    4096 (256 MiB) 128, 256, 512, 1,024 and no more: every round for ever, down to 1,040
 */
TEST(giveback, loops_come_to_rest)
{
    static const struct {
        size_t n, purges;
    } rows[] = {{50, 1}, {64, 1}, {96, 1}, {320, 3}, {1024, 4}, {1040, 4}, {4096, 1000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sim s = {.now = START};
        for (int round = 0; round < 1000; round++) {
            sim_take(&s, rows[i].n);
            sim_give(&s, rows[i].n, GIVE_RUN);
            s.now += round % 2; /* half a second in all: nothing decays */
        }
        EXPECT_EQ(s.purges, rows[i].purges);
        EXPECT_EQ(s.dirty, s.purges == 1000 ? 1040 : rows[i].n);
    }
}

/* The same in slow motion: a round takes 3 decay_ms, so each purge is right, and each one is only as large. */
TEST(giveback, slow_loops_are_purged_each_time)
{
    struct sim s = {.now = START};
    for (int round = 0; round < 100; round++) {
        sim_take(&s, 1024);
        sim_give(&s, 1024, GIVE_RUN);
        s.now += 3 * DECAY;
    }
    EXPECT_EQ(s.purges, 100);
    EXPECT_EQ(s.g.credit, 0);
    EXPECT_EQ(s.faults, 1024 + 99 * (1024 - RUN_FLOOR));
}

/* After 1 GiB that came and went, a loop of 6 MiB: its first 5 MiB are a regret, which keeps the rest of its rounds. */
TEST(giveback, a_small_loop_after_a_spike_is_left_alone)
{
    struct sim s = {.now = START};
    sim_take(&s, 16384);
    for (int i = 0; i < 1024; i++)
        sim_give(&s, 16, GIVE_RUN);
    EXPECT_EQ(s.dirty, RUN_FLOOR);
    size_t purges = s.purges;
    for (int round = 0; round < 1000; round++) {
        sim_take(&s, 96);
        sim_give(&s, 96, GIVE_RUN);
    }
    EXPECT_EQ(s.purges, purges);
    EXPECT_EQ(s.faults, 16384 + 80);
}

/* Mixed traffic that swings by 20 MiB about a live heap of 100 MiB: the cap is 256 + 64, 320 pages fit. */
TEST(giveback, steady_mixed_traffic_is_never_purged)
{
    struct sim s = {.now = START};
    sim_take(&s, 1600);
    for (int round = 0; round < 5000; round++) {
        sim_take(&s, 320);
        sim_give(&s, 320, GIVE_CAP);
        s.now += 10;
        struct give_view v = view(s.dirty, s.out, s.now);
        EXPECT(giveback_keep(&s.g, GIVE_AGE, &v) >= s.dirty);
    }
    EXPECT_EQ(s.purges, 0);
    EXPECT_EQ(s.faults, 1920);
}

/* Mixed traffic that passes the cap in each round learns to be left alone, as pure runs do. */
TEST(giveback, swings_above_the_cap_come_to_rest)
{
    struct sim s = {.now = START};
    for (int round = 0; round < 1000; round++) {
        sim_take(&s, 1200);
        sim_give(&s, 1200, GIVE_CAP);
    }
    EXPECT(s.purges <= 6);
    EXPECT_EQ(s.dirty, 1200);
}
