/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * regions [-k] [-n N | -m MS] [-t THREADS] [-s BYTES] [-T none|one|all] [-x SECONDS] ITEM
 *
 * Run one item and print what it measured, a "NAME VALUE" line each. -k: the kernel itself in place of malloc.
 */
#define _GNU_SOURCE
#include "regions.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name;
    void (*run)(const struct job *job);
} items[] = {
    {"pair", pair},   {"live", live},     {"many", many},       {"alternate", alternate},
    {"holes", holes}, {"growth", growth}, {"lockall", lockall}, {"dump", dump},
};
enum { ITEMS = sizeof items / sizeof items[0] };

/* ---- the two ways to memory ---- */

static void *malloc_get(size_t size)
{
    return malloc(size);
}

static void malloc_put(void *p, size_t size)
{
    (void)size;
    free(p);
}

static void *malloc_grow(void *p, size_t from, size_t to)
{
    (void)from;
    return realloc(p, to);
}

static void malloc_hide(void **p, size_t size)
{
    (void)size;
    free(*p);
}

static void malloc_show(void **p, size_t size)
{
    *p = malloc(size);
}

static void *kernel_get(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void kernel_put(void *p, size_t size)
{
    munmap(p, size);
}

static void *kernel_grow(void *p, size_t from, size_t to)
{
    void *q = p == NULL ? kernel_get(to) : mremap(p, from, to, MREMAP_MAYMOVE);
    return q == MAP_FAILED ? NULL : q;
}

static void kernel_hide(void **p, size_t size)
{
    if (mprotect(*p, size, PROT_NONE) != 0)
        regions_fail("mprotect", "refused");
}

static void kernel_show(void **p, size_t size)
{
    if (mprotect(*p, size, PROT_READ | PROT_WRITE) != 0)
        *p = NULL;
}

static const struct memory by_malloc = {malloc_get, malloc_put, malloc_grow, malloc_hide, malloc_show};
static const struct memory by_kernel = {kernel_get, kernel_put, kernel_grow, kernel_hide, kernel_show};

/* ---- what items use ---- */

static double clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

double cpu_ns(void)
{
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

double wall_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

void regions_fail(const char *item, const char *what)
{
    dprintf(2, "regions: %s: %s\n", item, what);
    _exit(1);
}

void *regions_get(const struct job *job, size_t size)
{
    char *p = job->memory->get(size);
    if (p == NULL)
        regions_fail("get", "no memory");
    if (job->touch != TOUCH_NONE)
        *(volatile char *)p = 1;
    return p;
}

void *regions_own(size_t size)
{
    void *p = kernel_get(size);
    if (p == NULL)
        regions_fail("own", "no memory");
    return p;
}

long status_kib(const char *key)
{
    static char text[8192];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    close(fd);
    text[n < 0 ? 0 : n] = '\0';
    const char *line = strstr(text, key);
    return line == NULL ? -1 : strtol(line + strlen(key) + 1, NULL, 10);
}

long maps_lines(void)
{
    static char text[1 << 16];
    long lines = 0;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = read(fd, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < n; i++)
            lines += text[i] == '\n';
    close(fd);
    return lines;
}

/* ---- the command line ---- */

static long number(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || n < 0)
        regions_fail(text, "not a sensible number");
    return n;
}

static enum touch touch_of(const char *text)
{
    return strcmp(text, "none") == 0 ? TOUCH_NONE : strcmp(text, "all") == 0 ? TOUCH_ALL : TOUCH_ONE;
}

static void usage(void)
{
    regions_fail("usage", "regions [-k] [-n N | -m MS] [-t THREADS] [-s BYTES] [-T none|one|all] [-x SECONDS] ITEM");
}

static struct job parse(int argc, char **argv)
{
    struct job job = {.memory = &by_malloc, .n = -1, .ms = 100, .threads = 1, .seconds = 60, .seed = 1};
    job.touch = TOUCH_ONE;
    for (int opt; (opt = getopt(argc, argv, "kn:m:t:s:T:x:")) != -1;) {
        switch (opt) {
        case 'k':
            job.memory = &by_kernel;
            break;
        case 'n':
            job.n = number(optarg);
            break;
        case 'm':
            job.ms = number(optarg);
            break;
        case 't':
            job.threads = number(optarg);
            break;
        case 's':
            job.size = (size_t)number(optarg);
            break;
        case 'T':
            job.touch = touch_of(optarg);
            break;
        case 'x':
            job.seconds = number(optarg);
            break;
        default:
            usage();
        }
    }
    if (optind != argc - 1)
        usage();
    return job;
}

int main(int argc, char **argv)
{
    struct job job = parse(argc, argv);
    for (int i = 0; i < ITEMS; i++) {
        if (strcmp(items[i].name, argv[optind]) == 0) {
            items[i].run(&job);
            return 0;
        }
    }
    regions_fail(argv[optind], "no such item");
}
