/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One way to write a test that runs under Criterion and, where Criterion does not start (TSan, qemu-user), under the
 * small runner of plain_main.c.
 *
 *     TEST(slab, fills_in_order) { EXPECT_EQ(slab_count(s), 3); }
 *
 * The body is a plain function. By default a Criterion wrapper calls it; with -DTEST_PLAIN a constructor hands it to
 * plain_main.c instead. A failed EXPECT ends the test at once.
 */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <stdio.h>
#include <stdlib.h>

#ifdef TEST_PLAIN

/* Add one test to the list that plain_main.c runs. Context: constructors only. */
void test_register(const char *suite, const char *name, void (*body)(void));

#define TEST(suite, name)                                                                                              \
    static void suite##_##name(void);                                                                                  \
    __attribute__((constructor)) static void suite##_##name##_register(void)                                           \
    {                                                                                                                  \
        test_register(#suite, #name, suite##_##name);                                                                  \
    }                                                                                                                  \
    static void suite##_##name(void)

#define TEST_FAIL(...)                                                                                                 \
    do {                                                                                                               \
        fprintf(stderr, "FAIL %s:%d: ", __FILE__, __LINE__);                                                           \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fputc('\n', stderr);                                                                                           \
        exit(1);                                                                                                       \
    } while (0)

#else

#include <criterion/criterion.h>
#include <criterion/new/assert.h> /* cr_fatal */

#define TEST(suite, name)                                                                                              \
    static void suite##_##name(void);                                                                                  \
    Test(suite, name)                                                                                                  \
    {                                                                                                                  \
        suite##_##name();                                                                                              \
    }                                                                                                                  \
    static void suite##_##name(void)

#define TEST_FAIL(...) cr_fatal(__VA_ARGS__)

#endif

#define EXPECT(cond)                                                                                                   \
    do {                                                                                                               \
        if (!(cond))                                                                                                   \
            TEST_FAIL("%s:%d: %s", __FILE__, __LINE__, #cond);                                                         \
    } while (0)

#define EXPECT_EQ(a, b)                                                                                                \
    do {                                                                                                               \
        long long expect_a = (long long)(a), expect_b = (long long)(b);                                                \
        if (expect_a != expect_b)                                                                                      \
            TEST_FAIL("%s:%d: %s is %lld, %s is %lld", __FILE__, __LINE__, #a, expect_a, #b, expect_b);                \
    } while (0)

#endif
