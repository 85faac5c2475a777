/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The k-th system call about memory fails under whole programs, which have libsheaf-fault.so preloaded: the loader's own
 * first calls are met too. A program may then say that it has no memory, in its own way; else it says what it always does.
 * When it exits, every module of the library is checked, and a failed check aborts.
 */
#include "fault.h"

#include "../lib_child.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { LIE = 0, K_MOST = 2000 };

struct program {
    const char *name;
    const char *const *argv;
    const char *no_memory; /* on stderr when it gives up */
};

static bool long_form(void)
{
    return getenv("SHEAF_TEST_LONG") != NULL;
}

/* Result: was the call reached? */
static bool run(const struct program *p, enum fault_call call, long k, bool forever, int answer, const char *expected)
{
    char path[] = "/tmp/sheaf-fault-XXXXXX", setting[256], log[1024] = "";
    int fd = mkstemp(path);
    EXPECT(fd >= 0);
    snprintf(setting, sizeof setting, "SHEAF_FAULT=%s:%ld%s:%d:%s", fault_name[call], k, forever ? "+" : "", answer, path);
    const char *env[] = {setting, "PYTHONHASHSEED=1", "PYTHONMALLOC=malloc", NULL};
    struct child_spec spec = {.argv = p->argv, .preload = "libsheaf-fault.so", .env = env};
    struct child_result r = child_run(&spec);
    ssize_t n = read(fd, log, sizeof log - 1);
    close(fd);
    unlink(path);
    bool hit = strncmp(log, "hit\n", 4) == 0;
    if (n <= 0)
        TEST_FAIL("%s: no word of the library; stderr: %s", setting, r.err);
    bool gave_up = hit && call == FAULT_MMAP && r.exit_code > 0 && r.signal == 0 && strstr(r.err, p->no_memory) != NULL;
    if (!gave_up && (r.exit_code != 0 || r.signal != 0 || (expected != NULL && strcmp(r.out, expected) != 0)))
        TEST_FAIL("%s under %s: exit %d, signal %d, stdout %.300s, stderr %.1000s", p->name, setting, r.exit_code, r.signal,
                  r.out, r.err);
    if (strstr(r.err, "sheaf:") != NULL)
        TEST_FAIL("%s under %s says %s", p->name, setting, r.err);
    child_free(&r);
    return hit;
}

static void all_k(const struct program *p, enum fault_call call, bool forever, int answer, const char *expected)
{
    long k = 1, runs = 0;
    for (; k < K_MOST && run(p, call, k, forever, answer, expected); runs++)
        k = long_form() && !forever ? k + 1 : 32 * k - 16;
    EXPECT(k < K_MOST || !long_form());
    if (long_form())
        fprintf(stderr, "fault: %s: %s%s says %d: %ld runs\n", p->name, fault_name[call], forever ? " and all after" : "",
                -answer, runs);
}

static void all_answers(const struct program *p, enum fault_call call)
{
    struct child_spec spec = {.argv = p->argv, .preload = ""};
    struct child_result plain = child_run(&spec);
    EXPECT_CHILD_OK(plain);
    all_k(p, call, false, ENOMEM, plain.out);
    if (long_form()) {
        all_k(p, call, false, EPERM, plain.out);
        all_k(p, call, false, EAGAIN, plain.out);
        if (call == FAULT_MADVISE || call == FAULT_MREMAP) /* who may not unmap grows, and who may not map ends */
            all_k(p, call, true, EPERM, plain.out);
    }
    if (call != FAULT_MMAP && call != FAULT_MREMAP) /* a mapping that is not there leaves nothing to work with */
        all_k(p, call, false, LIE, plain.out);
    child_free(&plain);
}

static void wordcount(enum fault_call call)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/../../perf/wordcount", getenv("SHEAF_TEST_BIN"));
    const char *argv[] = {path, "-t", "4", "-m", "2", "-c", NULL};
    struct program p = {"wordcount", argv, "memory"};
    all_answers(&p, call);
}

static void python(enum fault_call call)
{
    char *script = child_src_path("fault/work.py");
    const char *argv[] = {access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3", "-S", "-E", script, NULL};
    struct program p = {"python3", argv, "emory"};
    all_answers(&p, call);
    free(script);
}

#define PROGRAM_TESTS(program)                                                                                         \
    TEST(fault_##program, mmap)                                                                                        \
    {                                                                                                                  \
        program(FAULT_MMAP);                                                                                           \
    }                                                                                                                  \
    TEST(fault_##program, munmap)                                                                                      \
    {                                                                                                                  \
        program(FAULT_MUNMAP);                                                                                         \
    }                                                                                                                  \
    TEST(fault_##program, madvise)                                                                                     \
    {                                                                                                                  \
        program(FAULT_MADVISE);                                                                                        \
    }                                                                                                                  \
    TEST(fault_##program, mremap)                                                                                      \
    {                                                                                                                  \
        program(FAULT_MREMAP);                                                                                         \
    }

PROGRAM_TESTS(wordcount)
PROGRAM_TESTS(python)
