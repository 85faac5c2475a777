/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * calloc gives zeroes, whatever madvise does (R22).
 *
 *     api_calloc_zero [noop | deny] [locked]
 *
 * noop: madvise says yes and does nothing, as under some emulators; deny: it fails, as on locked pages; locked: all
 * pages are locked first. 10,000 blocks of 16 B to 8 MiB are dirtied, freed and taken again, with trims and with spikes
 * in between, so that pages pass through every layer that could take them for clean.
 */
#define _GNU_SOURCE
#include "api_seccomp.h"

#include <malloc.h>
#include <sys/mman.h>

#define ROUNDS 10000
#define LIVE 64
#define SPIKE_BLOCKS 1024
#define SPIKE_SIZE ((size_t)32 << 10)

static uint64_t seed = 22;

/* Small ones often, large ones seldom, the largest now and then: about 1 GiB in all. */
static size_t some_size(void)
{
    switch (rng_below(&seed, 64)) {
    case 0:
        return rng_log(&seed, 256u << 10, 8u << 20);
    case 1:
    case 2:
    case 3:
        return rng_log(&seed, 32u << 10, 512u << 10);
    default:
        return rng_log(&seed, 16, 32u << 10);
    }
}

static unsigned char *clean(size_t count, size_t size)
{
    unsigned char *p = calloc(count, size);
    CHECKF(p != NULL, "calloc(%zu, %zu) is NULL", count, size);
    size_t at = nonzero_at(p, count * size);
    CHECKF(at == count * size, "calloc(%zu, %zu): byte %zu is %#x", count, size, at, p[at]);
    return p;
}

/* Dirty it all, also the slack: the next owner may be larger. */
static void soil(void *p)
{
    memset(p, 0xA5, malloc_usable_size(p));
}

static void spike(void)
{
    static void *blocks[SPIKE_BLOCKS];
    for (size_t i = 0; i < SPIKE_BLOCKS; i++) {
        blocks[i] = clean(SPIKE_SIZE / 64, 64);
        soil(blocks[i]);
    }
    for (size_t i = 0; i < SPIKE_BLOCKS; i++)
        free(blocks[i]);
}

static void rounds(void)
{
    static void *live[LIVE];
    for (size_t i = 0; i < ROUNDS; i++) {
        size_t slot = rng_below(&seed, LIVE), size = some_size();
        free(live[slot]);
        if (i % 2) {
            live[slot] = clean(1, size);
        } else {
            /* Through malloc and back, so that the next calloc of this size meets dirt. */
            void *p = malloc(size);
            CHECK(p);
            soil(p);
            free(p);
            live[slot] = clean(size, 1);
        }
        soil(live[slot]);
        if (i % 1000 == 999) {
            spike();
            malloc_trim(0);
        }
    }
    for (size_t i = 0; i < LIVE; i++)
        free(live[i]);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "noop") == 0)
            seccomp_answer(SYS_madvise, 0);
        else if (strcmp(argv[i], "deny") == 0)
            seccomp_answer(SYS_madvise, EINVAL);
        else if (strcmp(argv[i], "locked") != 0)
            FAILF("what is %s?", argv[i]);
        else if (mlockall(MCL_CURRENT) != 0)
            SKIPF("mlockall: %s", strerror(errno));
    }
    rounds();
    return 0;
}
