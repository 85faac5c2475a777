/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks so large that an allocator may give each a mapping of its own: threads grow, shrink and free them, so that one
 * thread's block moves away while another's is placed where it was. Little of them is touched.
 *
 *     stress_own [-t threads] [-n operations in all] [-s seed]
 */
#include "stress_slots.h"

#define MIB ((size_t)1 << 20)

/* Above 64 MiB, where nothing need be copied. */
static size_t own_size(uint64_t *rng)
{
    return (66 + rng_below(rng, 128)) * MIB;
}

static void check_ends(const char *p, size_t size, char mark)
{
    STRESS_CHECK(p[0] == mark && p[size - 1] == mark, "a block of %zu bytes at %p was overwritten", size, (void *)p);
    STRESS_CHECK(malloc_usable_size((void *)p) >= size, "usable %zu of %zu", malloc_usable_size((void *)p), size);
}

static void *grow_and_shrink(void *arg)
{
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    for (unsigned long i = 0; i < stress_ops / stress_threads; i += 4) {
        size_t size = own_size(&rng);
        char mark = (char)(1 + rng_below(&rng, 100)), *p = malloc(size);
        for (int resizes = 3; p && resizes > 0; resizes--) {
            p[0] = p[size - 1] = mark;
            check_ends(p, size, mark);
            size_t to = own_size(&rng);
            char *q = realloc(p, to);
            if (!q)
                continue;
            p = q;
            size = to;
            STRESS_CHECK(p[0] == mark, "realloc to %zu lost the contents", to);
        }
        free(p);
    }
    return NULL;
}

/* A small block with a huge alignment, and large ones in the gap behind it: none may begin in its page of whatever size. */
static void crowd(void)
{
    for (int round = 0; round < 4; round++) {
        char *small = aligned_alloc(128 * MIB, 8);
        for (size_t size = 128 * MIB; small && size > 64 * MIB; size -= 16384) {
            char *p = malloc(size);
            STRESS_CHECK(malloc_usable_size(small) >= 8, "a block of %zu bytes took the place of another", size);
            free(p);
        }
        free(small);
    }
}

int main(int argc, char **argv)
{
    stress_options(argc, argv);
    crowd();
    pthread_t *threads = calloc(stress_threads, sizeof *threads);
    CHECK(threads);
    for (unsigned long i = 0; i < stress_threads; i++)
        CHECK(pthread_create(&threads[i], NULL, grow_and_shrink, (void *)(uintptr_t)(stress_seed * 1000 + i)) == 0);
    for (unsigned long i = 0; i < stress_threads; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    free(threads);
    return 0;
}
