/* SPDX-License-Identifier: BSD-2-Clause */
#include "limit.h"

#include "compat/os/atomic.h"
#include "opt.h"

static struct {
    size_t charged, refusals, last_refused; /* relaxed counters */
    size_t soft_next;                       /* charge at which the soft limit speaks up next; racy */
    uint32_t passed;
} limit;

/* Add what fits. A request that does not fit must not be counted even for a moment: another one would be refused for it. */
static bool charge_within(size_t most, size_t bytes, size_t *now)
{
    size_t have = load_relaxed(&limit.charged);
    do
        if (have > most || bytes > most - have)
            return false;
    while (!cas_acquire(&limit.charged, &have, have + bytes));
    *now = have + bytes;
    return true;
}

static void refuse(size_t bytes)
{
    add_relaxed(&limit.refusals, 1);
    store_relaxed(&limit.last_refused, bytes);
}

static void look_at_soft(size_t now)
{
    size_t next = load_relaxed(&limit.soft_next);
    if (now <= (next > opt.soft_limit ? next : opt.soft_limit))
        return;
    store_relaxed(&limit.soft_next, now + opt.soft_limit / 16);
    store_relaxed(&limit.passed, 1);
}

bool limit_charge(size_t bytes)
{
    if (bytes == 0)
        return true;
    size_t now;
    if (LIKELY(opt.hard_limit == 0)) {
        now = add_relaxed(&limit.charged, bytes) + bytes;
    } else if (!charge_within(opt.hard_limit, bytes, &now)) {
        refuse(bytes);
        return false;
    }
    if (UNLIKELY(opt.soft_limit != 0))
        look_at_soft(now);
    return true;
}

void limit_charge_anyway(size_t bytes)
{
    if (bytes == 0)
        return;
    size_t now = add_relaxed(&limit.charged, bytes) + bytes;
    if (UNLIKELY(opt.soft_limit != 0))
        look_at_soft(now);
}

void limit_uncharge(size_t bytes)
{
    if (bytes == 0)
        return;
    size_t now = add_relaxed(&limit.charged, -bytes) - bytes;
    if (UNLIKELY(opt.soft_limit != 0 && now < opt.soft_limit))
        store_relaxed(&limit.soft_next, 0);
}

bool limit_soft_heard(void)
{
    return load_relaxed(&limit.passed) != 0;
}

bool limit_soft_take(void)
{
    return exchange_acquire(&limit.passed, 0) != 0;
}

struct limit_stats limit_stats(void)
{
    return (struct limit_stats){
        .charged = load_relaxed(&limit.charged),
        .refusals = load_relaxed(&limit.refusals),
        .last_refused = load_relaxed(&limit.last_refused),
    };
}
