/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * starts [-n N] PROGRAM LIB...: start PROGRAM N times under each LIB ("-" is no preload), interleaved, and print for
 * each library one line
 *     LIB median_us mean_us cpu_us
 * where mean is over the middle 80 % of the starts and cpu is the median of user+sys.
 *
 * A start is from posix_spawn to the return of wait4. It is C, not Python, because the price of a fork of a large
 * process would hide the figure. The order of the libraries is reversed in every other round, so that none is always
 * first after a pause.
 */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct lib {
    const char *name;
    char *env[2]; /* LD_PRELOAD=name, or nothing */
    double *us;   /* wall time, one a round */
    double *cpu;  /* user+sys, one a round */
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void die(const char *what, const char *arg)
{
    fprintf(stderr, "starts: %s: %s\n", what, arg);
    exit(1);
}

static double cpu_us(const struct rusage *used)
{
    return (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) * 1e6 +
           (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
}

/* Start once; the wall and cpu time go to place `round`. */
static void start(const char *program, struct lib *lib, long round)
{
    struct rusage used;
    char *argv[] = {(char *)program, NULL};
    pid_t pid;
    int status;
    double before = now_us();
    if (posix_spawn(&pid, program, NULL, NULL, argv, lib->env) != 0)
        die("cannot start", program);
    if (wait4(pid, &status, 0, &used) != pid || status != 0)
        die("did not exit with 0", program);
    lib->us[round] = now_us() - before;
    lib->cpu[round] = cpu_us(&used);
}

static void prepare(struct lib *lib, const char *name, long rounds)
{
    lib->name = name;
    lib->us = calloc((size_t)rounds, sizeof *lib->us);
    lib->cpu = calloc((size_t)rounds, sizeof *lib->cpu);
    if (lib->us == NULL || lib->cpu == NULL)
        die("no memory", name);
    if (strcmp(name, "-") == 0)
        return;
    if (access(name, R_OK) != 0)
        die("cannot read", name);
    if (asprintf(&lib->env[0], "LD_PRELOAD=%s", name) < 0)
        die("no memory", name);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(struct lib *lib, long rounds)
{
    double sum = 0;
    long first = rounds / 10, last = rounds - first;
    qsort(lib->us, (size_t)rounds, sizeof *lib->us, by_value);
    qsort(lib->cpu, (size_t)rounds, sizeof *lib->cpu, by_value);
    for (long i = first; i < last; i++)
        sum += lib->us[i];
    printf("%s %.2f %.2f %.2f\n", lib->name, lib->us[rounds / 2], sum / (double)(last - first), lib->cpu[rounds / 2]);
}

static void measure(const char *program, struct lib *libs, int len, long rounds)
{
    for (int warm = 0; warm < 10 * len; warm++)
        start(program, &libs[warm % len], 0);
    for (long round = 0; round < rounds; round++)
        for (int i = 0; i < len; i++)
            start(program, &libs[round % 2 ? len - 1 - i : i], round);
}

int main(int argc, char **argv)
{
    long rounds = 1000;
    int opt;
    while ((opt = getopt(argc, argv, "+n:")) != -1)
        if (opt != 'n' || (rounds = atol(optarg)) < 1)
            die("usage", "starts [-n N] PROGRAM LIB...");
    if (argc - optind < 2)
        die("usage", "starts [-n N] PROGRAM LIB...");
    const char *program = argv[optind++];
    int len = argc - optind;
    struct lib *libs = calloc((size_t)len, sizeof *libs);
    if (libs == NULL)
        die("no memory", program);
    for (int i = 0; i < len; i++)
        prepare(&libs[i], argv[optind + i], rounds);
    measure(program, libs, len, rounds);
    for (int i = 0; i < len; i++) {
        report(&libs[i], rounds);
        free(libs[i].us);
        free(libs[i].cpu);
        free(libs[i].env[0]);
    }
    free(libs);
    return 0;
}
