/* SPDX-License-Identifier: BSD-2-Clause */
/* compat/os/lock.h: the mutex, its fork protocol and the order that a debug build checks. */
#include "unit.h"

#include "compat/os/lock.h"
#include "core/rank.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 20000 };

static struct lock lock;
static size_t plain_counter; /* the lock's: a lost update or a race of TSan shows that it does not exclude */
static uint32_t waiting;

TEST(lock, zero_filled_is_free_and_try_excludes)
{
    struct lock l = {0};
    EXPECT(lock_try(&l, RANK_META));
    EXPECT(lock_rank_held(RANK_META));
    EXPECT_EQ(l.word, 1);
    lock_release(&l);
    EXPECT_EQ(l.word, 0);
    EXPECT(!lock_rank_held(RANK_META));
    lock_acquire(&l, RANK_META);
    lock_release(&l);
    EXPECT_EQ(l.acquired, 2);
    EXPECT_EQ(l.contended, 0);
}

static void count_up(unsigned thread)
{
    for (size_t i = 0; i < ROUNDS; i++) {
        if ((i + thread) % 4 == 0)
            while (!lock_try(&lock, RANK_META))
                sched_yield();
        else
            lock_acquire(&lock, RANK_META);
        plain_counter++;
        lock_release(&lock);
    }
}

TEST(lock, threads_exclude_each_other)
{
    memset(&lock, 0, sizeof lock);
    plain_counter = 0;
    unit_threads(UNIT_THREADS, count_up);
    EXPECT_EQ(plain_counter, (size_t)UNIT_THREADS * ROUNDS);
    EXPECT_EQ(lock.acquired, (size_t)UNIT_THREADS * ROUNDS);
    EXPECT(lock.contended <= lock.acquired);
    EXPECT_EQ(lock.word, 0);
}

static void wait_for_lock(unsigned thread)
{
    (void)thread;
    add_relaxed(&waiting, 1);
    lock_acquire(&lock, RANK_META);
    plain_counter++;
    lock_release(&lock);
}

static void hold_until_they_sleep(unsigned thread)
{
    if (thread != 0) {
        while (load_relaxed(&lock.word) == 0)
            sched_yield();
        wait_for_lock(thread);
        return;
    }
    lock_acquire(&lock, RANK_META);
    while (load_relaxed(&waiting) != UNIT_THREADS - 1 || load_relaxed(&lock.word) != 2)
        sched_yield();
    plain_counter++;
    lock_release(&lock);
}

TEST(lock, sleepers_are_woken_one_after_the_other)
{
    memset(&lock, 0, sizeof lock);
    plain_counter = waiting = 0;
    unit_threads(UNIT_THREADS, hold_until_they_sleep);
    EXPECT_EQ(plain_counter, UNIT_THREADS);
    EXPECT(lock.contended >= 1);
    EXPECT_EQ(lock.word, 0);
}

/* ---- fork ---- */

static uint32_t stranger_done;

static void *stranger(void *arg)
{
    (void)arg;
    MUST(!lock_try(&lock, RANK_META));
    store_relaxed(&waiting, 1);
    lock_acquire(&lock, RANK_META);
    store_relaxed(&stranger_done, 1);
    lock_release(&lock);
    return NULL;
}

TEST(lock, held_by_a_fork_it_is_a_no_op_for_the_forking_thread_only)
{
    pthread_t t;
    memset(&lock, 0, sizeof lock);
    waiting = stranger_done = 0;
    lock_fork_begin();
    lock_fork_hold(&lock, RANK_META);
    uint64_t acquired = lock.acquired;
    EXPECT_EQ(lock.word, 3);
    for (int i = 0; i < 3; i++) { /* another library's fork handler calls malloc */
        lock_acquire(&lock, RANK_META);
        EXPECT_EQ(lock.word, 3);
        lock_release(&lock);
        EXPECT(lock_try(&lock, RANK_META));
        lock_release(&lock);
        EXPECT_EQ(lock.word, 3);
    }
    EXPECT(lock_rank_held(RANK_META));
    EXPECT_EQ(lock.acquired, acquired);

    EXPECT_EQ(pthread_create(&t, NULL, stranger, NULL), 0);
    while (load_relaxed(&waiting) == 0 || load_relaxed(&lock.word) != 4)
        sched_yield();
    EXPECT_EQ(load_relaxed(&stranger_done), 0);
    lock_acquire(&lock, RANK_META); /* still none of our business, sleepers or not */
    lock_release(&lock);
    EXPECT_EQ(load_relaxed(&lock.word), 4);
    lock_fork_open(&lock);
    lock_fork_end();
    pthread_join(t, NULL);
    EXPECT_EQ(stranger_done, 1);
    EXPECT_EQ(lock.word, 0);
    EXPECT(!lock_rank_held(RANK_META));
}

static uint32_t holder_has_it;

static void *holder(void *arg)
{
    (void)arg;
    lock_acquire(&lock, RANK_META);
    store_relaxed(&holder_has_it, 1);
    while (load_relaxed(&lock.word) != 2) /* until the fork sleeps for it */
        sched_yield();
    plain_counter++;
    lock_release(&lock);
    return NULL;
}

TEST(lock, fork_waits_for_the_holder)
{
    pthread_t t;
    memset(&lock, 0, sizeof lock);
    plain_counter = holder_has_it = 0;
    EXPECT_EQ(pthread_create(&t, NULL, holder, NULL), 0);
    while (load_relaxed(&holder_has_it) == 0)
        sched_yield();
    lock_fork_begin();
    lock_fork_hold(&lock, RANK_META);
    EXPECT_EQ(plain_counter, 1);
    EXPECT_EQ(lock.word, 3);
    lock_fork_open(&lock);
    lock_fork_end();
    pthread_join(t, NULL);
}

static void open_in_child(void *arg)
{
    (void)arg;
    lock_fork_open(&lock);
    lock_fork_end();
    MUST(lock.word == 0);
    lock_acquire(&lock, RANK_META);
    MUST(lock.word == 1);
    MUST(!lock_try(&lock, RANK_META));
    lock_release(&lock);
    MUST(lock.word == 0);
}

TEST(lock, both_sides_of_a_fork_open_it)
{
    memset(&lock, 0, sizeof lock);
    lock_fork_begin();
    lock_fork_hold(&lock, RANK_META);
    unit_alone(open_in_child, NULL);
    EXPECT_EQ(lock.word, 3);
    lock_fork_open(&lock);
    lock_fork_end();
    EXPECT(lock_try(&lock, RANK_META));
    lock_release(&lock);
}

/* ---- order ---- */

struct two {
    unsigned first, second;
    bool try_second;
};

static void take_two(void *arg)
{
    const struct two *r = arg;
    struct lock a = {0}, b = {0};
    lock_acquire(&a, r->first);
    if (r->try_second)
        MUST(lock_try(&b, r->second));
    else
        lock_acquire(&b, r->second);
    lock_release(&b);
    lock_release(&a);
    MUST(!lock_rank_held(r->first) && !lock_rank_held(r->second));
}

static bool order_dies(unsigned first, unsigned second, bool try_second)
{
    struct two r = {first, second, try_second};
    struct unit_child c;
    unit_child(&c, take_two, &r);
    if (c.status == 0)
        return false;
    int sig = WIFSIGNALED(c.status) ? WTERMSIG(c.status) : 0;
    if (sig != SIGILL && sig != SIGTRAP && sig != SIGABRT)
        TEST_FAIL("unexpected status 0x%x: %s", c.status, c.text);
    return strstr(c.text, "FAIL") == NULL;
}

TEST(lock, ranks_may_only_rise)
{
    EXPECT(!order_dies(RANK_FORK, RANK_META, false));
    EXPECT(!order_dies(RANK_BARN, RANK_SLAB, false));
    EXPECT(!order_dies(RANK_PCP, RANK_ZONE, true));
    EXPECT(order_dies(RANK_META, RANK_FORK, false));
    EXPECT(order_dies(RANK_SLAB, RANK_BARN, false));
    EXPECT(order_dies(RANK_SLAB, RANK_SLAB, false)); /* two of one rank: no order between them */
    EXPECT(order_dies(RANK_ZONE, RANK_PCP, true));
}

TEST(lock, order_is_kept_apart_for_each_thread)
{
    struct lock meta = {0};
    lock_acquire(&meta, RANK_META);
    memset(&lock, 0, sizeof lock);
    struct two r = {RANK_FORK, RANK_BARN, false};
    unit_thread(take_two, &r);
    EXPECT(lock_rank_held(RANK_META));
    lock_release(&meta);
}
