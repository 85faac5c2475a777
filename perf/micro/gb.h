/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the programs of perf/giveback share (gb_*.c). Each shows one habit that leaves memory behind, or makes an
 * allocator give too much of it back, and prints what it saw of its own process as key=value lines.
 *
 * Rules for such a program: seeded; every block is written as a whole and its first word is checked before its free; it
 * runs under any malloc; and it never allocates for its own measuring: its tables come from mmap and are written before
 * the baseline is taken, /proc is read into static buffers, lines are made on the stack.
 */
#ifndef PERF_MICRO_GB_H
#define PERF_MICRO_GB_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define GB_KIB(n) ((size_t)(n) << 10)
#define GB_MIB(n) ((size_t)(n) << 20)

static inline _Noreturn void gb_fail(const char *what)
{
    char line[200];
    int len = snprintf(line, sizeof line, "FAIL %s (errno %d)\n", what, errno);
    _exit(write(2, line, (size_t)len) < 0 ? 2 : 1);
}

static inline void gb_say(const char *key, long long value)
{
    char line[120];
    int len = snprintf(line, sizeof line, "%s=%lld\n", key, value);
    if (write(1, line, (size_t)len) != len)
        gb_fail("cannot write");
}

/* Argument number i as a number of at least `least`, or `otherwise` if it was not given. */
static inline long gb_arg(int argc, char **argv, int i, long otherwise, long least)
{
    if (i >= argc)
        return otherwise;
    char *end;
    long n = strtol(argv[i], &end, 10);
    if (*argv[i] == '\0' || *end != '\0' || n < least)
        gb_fail("an argument is not a sensible number");
    return n;
}

/* A step of a 64-bit generator (add, then mix). */
static inline uint64_t gb_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline size_t gb_below(uint64_t *state, size_t n)
{
    return (size_t)(((unsigned __int128)gb_random(state) * n) >> 64);
}

/* A size of [2^low, 2^high), each doubling as likely as any other. */
static inline size_t gb_log_size(uint64_t *state, unsigned low, unsigned high)
{
    size_t base = (size_t)1 << (low + gb_below(state, high - low));
    return base + gb_below(state, base);
}

/* The mix of the field reports: 16 B to 32 KiB, and one in fifty to 512 KiB. A function of the block's number, so that
 * no table of sizes is needed. */
static inline size_t gb_mixed_size(uint64_t number)
{
    uint64_t state = number * 0x2545f4914f6cdd1du + 1;
    return gb_below(&state, 50) == 0 ? gb_log_size(&state, 15, 19) : gb_log_size(&state, 4, 15);
}

/* ---- memory that the heap does not know ---- */

static inline void *gb_table(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        gb_fail("no memory for a table");
    memset(p, 1, bytes); /* resident before the baseline */
    return p;
}

/* One line of a file of /proc ("Rss:") in KiB; 0 if there is no such line. Not from several threads at once. */
static inline long gb_proc_kib(const char *path, const char *key)
{
    static char text[16384];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        gb_fail(path);
    size_t len = 0;
    for (ssize_t n; len < sizeof text - 1 && (n = read(fd, text + len, sizeof text - 1 - len)) > 0;)
        len += (size_t)n;
    close(fd);
    text[len] = '\0';
    const char *line = strstr(text, key);
    return line ? strtol(line + strlen(key), NULL, 10) : 0;
}

static inline long gb_smaps_kib(const char *key)
{
    return gb_proc_kib("/proc/self/smaps_rollup", key);
}

/* Exact; walks the page tables. */
static inline long gb_rss_kib(void)
{
    return gb_smaps_kib("\nRss:");
}

/* ---- blocks ---- */

static inline void *gb_block(size_t size, uint64_t word)
{
    uint64_t *p = malloc(size);
    if (p == NULL)
        gb_fail("malloc gave NULL");
    memset(p, (int)(word & 0x7f), size);
    *p = word;
    return p;
}

static inline void gb_block_free(void *p, uint64_t word)
{
    if (*(uint64_t *)p != word)
        gb_fail("a block lost its contents");
    free(p);
}

/* From a shuffled table: the block says its own number, one below n. */
static inline void gb_block_free_below(void *p, uint64_t n)
{
    if (*(uint64_t *)p >= n)
        gb_fail("a block lost its contents");
    free(p);
}

static inline void gb_shuffle(void **block, size_t n, uint64_t seed)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = gb_below(&seed, i);
        void *held = block[i - 1];
        block[i - 1] = block[j];
        block[j] = held;
    }
}

/* ---- time ---- */

static inline void gb_sleep_ms(long ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static inline uint64_t gb_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the allocator's own "give all back" ---- */

struct gb_purge {
    const char *name;
    void (*collect)(_Bool force);                              /* mimalloc */
    void (*release)(void);                                     /* tcmalloc */
    int (*ctl)(const char *, void *, size_t *, void *, size_t); /* jemalloc */
};

/* Looked up once, before anything is measured: dlsym may allocate. */
static inline struct gb_purge gb_purge_find(void)
{
    struct gb_purge p = {.name = "malloc_trim"};
    void *found;
    if ((found = dlsym(RTLD_DEFAULT, "mi_collect")) != NULL) {
        memcpy(&p.collect, &found, sizeof found);
        p.name = "mi_collect";
    } else if ((found = dlsym(RTLD_DEFAULT, "MallocExtension_ReleaseFreeMemory")) != NULL) {
        memcpy(&p.release, &found, sizeof found);
        p.name = "MallocExtension_ReleaseFreeMemory";
    } else if ((found = dlsym(RTLD_DEFAULT, "mallctl")) != NULL) {
        memcpy(&p.ctl, &found, sizeof found);
        unsigned arenas;
        size_t len = sizeof arenas;
        if (p.ctl("arenas.narenas", &arenas, &len, NULL, 0) == 0)
            p.name = "mallctl";
        else
            p.ctl = NULL; /* the name is there, what it reaches is not */
    }
    return p;
}

static inline void gb_purge(const struct gb_purge *p)
{
    if (p->collect) {
        p->collect(1);
    } else if (p->release) {
        p->release();
    } else if (p->ctl) {
        p->ctl("thread.tcache.flush", NULL, NULL, NULL, 0);
        if (p->ctl("arena.4096.purge", NULL, NULL, NULL, 0) != 0) /* 4096: all of them */
            gb_fail("mallctl: arena.4096.purge");
    } else {
        malloc_trim(0);
    }
}

#endif
