/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * proc_accounting WORKLOAD: use the heap in one way, then say what the kernel says: "regions_kib=N", the resident size of
 * all anonymous memory that is neither the stack, nor a library's own data, nor this program's tables and stacks. It then
 * exits without another call to the heap, so that statistics written at exit are of the same moment.
 *
 *     steady   small blocks, one million random replacements
 *     sparse   256 MiB of 16 B to 4 KiB, 95 % freed at random, malloc_trim(0)
 *     runs     32 KiB to 512 KiB, replaced at random, a third freed at the end
 *     large    512 KiB to 16 MiB and one of 100 MiB, replaced, a third freed at the end
 *     threads  8 threads as in steady, which then sleep
 */
#include "proc_util.h"

#include <stdbool.h>
#include <sys/mman.h>

enum { THREADS = 8, THREAD_SLOTS = 60000, STACK_BYTES = 1 << 18, TABLES = 16 };

/* ---- memory of our own, which is not the heap's ---- */

struct span {
    uintptr_t start, end;
};
static struct span tables[TABLES];
static int table_count;

/* Between two guard pages, so that the kernel cannot join it with a mapping of the heap. */
static void *table_new(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bytes = (bytes + page - 1) / page * page;
    char *p = mmap(NULL, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED && table_count < TABLES);
    CHECK(mprotect(p + page, bytes, PROT_READ | PROT_WRITE) == 0);
    tables[table_count++] = (struct span){(uintptr_t)p + page, (uintptr_t)p + page + bytes};
    return p + page;
}

static bool is_table(uintptr_t start)
{
    for (int i = 0; i < table_count; i++)
        if (start >= tables[i].start && start < tables[i].end)
            return true;
    return false;
}

/* ---- the kernel's view ---- */

/* The mapping whose lines are being read. */
struct mapping {
    uintptr_t start, end;
    bool counts;    /* anonymous, and not one of those that are left out */
    bool of_image;  /* a file, or the rest of its data that lies behind it */
};

/* "start-end perms offset device inode path" */
static bool is_header(const char *line, struct mapping *m)
{
    unsigned long start, end, inode;
    int path = 0;
    if (sscanf(line, "%lx-%lx %*4s %*x %*x:%*x %lu %n", &start, &end, &inode, &path) != 3)
        return false;
    bool file = inode != 0, named = line[path] != '\0' && strncmp(line + path, "[anon", 5) != 0;
    bool behind = !file && !named && m->of_image && start == m->end && end - start <= MiB(1);
    *m = (struct mapping){start, end, !file && !named && !behind && !is_table(start), file || behind};
    return true;
}

static long take_line(const char *line, struct mapping *m)
{
    long kib;
    if (is_header(line, m) || !m->counts || sscanf(line, "Rss: %ld", &kib) != 1)
        return 0;
    return kib;
}

/* Read line by line into a buffer of our own: the file may be long, and reading it must not use the heap. */
static long regions_kib(void)
{
    static char text[8192];
    size_t len = 0;
    long sum = 0;
    struct mapping m = {0};
    int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    for (ssize_t n; (n = read(fd, text + len, sizeof text - 1 - len)) > 0;) {
        char *line = text, *end;
        len += (size_t)n;
        text[len] = '\0';
        for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            *end = '\0';
            sum += take_line(line, &m);
        }
        len -= (size_t)(line - text);
        CHECK(len < sizeof text - 1);
        memmove(text, line, len);
    }
    close(fd);
    return sum;
}

/* ---- the workloads ---- */

static void *fresh(size_t size)
{
    void *p = malloc(size);
    CHECK(p);
    memset(p, 1, size); /* live memory is resident memory */
    return p;
}

static void replace_random(void **slot, size_t n, long times, uint64_t seed, size_t (*size)(uint64_t *))
{
    for (size_t i = 0; i < n; i++)
        slot[i] = fresh(size(&seed));
    for (; times > 0; times--) {
        size_t i = rng_next(&seed) % n;
        free(slot[i]);
        slot[i] = fresh(size(&seed));
    }
}

static void free_third(void **slot, size_t n)
{
    for (size_t i = 0; i < n; i += 3)
        free(slot[i]);
}

static size_t small_size(uint64_t *seed)
{
    return 16 + rng_next(seed) % 1009;
}

static size_t page_size_or_less(uint64_t *seed)
{
    return 16 + rng_next(seed) % 4081;
}

static size_t run_size(uint64_t *seed)
{
    return KiB(32) + 1 + rng_next(seed) % (KiB(480) - 1);
}

static size_t large_size(uint64_t *seed)
{
    size_t top = KiB(512) << (1 + rng_next(seed) % 5);
    return top - rng_next(seed) % (top / 2);
}

static void steady(void)
{
    enum { SLOTS = 150000 };
    replace_random(table_new(SLOTS * sizeof(void *)), SLOTS, 1000000, 1, small_size);
}

static void sparse(void)
{
    size_t n = MiB(256) / KiB(2);
    uint64_t seed = 2;
    void **slot = table_new(n * sizeof *slot);
    for (size_t i = 0; i < n; i++)
        slot[i] = fresh(page_size_or_less(&seed));
    for (size_t i = 0; i < n; i++)
        if (rng_next(&seed) % 100 < 95)
            free(slot[i]);
    malloc_trim(0);
}

static void runs(void)
{
    enum { SLOTS = 400 };
    void **slot = table_new(SLOTS * sizeof *slot);
    replace_random(slot, SLOTS, 4000, 3, run_size);
    free_third(slot, SLOTS);
}

static void large(void)
{
    enum { SLOTS = 30 };
    void **slot = table_new(SLOTS * sizeof *slot);
    replace_random(slot, SLOTS, 120, 4, large_size);
    void *one = fresh(MiB(100));
    free_third(slot, SLOTS);
    slot[0] = one;
}

static pthread_barrier_t all_done;

static void *thread(void *arg)
{
    replace_random(arg, THREAD_SLOTS, 150000, (uintptr_t)arg, small_size);
    pthread_barrier_wait(&all_done);
    for (;;)
        pause();
    return arg;
}

static void threads(void)
{
    pthread_barrier_init(&all_done, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        pthread_t t;
        pthread_attr_t attr;
        CHECK(pthread_attr_init(&attr) == 0);
        CHECK(pthread_attr_setstack(&attr, table_new(STACK_BYTES), STACK_BYTES) == 0);
        CHECK(pthread_create(&t, &attr, thread, (char *)table_new(THREAD_SLOTS * sizeof(void *))) == 0);
    }
    pthread_barrier_wait(&all_done);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } workloads[] = {{"steady", steady}, {"sparse", sparse}, {"runs", runs}, {"large", large}, {"threads", threads}};
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++)
        if (argc == 2 && strcmp(argv[1], workloads[i].name) == 0) {
            char line[64];
            workloads[i].run();
            int len = snprintf(line, sizeof line, "regions_kib=%ld\n", regions_kib());
            return write(1, line, (size_t)len) != len;
        }
    FAIL("%s", "usage: proc_accounting steady|sparse|runs|large|threads");
}
