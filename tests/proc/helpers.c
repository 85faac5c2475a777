/* SPDX-License-Identifier: BSD-2-Clause */
/* See helpers.h. */
#define _GNU_SOURCE
#include "helpers.h"

#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool proc_long(void)
{
    const char *value = getenv("SHEAF_TEST_LONG");
    return value && *value && strcmp(value, "0") != 0;
}

const char *proc_count(long usual, long full)
{
    static char text[8][24];
    static int next;
    char *to = text[next++ % 8];
    snprintf(to, sizeof text[0], "%ld", proc_long() ? full : usual);
    return to;
}

char *proc_text(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int len = vasprintf(&text, format, args);
    va_end(args);
    if (len < 0)
        TEST_FAIL("%s", "out of memory in the suite");
    return text;
}

static bool in_dir(char *to, size_t len, const char *dir, const char *name)
{
    snprintf(to, len, "%s/%s", dir, name);
    return access(to, X_OK) == 0;
}

const char *proc_which(const char *name)
{
    static char path[4096];
    static const char *const usual[] = {"/usr/bin", "/bin", "/usr/sbin", "/sbin"};
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (in_dir(path, sizeof path, usual[i], name))
            return path;
    const char *dirs = getenv("PATH");
    char *copy = proc_text("%s", dirs ? dirs : ""), *save = NULL;
    const char *found = NULL;
    for (char *dir = strtok_r(copy, ":", &save); dir && !found; dir = strtok_r(NULL, ":", &save))
        if (in_dir(path, sizeof path, dir, name))
            found = path;
    free(copy);
    return found;
}

bool proc_run_quiet(const struct child_spec *spec, const char *out)
{
    struct child_result r = child_run(spec);
    if (r.exit_code == CHILD_SKIPPED) {
        fprintf(stderr, "skipped: %s: %s\n", spec->argv[0], r.err);
        child_free(&r);
        return false;
    }
    EXPECT_CHILD_OK(r);
    if (r.err_len != 0)
        TEST_FAIL("%s: on stderr: %s", spec->argv[0], r.err);
    if (out && strcmp(out, r.out) != 0)
        TEST_FAIL("%s: on stdout: %s; wanted: %s", spec->argv[0], r.out, out);
    child_free(&r);
    return true;
}

bool proc_quiet(const char *preload, const char *conf, const char *const *name_and_args)
{
    const char *argv[16];
    size_t n = 0;
    for (; name_and_args[n]; n++) {
        if (n == 15)
            TEST_FAIL("%s", "too many arguments");
        argv[n] = name_and_args[n];
    }
    argv[n] = NULL;
    char *path = child_bin_path(name_and_args[0]);
    argv[0] = path;
    struct child_spec spec = {.argv = argv, .preload = preload, .conf = conf, .timeout_s = proc_long() ? 3600 : 0};
    bool ran = proc_run_quiet(&spec, NULL);
    free(path);
    return ran;
}

char *proc_temp_dir(void)
{
    const char *base = getenv("TMPDIR");
    char *dir = proc_text("%s/life.XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(dir))
        TEST_FAIL("%s: %s", dir, strerror(errno));
    return dir;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

void proc_temp_remove(char *dir)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(dir);
}

char *proc_slurp(const char *path)
{
    FILE *f = fopen(path, "re");
    if (!f)
        TEST_FAIL("%s: %s", path, strerror(errno));
    char *text = NULL;
    size_t len = 0;
    ssize_t got = getdelim(&text, &len, '\0', f);
    fclose(f);
    if (got < 0) {
        free(text);
        text = proc_text("%s", "");
    }
    return text;
}
