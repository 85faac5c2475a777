/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * live: get `n` blocks of `size` bytes, then put them back in order of birth; the two halves are timed apart. The
 * kernel joins neighbouring mappings into one, so it too can have a million of them.
 *
 * many: `n` live blocks of 12 KiB to 1 MiB, put back in mixed order, three times over.
 */
#include "regions.h"

enum { MANY_ROUNDS = 3 };

void live(const struct job *job)
{
    void **block = regions_own(((size_t)job->n + 1) * sizeof *block);
    for (long i = 0; i < job->n; i++) /* the array's own page faults are not the matter */
        block[i] = block;
    double from = cpu_ns();
    for (long i = 0; i < job->n; i++)
        block[i] = regions_get(job, job->size);
    double half = cpu_ns();
    for (long i = 0; i < job->n; i++)
        job->memory->put(block[i], job->size);
    double n = job->n ? (double)job->n : 1;
    printf("ns_get %.2f\nns_put %.2f\ncalls %ld\n", (half - from) / n, (cpu_ns() - half) / n, 2 * job->n);
}

struct block {
    uint64_t *word;
    size_t size;
};

static void shuffle(struct block *b, long n, uint64_t *rng)
{
    for (long i = n - 1; i > 0; i--) {
        uint32_t j = regions_below(rng, (uint32_t)i + 1);
        struct block was = b[i];
        b[i] = b[j];
        b[j] = was;
    }
}

void many(const struct job *job)
{
    struct block *b = regions_own(((size_t)job->n + 1) * sizeof *b);
    uint64_t rng = job->seed;
    double spent = 0;
    for (int round = 0; round < MANY_ROUNDS; round++) {
        double from = cpu_ns();
        for (long i = 0; i < job->n; i++) {
            b[i].size = KIB(12) + regions_below(&rng, (uint32_t)(MIB(1) - KIB(12)));
            b[i].word = regions_get(job, b[i].size);
            *b[i].word = b[i].size;
        }
        spent += cpu_ns() - from;
        shuffle(b, job->n, &rng);
        from = cpu_ns();
        for (long i = 0; i < job->n; i++) {
            if (*b[i].word != b[i].size)
                regions_fail("many", "a live block changed: two blocks share an address");
            job->memory->put(b[i].word, b[i].size);
        }
        spent += cpu_ns() - from;
    }
    long calls = 2 * MANY_ROUNDS * job->n;
    printf("ns %.2f\ncalls %ld\n", calls ? spent / (double)calls : 0, calls);
}
