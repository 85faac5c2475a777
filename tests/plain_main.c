/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The small runner for places where Criterion does not start: TSan builds and qemu-user. Runs every registered test in
 * this process, in order of registration; a name on the command line ("suite" or "suite/name") runs only those.
 */
#include "test.h"

#include <string.h>

enum { TESTS_MAX = 1024 };

static struct {
    const char *suite, *name;
    void (*body)(void);
} tests[TESTS_MAX];
static int tests_len;

void test_register(const char *suite, const char *name, void (*body)(void))
{
    if (tests_len == TESTS_MAX)
        abort();
    tests[tests_len].suite = suite;
    tests[tests_len].name = name;
    tests[tests_len++].body = body;
}

static int wanted(int i, int argc, char **argv)
{
    char full[256];
    if (argc < 2)
        return 1;
    snprintf(full, sizeof full, "%s/%s", tests[i].suite, tests[i].name);
    for (int a = 1; a < argc; a++)
        if (strcmp(argv[a], full) == 0 || strcmp(argv[a], tests[i].suite) == 0)
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    int ran = 0;
    for (int i = 0; i < tests_len; i++) {
        if (!wanted(i, argc, argv))
            continue;
        fprintf(stderr, "test %s/%s\n", tests[i].suite, tests[i].name);
        tests[i].body();
        ran++;
    }
    printf("%d passed, 0 failed\n", ran);
    return ran == 0;
}
