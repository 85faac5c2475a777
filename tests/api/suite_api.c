/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The C and C++ interfaces as unmodified programs see them: each test runs one program of tests/prog/ with the library
 * preloaded. A program that uses the interfaces rightly must end well and the library must not have said a word.
 */
#include "lib_child.h"

#include <gnu/libc-version.h>
#include <string.h>

#define PROGRAM(suite, test, ...)                                                                                      \
    TEST(suite, test)                                                                                                  \
    {                                                                                                                  \
        struct child_result r = child_run_prog(__VA_ARGS__);                                                           \
        EXPECT_CHILD_OK(r);                                                                                            \
        if (r.err_len != 0)                                                                                            \
            TEST_FAIL("%s:%d: on stderr: %s", __FILE__, __LINE__, r.err);                                              \
        child_free(&r);                                                                                                \
    }

/* For programs that need seccomp or locked memory, which a container may refuse. */
#define PROGRAM_OR_SKIP(suite, test, ...)                                                                              \
    TEST(suite, test)                                                                                                  \
    {                                                                                                                  \
        struct child_result r = child_run_prog(__VA_ARGS__);                                                           \
        EXPECT_CHILD_OK_OR_SKIPPED(r);                                                                                 \
        child_free(&r);                                                                                                \
    }

static void run_quiet(const struct child_spec *spec)
{
    struct child_result r = child_run(spec);
    EXPECT_CHILD_OK(r);
    if (r.err_len != 0)
        TEST_FAIL("%s:%d: on stderr: %s", __FILE__, __LINE__, r.err);
    child_free(&r);
}

/* First of all: the children of this suite really run on the library. */
TEST(api_preload, is_in_force)
{
    const char *const argv[] = {"cat", "/proc/self/maps", NULL};
    struct child_result r = child_run(&(struct child_spec){.argv = argv});
    EXPECT_CHILD_OK(r);
    EXPECT(strstr(r.out, child_lib()) != NULL);
    child_free(&r);
}

/* And the suite does not. */
TEST(api_preload, not_in_the_suite)
{
    const char *const argv[] = {"cat", "/proc/self/maps", NULL};
    struct child_result r = child_run(&(struct child_spec){.argv = argv, .preload = ""});
    EXPECT_CHILD_OK(r);
    EXPECT(strstr(r.out, child_lib()) == NULL);
    child_free(&r);
}

/* The table was measured on glibc 2.36: there the program itself must agree with it. */
TEST(api_glibc, table)
{
    if (strcmp(gnu_get_libc_version(), "2.36") != 0) {
        fprintf(stderr, "skipped: the table is glibc 2.36's, this is %s\n", gnu_get_libc_version());
        return;
    }
    char *path = child_bin_path("api_table");
    const char *const argv[] = {path, NULL};
    run_quiet(&(struct child_spec){.argv = argv, .preload = ""});
    free(path);
}

PROGRAM(api, table, "api_table", "strict")
PROGRAM(api, alignment_of_every_size, "api_align")
PROGRAM(api, alignment_arguments, "api_align_args")
PROGRAM(api, zero_sizes, "api_zero")
PROGRAM(api, realloc_to_zero, "api_realloc_zero")
PROGRAM(api, realloc_contents, "api_realloc")
PROGRAM(api, overflow, "api_overflow")
PROGRAM(api, usable_size, "api_usable", "large")
PROGRAM(api, wrong_sizes, "api_sized")
PROGRAM(api, all_routes_are_one_heap, "api_mix")
PROGRAM(api, mallopt, "api_mallopt")
PROGRAM(api, statistics, "api_stats", "full")
PROGRAM(api, mallocx, "api_mallocx")
PROGRAM_OR_SKIP(api, tagged_pointers, "api_tagged")

PROGRAM(api_errno, kept, "api_errno")
PROGRAM_OR_SKIP(api_errno, kept_without_madvise, "api_errno", "madvise")
PROGRAM_OR_SKIP(api_errno, kept_without_munmap, "api_errno", "munmap")
PROGRAM_OR_SKIP(api_errno, kept_without_any, "api_errno", "madvise", "munmap", "mremap", "mprotect")

PROGRAM(api_calloc, zero, "api_calloc_zero")
PROGRAM_OR_SKIP(api_calloc, zero_when_locked, "api_calloc_zero", "locked")
PROGRAM_OR_SKIP(api_calloc, zero_when_madvise_lies, "api_calloc_zero", "noop")
PROGRAM_OR_SKIP(api_calloc, zero_when_madvise_fails, "api_calloc_zero", "deny")
PROGRAM_OR_SKIP(api_calloc, zero_when_locked_and_madvise_lies, "api_calloc_zero", "noop", "locked")

PROGRAM(api_new, all_forms, "api_new_forms", "strict")
PROGRAM(api_new, replaced_base_is_reached, "api_new_replaced")
PROGRAM(api_new, replaced_array_base_is_reached, "api_new_arrays")
PROGRAM(api_new, replaced_base_may_throw, "api_new_replaced", "throw")
PROGRAM(api_new, handler_frees_a_reserve, "api_new_limits", "reserve")
PROGRAM(api_new, bad_alloc, "api_new_limits", "throw")
PROGRAM(api_new, nothrow, "api_new_limits", "nothrow")
PROGRAM(api_new, handler_throws_its_own, "api_new_limits", "derived")
PROGRAM(api_new, handler_removes_itself, "api_new_limits", "remove")
PROGRAM(api_new, aligned, "api_new_limits", "aligned")
PROGRAM(api_new, memory_comes_back, "api_new_limits", "loop")

/* Variables that users set for glibc are not obeyed and not complained about. */
TEST(api_config, foreign_variables)
{
    static const char *const env[] = {"MALLOC_ARENA_MAX=1",     "MALLOC_TRIM_THRESHOLD_=65536",
                                      "MALLOC_PERTURB_=165",    "MALLOC_CHECK_=3",
                                      "MALLOC_MMAP_MAX_=0",     "GLIBC_TUNABLES=glibc.malloc.tcache_count=0",
                                      "MALLOC_TOP_PAD_=100000", NULL};
    static const char *const names[] = {"api_mallopt", "api_table", "api_mix"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = child_bin_path(names[i]);
        const char *const argv[] = {path, NULL};
        run_quiet(&(struct child_spec){.argv = argv, .env = env});
        free(path);
    }
}

/* The answers do not depend on the mode. */
TEST(api_config, table_in_every_mode)
{
    static const char *const confs[] = {"hardened:true", "strict:true", "off:true", "purge:off"};
    for (size_t i = 0; i < sizeof confs / sizeof *confs; i++) {
        struct child_result r = child_run_conf(confs[i], "api_table");
        const char *bad = child_why_bad(&r);
        if (bad)
            TEST_FAIL("%s:%d: with %s: %s", __FILE__, __LINE__, confs[i], bad);
        child_free(&r);
    }
}

/* Everything that libc and libstdc++ users may call for a block is ours, so that no half of a pair goes elsewhere. */
static const char *const exports[] = {
    "malloc", "calloc", "realloc", "free", "reallocarray", "aligned_alloc", "memalign", "posix_memalign", "valloc",
    "pvalloc", "malloc_usable_size", "cfree",
    "__libc_malloc", "__libc_calloc", "__libc_realloc", "__libc_free", "__libc_memalign", "__libc_valloc",
    "__libc_pvalloc",
    "free_sized", "free_aligned_sized",
    "mallinfo", "mallinfo2", "mallopt", "malloc_trim", "malloc_stats", "malloc_info",
    "_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t", "_ZdlPvSt11align_val_t",
    "_ZdaPvSt11align_val_t", "_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t", "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
    "mallocx", "rallocx", "xallocx", "sallocx", "dallocx", "sdallocx", "nallocx",
};

/* Is `name` the symbol of some line of nm's? A version after it does not matter. */
static bool listed(const char *nm, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = strstr(nm, name); at; at = strstr(at + 1, name))
        if (at > nm && at[-1] == ' ' && strchr("\n@", at[len]))
            return true;
    return false;
}

TEST(api_exports, are_complete)
{
    const char *const argv[] = {"nm", "-D", "--defined-only", child_lib(), NULL};
    struct child_result r = child_run(&(struct child_spec){.argv = argv, .preload = ""});
    EXPECT_CHILD_OK(r);
    char missing[2048] = "";
    for (size_t i = 0; i < sizeof exports / sizeof *exports; i++) {
        if (listed(r.out, exports[i]))
            continue;
        strncat(missing, " ", sizeof missing - strlen(missing) - 1);
        strncat(missing, exports[i], sizeof missing - strlen(missing) - 1);
    }
    if (*missing)
        TEST_FAIL("%s:%d: not exported:%s", __FILE__, __LINE__, missing);
    child_free(&r);
}
