/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that works for long: soak_rounds SECONDS THREADS SEED. In each round threads fill shared slots with blocks of
 * 16 bytes to 4 MiB, check and free them, children are forked that do the same, and at its end all is freed. After the
 * round it says "rss KIB". Every round asks for as much as the others, so what is resident must not climb.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 2000, ROUND_BYTES = 24 << 20, CHILDREN = 3 };

static uint64_t round_seed;

static uint64_t next(uint64_t *rng)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    return *rng >> 33;
}

static void bad(const char *what)
{
    fprintf(stderr, "FAIL %s:0: %s\n", __FILE__, what);
    exit(1);
}

static size_t size_of(uint64_t *rng)
{
    unsigned shift = (unsigned)(next(rng) % 64);
    return 1 + next(rng) % ((size_t)16 << (shift < 56 ? shift % 9 : shift < 62 ? 12 : 18));
}

static void *fill(void *arg)
{
    uint64_t rng = round_seed + (uintptr_t)arg * 7919;
    struct {
        unsigned char *p;
        size_t size;
    } *b = calloc(BLOCKS, sizeof *b);
    size_t sum = 0;
    for (int i = 0; b && i < 4 * BLOCKS; i++) {
        size_t at = next(&rng) % BLOCKS;
        if (b[at].p) {
            if (b[at].p[0] != (unsigned char)at || b[at].p[b[at].size - 1] != (unsigned char)(at * 3))
                bad("a block was overwritten");
            free(b[at].p);
            sum -= b[at].size;
            b[at].p = NULL;
        } else if (sum < ROUND_BYTES) {
            b[at].size = 2 + size_of(&rng);
            b[at].p = malloc(b[at].size);
            if (!b[at].p)
                bad("malloc failed");
            b[at].p[0] = (unsigned char)at;
            b[at].p[b[at].size - 1] = (unsigned char)(at * 3);
            sum += b[at].size;
        }
    }
    for (int i = 0; b && i < BLOCKS; i++)
        free(b[i].p);
    free(b);
    return NULL;
}

static void fork_some(void)
{
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            fill((void *)(uintptr_t)(100 + i));
            _exit(0);
        }
        int status = 1;
        while (waitpid(pid, &status, 0) < 0)
            if (errno != EINTR)
                bad("waitpid");
        if (status != 0)
            bad("a child failed");
    }
}

static long rss_kib(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1)
        bad("statm");
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(int argc, char **argv)
{
    time_t end = time(NULL) + (argc > 1 ? atol(argv[1]) : 5);
    size_t threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 4;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    pthread_t *t = calloc(threads, sizeof *t);
    do {
        round_seed = ++seed;
        for (size_t i = 0; i < threads; i++)
            if (pthread_create(&t[i], NULL, fill, (void *)i) != 0)
                bad("pthread_create");
        fork_some();
        for (size_t i = 0; i < threads; i++)
            pthread_join(t[i], NULL);
        printf("rss %ld\n", rss_kib());
        fflush(stdout);
    } while (time(NULL) < end);
    free(t);
    return 0;
}
