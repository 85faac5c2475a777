/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the misuse programs share. Each prints the address it is going to misuse on stdout, misuses it, and then does
 * what makes an allocator look at it again: the trigger, the last argument.
 *
 *     none  nothing: the call itself must have seen it
 *     trim  malloc_trim(0)
 *     ops   many more operations of the same size, then malloc_trim(0)
 *     exit  the misuse happens in a thread, which then ends; then malloc_trim(0)
 *
 * A program that gets to its end exits with 3: not seen.
 */
#ifndef TESTS_PROG_MISUSE_UTIL_H
#define TESTS_PROG_MISUSE_UTIL_H

#include "proc_util.h"

enum { NOT_SEEN = 3, SMALL = 64, WARM = 2000, MANY = 300000 };

static inline void print_address(const void *p)
{
    char line[32];
    int n = snprintf(line, sizeof line, "0x%lx\n", (unsigned long)(uintptr_t)p);
    CHECK(write(1, line, (size_t)n) == n);
}

/* Enough traffic in one size that its caches have their usual form. */
static inline void warm_up(size_t size)
{
    static __thread void *p[WARM];
    for (int i = 0; i < WARM; i++)
        CHECK((p[i] = malloc(size)));
    for (int i = 0; i < WARM; i++)
        free(p[i]);
}

static inline void many_operations(size_t size)
{
    void **p = malloc(MANY * sizeof *p);
    CHECK(p);
    for (int i = 0; i < MANY; i++)
        CHECK((p[i] = malloc(size)));
    for (int i = 0; i < MANY; i++)
        free(p[i]);
    free(p);
}

struct misuse {
    void (*act)(size_t size);
    size_t size;
    int warm;
};

static inline void *misuse_thread(void *arg)
{
    struct misuse *m = arg;
    if (m->warm)
        warm_up(m->size);
    m->act(m->size);
    return NULL;
}

/* Runs `act` and the trigger. Returns only if nobody complained. */
static inline int misuse_run(void (*act)(size_t), size_t size, const char *trigger, int cold)
{
    struct misuse m = {act, size, !cold && size <= KiB(4)};
    pthread_t t;
    if (strcmp(trigger, "exit") == 0) {
        CHECK(pthread_create(&t, NULL, misuse_thread, &m) == 0);
        CHECK(pthread_join(t, NULL) == 0);
    } else {
        misuse_thread(&m);
    }
    if (strcmp(trigger, "none") == 0)
        return NOT_SEEN;
    if (strcmp(trigger, "ops") == 0)
        many_operations(size);
    malloc_trim(0);
    return NOT_SEEN;
}

#endif
