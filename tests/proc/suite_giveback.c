/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is given back, and what is not: short forms of perf/giveback. The programs are those of perf/micro, which say what
 * they see as key=value lines; only sizes, counts and ratios of one run are judged. Then: do the statistics add up to
 * what the kernel says is resident?
 */
#include "helpers.h"

#include <string.h>
#include <unistd.h>

/* ---- one run, its figures ---- */

/* The number behind KEY= in a text; the test fails if it is not there. */
static long figure(const char *text, const char *key)
{
    size_t len = strlen(key);
    for (const char *at = text; (at = strstr(at, key)) != NULL; at += len)
        if (at[len] == '=' && (at == text || strchr(" \n", at[-1])))
            return strtol(at + len + 1, NULL, 10);
    TEST_FAIL("no %s in: %s", key, text);
}

/* Runs a program of perf/micro; its stdout. Owner: the caller frees it. `shim`: NULL, or where the line of shim_madvise
 * goes (the same). */
static char *run(const char *conf, char **shim, const char *const *name_and_args)
{
    const char *argv[8] = {NULL};
    char *name = proc_text("../../perf/micro/%s", name_and_args[0]), *path = child_bin_path(name);
    argv[0] = path;
    for (size_t i = 1; i < 7 && name_and_args[i]; i++)
        argv[i] = name_and_args[i];
    struct child_spec spec = {.argv = argv, .conf = conf, .preload = shim ? "shim_madvise.so:@" : "@"};
    struct child_result r = child_run(&spec);
    EXPECT_CHILD_OK(r);
    char *out = proc_text("%s", r.out);
    if (shim)
        *shim = proc_text("%s", r.err);
    child_free(&r);
    free(name);
    free(path);
    return out;
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* One figure of one run. */
static long only(const char *key, const char *conf, const char *const *name_and_args)
{
    char *out = run(conf, NULL, name_and_args);
    long n = figure(out, key);
    free(out);
    return n;
}

#define AT_MOST(value, most)                                                                                           \
    do {                                                                                                               \
        long at_most = (value);                                                                                        \
        if (at_most > (most))                                                                                          \
            TEST_FAIL("%s:%d: %s is %ld, more than %ld", __FILE__, __LINE__, #value, at_most, (long)(most));           \
    } while (0)

#define MORE_THAN(value, least)                                                                                        \
    do {                                                                                                               \
        long more_than = (value);                                                                                      \
        if (more_than <= (least))                                                                                      \
            TEST_FAIL("%s:%d: %s is %ld, not more than %ld", __FILE__, __LINE__, #value, more_than, (long)(least));    \
    } while (0)

/* ---- R16, R08: the end of a spike ---- */

enum { SPIKE_KIB = 8 << 10, REPEATED_KIB = 72 << 10 };

static void spike(const char *kind, const char *blocks, const char *times, long least_kib, long most_kib)
{
    char *out = run(NULL, NULL, ARGS("gb_spike", kind, blocks, times));
    long before = figure(out, "before_kib");
    MORE_THAN(figure(out, "peak_kib") - before, least_kib); /* or the spike was none */
    AT_MOST(figure(out, "left_kib"), most_kib);
    free(out);
}

TEST(giveback, spike_of_small_blocks_freed_in_order)
{
    spike("order", "1000000", "1", 100 << 10, SPIKE_KIB);
}

TEST(giveback, spike_of_small_blocks_freed_at_random)
{
    spike("random", "1000000", "1", 100 << 10, SPIKE_KIB);
}

TEST(giveback, spike_of_large_blocks_but_the_last)
{
    spike("mib", "300", "1", 290 << 10, SPIKE_KIB);
}

TEST(giveback, spike_freed_by_another_thread)
{
    spike("cross", "30000", "1", 150 << 10, SPIKE_KIB);
    spike("cross-random", "30000", "1", 150 << 10, SPIKE_KIB);
}

TEST(giveback, spikes_one_after_the_other)
{
    spike("random", "1000000", "2", 100 << 10, REPEATED_KIB);
    spike("mib", "300", "3", 290 << 10, REPEATED_KIB);
    spike("cross", "30000", "3", 150 << 10, REPEATED_KIB);
}

/* ---- a sparse heap, trimmed ---- */

/* Bytes of an os page as the library sees them (tests/gate/pages). */
static long long os_page(void)
{
    const char *told = getenv("SHEAF_TEST_OS_PAGE");
    return told ? atoll(told) : sysconf(_SC_PAGESIZE);
}

/* One block in twenty stays, so 20,000 would be the whole heap: each keeps an os page, however large that is. */
TEST(giveback, sparse_heap_after_trim)
{
    char *out = run(NULL, NULL, ARGS("gb_frag", "128", "95"));
    MORE_THAN(figure(out, "peak_kib"), 120 << 10);
    AT_MOST(figure(out, "permille"), os_page() <= 4096 ? 2800 : os_page() <= 16384 ? 8000 : 17000);
    free(out);
}

/* ---- R53: no thrash ---- */

TEST(giveback, batches_fault_in_nothing_again)
{
    AT_MOST(only("faults", NULL, ARGS("gb_batch", "3000")), 1000); /* a heap given back by each would be 600,000 */
}

/* Of 6 MiB, 1,536 os pages of 4 KiB: once or twice, not once a round. */
static void loop_after(const char *kind)
{
    char *shim, *out = run(NULL, &shim, ARGS("gb_loop", "300", kind, "256"));
    EXPECT_EQ(figure(shim, "between"), 0);
    AT_MOST(figure(out, "faults"), 3 * 1536);
    free(out);
    free(shim);
}

TEST(giveback, loop_of_6_mib)
{
    loop_after("none");
}

TEST(giveback, loop_after_a_spike_of_small_blocks)
{
    loop_after("small");
}

TEST(giveback, loop_after_a_spike_of_1_mib_blocks)
{
    loop_after("mib");
}

TEST(giveback, loop_after_one_block)
{
    loop_after("one");
}

/* ---- R17: threads asleep; R35: a child that frees ---- */

TEST(giveback, sleeping_threads_cost_little)
{
    long with = only("bytes_a_thread", NULL, ARGS("gb_threads", "500"));
    long without = only("bytes_a_thread", NULL, ARGS("gb_threads", "500", "control"));
    MORE_THAN(without, 0);
    AT_MOST(with - without, 16 << 10);
}

TEST(giveback, child_that_frees_dirties_little)
{
    AT_MOST(only("permille", NULL, ARGS("gb_child", "order", "128")), 30);
    AT_MOST(only("permille", NULL, ARGS("gb_child", "random", "128")), 30);
}

/* ---- purge:off, madv_free ---- */

TEST(giveback, purge_off_is_no_madvise_at_all)
{
    char *shim, *out = run(NULL, &shim, ARGS("gb_spike", "order", "300000"));
    MORE_THAN(figure(shim, "dontneed"), 0); /* or the shim sees nothing */
    EXPECT_EQ(figure(shim, "free"), 0);
    free(out);
    free(shim);
    out = run("purge:off", &shim, ARGS("gb_spike", "order", "300000"));
    EXPECT_EQ(figure(shim, "all"), 0);
    MORE_THAN(figure(out, "left_kib"), 20 << 10);
    free(out);
    free(shim);
    out = run("purge:off", &shim, ARGS("gb_frag", "64")); /* malloc_trim asks for it in so many words */
    EXPECT_EQ(figure(shim, "all"), 0);
    free(out);
    free(shim);
}

TEST(giveback, madv_free_is_lazy_and_asked_for_only)
{
    char *shim, *out = run("madv_free:true", &shim, ARGS("gb_spike", "mib", "300"));
    MORE_THAN(figure(shim, "free"), 0);
    MORE_THAN(figure(out, "lazy_kib"), 200 << 10);
    free(out);
    free(shim);
    EXPECT_EQ(only("lazy_kib", NULL, ARGS("gb_huge", "16", "200")), 0);
}

/* ---- the statistics add up ---- */

/* The resident parts, as the JSON names them; small_clean is the part of small blocks and slabs that is not resident. What
 * is only address space (zone_clean, edges) or the library's own data is not among them. */
static const struct {
    const char *name;
    int sign;
} parts[] = {
    {"small_live", 1}, {"small_cached", 1}, {"small_barn", 1},   {"small_free", 1},   {"small_waste", 1},
    {"small_clean", -1}, {"run_usable", 1}, {"run_stale", 1},    {"large_usable", 1}, {"large_stale", 1},
    {"own_usable", 1}, {"hot", 1}, {"stale", 1}, {"pcp_resident", 1}, {"zone_dirty", 1},   {"zone_lazy", 1},    {"meta", 1},
    {"meta_static", -1}, {"meta_fresh", -1}, {"leaf_resident", 1},
};

static long long json_number(const char *text, const char *name)
{
    char *key = proc_text("\n  \"%s\": ", name);
    const char *at = strstr(text, key);
    if (!at)
        TEST_FAIL("no %s in the statistics: %.300s", name, text);
    long long n = strtoll(at + strlen(key), NULL, 10);
    free(key);
    return n;
}

static void adds_up(const char *workload)
{
    char *dir = proc_temp_dir(), *path = proc_text("%s/stats", dir), *conf = proc_text("stats_json:%s", path);
    struct child_result r = child_run_conf(conf, "proc_accounting", workload);
    EXPECT_CHILD_OK(r);
    char *json = proc_slurp(path);
    long long said = 0, resident = (long long)figure(r.out, "regions_kib") * 1024;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        said += parts[i].sign * json_number(json, parts[i].name);
    EXPECT_EQ(said, json_number(json, "resident"));
    long long apart = said > resident ? said - resident : resident - said;
    /* Only told of larger os pages, the kernel still brings in parts of them. */
    bool may_say_more = os_page() > sysconf(_SC_PAGESIZE) && said > resident;
    if (apart * 100 > 3 * resident && !may_say_more)
        TEST_FAIL("%s: the parts are %lld KiB, the kernel has %lld KiB, %.1f %% apart: %.700s", workload, said >> 10,
                  resident >> 10, 100.0 * (double)apart / (double)resident, json);
    free(json);
    child_free(&r);
    free(conf);
    free(path);
    proc_temp_remove(dir);
}

TEST(accounting, small_blocks)
{
    adds_up("steady");
}

TEST(accounting, sparse_heap_after_trim)
{
    adds_up("sparse");
}

TEST(accounting, page_runs)
{
    adds_up("runs");
}

TEST(accounting, large_blocks)
{
    adds_up("large");
}

TEST(accounting, threads)
{
    adds_up("threads");
}
