/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large blocks and the address space: how many VMA system calls a habit costs, how many mappings a process has, what is
 * left when the kernel refuses. Counts and ratios only; the figures in time are perf/vma's.
 */
#include "helpers.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

/* R53: a block taken and freed again and again. Arguments: rounds, size, threads, calls in all. */
PROC_TEST(regions, pairs_of_8_mib, "@", NULL, "proc_pairs", proc_count(100000, 1000000), "8388608", "1", "20")
PROC_TEST(regions, pairs_of_6_mib, "@", NULL, "proc_pairs", proc_count(10000, 100000), "6291456", "1", "20")
PROC_TEST(regions, pairs_of_8_mib_by_2, "@", NULL, "proc_pairs", proc_count(10000, 100000), "8388608", "2", "20")
PROC_TEST(regions, pairs_of_64_mib, "@", NULL, "proc_pairs", proc_count(2000, 100000), "67108864", "1", "20")
PROC_TEST(regions, pairs_of_256_mib, "@", NULL, "proc_pairs", proc_count(2000, 100000), "268435456", "1", "20")
PROC_TEST(regions, pairs_of_32_mib_by_2, "@", NULL, "proc_pairs", proc_count(2000, 100000), "33554432", "2", "20")

/* R10 */
PROC_TEST(regions, holes_between_many_blocks, "@", NULL, "proc_holes", proc_count(20000, 200000), "100")
PROC_TEST(regions, no_mapping_left, "@", NULL, "proc_mapfull")

/* The k-th call of its kind is refused. */
PROC_TEST(regions, mmap_refused, "@", NULL, "proc_vmfail", "mmap")
PROC_TEST(regions, munmap_refused, "@", NULL, "proc_vmfail", "munmap")
PROC_TEST(regions, mremap_refused, "@", NULL, "proc_vmfail", "mremap")
PROC_TEST(regions, madvise_refused, "@", NULL, "proc_vmfail", "madvise")

/* R73 */
PROC_TEST(regions, hooks_see_what_is_given_back, "@", NULL, "proc_release")

/* R11 */
TEST(regions, echo_in_32_mib_of_data)
{
    const char *prlimit = proc_which("prlimit");
    if (!prlimit)
        TEST_FAIL("%s", "prlimit is not installed");
    char *value = child_preload("@"), *set = proc_text("LD_PRELOAD=%s", value);
    const char *argv[] = {prlimit, "--data=33554432", "env", set, "/bin/echo", "hi", NULL};
    struct child_spec spec = {.argv = argv, .preload = ""};
    proc_run_quiet(&spec, "hi\n");
    free(value);
    free(set);
}

/* R11 */
PROC_TEST(regions, realloc_takes_what_malloc_finds, "@", NULL, "proc_room")

/* R61: what growth by steps costs, under the library or ("") under glibc. */
struct growth {
    long calls, faults, over_kib;
};

static bool grow(const char *preload, const char *mib, struct growth *g)
{
    char *path = child_bin_path("proc_growth");
    const char *argv[] = {path, mib, NULL};
    struct child_spec spec = {.argv = argv, .preload = preload, .timeout_s = proc_long() ? 3600 : 0};
    struct child_result r = child_run(&spec);
    bool ran = r.exit_code != CHILD_SKIPPED;
    if (ran) {
        EXPECT_CHILD_OK(r);
        if (sscanf(r.out, "calls %ld faults %ld over_kib %ld", &g->calls, &g->faults, &g->over_kib) != 3)
            TEST_FAIL("on stdout: %s", r.out);
    }
    child_free(&r);
    free(path);
    return ran;
}

/* No more calls and faults than glibc's; a thread's cache and our bookkeeping have a few faults of their own. */
TEST(regions, growth_costs_no_more_than_glibc)
{
    enum { OWN_FAULTS = 64 };
    const char *mib = proc_count(1024, 4096);
    struct growth ours, theirs;
    if (!grow("", mib, &theirs) || !grow("@", mib, &ours))
        SKIP("no filter that asks");
    if (ours.calls > theirs.calls)
        TEST_FAIL("%ld VMA calls, glibc %ld", ours.calls, theirs.calls);
    if (ours.faults > theirs.faults + OWN_FAULTS)
        TEST_FAIL("%ld page faults, glibc %ld", ours.faults, theirs.faults);
    long allowed = strtol(mib, NULL, 10) * 1024 / 100;
    if (ours.over_kib > allowed)
        TEST_FAIL("%ld KiB of peak beyond the block, allowed %ld", ours.over_kib, allowed);
}

/* R25: what the one file that a program leaves in its directory takes on the disk; 0 if there is none. What was never
 * touched of a window is a hole in that file. */
static long long core_size(const char *preload, const char *mib)
{
    char *dir = proc_temp_dir(), *path = child_bin_path("proc_dump"), *name = NULL;
    const char *argv[] = {path, mib, NULL};
    struct child_spec spec = {.argv = argv, .preload = preload, .cwd = dir};
    struct child_result r = child_run(&spec);
    struct dirent *entry;
    struct stat st = {.st_size = 0};
    DIR *d = opendir(dir);
    EXPECT(d != NULL);
    while (!name && (entry = readdir(d)))
        if (entry->d_name[0] != '.')
            name = proc_text("%s/%s", dir, entry->d_name);
    closedir(d);
    if (r.signal && name)
        EXPECT(stat(name, &st) == 0);
    free(name);
    free(path);
    child_free(&r);
    proc_temp_remove(dir);
    return (long long)st.st_blocks * 512;
}

TEST(regions, core_dump_is_as_small_as_glibc_s)
{
    long long theirs = core_size("", "20"), ours = core_size("@", "20");
    if (theirs == 0)
        SKIP("no core file in the current directory on this machine");
    if (ours == 0 || ours > theirs + theirs / 10)
        TEST_FAIL("a core file of %lld bytes, glibc %lld", ours, theirs);
}

/* R06: a stranger's memory may lie where a block of ours was. */
TEST(regions, stranger_where_a_block_was)
{
    struct child_result r = child_run_prog("proc_gone");
    if (r.exit_code != CHILD_SKIPPED) {
        EXPECT_CHILD_OK(r);
        EXPECT(strcmp(r.out, "left alone\n") == 0 && strstr(r.err, ": not ours: left alone\n"));
    }
    child_free(&r);
}

/* A limit on the heap binds blocks of every size. The limit on address space only ends a run that passes it. */
TEST(regions, hard_limit_binds_large_blocks)
{
    static const char *const sizes[] = {"20000000", "50000000", "100000000"};
    char *path = child_bin_path("proc_oom");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *argv[] = {path, sizes[i], "1", NULL};
        struct child_spec spec = {.argv = argv, .conf = "hard_limit:16777216", .limit_as = (size_t)512 << 20};
        struct child_result r = child_run(&spec);
        EXPECT(r.exit_code == 1 && strstr(r.err, "only 0 blocks"));
        child_free(&r);
    }
    free(path);
}
