/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The small runner for places where Criterion does not start: TSan builds and qemu-user. Runs every registered test in
 * this process, in order of registration; a name on the command line ("suite" or "suite/name") runs only those; --suites
 * says the suites' names.
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

static int is_first_of_suite(int i)
{
    for (int k = 0; k < i; k++)
        if (strcmp(tests[k].suite, tests[i].suite) == 0)
            return 0;
    return 1;
}

static int say_suites(void)
{
    for (int i = 0; i < tests_len; i++)
        if (is_first_of_suite(i))
            printf("%s\n", tests[i].suite);
    return 0;
}

int main(int argc, char **argv)
{
    int ran = 0;
    if (argc == 2 && strcmp(argv[1], "--suites") == 0)
        return say_suites();
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
