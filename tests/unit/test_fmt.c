/* SPDX-License-Identifier: BSD-2-Clause */
/* compat/os/fmt.h: text without malloc, held against the C library's. */
#include "unit.h"

#include "compat/os/fmt.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

static char out[256];

static const char *formatted(const char *text, ...) PRINTF_LIKE(1, 2);
static const char *formatted(const char *text, ...)
{
    struct fmt f = {.buf = out, .cap = sizeof out - 1, .fd = -1};
    va_list args;
    va_start(args, text);
    fmt_addv(&f, text, args);
    va_end(args);
    out[f.len] = '\0';
    return out;
}

/* The same conversion by both. */
#define SAME(...)                                                                                                      \
    do {                                                                                                               \
        char want[256];                                                                                                \
        snprintf(want, sizeof want, __VA_ARGS__);                                                                      \
        if (strcmp(formatted(__VA_ARGS__), want) != 0)                                                                 \
            TEST_FAIL("%s:%d: \"%s\" should be \"%s\"", __FILE__, __LINE__, out, want);                                \
    } while (0)

TEST(fmt, conversions_equal_the_c_library_s)
{
    static const long values[] = {0, 1, -1, 9, 10, 99, -4711, INT_MAX, INT_MIN};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        int v = (int)values[i];
        SAME("[%d|%u|%x]", v, (unsigned)v, (unsigned)v);
        SAME("[%5d|%-5d|%12u|%-12x|%012u]", v, v, (unsigned)v, (unsigned)v, (unsigned)v);
        SAME("[%ld|%lu|%lx|%zu|%zx]", values[i], (unsigned long)values[i], (unsigned long)values[i],
             (size_t)values[i], (size_t)values[i]);
    }
    SAME("%ld %ld %lu", LONG_MIN, LONG_MAX, ULONG_MAX);
    SAME("%s|%8s|%-8s|%2s|%c|%%|%s", "abc", "abc", "abc", "abc", 'x', "");
    SAME("%p %20p", (void *)out, (void *)out);
    SAME("nothing to convert");
    SAME("%s", "");
}

TEST(fmt, null_pointer_prints_as_a_number)
{
    EXPECT(strcmp(formatted("%p", NULL), "0x0") == 0);
}

TEST(fmt, random_numbers_equal_the_c_library_s)
{
    uint64_t seed = 2;
    for (int i = 0; i < 5000; i++) {
        long v = (long)(unit_random(&seed) >> unit_below(&seed, 64));
        SAME("%ld %lu %lx %26lu %-26ld!", v, v, v, v, v);
        SAME("%d %u %08x", (int)v, (unsigned)v, (unsigned)v);
    }
}

TEST(fmt, without_a_descriptor_it_fills_the_buffer_and_drops_the_rest)
{
    char buf[12];
    memset(buf, '#', sizeof buf);
    struct fmt f = {.buf = buf, .cap = 8, .fd = -1};
    fmt_add(&f, "%s", "abcde");
    EXPECT_EQ(f.len, 5);
    fmt_add(&f, "%s", "fghijkl");
    EXPECT_EQ(f.len, 8);
    fmt_add(&f, "%d", 12345);
    EXPECT_EQ(f.len, 8);
    EXPECT(memcmp(buf, "abcdefgh####", 12) == 0);
}

TEST(fmt, small_buffer_passes_long_text_to_the_descriptor)
{
    int fds[2];
    char buf[7], got[256] = "", want[256];
    EXPECT_EQ(pipe(fds), 0);
    struct fmt f = {.buf = buf, .cap = sizeof buf, .fd = fds[1]};
    fmt_add(&f, "%s-%d-%40s", "a text longer than the buffer", 7, "wide");
    fmt_flush(&f);
    EXPECT_EQ(f.len, 0);
    close(fds[1]);
    ssize_t n = read(fds[0], got, sizeof got - 1);
    close(fds[0]);
    snprintf(want, sizeof want, "%s-%d-%40s", "a text longer than the buffer", 7, "wide");
    EXPECT_EQ(n, strlen(want));
    EXPECT(strcmp(got, want) == 0);
}

struct sunk {
    char text[256];
    size_t len;
};

static void sink(void *arg, const char *text, size_t len)
{
    struct sunk *s = arg;
    memcpy(s->text + s->len, text, len);
    s->len += len;
}

TEST(fmt, sink_gets_everything_in_order)
{
    struct sunk s = {.len = 0};
    char buf[5];
    struct fmt f = {.buf = buf, .cap = sizeof buf, .fd = -1, .sink = sink, .arg = &s};
    for (int i = 0; i < 20; i++)
        fmt_add(&f, "%d,", i);
    fmt_flush(&f);
    EXPECT(strcmp(s.text, "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,") == 0);
}

TEST(fmt, message_is_one_line_with_our_name)
{
    char text[1024];
    unit_capture();
    fmt_message("answer %d", 42);
    EXPECT(strcmp(unit_captured(text, sizeof text), "sheaf: answer 42\n") == 0);
}

TEST(fmt, long_message_is_cut_and_still_one_line)
{
    char text[2048], word[1500];
    memset(word, 'w', sizeof word);
    word[sizeof word - 1] = '\0';
    unit_capture();
    fmt_message("%s", word);
    unit_captured(text, sizeof text);
    size_t n = strlen(text);
    EXPECT(n > 400 && n < sizeof word);
    EXPECT(strchr(text, '\n') == text + n - 1);
    EXPECT(strncmp(text, "sheaf: www", 10) == 0);
}

TEST(fmt, errno_stays_even_when_the_write_fails)
{
    char buf[8];
    struct fmt f = {.buf = buf, .cap = sizeof buf, .fd = 12345}; /* no such descriptor */
    errno = EDOM;
    fmt_add(&f, "%s", "a text longer than the buffer");
    fmt_flush(&f);
    EXPECT_EQ(errno, EDOM);
    EXPECT_EQ(f.len, 0);
}
