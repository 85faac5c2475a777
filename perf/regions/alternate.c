/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * alternate: `n` pieces of `size` bytes that lie side by side; every other one is taken out of use, then into use
 * again, five times over. Of malloc this asks for frees and refills; of the kernel for mprotect, which splits and joins
 * mappings each time.
 */
#include "regions.h"

enum { ALTERNATE_ROUNDS = 5 };

/* The kernel lays new mappings side by side and joins them: its pieces too begin as parts of one. */
static void fill(const struct job *job, void **piece)
{
    for (long i = 0; i < job->n; i++)
        piece[i] = regions_get(job, job->size);
}

static double once(const struct job *job, void **piece)
{
    double from = cpu_ns();
    for (long i = 0; i < job->n; i += 2)
        job->memory->hide(&piece[i], job->size);
    for (long i = 0; i < job->n; i += 2) {
        job->memory->show(&piece[i], job->size);
        if (piece[i] == NULL)
            regions_fail("alternate", "no memory");
    }
    return cpu_ns() - from;
}

void alternate(const struct job *job)
{
    void **piece = regions_own(((size_t)job->n + 1) * sizeof *piece);
    double spent = 0;
    fill(job, piece);
    long setup = job->n;
    for (int round = 0; round < ALTERNATE_ROUNDS; round++)
        spent += once(job, piece);
    long calls = ALTERNATE_ROUNDS * 2 * ((job->n + 1) / 2);
    printf("ns %.2f\ncalls %ld\n", calls ? spent / (double)calls : 0, calls + setup);
}
