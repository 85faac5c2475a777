/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Child processes for the suites: start a program with the built library preloaded, wait for it no longer than agreed,
 * keep what it printed.
 *
 *     struct child_result r = child_run_prog("api_table");
 *     EXPECT_CHILD_OK(r);
 *     child_free(&r);
 *
 * The suite itself never runs on the library: LD_PRELOAD is set in the child's environment only, and an LD_PRELOAD or
 * SHEAF_CONF that the suite inherited does not reach the child. Three variables, which `make check` sets, say where
 * things are:
 *
 *     SHEAF_LIB       the built library; a test that wants it fails when this is unset or names no readable file
 *     SHEAF_TEST_BIN  the directory of the built test programs
 *     SHEAF_TEST_SRC  the source directory of the tests
 *
 * Output goes to memory files, not to pipes: a grandchild that outlives its parent cannot keep us waiting for its end
 * of the pipe. Every child leads a process group of its own, which is killed when the time is up and again at the end.
 */
#ifndef TESTS_LIB_CHILD_H
#define TESTS_LIB_CHILD_H

#include "test.h"

#ifndef TEST_PLAIN
#include <criterion/new/assert.h> /* cr_fatal, which TEST_FAIL uses */
#endif
#include <stdbool.h>
#include <stddef.h>

/* Exit code by which a program says "I cannot run here", as automake has it. */
#define CHILD_SKIPPED 77

/* Seconds a child gets when the spec names none. Generous: it only ends runs that hang. */
#define CHILD_TIMEOUT_S 120

struct child_spec {
    const char *const *argv; /* NULL-terminated; argv[0] without a slash is looked up in PATH */
    const char *preload;     /* see child_preload; NULL: the library alone; "": nothing at all */
    const char *conf;        /* SHEAF_CONF; NULL: unset */
    const char *const *env;  /* NULL, or NULL-terminated "KEY=value" to set and "KEY" to remove; applied last */
    const char *cwd;         /* NULL: the suite's */
    const char *stdin_path;  /* NULL: /dev/null */
    size_t limit_as;         /* RLIMIT_AS in bytes; 0: none */
    int timeout_s;           /* 0: CHILD_TIMEOUT_S */
};

struct child_result {
    int exit_code;  /* -1 if a signal ended it; 127 if it could not be started */
    int signal;     /* 0 if it exited */
    bool timed_out; /* we killed it: signal is SIGKILL */
    char *out;      /* ends in NUL, which out_len does not count; err likewise */
    size_t out_len;
    char *err;
    size_t err_len;
};

/* Run a program to its end, or to the end of its time.
 * Owner:   the result's out and err are the caller's, for child_free.
 * Fails:   the test, if the machinery itself fails (no library, no memory file, no fork).
 * Context: any test body; not from several threads at once. */
struct child_result child_run(const struct child_spec *spec);

/* Run $SHEAF_TEST_BIN/NAME with ARGS: the library alone preloaded, `conf` as its options (may be NULL). */
struct child_result child_run_argv(const char *conf, const char *const *name_and_args);
#define child_run_prog(...) child_run_argv(NULL, (const char *const[]){__VA_ARGS__, NULL})
#define child_run_conf(conf, ...) child_run_argv(conf, (const char *const[]){__VA_ARGS__, NULL})

/* Free what a result owns. */
void child_free(struct child_result *r);

/* The value of LD_PRELOAD for an order such as "@", "shim.so:@" or "@:/lib/x.so".
 * "@" is the library; a name without a slash that lies in $SHEAF_TEST_BIN is taken from there (or from its .libs), any
 * other is left to the loader. NULL means "@".
 * Owner: the caller frees it.  Fails: the test, if "@" is wanted and there is no library. */
char *child_preload(const char *order);

/* $SHEAF_LIB as an absolute path. Owner: static. Fails: the test, with a word why. */
const char *child_lib(void);

/* $SHEAF_TEST_BIN/NAME and $SHEAF_TEST_SRC/NAME. Owner: the caller frees it. Fails: the test, if unset. */
char *child_bin_path(const char *name);
char *child_src_path(const char *name);

/* Why a result is not "exit 0, really preloaded", as text for a failed test; NULL if it is fine.
 * Owner: static, valid until the next call. */
const char *child_why_bad(const struct child_result *r);

#define EXPECT_CHILD_OK(r)                                                                                             \
    do {                                                                                                               \
        const char *child_bad = child_why_bad(&(r));                                                                   \
        if (child_bad)                                                                                                 \
            TEST_FAIL("%s:%d: %s", __FILE__, __LINE__, child_bad);                                                     \
    } while (0)

/* As above, but a program may say by exit code that this machine cannot run it (no seccomp, say). It is told aloud. */
#define EXPECT_CHILD_OK_OR_SKIPPED(r)                                                                                  \
    do {                                                                                                               \
        if ((r).exit_code == CHILD_SKIPPED)                                                                            \
            fprintf(stderr, "skipped: %s:%d: %s", __FILE__, __LINE__, (r).err);                                        \
        else                                                                                                           \
            EXPECT_CHILD_OK(r);                                                                                        \
    } while (0)

#endif
