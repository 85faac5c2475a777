/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * micro [-n PAIRS] [-t THREADS] [-s SEED] [-r] PATTERN | micro list
 *
 * Run one pattern and print one line:
 *     PATTERN ns_per_pair pairs threads check
 * "list" prints the table of patterns: name, threads (0: one-thread pattern), pairs, what it is. The first nine are the
 * table of the design's section on the hit path; `check` is the same under every allocator.
 */
#define _GNU_SOURCE
#include "micro.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct pattern patterns[] = {
    {"pair-64", pairs, 64, 1, 30000000, 0, "64 B, one live"},
    {"batch-64x64", batch, 64, 64, 20000000, 0, "64 B, 64 live, freed in order of birth"},
    {"batch-64x1000", batch, 64, 1000, 15000000, 0, "64 B, 1,000 live, freed in order of birth"},
    {"batch-1024x100", batch, 1024, 100, 10000000, 0, "1 KiB, 100 live, freed in order of birth"},
    {"replace-272x1000", replace, 272, 1000, 15000000, 0, "random replace, 1,000 live, up to 272 B"},
    {"replace-272x100k", replace, 272, 100000, 4000000, 0, "random replace, 100,000 live, up to 272 B"},
    {"replace-272x1M", replace, 272, 1000000, 2000000, 0, "random replace, 1,000,000 live, up to 272 B"},
    {"replace-4Kx10k", replace, 4096, 10000, 5000000, 0, "random replace, 10,000 live, up to 4 KiB"},
    {"replace-30Kx1000", replace, 30 << 10, 1000, 4000000, 0, "random replace, 1,000 live, up to 30 KiB"},
    {"grow", grow, 256 << 10, 16, 150000, 0, "16 arrays growing by half up to 256 KiB, a pair is a realloc"},
    {"aligned", aligned, 1024, 500, 4000000, 0, "aligned_alloc, alignments 16 to 4096, 500 live"},
    {"large", large, 8 << 20, 4, 10000, 0, "512 KiB to 8 MiB, 4 live, first word touched"},
    {"prodcons", prodcons, 512, 100, 3000000, 2, "half the threads allocate batches of 100, the others free them"},
    {"churn", churn, 512, 200, 400000, 4, "threads that live for 200 pairs and leave half to their creator"},
};
enum { PATTERNS = sizeof patterns / sizeof patterns[0] };

static clockid_t job_clock(const struct job *job)
{
    return job->threads ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_THREAD_CPUTIME_ID;
}

static double cpu_ns(const struct job *job)
{
    struct timespec t;
    clock_gettime(job_clock(job), &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

void job_start(struct job *job)
{
    job->start_ns = cpu_ns(job);
}

void job_stop(struct job *job, long pairs_done)
{
    job->cpu_ns = cpu_ns(job) - job->start_ns;
    job->done = pairs_done;
}

void micro_fail(const char *pattern, const char *what)
{
    fprintf(stderr, "micro: %s: %s\n", pattern, what);
    exit(1);
}

static const struct pattern *find(const char *name)
{
    for (int i = 0; i < PATTERNS; i++)
        if (strcmp(patterns[i].name, name) == 0)
            return &patterns[i];
    micro_fail(name, "no such pattern (see: micro list)");
}

static int list(void)
{
    for (int i = 0; i < PATTERNS; i++)
        printf("%-17s %ld %9ld %s\n", patterns[i].name, patterns[i].threads, patterns[i].ops, patterns[i].what);
    return 0;
}

static long number(const char *text, long least)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || n < least)
        micro_fail(text, "not a sensible number");
    return n;
}

int main(int argc, char **argv)
{
    struct job job = {.seed = 1};
    long threads = 0;
    int opt;
    while ((opt = getopt(argc, argv, "n:t:s:r")) != -1) {
        if (opt == 'n')
            job.ops = number(optarg, 1);
        else if (opt == 't')
            threads = number(optarg, 1);
        else if (opt == 's')
            job.seed = (uint64_t)number(optarg, 0);
        else if (opt == 'r')
            job.read_back = 1;
        else
            return 2;
    }
    if (optind != argc - 1)
        micro_fail("usage", "micro [-n PAIRS] [-t THREADS] [-s SEED] [-r] PATTERN | micro list");
    if (strcmp(argv[optind], "list") == 0)
        return list();
    const struct pattern *p = find(argv[optind]);
    if (threads && !p->threads)
        micro_fail(p->name, "is a one-thread pattern");
    job.size = p->size;
    job.live = p->live;
    job.ops = job.ops ? job.ops : p->ops;
    job.threads = threads ? threads : p->threads;
    p->run(&job);
    printf("%s %.2f %ld %ld %016" PRIx64 "\n", p->name, job.cpu_ns / (double)job.done, job.done, job.threads,
           job.check);
    return 0;
}
