/* SPDX-License-Identifier: BSD-2-Clause */
/* The start of a process: early callers, other preloads, libraries opened later, files, options. */
#define _GNU_SOURCE
#include "helpers.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* R03: a preload that hooks what an allocator may call, and itself allocates. */
static void hooked(const char *order, const char *const *argv)
{
    static const char *const env[] = {"SHIM_HOOKS_REPORT=1", NULL};
    const char *full[4] = {proc_which(argv[0]), argv[1], argv[1] ? argv[2] : NULL, NULL};
    if (!full[0])
        SKIP("%s is not installed", argv[0]);
    struct child_spec spec = {.argv = full, .preload = order, .env = env, .timeout_s = 60};
    struct child_result r = child_run(&spec);
    long calls = -1;
    EXPECT_CHILD_OK(r);
    /* date closes its stderr before the report; where there is one, the hooks were in force. */
    if (r.err_len != 0 && (sscanf(r.err, "shim_hooks: %ld calls\n", &calls) != 1 || strchr(r.err, '\n')[1]))
        TEST_FAIL("%s: on stderr: %s", argv[0], r.err);
    if (strcmp(argv[0], "python3") == 0 && calls < 10)
        TEST_FAIL("only %ld calls went through the hooks", calls);
    child_free(&r);
}

#define HOOKED(test, order, ...)                                                                                       \
    TEST(boot, test)                                                                                                   \
    {                                                                                                                  \
        hooked(order, (const char *const[]){__VA_ARGS__, NULL, NULL, NULL});                                           \
    }

HOOKED(hooks_before_true, "shim_hooks.so:@", "true")
HOOKED(hooks_after_true, "@:shim_hooks.so", "true")
HOOKED(hooks_before_date, "shim_hooks.so:@", "date")
HOOKED(hooks_after_date, "@:shim_hooks.so", "date")
HOOKED(hooks_before_python, "shim_hooks.so:@", "python3", "-c", "1")
HOOKED(hooks_after_python, "@:shim_hooks.so", "python3", "-c", "1")

PROC_TEST(boot, hooks_before_threads, "shim_hooks.so:@", NULL, "proc_mixed", "4", "10000")
PROC_TEST(boot, hooks_after_threads, "@:shim_hooks.so", NULL, "proc_mixed", "4", "10000")

/* R04: the size of the library's TLS segment, from its program headers. */
static size_t tls_size(const char *path)
{
    struct stat st;
    size_t size = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    EXPECT(fd >= 0 && fstat(fd, &st) == 0);
    const char *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    EXPECT(file != MAP_FAILED);
    close(fd);
    const ElfW(Ehdr) *head = (const void *)file;
    EXPECT(memcmp(head->e_ident, ELFMAG, SELFMAG) == 0 && head->e_phnum > 0);
    const ElfW(Phdr) *segment = (const void *)(file + head->e_phoff);
    for (int i = 0; i < head->e_phnum; i++)
        if (segment[i].p_type == PT_TLS)
            size = segment[i].p_memsz;
    munmap((void *)(uintptr_t)file, (size_t)st.st_size);
    return size;
}

TEST(boot, tls_segment_is_small)
{
    size_t size = tls_size(child_lib());
    if (size > 16)
        TEST_FAIL("%s has %zu bytes of TLS", child_lib(), size);
}

/* Runs proc_dlopen with a library of SHEAF_TEST_BIN. */
static void opens(const char *preload, const char *what, const char *shim)
{
    char *program = child_bin_path("proc_dlopen"), *lib = child_preload(shim);
    const char *argv[] = {program, what, lib, NULL};
    struct child_spec spec = {.argv = argv, .preload = preload};
    proc_run_quiet(&spec, "done\n");
    free(program);
    free(lib);
}

TEST(boot, leaves_room_for_tls_of_others)
{
    opens("@", "tls", "shim_tls.so");
}

TEST(boot, can_itself_be_opened)
{
    opens("", "self", "@");
}

/* R05 */
TEST(boot, deep_bound_module_uses_one_heap)
{
    opens("@", "deepbind", "shim_deepbind.so");
}

static void copy_file(const char *from, const char *to)
{
    const char *argv[] = {"cp", from, to, NULL};
    struct child_spec spec = {.argv = argv, .preload = ""};
    proc_run_quiet(&spec, "");
}

/* A library in a directory of its own, that opens another by the RUNPATH it has: made here, so that no other search
 * path finds it. */
static void by_runpath(const char *preload)
{
    char *dir = proc_temp_dir();
    char *private_dir = proc_text("%s/private", dir), *outer = proc_text("%s/shim_runpath_outer.so", dir);
    char *outer_built = child_preload("shim_runpath_outer.so"), *inner_built = child_preload("shim_runpath_inner.so");
    EXPECT(mkdir(private_dir, 0755) == 0);
    copy_file(outer_built, outer);
    copy_file(inner_built, private_dir);
    opens(preload, "runpath", outer);
    free(inner_built);
    free(outer_built);
    free(outer);
    free(private_dir);
    proc_temp_remove(dir);
}

TEST(boot, dlopen_honours_the_runpath_of_its_caller)
{
    by_runpath("");
    by_runpath("@");
}

/* R27: callers before our constructor. */
TEST(boot, resolver_of_an_opened_library_allocates)
{
    opens("@", "ifunc", "shim_ifunc.so");
}

static void tiny(const char *preload, const char *conf, const char *argument, const char *out)
{
    char *program = child_bin_path("proc_tiny");
    const char *argv[] = {program, argument, NULL};
    struct child_spec spec = {.argv = argv, .preload = preload, .conf = conf};
    proc_run_quiet(&spec, out);
    free(program);
}

TEST(boot, constructors_of_the_first_priority_allocate)
{
    struct child_result r;
    char *program = child_bin_path("proc_tiny");
    const char *argv[] = {program, NULL};
    static const char *const orders[] = {"shim_ctor1.so:@:shim_ctor2.so", "shim_ctor1.so:shim_ctor2.so:@",
                                         "@:shim_ctor1.so:shim_ctor2.so"};
    for (int i = 0; i < 3; i++) {
        struct child_spec spec = {.argv = argv, .preload = orders[i]};
        r = child_run(&spec);
        EXPECT_CHILD_OK(r);
        EXPECT_EQ(r.err_len, 0);
        if (!strstr(r.out, "ctor 1\n") || !strstr(r.out, "ctor 2\n"))
            TEST_FAIL("%s: not both ended: %s", orders[i], r.out);
        child_free(&r);
    }
    free(program);
}

TEST(boot, first_call_is_free_of_static_memory)
{
    char *program = child_bin_path("proc_tiny");
    const char *argv[] = {program, "first_free", NULL};
    struct child_spec spec = {.argv = argv};
    struct child_result r = child_run(&spec);
    unsigned long address;
    int len = 0;
    EXPECT_CHILD_OK(r);
    EXPECT(strcmp(r.out, "done\n") == 0);
    sscanf(r.err, "sheaf: free(0x%lx): not ours: left alone\n%n", &address, &len);
    if (len == 0 || r.err[len])
        TEST_FAIL("on stderr: %s", r.err);
    child_free(&r);
    free(program);
}

/* What strace saw of the given calls in a tiny program; NULL if there is no strace or it may not trace. */
static char *traced(const char *calls, const char *preload, const char *const *env, const char *argument)
{
    const char *strace = proc_which("strace");
    if (!strace)
        return NULL;
    char *dir = proc_temp_dir(), *log = proc_text("%s/log", dir), *text = NULL;
    char *value = child_preload(preload), *set = proc_text("LD_PRELOAD=%s", value);
    char *program = child_bin_path("proc_tiny"), *trace = proc_text("trace=%s", calls);
    const char *argv[] = {strace, "-f", "-o", log, "-e", trace, "-E", set, program, argument, NULL};
    struct child_spec spec = {.argv = argv, .preload = "", .env = env};
    struct child_result r = child_run(&spec);
    if (r.exit_code == 0)
        text = proc_slurp(log);
    child_free(&r);
    free(trace);
    free(program);
    free(set);
    free(value);
    free(log);
    proc_temp_remove(dir);
    return text;
}

/* The paths of all opens in order, a line each, without those of the preloaded library `but`. */
static char *opened_paths(const char *text, const char *but)
{
    char *copy = proc_text("%s", text), *save = NULL, *all = proc_text("%s", "");
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *from = strchr(line, '"'), *to = from ? strchr(from + 1, '"') : NULL;
        if (!to || strstr(line, but))
            continue;
        *to = 0;
        char *longer = proc_text("%s%s\n", all, from + 1);
        free(all);
        all = longer;
    }
    free(copy);
    return all;
}

TEST(boot, opens_no_file)
{
    char *with_us = traced("open,openat", "@", NULL, NULL);
    char *with_empty = traced("open,openat", "shim_empty.so", NULL, NULL);
    if (!with_us || !with_empty)
        SKIP("strace is not installed or may not trace");
    char *ours = opened_paths(with_us, child_lib()), *empty = opened_paths(with_empty, "shim_empty.so");
    EXPECT(strstr(empty, "libc.so.6") != NULL);
    if (strcmp(ours, empty) != 0)
        TEST_FAIL("with the library: %s; with an empty one: %s", ours, empty);
    free(ours);
    free(empty);
    free(with_us);
    free(with_empty);
}

/* R41: restartable sequences are glibc's to register. */
static int rseq_calls(const char *preload, const char *const *env)
{
    int n = 0;
    char *text = traced("rseq", preload, env, "rseq");
    if (!text)
        return -1;
    for (const char *at = text; (at = strstr(at, "rseq(")); at++)
        n++;
    free(text);
    return n;
}

TEST(boot, registers_no_rseq)
{
    static const char *const off[] = {"GLIBC_TUNABLES=glibc.pthread.rseq=0", NULL};
    int empty = rseq_calls("shim_empty.so", NULL);
    if (empty < 0)
        SKIP("strace is not installed or may not trace");
    EXPECT_EQ(rseq_calls("@", NULL), empty);
    EXPECT_EQ(rseq_calls("@", off), 0);
}

/* R80 */
TEST(boot, off_is_glibc)
{
    tiny("", NULL, "where", "heap\n");
    tiny("@", NULL, "where", "elsewhere\n");
    tiny("@", "off:true", "where", "heap\n");
}

PROC_TEST(boot, off_with_threads, "@", "off:true", "proc_mixed", "4", "20000")
PROC_TEST(boot, off_and_fork, "@", "off:true", "proc_fork_plain", "single", "10")

/* A wrong option is told in one line, and the program runs on. */
static void told(const char *conf, const char *line)
{
    char *program = child_bin_path("proc_tiny");
    const char *argv[] = {program, "where", NULL};
    struct child_spec spec = {.argv = argv, .conf = conf};
    struct child_result r = child_run(&spec);
    EXPECT_CHILD_OK(r);
    if (strcmp(r.err, line) != 0)
        TEST_FAIL("SHEAF_CONF=%s: on stderr: %s; wanted: %s", conf, r.err, line);
    EXPECT(strcmp(r.out, "elsewhere\n") == 0);
    child_free(&r);
    free(program);
}

TEST(boot, options_are_checked)
{
    told("nonsense:1", "sheaf: SHEAF_CONF: unknown option \"nonsense\"\n");
    told("strict:true,nonsense:1", "sheaf: SHEAF_CONF: unknown option \"nonsense\"\n");
    told("purge:maybe", "sheaf: SHEAF_CONF: bad value \"maybe\" for purge\n");
    told("decay_ms:soon", "sheaf: SHEAF_CONF: bad value \"soon\" for decay_ms\n");
    told("strict:2,thp:never", "sheaf: SHEAF_CONF: bad value \"2\" for strict\n");
    told("", "");
    told("strict:false,purge:on,thp:never", "");
}

/* R72: an AddressSanitizer program, built here because only gcc links that runtime as a library of its own. */
static char *build_asan(const char *dir)
{
    const char *gcc = proc_which("gcc");
    if (!gcc)
        return NULL;
    char *source = child_src_path("prog/proc_asan.c"), *program = proc_text("%s/asan", dir);
    const char *argv[] = {gcc, "-O0", "-fsanitize=address", source, "-o", program, NULL};
    struct child_spec spec = {.argv = argv, .preload = ""};
    struct child_result r = child_run(&spec);
    if (r.exit_code != 0) {
        free(program);
        program = NULL;
    }
    child_free(&r);
    free(source);
    return program;
}

/* Where gcc keeps the runtime. Owner: the caller frees it. */
static char *asan_runtime(void)
{
    const char *argv[] = {proc_which("gcc"), "-print-file-name=libasan.so", NULL};
    struct child_spec spec = {.argv = argv, .preload = ""};
    struct child_result r = child_run(&spec);
    r.out[strcspn(r.out, "\n")] = 0;
    char *path = proc_text("%s", r.out);
    child_free(&r);
    return path;
}

static struct child_result run_asan(const char *program, const char *preload, const char *argument)
{
    const char *argv[] = {program, argument, NULL};
    const char *env[] = {"ASAN_OPTIONS=detect_leaks=0", NULL};
    struct child_spec spec = {.argv = argv, .preload = preload, .env = env};
    return child_run(&spec);
}

TEST(boot, sanitizer_still_works)
{
    char *dir = proc_temp_dir(), *program = build_asan(dir);
    if (!program) {
        proc_temp_remove(dir);
        SKIP("no gcc with AddressSanitizer");
    }
    char *runtime = asan_runtime(), *first = proc_text("%s:@", runtime);

    struct child_result r = run_asan(program, first, NULL);
    EXPECT_CHILD_OK(r);
    EXPECT(strcmp(r.out, "before\n1\n") == 0);
    EXPECT_EQ(r.err_len, 0);
    child_free(&r);

    r = run_asan(program, first, "overflow");
    EXPECT(r.exit_code != 0 && strcmp(r.out, "before\n") == 0);
    if (!strstr(r.err, "heap-buffer-overflow") || strstr(r.err, "sheaf:"))
        TEST_FAIL("on stderr: %s", r.err);
    child_free(&r);

    /* The other way round the runtime itself says what is wrong; the process must not die in us before. */
    r = run_asan(program, "@", NULL);
    if (!strstr(r.err, "ASan runtime does not come first"))
        TEST_FAIL("on stderr: %s", r.err);
    child_free(&r);
    free(first);
    free(runtime);
    free(program);
    proc_temp_remove(dir);
}
