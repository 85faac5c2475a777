/* SPDX-License-Identifier: BSD-2-Clause */
#include "misuse.h"

#include "compat/os/atomic.h"
#include "compat/os/fmt.h"
#include "opt.h"

static size_t foreign_count, wrong_size_count;

static void say(const struct misuse *m)
{
    unsigned long offset = (unsigned long)((uintptr_t)m->p - (uintptr_t)m->base);
    if (m->state != NULL)
        fmt_message("%s(%p): %s: class %zu, region %s %p, %s", m->func, m->p, m->what, m->size, m->kind, m->base,
                    m->state);
    else
        fmt_message("%s(%p): %s: class %zu, region %s %p, offset %lu", m->func, m->p, m->what, m->size, m->kind,
                    m->base, offset);
}

void misuse_abort(const struct misuse *m)
{
    say(m);
    __builtin_abort();
}

void misuse_foreign(const char *func, const void *p)
{
    if (opt.strict) {
        fmt_message("%s(%p): not ours", func, p);
        __builtin_abort();
    }
    if (add_relaxed(&foreign_count, 1) == 0)
        fmt_message("%s(%p): not ours: left alone", func, p);
}

void misuse_foreign_asked(const char *func, const void *p)
{
    if (add_relaxed(&foreign_count, 1) == 0 || opt.strict)
        fmt_message("%s(%p): not ours: left alone", func, p);
}

void misuse_wrong_size(const struct misuse *m)
{
    add_relaxed(&wrong_size_count, 1);
    if (opt.strict)
        misuse_abort(m);
}

size_t misuse_foreign_count(void)
{
    return load_relaxed(&foreign_count);
}

size_t misuse_wrong_size_count(void)
{
    return load_relaxed(&wrong_size_count);
}
