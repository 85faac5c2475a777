/* SPDX-License-Identifier: BSD-2-Clause */
/* core/misuse.h: the lines, word by word. What leads to them is tested with each layer. */
#include "unit.h"

#include "core/misuse.h"
#include "core/opt.h"

#define AT(n) ((void *)(uintptr_t)(n))

static void say(void *m)
{
    misuse_abort(m);
}

TEST(misuse, line_with_a_state)
{
    struct misuse m = {"free", AT(0x7f1200000040), "double free", 64, "slab", AT(0x7f1200000000), "already free"};
    unit_dies(say, &m,
              "sheaf: free(0x7f1200000040): double free: class 64, region slab 0x7f1200000000, already free");
    m.func = "realloc";
    m.size = 0;
    m.kind = "large";
    m.what = "wrong size";
    m.state = "in use";
    unit_dies(say, &m, "sheaf: realloc(0x7f1200000040): wrong size: class 0, region large 0x7f1200000000, in use");
}

TEST(misuse, line_with_an_offset)
{
    struct misuse m = {"free", AT(0x7f1200000048), "not the start of a block", 64, "slab", AT(0x7f1200000000), NULL};
    unit_dies(say, &m,
              "sheaf: free(0x7f1200000048): not the start of a block: class 64, region slab 0x7f1200000000, offset 72");
}

static void foreigners(void *arg)
{
    (void)arg;
    size_t before = misuse_foreign_count();
    misuse_foreign("free", AT(0x1234));
    misuse_foreign("realloc", AT(0x5678));
    misuse_foreign("free", AT(0x1234));
    MUST(misuse_foreign_count() == before + 3);
}

TEST(misuse, foreign_pointers_say_one_line_a_process)
{
    struct unit_child c;
    size_t before = misuse_foreign_count();
    unit_child(&c, foreigners, NULL);
    EXPECT_EQ(c.status, 0);
    EXPECT(strcmp(c.text, before == 0 ? "sheaf: free(0x1234): not ours: left alone\n" : "") == 0);
    EXPECT_EQ(misuse_foreign_count(), before);
}

static void strict_foreigner(void *arg)
{
    (void)arg;
    opt.strict = 1;
    misuse_foreign("free", AT(0x1234));
}

TEST(misuse, strict_aborts_on_a_foreign_pointer)
{
    unit_dies(strict_foreigner, NULL, "sheaf: free(0x1234): not ours");
}

static struct misuse wrong = {"free_sized", AT(0x7f0000000100), "wrong size", 256, "slab", AT(0x7f0000000000), "in use"};

static void wrong_size(void *arg)
{
    size_t before = misuse_wrong_size_count();
    opt.strict = arg != NULL;
    misuse_wrong_size(&wrong);
    MUST(misuse_wrong_size_count() == before + 1);
}

TEST(misuse, wrong_sizes_are_counted_in_silence)
{
    struct unit_child c;
    unit_child(&c, wrong_size, NULL);
    EXPECT_EQ(c.status, 0);
    EXPECT(strcmp(c.text, "") == 0);
}

TEST(misuse, strict_aborts_on_a_wrong_size)
{
    unit_dies(wrong_size, &wrong,
              "sheaf: free_sized(0x7f0000000100): wrong size: class 256, region slab 0x7f0000000000, in use");
}

static void longest(void *arg)
{
    (void)arg;
    struct misuse m = {"posix_memalign and some more", AT(UINTPTR_MAX), "not the start of a block", SIZE_MAX, "large",
                       AT(0), NULL};
    misuse_abort(&m);
}

TEST(misuse, longest_numbers_fit_the_line)
{
    unit_dies(longest, NULL,
              "sheaf: posix_memalign and some more(0xffffffffffffffff): not the start of a block: class "
              "18446744073709551615, region large 0x0, offset 18446744073709551615");
}

static void count(unsigned thread)
{
    for (unsigned i = 0; i < 1000; i++)
        misuse_wrong_size(&wrong);
    (void)thread;
}

TEST(misuse, threads_lose_no_count)
{
    size_t before = misuse_wrong_size_count();
    unit_threads(UNIT_THREADS, count);
    EXPECT_EQ(misuse_wrong_size_count(), before + UNIT_THREADS * 1000);
}
