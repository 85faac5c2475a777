/* SPDX-License-Identifier: BSD-2-Clause */
/* Little memory, locked memory, a system call filter, no /proc and no /sys. */
#include "helpers.h"

#include <string.h>

#define MIB(n) ((size_t)(n) << 20)

/* Runs a program of the system under the library, within `as` bytes of address space (0: no limit). */
static void run_system(size_t as, const char *out, const char *const *argv)
{
    const char *program = proc_which(argv[0]);
    if (!program)
        TEST_FAIL("%s is not installed", argv[0]);
    const char *full[8] = {program};
    for (size_t i = 1; argv[i]; i++)
        full[i] = argv[i];
    struct child_spec spec = {.argv = full, .limit_as = as};
    proc_run_quiet(&spec, out);
}

#define SYSTEM(as, out, ...) run_system(as, out, (const char *const[]){__VA_ARGS__, NULL})

/* R11 */
TEST(limits, echo_in_64_mib)
{
    SYSTEM(MIB(64), "hi\n", "echo", "hi");
}

TEST(limits, bash_in_64_mib)
{
    SYSTEM(MIB(64), "5050\n", "bash", "-c", "n=0; for i in {1..100}; do n=$((n + i)); done; echo $(echo $n)");
}

TEST(limits, python_in_256_mib)
{
    if (!proc_which("python3"))
        SKIP("python3 is not installed");
    SYSTEM(MIB(256), "499500\n", "python3", "-c", "print(sum(list(range(1000))))");
}

/* To the end of the address space with blocks of one size; at least so many of them must have been there. */
static void exhaust(size_t limit, const char *size, const char *at_least)
{
    char *path = child_bin_path("proc_oom");
    const char *argv[] = {path, size, at_least, NULL};
    struct child_spec spec = {.argv = argv, .limit_as = limit};
    proc_run_quiet(&spec, "done\n");
    free(path);
}

TEST(limits, exhausted_by_blocks_of_1_mib)
{
    exhaust(MIB(128), "1048576", "64");
}

TEST(limits, exhausted_by_blocks_of_100_kb)
{
    exhaust(MIB(128), "100000", "640");
}

TEST(limits, exhausted_by_blocks_of_5_kb)
{
    exhaust(MIB(128), "5000", "12000");
}

TEST(limits, exhausted_by_blocks_of_100_bytes)
{
    exhaust(MIB(64), "100", "200000");
}

TEST(limits, exhausted_by_blocks_of_20_mib)
{
    exhaust(MIB(128), "20000000", "3");
}

static void in_data_limit(const char *preload, const char *size, const char *at_least)
{
    const char *prlimit = proc_which("prlimit");
    if (!prlimit)
        TEST_FAIL("%s", "prlimit is not installed");
    char *path = child_bin_path("proc_oom");
    char *value = child_preload(preload), *set = proc_text("LD_PRELOAD=%s", value);
    const char *argv[] = {prlimit, "--data=33554432", "env", set, path, size, at_least, NULL};
    struct child_spec spec = {.argv = argv, .preload = ""};
    proc_run_quiet(&spec, "done\n");
    free(path);
    free(value);
    free(set);
}

TEST(limits, data_segment_of_32_mib)
{
    in_data_limit("@", "1000", "12000");
    in_data_limit("@", "1048576", "12");
}

/* R25 */
PROC_TEST(limits, all_memory_locked, "@", NULL, "proc_lockall")

TEST(limits, address_space_of_an_idle_process_is_small)
{
    const char *argv[] = {proc_which("grep"), "^VmSize:", "/proc/self/status", NULL};
    struct child_spec spec = {.argv = argv};
    struct child_result r = child_run(&spec);
    EXPECT_CHILD_OK(r);
    long kib = 0;
    EXPECT_EQ(sscanf(r.out, "VmSize: %ld kB", &kib), 1);
    if (kib <= 0 || kib >= 256 << 10)
        TEST_FAIL("an idle process has %ld KiB", kib);
    child_free(&r);
}

/* R12 */
PROC_TEST(limits, kill_by_default_filter, "@", NULL, "proc_seccomp", proc_count(200000, 1000000))
PROC_TEST(limits, filter_that_refuses_madvise, "@", NULL, "proc_seccomp", proc_count(200000, 1000000), "no_madvise")

/* R15: hides the directories in a mount namespace and runs `command` there under the library. */
static void hidden(const char *directories, const char *command)
{
    const char *unshare = proc_which("unshare");
    const char *probe[] = {unshare, "-rm", "mount", "-t", "tmpfs", "none", "/sys", NULL};
    if (!unshare)
        SKIP("unshare is not installed");
    struct child_spec spec = {.argv = probe, .preload = ""};
    struct child_result r = child_run(&spec);
    bool permitted = r.exit_code == 0;
    child_free(&r);
    if (!permitted)
        SKIP("no mount namespaces for us on this machine");
    char *preload = child_preload("@");
    char *script = proc_text("for d in %s; do mount -t tmpfs none $d || exit 9; done; LD_PRELOAD=%s exec %s",
                             directories, preload, command);
    const char *argv[] = {unshare, "-rm", "sh", "-c", script, NULL};
    spec = (struct child_spec){.argv = argv, .preload = ""};
    proc_run_quiet(&spec, NULL);
    free(preload);
    free(script);
}

TEST(limits, without_sys)
{
    hidden("/sys", "/bin/ls /");
}

TEST(limits, threads_without_proc_and_sys)
{
    char *path = child_bin_path("proc_mixed");
    char *command = proc_text("%s 4 20000", path);
    hidden("/sys /proc", command);
    free(command);
    free(path);
}
