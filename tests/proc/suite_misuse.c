/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wrong use (docs/design.md, "Wrong use"): each case ends, or does not end, with exactly the line that is promised.
 *
 * The programs print the address they misuse. What a test cannot know beforehand, the base of the region and in the
 * default mode the operation that noticed, is taken from the line, checked for sense, and put into the expected line,
 * which then has to be equal to the last character.
 */
#include "helpers.h"

#include <signal.h>
#include <string.h>

/* What a line should say. `func` NULL: any operation that looks at blocks again. */
struct wanted {
    const char *func, *what, *kind, *state;
    size_t class;
    unsigned long offset; /* of a run or large block, whose base is the block: how far inside the pointer is */
};

static struct child_result run(const char *conf, const char *const *name_and_args, unsigned long *address)
{
    struct child_result r = child_run_argv(conf, name_and_args);
    int len = 0;
    *address = 0;
    if (r.exit_code == CHILD_SKIPPED)
        return r;
    sscanf(r.out, "0x%lx\n%n", address, &len);
    if (len == 0 || r.out[len])
        TEST_FAIL("%s: on stdout: %s; on stderr: %s", name_and_args[0], r.out, r.err);
    return r;
}

static bool sees_later(const char *func)
{
    static const char *const all[] = {"free",        "malloc", "calloc",      "realloc", "aligned_alloc",
                                      "thread exit", "trim",   "malloc_trim", "flush"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(func, all[i]) == 0)
            return true;
    return false;
}

/* Does the base make sense for what was misused? */
static bool base_fits(const struct wanted *w, unsigned long address, unsigned long base)
{
    if (base > address || base % 4096 != 0)
        return false;
    if (w->class == 0)
        return address - base == w->offset;
    bool on_grid = (address - base) % w->class == 0;
    return on_grid == (strcmp(w->state, "offset") != 0);
}

/* One line as wanted on stderr, and SIGABRT. */
static void check_abort(const struct child_result *r, unsigned long address, const struct wanted *w)
{
    char func[32] = "";
    unsigned long base = 0;
    const char *region = strstr(r->err, ", region ");
    if (r->signal != SIGABRT)
        TEST_FAIL("no SIGABRT: exit code %d, signal %d, on stderr: %s", r->exit_code, r->signal, r->err);
    if (sscanf(r->err, "sheaf: %31[^(]", func) != 1 || !region || sscanf(region, ", region %*[a-z] 0x%lx", &base) != 1)
        TEST_FAIL("on stderr: %s", r->err);
    if (w->func ? strcmp(func, w->func) != 0 : !sees_later(func))
        TEST_FAIL("\"%s\" said it: %s", func, r->err);
    char *state = strcmp(w->state, "offset") == 0 ? proc_text("offset %lu", address - base) : proc_text("%s", w->state);
    char *line = proc_text("sheaf: %s(0x%lx): %s: class %zu, region %s 0x%lx, %s\n", func, address, w->what, w->class,
                           w->kind, base, state);
    if (strcmp(r->err, line) != 0)
        TEST_FAIL("on stderr: %s; wanted: %s", r->err, line);
    if (!base_fits(w, address, base))
        TEST_FAIL("the base 0x%lx cannot be right: %s", base, r->err);
    free(line);
    free(state);
}

static void aborts(const char *conf, const struct wanted *w, const char *const *name_and_args)
{
    unsigned long address;
    struct child_result r = run(conf, name_and_args, &address);
    if (r.exit_code == CHILD_SKIPPED)
        TEST_FAIL("%s says it cannot run: the library lacks a call", name_and_args[0]);
    check_abort(&r, address, w);
    child_free(&r);
}

#define ABORTS(conf, wanted, ...) aborts(conf, wanted, (const char *const[]){__VA_ARGS__, NULL})

/* Small blocks: seen later by default, whatever makes the allocator look; hardened at the call. */
static void double_free(const char *which)
{
    struct wanted w = {NULL, "double free", "slab", "already free", 64, 0};
    ABORTS(NULL, &w, "misuse_double", which, "trim");
    ABORTS(NULL, &w, "misuse_double", which, "ops");
    ABORTS(NULL, &w, "misuse_double", which, "exit");
    ABORTS(NULL, &w, "misuse_double", which, "trim", "cold");
    w.func = "free";
    ABORTS("hardened:true", &w, "misuse_double", which, "none");
    ABORTS("strict:true,hardened:true", &w, "misuse_double", which, "none");
}

TEST(misuse, double_free_at_once)
{
    double_free("now");
}

TEST(misuse, double_free_after_ten_others)
{
    double_free("after10");
}

TEST(misuse, double_free_from_two_threads)
{
    double_free("threads");
}

TEST(misuse, double_free_after_realloc)
{
    double_free("realloc");
}

/* Runs and large blocks take the slow path anyway: seen at the call in every mode. */
TEST(misuse, double_free_of_a_run)
{
    struct wanted w = {"free", "double free", "run", "already free", 0, 0};
    ABORTS(NULL, &w, "misuse_double", "run", "none");
    ABORTS("hardened:true", &w, "misuse_double", "run", "none");
}

TEST(misuse, double_free_of_a_large_block)
{
    struct wanted w = {"free", "double free", "large", "already free", 0, 0};
    ABORTS(NULL, &w, "misuse_double", "large", "none");
    ABORTS("hardened:true", &w, "misuse_double", "large", "none");
}

TEST(misuse, interior_pointer)
{
    struct wanted w = {NULL, "not the start of a block", "slab", "offset", 64, 0};
    ABORTS(NULL, &w, "misuse_interior", "free", "64", "8", "trim");
    ABORTS(NULL, &w, "misuse_interior", "free", "64", "16", "ops");
    ABORTS(NULL, &w, "misuse_interior", "free", "64", "1", "exit");
    w.class = 1024;
    ABORTS(NULL, &w, "misuse_interior", "free", "1024", "512", "trim");
    w.func = "free";
    ABORTS("hardened:true", &w, "misuse_interior", "free", "1024", "512", "none");
    w.class = 64;
    ABORTS("hardened:true", &w, "misuse_interior", "free", "64", "8", "none");
}

TEST(misuse, interior_pointer_to_realloc)
{
    struct wanted w = {NULL, "not the start of a block", "slab", "offset", 64, 0};
    ABORTS(NULL, &w, "misuse_interior", "realloc", "64", "16", "trim");
    w.func = "realloc";
    ABORTS("hardened:true", &w, "misuse_interior", "realloc", "64", "16", "none");
}

TEST(misuse, interior_pointer_of_a_run)
{
    struct wanted w = {"free", "not the start of a block", "run", "offset", 0, 4096};
    ABORTS(NULL, &w, "misuse_interior", "free", "102400", "4096", "none");
    w.offset = 16;
    ABORTS("hardened:true", &w, "misuse_interior", "free", "102400", "16", "none");
}

TEST(misuse, interior_pointer_of_a_large_block)
{
    struct wanted w = {"free", "not the start of a block", "large", "offset", 0, 65536};
    ABORTS(NULL, &w, "misuse_interior", "free", "4194304", "65536", "none");
    w.offset = 4096;
    ABORTS("hardened:true", &w, "misuse_interior", "free", "4194304", "4096", "none");
}

/* Not ours: `line` with a %lx for the address, and exit 0 or SIGABRT. */
static void foreign(const char *conf, const char *call, const char *line, bool ends)
{
    unsigned long address;
    struct child_result r = run(conf, (const char *const[]){"misuse_foreign", call, NULL}, &address);
    if (r.exit_code == CHILD_SKIPPED)
        TEST_FAIL("the library lacks %s", call);
    if (ends ? r.signal != SIGABRT : r.exit_code != 0)
        TEST_FAIL("%s: exit code %d, signal %d, on stderr: %s", call, r.exit_code, r.signal, r.err);
    char *text = proc_text("sheaf: %s(0x%lx): not ours%s\n", line, address, ends ? "" : ": left alone");
    if (strcmp(r.err, text) != 0)
        TEST_FAIL("on stderr: %s; wanted: %s", r.err, text);
    free(text);
    child_free(&r);
}

TEST(misuse, foreign_pointer_to_free)
{
    foreign(NULL, "free", "free", false);
    foreign("hardened:true", "free", "free", false);
    foreign("strict:true", "free", "free", true);
}

TEST(misuse, foreign_pointer_to_free_sized)
{
    foreign(NULL, "free_sized", "free_sized", false);
    foreign("strict:true", "free_sized", "free_sized", true);
}

TEST(misuse, foreign_pointer_to_realloc)
{
    foreign(NULL, "realloc", "realloc", false);
    foreign("strict:true", "realloc", "realloc", false);
}

/* A question, not a change: 0, and whether a line comes with it is left open by default. */
TEST(misuse, foreign_pointer_to_usable_size)
{
    unsigned long address;
    struct child_result r = run(NULL, (const char *const[]){"misuse_foreign", "usable", NULL}, &address);
    char *line = proc_text("sheaf: malloc_usable_size(0x%lx): not ours: left alone\n", address);
    EXPECT_CHILD_OK(r);
    if (r.err_len != 0 && strcmp(r.err, line) != 0)
        TEST_FAIL("on stderr: %s", r.err);
    free(line);
    child_free(&r);
    foreign("strict:true", "usable", "malloc_usable_size", false);
}

/* R06: every kind of foreign memory, each several times: one line in all, for the first, and nothing breaks. */
static void all_kinds(const char *what, const char *func)
{
    unsigned long address;
    struct child_result r = run(NULL, (const char *const[]){"proc_foreign", what, NULL}, &address);
    char *line = proc_text("sheaf: %s(0x%lx): not ours: left alone\n", func, address);
    EXPECT_CHILD_OK(r);
    if (strcmp(r.err, line) != 0)
        TEST_FAIL("on stderr: %s; wanted: %s", r.err, line);
    free(line);
    child_free(&r);
}

TEST(misuse, every_kind_of_foreign_pointer_to_free)
{
    all_kinds("free", "free");
}

TEST(misuse, every_kind_of_foreign_pointer_to_realloc)
{
    all_kinds("realloc", "realloc");
}

TEST(misuse, every_kind_of_foreign_pointer_to_usable_size)
{
    unsigned long address;
    struct child_result r = run(NULL, (const char *const[]){"proc_foreign", "usable", NULL}, &address);
    EXPECT_CHILD_OK(r);
    child_free(&r);
}

TEST(misuse, blocks_of_another_libc)
{
    char *path = child_bin_path("proc_foreign");
    const char *argv[] = {path, "heap", NULL};
    struct child_spec spec = {.argv = argv};
    struct child_result r = child_run(&spec);
    unsigned long address;
    int len = 0;
    EXPECT_CHILD_OK(r);
    sscanf(r.err, "sheaf: free(0x%lx): not ours: left alone\n%n", &address, &len);
    if (len == 0 || r.err[len])
        TEST_FAIL("on stderr: %s", r.err);
    child_free(&r);
    free(path);
}

PROC_TEST(misuse, size_overflow, "@", NULL, "misuse_size", "overflow")
PROC_TEST(misuse, size_overflow_strict, "@", "strict:true", "misuse_size", "overflow")
PROC_TEST(misuse, size_overflow_hardened, "@", "hardened:true", "misuse_size", "overflow")

/* R20 */
PROC_TEST(misuse, wrong_sized_free, "@", NULL, "misuse_size", "sized")
PROC_TEST(misuse, wrong_sized_delete, "@", NULL, "misuse_delete")
PROC_TEST(misuse, wrong_sized_free_hardened, "@", "hardened:true", "misuse_size", "sized")

TEST(misuse, wrong_sized_free_strict)
{
    struct wanted w = {"free_sized", "wrong size", "slab", "in use", 64, 0};
    ABORTS("strict:true", &w, "misuse_size", "sized");
}

/* The line of a C++ delete may name the operator or the call it stands for. */
TEST(misuse, wrong_sized_delete_strict)
{
    unsigned long address;
    struct child_result r = run("strict:true", (const char *const[]){"misuse_delete", NULL}, &address);
    struct wanted w = {"free_sized", "wrong size", "slab", "in use", 64, 0};
    if (strncmp(r.err, "sheaf: operator delete(", 23) == 0)
        w.func = "operator delete";
    check_abort(&r, address, &w);
    child_free(&r);
}
