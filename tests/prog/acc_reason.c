/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why was there no memory? (R55) acc_reason any|maps|lock [SIZE]: takes blocks of SIZE until one is refused, and prints
 * the lines of malloc_stats that say "refused" or "limit".
 *
 * any: whoever starts it has set a limit. maps: all mappings that the process may have are in use. lock: all memory is
 * locked, and little may be. Exit 1 if nothing is refused, or nothing is said.
 */
#include "proc_util.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void use_up_mappings(void)
{
    enum { TRIES = 1000000 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *range = mmap(NULL, 2 * TRIES * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(range != MAP_FAILED);
    for (size_t i = 0; i < TRIES; i++)
        if (mprotect(range + 2 * i * page, page, PROT_READ) != 0)
            return;
}

/* Root may lock what it likes: nobody may not. */
static void lock_all(void)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (limit.rlim_max > MiB(64))
        limit.rlim_max = MiB(64);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (geteuid() == 0)
        CHECK(setresuid(65534, 65534, 65534) == 0);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        fprintf(stderr, "no memory can be locked here\n");
        exit(77);
    }
}

static void exhaust(size_t size)
{
    enum { MOST = 1 << 20 };
    void *last = NULL;
    for (long n = 0;; n++) {
        errno = 0;
        void **p = malloc(size);
        if (!p)
            break;
        *p = last;
        last = p;
        if (n == MOST || (size_t)n * size > (size_t)64 << 30)
            FAIL("%ld blocks of %zu bytes, and none refused", n, size);
    }
    CHECK(errno == ENOMEM);
    while (last) {
        void **next = *(void **)last;
        free(last);
        last = next;
    }
}

/* malloc_stats writes to descriptor 2: to a file in memory meanwhile. */
static char *stats(void)
{
    static char text[65536];
    int fd = (int)syscall(SYS_memfd_create, "stats", 0), old = dup(2);
    CHECK(fd >= 0 && old >= 0 && dup2(fd, 2) == 2);
    malloc_stats();
    fflush(stderr);
    CHECK(dup2(old, 2) == 2);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    CHECK(n > 0);
    text[n] = 0;
    return text;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "any";
    size_t size = (size_t)arg_count(argc, argv, 2, 1 << 20);
    int said = 0;
    if (strcmp(kind, "maps") == 0)
        use_up_mappings();
    if (strcmp(kind, "lock") == 0)
        lock_all();
    exhaust(size);
    char *save = NULL;
    for (char *line = strtok_r(stats(), "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (strstr(line, "refused ") || strstr(line, "refused:") || strstr(line, "limits at"))
            said += printf("%s\n", line) > 0;
    if (!said)
        FAIL("%s", "refused, and no line says why");
    return 0;
}
