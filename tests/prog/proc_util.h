/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the life-cycle programs share: one way to fail, seeded random numbers, block contents that can be checked, busy
 * threads, and the resident size. Nothing here knows which allocator serves the program.
 *
 * Contract: every function may be called from any thread; a failed CHECK prints one line and ends the process with 1.
 */
#ifndef TESTS_PROG_PROC_UTIL_H
#define TESTS_PROG_PROC_UTIL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KiB(n) ((size_t)(n) << 10)
#define MiB(n) ((size_t)(n) << 20)

/* The message is made on the stack and written at once: after a fork, or with a broken heap, stdio may not work. */
#define FAIL(...)                                                                                                      \
    do {                                                                                                               \
        char fail_text[400];                                                                                           \
        int fail_len = snprintf(fail_text, sizeof fail_text, "FAIL %s:%d: ", __FILE__, __LINE__);                      \
        fail_len += snprintf(fail_text + fail_len, sizeof fail_text - 1 - (size_t)fail_len, __VA_ARGS__);              \
        if (fail_len > (int)sizeof fail_text - 2)                                                                      \
            fail_len = sizeof fail_text - 2;                                                                           \
        fail_text[fail_len++] = '\n';                                                                                  \
        if (write(2, fail_text, (size_t)fail_len) < 0)                                                                 \
            _exit(2);                                                                                                  \
        _exit(1);                                                                                                      \
    } while (0)

#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        if (!(cond))                                                                                                   \
            FAIL("%s (errno %d)", #cond, errno);                                                                       \
    } while (0)

/* Argument number `i` as a count, or `otherwise` if it was not given. */
static inline long arg_count(int argc, char **argv, int i, long otherwise)
{
    return i < argc ? strtol(argv[i], NULL, 10) : otherwise;
}

static inline uint64_t rng_next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A size from 16 to about 2^max_log2, each doubling as likely as any other. */
static inline size_t rng_size(uint64_t *state, unsigned max_log2)
{
    uint64_t r = rng_next(state);
    size_t top = (size_t)16 << (r % (max_log2 - 4 + 1));
    return top - (size_t)((r >> 32) % (top / 2));
}

/* The next size of a walk that meets every size class an allocator is likely to have: 16 a step, then 8 per
 * doubling. */
static inline size_t next_size(size_t size)
{
    size_t step = 16;
    while (step * 16 <= size)
        step *= 2;
    return size + step;
}

static inline unsigned char mark_of(const void *p, size_t size)
{
    return (unsigned char)(((uintptr_t)p >> 4) * 31 + size * 7 + 1);
}

/* How far apart the marked bytes inside a block are: few, and none in a large one, which stays cheap to touch. */
static inline size_t mark_step(size_t size)
{
    return size < KiB(64) ? 4096 + size / 3 : size;
}

/* Marks the first and the last 64 bytes and a few between: enough to see an overlap. */
static inline void mark(unsigned char *p, size_t size)
{
    unsigned char c = mark_of(p, size);
    size_t edge = size < 64 ? size : 64;
    memset(p, c, edge);
    for (size_t i = mark_step(size); i < size; i += mark_step(size))
        p[i] = c;
    memset(p + size - edge, c, edge);
}

static inline void check_mark(const unsigned char *p, size_t size)
{
    unsigned char c = mark_of(p, size);
    size_t edge = size < 64 ? size : 64;
    for (size_t i = 0; i < edge; i++)
        if (p[i] != c || p[size - edge + i] != c)
            FAIL("block %p of %zu bytes was overwritten near byte %zu", (const void *)p, size, i);
    for (size_t i = mark_step(size); i + edge < size; i += mark_step(size))
        if (p[i] != c)
            FAIL("block %p of %zu bytes was overwritten at byte %zu", (const void *)p, size, i);
}

/* A marked block. */
struct block {
    unsigned char *p;
    size_t size;
};

static inline struct block block_new(size_t size)
{
    struct block b = {malloc(size), size};
    if (!b.p)
        FAIL("malloc(%zu) gave NULL", size);
    mark(b.p, size);
    return b;
}

static inline void block_free(struct block *b)
{
    if (!b->p)
        return;
    check_mark(b->p, b->size);
    free(b->p);
    b->p = NULL;
}

/* A sort of our own: that of libc asks the kernel for the size of memory, which a filter may forbid. */
static inline void sort_blocks(struct block *b, int n)
{
    for (int gap = n / 2; gap > 0; gap /= 2)
        for (int i = gap; i < n; i++) {
            struct block moved = b[i];
            int at = i;
            for (; at >= gap && b[at - gap].p > moved.p; at -= gap)
                b[at] = b[at - gap];
            b[at] = moved;
        }
}

/*
 * The consistency check: `n` blocks of mixed sizes lie side by side, none over another nor over [avoid, avoid + len),
 * and keep their contents.
 */
static inline void check_heap(int n, const void *avoid, size_t len)
{
    uint64_t seed = 42;
    struct block *b = calloc((size_t)n, sizeof *b);
    CHECK(b);
    for (int i = 0; i < n; i++)
        b[i] = block_new(rng_size(&seed, 13));
    sort_blocks(b, n);
    for (int i = 0; i < n; i++) {
        if (i + 1 < n && b[i].p + b[i].size > b[i + 1].p)
            FAIL("%p of %zu bytes and %p overlap", (void *)b[i].p, b[i].size, (void *)b[i + 1].p);
        if (avoid && b[i].p < (const unsigned char *)avoid + len && b[i].p + b[i].size > (const unsigned char *)avoid)
            FAIL("%p was handed out over foreign memory %p", (void *)b[i].p, avoid);
    }
    for (int i = 0; i < n; i++)
        block_free(&b[i]);
    free(b);
}

/* One block of every size from 16 B to `max`, then all freed. Fails if a block is not there or not kept. */
static inline void every_class(size_t max)
{
    struct block b[16] = {{NULL, 0}};
    unsigned i = 0;
    for (size_t size = 16; size <= max; size = next_size(size)) {
        block_free(&b[i % 16]);
        b[i++ % 16] = block_new(size);
    }
    for (i = 0; i < 16; i++)
        block_free(&b[i]);
}

/* A line of /proc/self/status in KiB, read without stdio so that the reader allocates nothing. */
static inline long status_kib(const char *key)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    CHECK(n > 0);
    text[n] = 0;
    char *line = strstr(text, key);
    CHECK(line);
    return strtol(line + strlen(key) + 1, NULL, 10);
}

/* Threads that replace random blocks of 16 B to 4 MiB until told to stop. */
struct busy {
    pthread_t thread;
    uint64_t seed;
    unsigned max_log2;
    atomic_int *stop;
    atomic_long ops;
};

static inline void *busy_main(void *arg)
{
    enum { SLOTS = 16 };
    struct busy *self = arg;
    struct block b[SLOTS] = {{NULL, 0}};
    while (!atomic_load_explicit(self->stop, memory_order_relaxed)) {
        unsigned i = rng_next(&self->seed) % SLOTS;
        block_free(&b[i]);
        b[i] = block_new(rng_size(&self->seed, self->max_log2));
        /* A short nap now and then lets the thread under test run on a small machine. */
        if (atomic_fetch_add_explicit(&self->ops, 1, memory_order_relaxed) % 16 == 15)
            usleep(300);
    }
    for (int i = 0; i < SLOTS; i++)
        block_free(&b[i]);
    return NULL;
}

static inline struct busy *busy_start(int n, unsigned max_log2, atomic_int *stop)
{
    struct busy *t = calloc((size_t)n, sizeof *t);
    CHECK(t);
    for (int i = 0; i < n; i++) {
        t[i].seed = 1000u + (unsigned)i;
        t[i].max_log2 = max_log2;
        t[i].stop = stop;
        CHECK(pthread_create(&t[i].thread, NULL, busy_main, &t[i]) == 0);
    }
    return t;
}

/* Stops the threads; each must have worked, or what ran beside them proved nothing. */
static inline void busy_stop(struct busy *t, int n)
{
    for (int i = 0; i < n; i++)
        while (atomic_load(&t[i].ops) == 0)
            usleep(1000);
    if (n > 0)
        atomic_store(t[0].stop, 1);
    for (int i = 0; i < n; i++)
        CHECK(pthread_join(t[i].thread, NULL) == 0);
    free(t);
}

/* Waits for `pid`, which must have ended with exit status 0; says how it ended otherwise. */
static inline void wait_ok(pid_t pid, const char *what, long n)
{
    int status;
    CHECK(pid > 0);
    while (waitpid(pid, &status, 0) < 0)
        CHECK(errno == EINTR);
    if (WIFSIGNALED(status))
        FAIL("%s %ld ended by signal %d%s", what, n, WTERMSIG(status), WTERMSIG(status) == 14 ? " (hung)" : "");
    if (WEXITSTATUS(status) != 0)
        FAIL("%s %ld ended with status %d", what, n, WEXITSTATUS(status));
}

#endif
