/* SPDX-License-Identifier: BSD-2-Clause */
/* core/limit.h. Other tests have charged before, so all is relative to what is there. */
#include "unit.h"

#include "core/limit.h"
#include "core/opt.h"

enum { MANY = 2000 };

static void set_limits(size_t soft, size_t hard)
{
    opt.soft_limit = soft;
    opt.hard_limit = hard;
}

TEST(limit, charges_add_up)
{
    size_t base = limit_stats().charged;
    EXPECT(limit_charge(0));
    EXPECT(limit_charge(100));
    EXPECT(limit_charge(23));
    EXPECT_EQ(limit_stats().charged, base + 123);
    limit_uncharge(100);
    limit_uncharge(0);
    EXPECT_EQ(limit_stats().charged, base + 23);
    limit_uncharge(23);
    EXPECT_EQ(limit_stats().charged, base);
}

/* Up to the limit, the last byte included, and not one more; a refusal counts nothing and is remembered. */
TEST(limit, hard_limit_is_exact)
{
    size_t base = limit_stats().charged, refusals = limit_stats().refusals;
    set_limits(0, base + 1000);
    EXPECT(limit_charge(999));
    EXPECT(!limit_charge(2));
    EXPECT_EQ(limit_stats().charged, base + 999);
    EXPECT_EQ(limit_stats().refusals, refusals + 1);
    EXPECT_EQ(limit_stats().last_refused, 2);
    EXPECT(limit_charge(1));
    EXPECT(!limit_charge(1));
    EXPECT(limit_charge(0)); /* nothing is always to be had */
    EXPECT(!limit_charge(SIZE_MAX));
    EXPECT(!limit_charge(SIZE_MAX - base - 998)); /* base + 1000 + this is 1, once it wraps */
    EXPECT_EQ(limit_stats().refusals, refusals + 4);
    EXPECT_EQ(limit_stats().charged, base + 1000);
    limit_uncharge(1);
    EXPECT(limit_charge(1));
    limit_uncharge(1000);
    set_limits(0, 0);
    EXPECT_EQ(limit_stats().charged, base);
}

/* A limit set below what is charged already refuses all, and underflows nothing. */
TEST(limit, hard_limit_below_the_charge)
{
    size_t base = limit_stats().charged;
    EXPECT(limit_charge(500));
    set_limits(0, 1);
    EXPECT(!limit_charge(1));
    EXPECT(!limit_charge(1 << 30));
    set_limits(0, 0);
    limit_uncharge(500);
    EXPECT_EQ(limit_stats().charged, base);
}

/* soft = base + 1600, a sixteenth s of it. It speaks at the first byte above soft, then above that charge + s. */
TEST(limit, soft_limit_speaks_once_a_sixteenth)
{
    size_t base = limit_stats().charged, soft = base + 1600, s = soft / 16;
    while (limit_soft_passed())
        ;
    set_limits(soft, 0);
    EXPECT(limit_charge(1600));
    EXPECT(!limit_soft_passed()); /* at it, not above */
    EXPECT(limit_charge(1));
    EXPECT(limit_soft_passed());
    EXPECT(!limit_soft_passed());
    EXPECT(limit_charge(s)); /* soft + 1 + s is the next mark: at it */
    EXPECT(!limit_soft_passed());
    EXPECT(limit_charge(1));
    EXPECT(limit_soft_passed());
    EXPECT(limit_charge(3 * s)); /* several at once speak once */
    EXPECT(limit_soft_passed());
    EXPECT(!limit_soft_passed());
    limit_uncharge(4 * s + 3); /* below the limit: from the start again */
    EXPECT_EQ(limit_stats().charged, soft - 1);
    EXPECT(!limit_soft_passed());
    EXPECT(limit_charge(2));
    EXPECT(limit_soft_passed());
    limit_uncharge(1601);
    set_limits(0, 0);
    EXPECT_EQ(limit_stats().charged, base);
}

/* ---- threads ---- */

static uint32_t running, wrong, heard;

/* Thread 0 asks for far too much all the time; the others never come near the limit and must not be refused. */
static void ask(unsigned thread)
{
    if (thread == 0) {
        while (load_relaxed(&running) < UNIT_THREADS - 1)
            if (limit_charge((size_t)1 << 40))
                add_relaxed(&wrong, 1);
        return;
    }
    for (int i = 0; i < 100 * MANY; i++) {
        if (limit_charge(64))
            limit_uncharge(64);
        else
            add_relaxed(&wrong, 1);
    }
    add_relaxed(&running, 1);
}

TEST(limit, a_refused_giant_disturbs_nobody)
{
    size_t base = limit_stats().charged;
    set_limits(0, base + (1 << 20));
    running = wrong = 0;
    unit_threads(UNIT_THREADS, ask);
    set_limits(0, 0);
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(limit_stats().charged, base);
}

static size_t got[UNIT_THREADS];

static void race_to_the_limit(unsigned thread)
{
    got[thread] = 0;
    for (int i = 0; i < MANY; i++)
        got[thread] += limit_charge(7) ? 7 : 0;
}

/* Together they get all that fits, whoever comes first: 7 times floor(10,000 / 7). */
TEST(limit, threads_get_just_what_fits)
{
    size_t base = limit_stats().charged, sum = 0;
    set_limits(0, base + 10000);
    unit_threads(UNIT_THREADS, race_to_the_limit);
    set_limits(0, 0);
    for (int i = 0; i < UNIT_THREADS; i++)
        sum += got[i];
    EXPECT_EQ(sum, 9996);
    limit_uncharge(sum);
    EXPECT_EQ(limit_stats().charged, base);
}

static void listen(unsigned thread)
{
    (void)thread;
    for (int i = 0; i < MANY; i++)
        if (limit_soft_passed())
            add_relaxed(&heard, 1);
}

/* One passing is heard by one. */
TEST(limit, one_hears_it)
{
    size_t base = limit_stats().charged;
    while (limit_soft_passed())
        ;
    for (int round = 0; round < 20; round++) {
        set_limits(base + 100, 0);
        EXPECT(limit_charge(101));
        heard = 0;
        unit_threads(UNIT_THREADS, listen);
        EXPECT_EQ(heard, 1);
        limit_uncharge(101);
    }
    set_limits(0, 0);
}

/* Threads seldom ask so close together that both see the news: here both have, and one is to act on it. */
TEST(limit, of_two_who_heard_one_takes_it)
{
    size_t base = limit_stats().charged;
    while (limit_soft_passed())
        ;
    set_limits(base + 100, 0);
    EXPECT(!limit_soft_heard() && !limit_soft_take());
    EXPECT(limit_charge(101));
    bool one = limit_soft_heard(), other = limit_soft_heard();
    EXPECT(one && other);
    one = limit_soft_take();
    other = limit_soft_take();
    EXPECT(one && !other);
    EXPECT(!limit_soft_heard() && !limit_soft_passed());
    limit_uncharge(101);
    set_limits(0, 0);
}

/* What comes back is counted whether it fits or not, and heard of. */
TEST(limit, what_comes_back_passes_any_limit)
{
    size_t base = limit_stats().charged;
    while (limit_soft_passed())
        ;
    set_limits(base + 100, base + 200);
    limit_charge_anyway(0);
    EXPECT(!limit_soft_passed());
    limit_charge_anyway(300);
    EXPECT_EQ(limit_stats().charged, base + 300);
    EXPECT(limit_soft_passed());
    EXPECT(!limit_charge(1));
    limit_uncharge(300);
    set_limits(0, 0);
}
