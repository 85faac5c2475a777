/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One thread whose heap swings: malloc, calloc, realloc, aligned_alloc and free of 16 B to 8 MiB, with malloc_trim now and
 * then. Every byte of a calloc is looked at; contents are kept; what is resident stays near what is live.
 *
 *     proc_purge [STEPS [FORK_EVERY]]      with FORK_EVERY, now and then a child goes on with it and ends
 */
#include "proc_util.h"

enum { SLOTS = 48 };

static struct block held[SLOTS];
static size_t live, most;

static size_t any_size(uint64_t *seed)
{
    return rng_next(seed) % 3 == 0 ? rng_size(seed, 23) : rng_size(seed, 17);
}

static void take(struct block *b, uint64_t *seed)
{
    b->size = any_size(seed);
    switch (rng_next(seed) % 3) {
    case 0:
        b->p = calloc(1, b->size);
        CHECK(b->p);
        for (size_t i = 0; i < b->size; i++)
            if (b->p[i])
                FAIL("byte %zu of calloc(1, %zu) is %d", i, b->size, b->p[i]);
        break;
    case 1:
        b->p = aligned_alloc(4096, (b->size + 4095) & ~(size_t)4095);
        break;
    default:
        b->p = malloc(b->size);
    }
    CHECK(b->p);
    memset(b->p, 0xa5, b->size); /* all of it is resident once, and not zero */
    mark(b->p, b->size);
    live += b->size;
    most = live > most ? live : most;
}

static void give(struct block *b)
{
    live -= b->size;
    block_free(b);
}

static void resize(struct block *b, uint64_t *seed)
{
    size_t size = any_size(seed), kept = size < b->size ? size : b->size;
    unsigned char first = b->p[0];
    check_mark(b->p, b->size);
    b->p = realloc(b->p, size);
    CHECK(b->p && kept > 0 && b->p[0] == first);
    live = live - b->size + size;
    b->size = size;
    memset(b->p, 0x5a, size);
    mark(b->p, size);
    most = live > most ? live : most;
}

static void steps(long from, long to, uint64_t *seed)
{
    for (long i = from; i < to; i++) {
        struct block *b = &held[rng_next(seed) % SLOTS];
        if (!b->p)
            take(b, seed);
        else if (rng_next(seed) % 4 == 0)
            resize(b, seed);
        else
            give(b);
        if (i % 100 == 50)
            malloc_trim(0);
        if (i % 150 == 149)
            for (int k = 0; k < SLOTS; k++)
                if (held[k].p)
                    give(&held[k]);
    }
}

int main(int argc, char **argv)
{
    long n = arg_count(argc, argv, 1, 600), every = arg_count(argc, argv, 2, 0), at = 0;
    uint64_t seed = 11;
    long start = status_kib("VmRSS:");
    while (at < n) {
        long to = every > 0 && at + every < n ? at + every : n;
        steps(at, to, &seed);
        at = to;
        pid_t pid = every > 0 ? fork() : -1;
        if (pid == 0) {
            alarm(60);
            steps(at, at + 60, &seed);
            _exit(0);
        }
        if (pid > 0)
            wait_ok(pid, "child", at);
    }
    for (int k = 0; k < SLOTS; k++)
        if (held[k].p)
            give(&held[k]);
    malloc_trim(0);
    long now = status_kib("VmRSS:");
    if ((size_t)(now - start) > (2 * most >> 10) + 32 * 1024)
        FAIL("%ld KiB are resident where %zu were live at most", now - start, most >> 10);
    printf("done\n");
    return 0;
}
