/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large blocks and the address space: how many VMA system calls a habit costs, how many mappings a process has, what is
 * left when the kernel refuses. Counts and ratios only; the figures in time are perf/vma's.
 */
#include "helpers.h"

#include <string.h>

/* R53: a block taken and freed again and again. Arguments: rounds, size, threads, calls in all. */
PROC_TEST(regions, pairs_of_8_mib, "@", NULL, "proc_pairs", proc_count(100000, 1000000), "8388608", "1", "20")
PROC_TEST(regions, pairs_of_6_mib, "@", NULL, "proc_pairs", proc_count(10000, 100000), "6291456", "1", "20")
PROC_TEST(regions, pairs_of_8_mib_by_2, "@", NULL, "proc_pairs", proc_count(10000, 100000), "8388608", "2", "20")
PROC_TEST(regions, pairs_of_64_mib, "@", NULL, "proc_pairs", proc_count(2000, 100000), "67108864", "1", "20")
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
