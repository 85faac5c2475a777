/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large blocks and the address space: how many VMA system calls a habit costs, how many mappings a process has, what is
 * left when the kernel refuses. Counts and ratios only; the figures in time are perf/vma's.
 */
#include "helpers.h"

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
