/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the suites of this directory share on top of lib_child.h: short ways to run a program and to judge it, and
 * counts that are small by default and those of the field reports when SHEAF_TEST_LONG is set.
 */
#ifndef TESTS_PROC_HELPERS_H
#define TESTS_PROC_HELPERS_H

#include "../lib_child.h"

/* Ends the test without a verdict, with a word why. */
#ifdef TEST_PLAIN
#define SKIP(...)                                                                                                      \
    do {                                                                                                               \
        fprintf(stderr, "skipped: " __VA_ARGS__);                                                                      \
        fputc('\n', stderr);                                                                                           \
        return;                                                                                                        \
    } while (0)
#else
#define SKIP(...) cr_skip(__VA_ARGS__)
#endif

/* Is this the long form? */
bool proc_long(void);

/* `usual`, or `full` in the long form, as text for an argument. Owner: static, eight of them in turn. */
const char *proc_count(long usual, long full);

/* Where a program of the system is: in the usual directories first, since PATH may lead to wrappers; NULL if nowhere.
 * Owner: static, valid until the next call. */
const char *proc_which(const char *name);

/* Printf into a new string. Owner: the caller frees it. */
char *proc_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Runs the spec and demands exit 0 with nothing on stderr; on stdout exactly `out`, unless that is NULL.
 * Exit 77 from the program counts as "cannot run here". Returns false then, and has said why. */
bool proc_run_quiet(const struct child_spec *spec, const char *out);

/* As above for a program of SHEAF_TEST_BIN under the library; `preload` and `conf` as in child_spec. */
bool proc_quiet(const char *preload, const char *conf, const char *const *name_and_args);

/* One whole test: a program that has to end well under the library, or may say that it cannot run here. */
#define PROC_TEST(suite, test, preload, conf, ...)                                                                     \
    TEST(suite, test)                                                                                                  \
    {                                                                                                                  \
        if (!proc_quiet(preload, conf, (const char *const[]){__VA_ARGS__, NULL}))                                      \
            SKIP("the program says that it cannot run here");                                                          \
    }

/* A directory of its own for a test, and its end with all that is in it. Owner of the name: the caller frees it. */
char *proc_temp_dir(void);
void proc_temp_remove(char *dir);

/* The whole of a file as a string; the test fails if it cannot be read. Owner: the caller frees it. */
char *proc_slurp(const char *path);

#endif
