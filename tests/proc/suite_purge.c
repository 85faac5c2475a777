/* SPDX-License-Identifier: BSD-2-Clause */
/* Giving memory back in whole programs: a system that refuses, forks in the middle of it, malloc_trim from anywhere. */
#include "helpers.h"

#include <errno.h>
#include <string.h>

/* Small floors, so that a small program purges often. */
static const char CONF[] = "keep:512k,decay_ms:20";

/* proc_purge with the k-th madvise answered so. Result: how many calls there were. */
static long run_with_fault(const char *conf, const char *fault)
{
    char *path = child_bin_path("proc_purge"), *set = proc_text("SHIM_REFUSE=%s", fault);
    const char *argv[] = {path, proc_count(200, 600), NULL};
    const char *env[] = {"SHIM_REFUSE_REPORT=1", set, NULL};
    struct child_spec spec = {.argv = argv, .preload = "shim_refuse.so:@", .conf = conf, .env = env};
    struct child_result r = child_run(&spec);
    long calls = -1;
    if (r.exit_code != 0 || sscanf(r.err, "shim_refuse: %ld calls\n", &calls) != 1 || strchr(r.err, '\n')[1] != 0)
        TEST_FAIL("with %s and %s: exit code %d, signal %d%s, said: %s", conf, fault, r.exit_code, r.signal,
                  r.timed_out ? ", hung" : "", r.err);
    child_free(&r);
    free(set);
    free(path);
    return calls;
}

/* For each way to refuse: some of the calls in turn, spread over all, the first ones among them; then all from one on. */
static void faults(const char *conf)
{
    static const int answers[] = {EPERM, ENOMEM, EINVAL, EAGAIN, 0};
    long all = run_with_fault(conf, "0,0"), tries = proc_long() ? 100 : 4;
    if (all < 10)
        TEST_FAIL("only %ld calls of madvise: nothing to refuse", all);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        for (long t = 0; t < tries; t++) {
            long k = t < tries / 2 ? 1 + t : 1 + all * t / tries;
            char *one = proc_text("%ld,%d", k, answers[i]), *rest = proc_text("%ld+,%d", k, answers[i]);
            run_with_fault(conf, one);
            if (t % 3 == 0)
                run_with_fault(conf, rest);
            free(one);
            free(rest);
        }
}

TEST(purge, each_madvise_may_fail)
{
    faults(CONF);
}

TEST(purge, each_lazy_madvise_may_fail)
{
    faults("keep:512k,decay_ms:20,madv_free:true");
}

PROC_TEST(purge, swinging_heap, "@", CONF, "proc_purge", proc_count(3000, 30000))
PROC_TEST(purge, swinging_heap_that_forks, "@", CONF, "proc_purge", proc_count(1000, 30000), "50")
PROC_TEST(purge, swinging_heap_without_purges, "@", "purge:off", "proc_purge", "1000")
PROC_TEST(purge, trim_from_any_thread, "@", NULL, "proc_trim_busy", "4", proc_count(30, 2000), "3")
PROC_TEST(purge, trim_from_any_thread_often, "@", CONF, "proc_trim_busy", "3", proc_count(30, 2000), "4")

/* Each purge takes a while, so that most forks fall into one. */
static void fork_in_slow_purges(const char *conf)
{
    char *path = child_bin_path("proc_trim_busy");
    const char *argv[] = {path, "3", proc_count(20, 1000), "2", NULL};
    const char *env[] = {"SHIM_REFUSE_NAP=500", NULL};
    struct child_spec spec = {.argv = argv, .preload = "shim_refuse.so:@", .conf = conf, .env = env};
    proc_run_quiet(&spec, NULL);
    free(path);
}

TEST(purge, forks_in_the_middle_of_purges)
{
    fork_in_slow_purges(CONF);
    fork_in_slow_purges("keep:512k,decay_ms:20,madv_free:true");
}
