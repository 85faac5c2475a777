/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Items of docs/acceptance.md that no other suite shows. Counts and ratios of one run only, and where the C library is the
 * measure, its run is made here too.
 */
#include "helpers.h"

#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The number behind KEY= in a text; the test fails if it is not there. */
static long figure(const char *text, const char *key)
{
    char *sign = proc_text("%s=", key);
    const char *at = strstr(text, sign);
    if (!at)
        TEST_FAIL("no %s in: %s", sign, text);
    long n = strtol(at + strlen(sign), NULL, 10);
    free(sign);
    return n;
}

/* Runs it, demands that it ends well; its standard output. Owner: the caller frees it. */
static char *output(const struct child_spec *spec)
{
    struct child_result r = child_run(spec);
    EXPECT_CHILD_OK(r);
    char *out = proc_text("%s", r.out);
    child_free(&r);
    return out;
}

/* The same for a program of the build. */
static char *output_of(const char *preload, const char *conf, const char *const *env, const char *const *name_and_args)
{
    const char *argv[8] = {NULL};
    char *path = child_bin_path(name_and_args[0]);
    argv[0] = path;
    for (size_t i = 1; i < 7 && name_and_args[i]; i++)
        argv[i] = name_and_args[i];
    struct child_spec spec = {
        .argv = argv, .preload = preload, .conf = conf, .env = env, .timeout_s = proc_long() ? 3600 : 0};
    char *out = output(&spec);
    free(path);
    return out;
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- the surroundings: other preloads, cpus, nodes ---- */

/* R03: the clock faker itself, in both orders, where it is installed. */
TEST(accept, faketime)
{
    static const char *const places[] = {"/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
                                         "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1"};
    const char *faketime = NULL;
    for (size_t i = 0; i < 2; i++)
        if (access(places[i], R_OK) == 0)
            faketime = places[i];
    if (!faketime)
        SKIP("faketime is not installed");
    const char *argv[] = {proc_which("date"), "+%Y", NULL};
    const char *env[] = {"FAKETIME=@2001-02-03 04:05:06", NULL};
    for (int after = 0; after < 2; after++) {
        char *order = after ? proc_text("@:%s", faketime) : proc_text("%s:@", faketime);
        struct child_spec spec = {.argv = argv, .preload = order, .env = env};
        proc_run_quiet(&spec, "2001\n");
        free(order);
    }
}

/* R13: refused, the calls for placement change nothing that can be seen. check-numa does this on four nodes. */
TEST(accept, placement_refused)
{
    static const char *const errors[] = {"EPERM", "ENOSYS"};
    char *work = child_bin_path("numa_work"), *refuse = child_bin_path("numa_refuse");
    const char *plain[] = {work, "3", NULL};
    char *wanted = output(&(struct child_spec){.argv = plain, .preload = ""});
    for (size_t i = 0; i < 2; i++) {
        const char *argv[] = {refuse, errors[i], work, "3", NULL};
        proc_run_quiet(&(struct child_spec){.argv = argv}, wanted);
        proc_run_quiet(&(struct child_spec){.argv = argv, .conf = "numa:bind"}, wanted);
    }
    free(wanted);
    free(refuse);
    free(work);
}

/* R14: any number may be that of a cpu or a node, at any time. */
static void lied_to(const char *mode, const char *const *name_and_args)
{
    char *lie = proc_text("SHIM_CPU=%s", mode), *path = child_bin_path(name_and_args[0]);
    const char *env[] = {lie, "GLIBC_TUNABLES=glibc.pthread.rseq=0", NULL};
    const char *argv[8] = {path};
    for (size_t i = 1; name_and_args[i]; i++)
        argv[i] = name_and_args[i];
    struct child_spec spec = {.argv = argv, .preload = "shim_cpu.so:@", .env = env};
    struct child_result r = child_run(&spec);
    long asked = 0;
    EXPECT_CHILD_OK(r);
    if (sscanf(r.err, "shim_cpu: asked %ld times\n", &asked) != 1 || strchr(r.err, '\n')[1])
        TEST_FAIL("on stderr: %s", r.err);
    if (asked < 10)
        TEST_FAIL("asked only %ld times", asked);
    child_free(&r);
    free(path);
    free(lie);
}

TEST(accept, cpus_and_nodes_that_are_not_there)
{
    lied_to("far", ARGS("stress_mixed", "-t", "8", "-n", proc_count(60000, 3000000), "-s", "1"));
    lied_to("random", ARGS("stress_mixed", "-t", "8", "-n", proc_count(60000, 3000000), "-s", "2"));
    lied_to("random", ARGS("stress_churn", "-t", "8", "-n", proc_count(40000, 3000000), "-s", "3"));
}

TEST(accept, last_cpu_alone)
{
    const char *taskset = proc_which("taskset");
    if (!taskset)
        SKIP("taskset is not installed");
    char *cpu = proc_text("%ld", sysconf(_SC_NPROCESSORS_CONF) - 1), *path = child_bin_path("proc_mixed");
    const char *argv[] = {taskset, "-c", cpu, path, "4", proc_count(20000, 1000000), NULL};
    proc_run_quiet(&(struct child_spec){.argv = argv}, "4 threads\n");
    free(path);
    free(cpu);
}

/* R22: an emulator for which MADV_DONTNEED is only a word. */
TEST(accept, zeroes_under_an_emulator)
{
    struct utsname machine;
    const char *qemu = uname(&machine) == 0 && strcmp(machine.machine, "x86_64") == 0 ? proc_which("qemu-x86_64") : NULL;
    if (!qemu)
        SKIP("no emulator of this machine's programs");
    char *path = child_bin_path("api_calloc_zero"), *value = child_preload("@"), *set = proc_text("LD_PRELOAD=%s", value);
    const char *argv[] = {qemu, "-E", set, path, NULL};
    proc_run_quiet(&(struct child_spec){.argv = argv, .preload = "", .timeout_s = 300}, NULL);
    free(set);
    free(value);
    free(path);
}

/* R29: the path with $LIB in it leads to the library. */
TEST(accept, path_by_architecture)
{
    /* What the loader may put for $LIB. */
    static const char *const folders[] = {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"};
    char *dir = proc_temp_dir(), *path = child_bin_path("proc_tiny"), *order = proc_text("%s/$LIB/libsheaf.so", dir);
    const char *argv[] = {path, "where", NULL};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char *folder = proc_text("%s/%s", dir, folders[i]);
        const char *mk[] = {"mkdir", "-p", folder, NULL}, *cp[] = {"cp", child_lib(), folder, NULL};
        proc_run_quiet(&(struct child_spec){.argv = mk, .preload = ""}, "");
        proc_run_quiet(&(struct child_spec){.argv = cp, .preload = ""}, "");
        free(folder);
    }
    proc_run_quiet(&(struct child_spec){.argv = argv, .preload = order}, "elsewhere\n");
    free(order);
    free(path);
    proc_temp_remove(dir);
}

/* R78: a program that has no loader is not touched. */
TEST(accept, static_program)
{
    const char *gcc = proc_which("gcc");
    char *dir = proc_temp_dir(), *program = proc_text("%s/static", dir), *source = proc_text("%s/tiny.c", dir);
    FILE *f = fopen(source, "we");
    EXPECT(f && fputs("#include <stdio.h>\n#include <stdlib.h>\n"
                      "int main(void) { char *p = malloc(99); free(p); return puts(p ? \"static\" : \"\") < 0; }\n",
                      f) >= 0);
    fclose(f);
    const char *build[] = {gcc, "-static", source, "-o", program, NULL}, *run[] = {program, NULL};
    struct child_result r = {.exit_code = -1};
    if (gcc)
        r = child_run(&(struct child_spec){.argv = build, .preload = ""});
    bool built = gcc && r.exit_code == 0;
    if (gcc)
        child_free(&r);
    if (built)
        proc_run_quiet(&(struct child_spec){.argv = run}, "static\n");
    free(source);
    free(program);
    proc_temp_remove(dir);
    if (!built)
        SKIP("no static programs can be built here");
}

/* R75, R12: mappings get no names, since the call for it is not one of those that glibc's malloc makes. */
TEST(accept, no_prctl)
{
    const char *strace = proc_which("strace");
    if (!strace)
        SKIP("strace is not installed");
    char *value = child_preload("@"), *set = proc_text("LD_PRELOAD=%s", value), *path = child_bin_path("proc_mixed");
    const char *argv[] = {strace, "-f", "-qq", "-e", "trace=prctl,process_madvise,membarrier,memfd_create,getrandom",
                          "-E", set, path, "4", "20000", NULL};
    struct child_result r = child_run(&(struct child_spec){.argv = argv, .preload = ""});
    if (r.exit_code != 0) {
        child_free(&r);
        SKIP("strace may not trace here");
    }
    /* glibc itself asks for random numbers once, at its own malloc's start in some versions. */
    if (strstr(r.err, "prctl(") || strstr(r.err, "process_madvise(") || strstr(r.err, "membarrier(") ||
        strstr(r.err, "memfd_create("))
        TEST_FAIL("calls: %s", r.err);
    child_free(&r);
    free(path);
    free(set);
    free(value);
}

PROC_TEST(accept, addresses_are_below_2_to_47, "@", NULL, "acc_address")

/* ---- memory ---- */

/* R34, R36, R52, R16 */
PROC_TEST(accept, daemon_of_its_own, "@", NULL, "acc_daemon", proc_count(300000, 1000000))

/* R09: without the kernel's help here; the guest has huge pages always (check-accept-guest). */
PROC_TEST(accept, given_back_stays_away, "@", NULL, "acc_collapse", "32", "1")

/* R17: one cpu's worth of threads costs no more a thread. */
TEST(accept, threads_on_one_cpu_cost_the_same)
{
    const char *taskset = proc_which("taskset");
    if (!taskset)
        SKIP("taskset is not installed");
    const char *threads = proc_count(300, 4000);
    char *path = child_bin_path("../../perf/micro/gb_threads");
    const char *all[] = {path, threads, NULL}, *one[] = {taskset, "-c", "0", path, threads, NULL};
    const char *control[] = {path, threads, "control", NULL};
    char *a = output(&(struct child_spec){.argv = all}), *b = output(&(struct child_spec){.argv = one}),
         *c = output(&(struct child_spec){.argv = control});
    long on_all = figure(a, "bytes_a_thread"), on_one = figure(b, "bytes_a_thread"), stacks = figure(c, "bytes_a_thread");
    EXPECT(stacks > 0);
    if (on_one - stacks > 16 << 10 || on_one > on_all + 2048)
        TEST_FAIL("%ld bytes a thread on one cpu, %ld on all, %ld of them stacks", on_one, on_all, stacks);
    free(c);
    free(b);
    free(a);
    free(path);
}

/* R51: a large block lies on huge pages, or not, as asked. */
TEST(accept, huge_pages_for_large_blocks)
{
    char *mode = proc_slurp("/sys/kernel/mm/transparent_hugepage/enabled");
    bool off = strstr(mode, "[never]") != NULL;
    free(mode);
    if (off)
        SKIP("this system has no huge pages");
    const char *const args[] = {"../../perf/micro/gb_huge", "256", "1", NULL};
    char *with = output_of("@", NULL, NULL, args), *never = output_of("@", "thp:never", NULL, args);
    EXPECT_EQ(figure(never, "huge_kib"), 0);
    if (figure(with, "huge_kib") < 200 << 10)
        TEST_FAIL("%ld KiB of 256 MiB on huge pages", figure(with, "huge_kib"));
    free(never);
    free(with);
}

/* R55: each limit in turn; the statistics say what was refused. */
static void reason(const char *conf, size_t as, const char *data, const char *const *name_and_args, const char *says)
{
    const char *prlimit = proc_which("prlimit");
    char *path = child_bin_path(name_and_args[0]), *value = child_preload("@"), *set = proc_text("LD_PRELOAD=%s", value);
    const char *argv[] = {path, name_and_args[1], name_and_args[2], NULL};
    const char *under[] = {prlimit, data, "env", set, path, name_and_args[1], name_and_args[2], NULL};
    struct child_spec spec = {.argv = data ? under : argv, .preload = data ? "" : NULL, .conf = conf, .limit_as = as};
    struct child_result r = child_run(&spec);
    if (r.exit_code == CHILD_SKIPPED) {
        fprintf(stderr, "skipped: %s", r.err);
    } else {
        EXPECT_CHILD_OK(r);
        if (!strstr(r.out, says))
            TEST_FAIL("no \"%s\" in: %s", says, r.out);
    }
    child_free(&r);
    free(set);
    free(value);
    free(path);
}

TEST(accept, reason_of_a_refusal)
{
    reason(NULL, (size_t)128 << 20, NULL, ARGS("acc_reason", "any", "1048576"), "address space 134217728");
    reason(NULL, 0, "--data=67108864", ARGS("acc_reason", "any", "1048576"), "data 67108864");
    reason("hard_limit:33554432", 0, NULL, ARGS("acc_reason", "any", "1048576"), "hard_limit refused");
    reason(NULL, 0, NULL, ARGS("acc_reason", "lock", "1048576"), "mmap");
    reason(NULL, 0, NULL, ARGS("acc_reason", "maps", "300000000"), "mmap");
}

/* R57: what a program that does nothing has in memory, against one with an empty library. The least of some runs: what the
 * kernel maps around a fault differs. */
static long least_rss(const char *preload)
{
    long least = 0;
    char *path = child_bin_path("acc_address");
    const char *argv[] = {path, "rss", NULL};
    for (int i = 0; i < 5; i++) {
        char *out = output(&(struct child_spec){.argv = argv, .preload = preload});
        long now = figure(out, "private_kib");
        least = least == 0 || now < least ? now : least;
        free(out);
    }
    free(path);
    return least;
}

TEST(accept, little_memory_at_the_start)
{
    long empty = least_rss("shim_empty.so"), ours = least_rss("@");
    if (ours - empty > 100)
        TEST_FAIL("%ld KiB, with an empty library %ld", ours, empty);
}

/* R62: lock holds for blocks of 32 KiB, half of which others free. */
static long long sum_of(const char *json, const char *key)
{
    long long sum = 0;
    char *quoted = proc_text("%s\": ", key);
    for (const char *at = json; (at = strstr(at, quoted)) != NULL; at += strlen(quoted))
        sum += strtoll(at + strlen(quoted), NULL, 10);
    free(quoted);
    return sum;
}

TEST(accept, few_locks_for_blocks_of_32_kib)
{
    char *dir = proc_temp_dir(), *path = proc_text("%s/stats", dir), *conf = proc_text("stats_json:%s", path);
    char *out = output_of("@", conf, NULL, ARGS("acc_ring", "16", proc_count(20000, 1000000), "32768"));
    char *json = proc_slurp(path);
    long long blocks = figure(out, "blocks"), locks = sum_of(json, "locks"), waits = sum_of(json, "waits");
    if (locks == 0 || locks * 2 > blocks || waits * 100 > blocks)
        TEST_FAIL("%lld lock holds and %lld waits for %lld blocks", locks, waits, blocks);
    free(json);
    free(out);
    free(conf);
    free(path);
    proc_temp_remove(dir);
}

/* R64 */
PROC_TEST(accept, no_cache_line_of_two_threads, "@", NULL, "acc_lines", "8", proc_count(5000, 200000))

/* R69: the threads' caches have 64 MiB for all of them. glibc with the two arenas that people allow it has less resident, which
 * docs/acceptance.md says; a cache that multiplies with threads would be far beyond, and have new faults for each stream. */
TEST(accept, threads_that_inflate_streams)
{
    static const char *const arenas[] = {"MALLOC_ARENA_MAX=2", NULL};
    const char *streams = proc_count(20, 400);
    char *theirs = output_of("", NULL, arenas, ARGS("acc_streams", "200", streams)),
         *ours = output_of("@", NULL, NULL, ARGS("acc_streams", "200", streams));
    if (figure(ours, "rss_kib") > figure(theirs, "rss_kib") + (64 << 10) ||
        figure(ours, "faults") > 2 * figure(theirs, "faults"))
        TEST_FAIL("ours: %s; glibc's with two arenas: %s", ours, theirs);
    free(ours);
    free(theirs);
}

/* R70: memory goes round. */
TEST(accept, tensors_go_round)
{
    char *out = output_of("@", NULL, NULL, ARGS("acc_tensors", proc_count(4, 8), proc_count(10, 50), proc_count(16, 64)));
    long faults = figure(out, "faults"), pages = figure(out, "pages_a_round") * figure(out, "rounds");
    if (faults * 20 > pages)
        TEST_FAIL("%ld faults for %ld pages: %s", faults, pages, out);
    if (figure(out, "most_kib") > figure(out, "rss_kib") * 5 / 4)
        TEST_FAIL("resident size grows: %s", out);
    free(out);
}
