/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * To the end of the memory and back, under a limit that whoever starts it sets: proc_oom SIZE ATLEAST.
 *
 * Allocates blocks of SIZE bytes until NULL; at least ATLEAST of them must have been given and errno is ENOMEM. Then
 * half of them go and can be had again, the rest goes, and stdio still works. A thread does the same on its own.
 */
#include "proc_util.h"

struct list {
    struct list *next;
    size_t number;
};

static size_t size, at_least;

static struct list *exhaust(size_t *count)
{
    struct list *all = NULL, *one;
    *count = 0;
    errno = 0;
    while ((one = malloc(size))) {
        one->next = all;
        one->number = (*count)++;
        ((char *)one)[size - 1] = 1;
        all = one;
        errno = 0;
    }
    CHECK(errno == ENOMEM);
    return all;
}

static struct list *free_some(struct list *all, size_t n)
{
    while (all && n--) {
        struct list *next = all->next;
        CHECK(!next || next->number + 1 == all->number);
        free(all);
        all = next;
    }
    return all;
}

static void once(void)
{
    size_t count, again;
    struct list *all = exhaust(&count);
    if (count < at_least)
        FAIL("only %zu blocks of %zu bytes", count, size);
    errno = 0;
    CHECK(calloc(1, MiB(512)) == NULL && errno == ENOMEM);
    void *kept = all;
    errno = 0;
    CHECK(realloc(kept, MiB(512)) == NULL && errno == ENOMEM);
    CHECK(all->number == count - 1);
    if (size / 3 >= sizeof *all) { /* a shrink needs no memory */
        all = realloc(kept, size / 3);
        CHECK(all && all->number == count - 1);
    }
    all = free_some(all, count / 2);
    free_some(exhaust(&again), (size_t)-1);
    /* The pages that were full stay with their class; of what was free a fair part must be there again. */
    if (again < count / 2 * 3 / 4)
        FAIL("%zu blocks of %zu bytes, half of them freed, then only %zu", count, size, again);
    CHECK(free_some(all, (size_t)-1) == NULL);
}

static atomic_int main_done;

/* Started early: where there is no memory there is no new thread either. */
static void *thread(void *arg)
{
    while (!atomic_load(&main_done))
        usleep(1000);
    at_least = 1;
    once();
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t t;
    pthread_attr_t attr;
    size = (size_t)arg_count(argc, argv, 1, 1 << 20);
    at_least = (size_t)arg_count(argc, argv, 2, 1);
    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setstacksize(&attr, KiB(256)) == 0);
    CHECK(pthread_create(&t, &attr, thread, NULL) == 0);
    once();
    atomic_store(&main_done, 1);
    CHECK(pthread_join(t, NULL) == 0);
    check_heap(500, NULL, 0);
    printf("done\n");
    return 0;
}
