/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that hardly do anything: proc_tiny [first_free|where|rseq].
 *
 * By itself: one malloc, one free. first_free: the first call of the family is free() of memory that was never
 * allocated, then ordinary work. where: prints whether a block lies in the [heap] of /proc/self/maps. rseq: one
 * thread more.
 */
#include "proc_util.h"

static char never_allocated[64] __attribute__((aligned(16)));

static void say(const char *text)
{
    CHECK(write(1, text, strlen(text)) > 0);
}

static void first_free(void)
{
    free(never_allocated);
    check_heap(200, never_allocated, sizeof never_allocated);
    say("done\n");
}

static void where(void)
{
    char line[512], *p = malloc(100);
    FILE *maps = fopen("/proc/self/maps", "re");
    int in_heap = 0;
    CHECK(p && maps);
    while (fgets(line, sizeof line, maps)) {
        uintptr_t from = strtoull(line, NULL, 16), to = strtoull(strchr(line, '-') + 1, NULL, 16);
        if (strstr(line, "[heap]") && (uintptr_t)p >= from && (uintptr_t)p < to)
            in_heap = 1;
    }
    fclose(maps);
    free(p);
    say(in_heap ? "heap\n" : "elsewhere\n");
}

static void *thread(void *arg)
{
    free(malloc(100));
    return arg;
}

static void rseq(void)
{
    pthread_t t;
    CHECK(pthread_create(&t, NULL, thread, NULL) == 0);
    CHECK(pthread_join(t, NULL) == 0);
    say("done\n");
}

int main(int argc, char **argv)
{
    if (argc < 2)
        free(malloc(100));
    else if (strcmp(argv[1], "first_free") == 0)
        first_free();
    else if (strcmp(argv[1], "where") == 0)
        where();
    else if (strcmp(argv[1], "rseq") == 0)
        rseq();
    else
        FAIL("unknown command %s", argv[1]);
    return 0;
}
