/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A daemon, which is the child of a child (R34): acc_daemon [BLOCKS]. What it frees goes back to the system by itself (R16),
 * as in any process, and without a thread of somebody else's; all of it when it asks. Its heap is its own: nothing of it
 * is shared with the processes it comes from (R36), and nothing of it on huge pages from a pool (R52).
 */
#include "proc_util.h"

#include <sys/mman.h>

enum { SIZE = 120 };

static unsigned char **block;
static size_t blocks;
static unsigned char *common[3]; /* blocks of each kind, written by all three processes */
static const size_t common_size[3] = {100, 100000, (size_t)80 << 20};

static void spike(void)
{
    for (size_t i = 0; i < blocks; i++) {
        block[i] = malloc(SIZE);
        CHECK(block[i]);
        memset(block[i], (int)i, SIZE);
    }
    for (size_t i = 0; i < blocks; i++) {
        CHECK(block[i][SIZE - 1] == (unsigned char)i);
        free(block[i]);
    }
}

/* Memory of this process alone; the rest of what is resident belongs to its parents as well. */
static long own_kib(void)
{
    char text[4096];
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    CHECK(n > 0);
    text[n] = 0;
    char *line = strstr(text, "Private_Dirty:");
    CHECK(line);
    return strtol(line + 14, NULL, 10);
}

static void memory_returns(void)
{
    long before = own_kib();
    spike();
    usleep(100000);
    long after = own_kib();
    malloc_trim(0);
    long trimmed = own_kib();
    if (after - before > 16 << 10)
        FAIL("%ld KiB before, %ld after the spike", before, after);
    if (trimmed - before > 4 << 10)
        FAIL("%ld KiB before, %ld after the trim", before, trimmed);
    CHECK(status_kib("Threads:") == 1);
}

/* A shared mapping of memory has an s among its rights and no file but /dev/zero's or one that is deleted; one of a pool
 * of huge pages says so among its flags. */
static void nothing_is_shared(void)
{
    static char line[8192];
    FILE *f = fopen("/proc/self/smaps", "re");
    CHECK(f);
    while (fgets(line, sizeof line, f)) {
        char rights[8] = "", *flags = strstr(line, "VmFlags:");
        if (flags && strstr(flags, " ht"))
            FAIL("%s", "a mapping of huge pages from a pool");
        if (sscanf(line, "%*x-%*x %7s", rights) == 1 && rights[3] == 's')
            FAIL("shared: %.100s", line);
    }
    fclose(f);
}

static void write_common(unsigned char c)
{
    for (int i = 0; i < 3; i++)
        common[i][0] = common[i][common_size[i] - 1] = c;
}

static void check_common(unsigned char c)
{
    for (int i = 0; i < 3; i++)
        CHECK(common[i][0] == c && common[i][common_size[i] - 1] == c);
}

static void daemon_main(void)
{
    check_common('c');
    write_common('d');
    memory_returns();
    nothing_is_shared();
    check_heap(1000, NULL, 0);
    every_class(MiB(1));
    check_common('d');
}

int main(int argc, char **argv)
{
    blocks = (size_t)arg_count(argc, argv, 1, 1000000);
    block = mmap(NULL, blocks * sizeof *block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(block != MAP_FAILED);
    memset(block, 1, blocks * sizeof *block);
    for (int i = 0; i < 3; i++)
        CHECK(common[i] = malloc(common_size[i]));
    write_common('p');
    pid_t child = fork();
    if (child == 0) {
        check_common('p');
        write_common('c');
        CHECK(setsid() > 0);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            memset(block, 1, blocks * sizeof *block); /* now its own */
            daemon_main();
            _exit(0);
        }
        wait_ok(grandchild, "the daemon", 0);
        check_common('c');
        _exit(0);
    }
    wait_ok(child, "its parent", 0);
    check_common('p');
    printf("done\n");
    return 0;
}
