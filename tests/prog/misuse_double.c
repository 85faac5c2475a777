/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A block freed twice: misuse_double now|after10|threads|realloc|run|large TRIGGER [cold].
 *
 * now: at once. after10: with ten other frees of the size between. threads: once by each of two threads. realloc: after
 * a realloc that moved it. run: a block of 100 KiB. large: one of 3 MiB. cold: in a thread that did nothing before.
 */
#include "misuse_util.h"

/* A block between two others that stay: its slab cannot become empty and serve something else before anyone looks. */
static void *in_the_middle(size_t size)
{
    static void *kept[2];
    kept[0] = malloc(size);
    void *p = malloc(size);
    kept[1] = malloc(size);
    CHECK(kept[0] && p && kept[1]);
    print_address(p);
    return p;
}

static void now(size_t size)
{
    void *p = in_the_middle(size);
    free(p);
    free(p);
}

static void after10(size_t size)
{
    void *p = in_the_middle(size), *others[10];
    for (int i = 0; i < 10; i++)
        others[i] = malloc(size);
    free(p);
    for (int i = 0; i < 10; i++)
        free(others[i]);
    free(p);
}

static void after_realloc(size_t size)
{
    void *p = in_the_middle(size);
    uintptr_t old = (uintptr_t)p;
    void *moved = realloc(p, size * 100);
    CHECK(moved && (uintptr_t)moved != old);
    free((void *)old);
    free(moved);
}

static pthread_barrier_t both;

static void *free_it(void *p)
{
    warm_up(SMALL);
    pthread_barrier_wait(&both);
    free(p);
    pthread_barrier_wait(&both);
    return NULL;
}

static void from_two_threads(size_t size)
{
    pthread_t t[2];
    void *p = in_the_middle(size);
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&t[i], NULL, free_it, p) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*act)(size_t);
        size_t size;
    } cases[] = {
        {"now", now, SMALL},
        {"after10", after10, SMALL},
        {"realloc", after_realloc, SMALL},
        {"threads", from_two_threads, SMALL},
        {"run", now, KiB(100)},
        {"large", now, MiB(3)},
    };
    CHECK(argc > 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(argv[1], cases[i].name) == 0)
            return misuse_run(cases[i].act, cases[i].size, argv[2], argc > 3);
    FAIL("unknown case %s", argv[1]);
}
