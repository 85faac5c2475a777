/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes as the kernel shows them: which cpus, which memory, and where a page lies. Raw system calls, no libnuma, so that
 * the programs run anywhere and load nothing that the allocator under test might have loaded.
 *
 * Nothing here allocates: tables are mapped. All functions may be called from any thread once numa_scan has run.
 */
#ifndef TESTS_PROG_NUMA_UTIL_H
#define TESTS_PROG_NUMA_UTIL_H

#include "proc_util.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { NUMA_MAX = 1024, NUMA_CPUS = CPU_SETSIZE };
enum { POLICY_DEFAULT, POLICY_PREFERRED, POLICY_BIND, POLICY_INTERLEAVE, POLICY_LOCAL };
enum { NUMA_F_MEMS_ALLOWED = 4 };

struct node_mask {
    unsigned long bits[NUMA_MAX / (8 * sizeof(long))];
};

static inline int mask_has(const struct node_mask *m, int node)
{
    return (int)(m->bits[(unsigned)node / (8 * sizeof(long))] >> ((unsigned)node % (8 * sizeof(long))) & 1);
}

/* A node that has cpus for us. */
struct node {
    int id;     /* the kernel's number */
    int memory; /* the kernel's number of the nearest node with memory: mostly itself */
    int cpus;
    int cpu[NUMA_CPUS / 8];
};

static struct node nodes[64];
static int node_count;
static struct node_mask memory_nodes; /* nodes with memory that we may use */
static int memory_known;              /* or the kernel refused to say */

static inline void pin_cpu(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

/* The calling thread onto one of the cpus of a node. */
static inline void pin_node(const struct node *node, int which)
{
    pin_cpu(node->cpu[which % node->cpus]);
}

static inline int node_of_here(void)
{
    unsigned cpu = 0, node = 0;
    CHECK(syscall(SYS_getcpu, &cpu, &node, NULL) == 0);
    return (int)node;
}

/* The distances of one node, as the kernel lists them: for its online nodes in ascending order. */
static inline int read_distances(int node, int *distance, int max)
{
    char path[80], text[4096];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/distance", node);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    int count = 0;
    text[n > 0 ? n : 0] = 0;
    for (char *at = text, *end; count < max; at = end) {
        long d = strtol(at, &end, 10);
        if (end == at)
            break;
        distance[count++] = (int)d;
    }
    return count;
}

/* Where memory comes from when a node has none: layouts number their nodes without holes, so a place in the list is a
 * number of a node. */
static inline int nearest_memory(int node)
{
    int distance[NUMA_MAX / 4], best = -1;
    if (!memory_known || mask_has(&memory_nodes, node))
        return node;
    int n = read_distances(node, distance, NUMA_MAX / 4);
    for (int i = 0; i < n; i++)
        if (mask_has(&memory_nodes, i) && (best < 0 || distance[i] < distance[best]))
            best = i;
    return best < 0 ? node : best;
}

/* Looks at every cpu that the process may use. The calling thread ends on its own set of cpus again. */
static inline void numa_scan(void)
{
    cpu_set_t allowed;
    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    memory_known =
        syscall(SYS_get_mempolicy, NULL, &memory_nodes, (unsigned long)NUMA_MAX, NULL, NUMA_F_MEMS_ALLOWED) == 0;
    for (int cpu = 0; cpu < NUMA_CPUS; cpu++) {
        if (!CPU_ISSET(cpu, &allowed))
            continue;
        pin_cpu(cpu);
        int id = node_of_here(), i = 0;
        while (i < node_count && nodes[i].id != id)
            i++;
        if (i == node_count) {
            CHECK(node_count < (int)(sizeof nodes / sizeof *nodes));
            nodes[node_count++] = (struct node){.id = id, .memory = nearest_memory(id)};
        }
        if (nodes[i].cpus < (int)(sizeof nodes[i].cpu / sizeof *nodes[i].cpu))
            nodes[i].cpu[nodes[i].cpus++] = cpu;
    }
    CHECK(sched_setaffinity(0, sizeof allowed, &allowed) == 0);
}

/* Where something needs two nodes, one has nothing to say. */
static inline void need_nodes(int n)
{
    if (node_count >= n)
        return;
    fprintf(stderr, "needs %d nodes with cpus, there are %d\n", n, node_count);
    exit(77);
}

/* `--judge PERCENT` among the arguments, else -1: figures only. */
static inline double judge_percent(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--judge") == 0)
            return strtod(argv[i + 1], NULL);
    return -1;
}

/* The value behind an option, or NULL. */
static inline const char *option_text(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return NULL;
}

static inline long option_count(int argc, char **argv, const char *name, long otherwise)
{
    const char *text = option_text(argc, argv, name);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static inline void *map_table(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* ---- loads: many blocks of mixed sizes ----------------------------------------------------------------------------- */

struct load {
    struct block *b;
    long n, max;
};

/* A third of the bytes in blocks to 1 KiB, to 32 KiB and to 1 MiB each; inside a band each doubling as likely. */
static inline size_t mixed_size(uint64_t *seed, size_t done, size_t total)
{
    static const unsigned low[] = {4, 10, 15}, high[] = {10, 15, 20};
    unsigned band = done < total / 3 ? 0 : done < total / 3 * 2 ? 1 : 2;
    uint64_t r = rng_next(seed);
    size_t from = (size_t)1 << (low[band] + r % (high[band] - low[band]));
    return from + (r >> 32) % from;
}

/* The first byte of the block and one in each os page of it. */
static inline void touch_pages(unsigned char *p, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < size; at += page - ((uintptr_t)(p + at) & (page - 1)))
        p[at] = (unsigned char)at;
}

static inline void load_fill(struct load *l, size_t total, uint64_t seed)
{
    if (!l->b) {
        l->max = (long)(total / 64);
        l->b = map_table((size_t)l->max * sizeof *l->b);
    }
    l->n = 0;
    for (size_t done = 0; done < total;) {
        size_t size = mixed_size(&seed, done, total);
        CHECK(l->n < l->max);
        struct block *b = &l->b[l->n++];
        *b = (struct block){malloc(size), size};
        if (!b->p)
            FAIL("malloc(%zu) gave NULL", size);
        touch_pages(b->p, size);
        done += size;
    }
}

/* In the order of a seeded shuffle: nobody frees in the order of allocation. */
static inline void load_drop(struct load *l, uint64_t seed)
{
    for (long i = l->n - 1; i > 0; i--) {
        long j = (long)(rng_next(&seed) % (uint64_t)(i + 1));
        struct block swap = l->b[i];
        l->b[i] = l->b[j];
        l->b[j] = swap;
    }
    for (long i = 0; i < l->n; i++)
        free(l->b[i].p);
    l->n = 0;
}

/* ---- where pages lie ------------------------------------------------------------------------------------------------ */

struct placement {
    long pages;
    long on[NUMA_MAX]; /* by the kernel's number */
    long absent;       /* not in memory */
};


/* A sort that allocates nothing. */
static inline void sort_addresses(uintptr_t *a, long n)
{
    for (long gap = n / 2; gap > 0; gap = gap == 2 ? 1 : (long)((double)gap / 2.2))
        for (long i = gap; i < n; i++) {
            uintptr_t moved = a[i];
            long at = i;
            for (; at >= gap && a[at - gap] > moved; at -= gap)
                a[at] = a[at - gap];
            a[at] = moved;
        }
}

/* The os pages under a load's blocks, each once, ascending. Owner: the caller, munmap of `room` bytes. */
static inline uintptr_t *load_pages(const struct load *l, long *count, size_t *room)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    size_t bytes = 0;
    for (long i = 0; i < l->n; i++)
        bytes += l->b[i].size;
    *room = ((size_t)l->n * 2 + bytes / page) * sizeof(uintptr_t) + page;
    uintptr_t *a = map_table(*room);
    long n = 0, kept = 0;
    for (long i = 0; i < l->n; i++) {
        uintptr_t first = (uintptr_t)l->b[i].p & ~(page - 1);
        for (uintptr_t at = first; at < (uintptr_t)l->b[i].p + l->b[i].size; at += page)
            if (n == 0 || a[n - 1] != at)
                a[n++] = at;
    }
    sort_addresses(a, n);
    for (long i = 0; i < n; i++)
        if (kept == 0 || a[kept - 1] != a[i])
            a[kept++] = a[i];
    *count = kept;
    return a;
}

static inline void place_pages(struct placement *at, uintptr_t *pages, long n)
{
    int status[512];
    for (long i = 0; i < n; i += 512) {
        unsigned long some = n - i < 512 ? (unsigned long)(n - i) : 512;
        CHECK(syscall(SYS_move_pages, 0, some, pages + i, NULL, status, 0) == 0);
        for (unsigned long j = 0; j < some; j++) {
            at->pages++;
            if (status[j] >= 0 && status[j] < NUMA_MAX)
                at->on[status[j]]++;
            else
                at->absent++;
        }
    }
}

static inline void place_load(struct placement *at, const struct load *l)
{
    size_t room;
    long n;
    uintptr_t *pages = load_pages(l, &n, &room);
    place_pages(at, pages, n);
    munmap(pages, room);
}

static inline double percent(long part, long whole)
{
    return whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
}

/* MiB of this process in the memory of a node, by numa_maps. */
static inline double node_mib(int node)
{
    static const size_t room = MiB(4);
    char *text = map_table(room), key[16];
    size_t n = 0;
    int fd = open("/proc/self/numa_maps", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    for (ssize_t got; n < room - 1 && (got = read(fd, text + n, room - 1 - n)) > 0;)
        n += (size_t)got;
    close(fd);
    text[n] = 0;
    snprintf(key, sizeof key, " N%d=", node);
    double kib = 0;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        char *pages = strstr(line, key), *size = strstr(line, " kernelpagesize_kB=");
        if (pages && size)
            kib += strtod(pages + strlen(key), NULL) * strtod(size + 19, NULL);
    }
    munmap(text, room);
    return kib / 1024;
}

/* A thread that is pinned to a node, does one thing, and can be waited for. */
struct worker {
    pthread_t thread;
    const struct node *node;
    int which;
    void (*what)(struct worker *);
    void *arg;
};

static inline void *worker_main(void *arg)
{
    struct worker *w = arg;
    pin_node(w->node, w->which);
    w->what(w);
    return NULL;
}

static inline void worker_start(struct worker *w)
{
    CHECK(pthread_create(&w->thread, NULL, worker_main, w) == 0);
}

static inline void worker_join(struct worker *w)
{
    CHECK(pthread_join(w->thread, NULL) == 0);
}

#endif
