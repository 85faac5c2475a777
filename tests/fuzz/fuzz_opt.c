/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/opt.h: any text as SHEAF_CONF, beside a second parser written from what docs/sheaf.7 says. Every option ends with
 * the value that the text gives it, or what it had; each unknown key, bad value and option without effect has its line on
 * standard error, in order, and nothing else is said; the printed table shows the values. The text ends where its memory
 * ends, and is overwritten afterwards, so that the checkers see a read beyond it and a path that was not copied.
 *
 * The parser is built into this file, so that each input finds the space for paths unused.
 */
#include "core/opt.c"

#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

const char fuzz_name[] = "opt";

static struct opt defaults;
static int said_fd, real_stderr;

extern void report_to(void *fd) __asm__("__sanitizer_set_report_fd") __attribute__((weak));

void fuzz_setup(void)
{
    defaults = opt;
    said_fd = memfd_create("said", MFD_CLOEXEC);
    real_stderr = dup(2);
    MUST(said_fd >= 0 && real_stderr >= 0);
    if (report_to != NULL)
        report_to((void *)(intptr_t)real_stderr);
}

/* ---- the second parser ---- */

enum { SAID_MAX = 1 << 18 };
static char want_said[SAID_MAX], got_said[SAID_MAX];
static size_t want_len;
static size_t want_paths_used;

struct want {
    uintptr_t value[ROWS];
    char path[1024];
};
static struct want want;

static void expect_line(const char *text, ...)
{
    va_list args;
    va_start(args, text);
    want_len += (size_t)vsnprintf(want_said + want_len, SAID_MAX - want_len, text, args);
    va_end(args);
    MUST(want_len < SAID_MAX - 1024);
}

/* Decimal digits, for SIZE one of kKmMgG behind them; what does not fit the word is bad. */
static bool second_number(const char *s, bool unit, uintptr_t *out)
{
    static const char letters[] = "kKmMgG";
    size_t digits = strspn(s, "0123456789"), zeroes = strspn(s, "0");
    const char *at = digits > 0 && unit && s[digits] != '\0' ? strchr(letters, s[digits]) : NULL;
    unsigned __int128 v = 0;
    if (digits == 0 || s[digits + (at != NULL)] != '\0' || digits - zeroes > 20)
        return false;
    for (size_t i = 0; i < digits; i++)
        v = v * 10 + (unsigned)(s[i] - '0');
    if (at != NULL)
        v <<= 10 * ((at - letters) / 2 + 1);
    *out = (uintptr_t)v;
    return v >> 64 == 0;
}

static bool second_choice(const char *choices, const char *s, uintptr_t *out)
{
    char list[256];
    uintptr_t n = 0;
    snprintf(list, sizeof list, "%s", choices);
    for (char *rest = list, *word; (word = strsep(&rest, "|")) != NULL; n++)
        if (strcmp(word, s) == 0) {
            *out = n;
            return true;
        }
    return false;
}

static bool second_path(const char *s)
{
    size_t n = strlen(s) + 1;
    if (n == 1 || want_paths_used + n > sizeof path_copy)
        return false;
    want_paths_used += n;
    snprintf(want.path, sizeof want.path, "%s", s);
    return true;
}

static bool second_value(int row, const char *s)
{
    bool yes = strcmp(s, "true") == 0;
    switch (rows[row].type) {
    case BOOL:
        if (!yes && strcmp(s, "false") != 0)
            return false;
        want.value[row] = yes;
        return true;
    case SIZE: return second_number(s, true, &want.value[row]);
    case UINT: return second_number(s, false, &want.value[row]);
    case CHOICE: return second_choice(rows[row].choices, s, &want.value[row]);
    default: return second_path(s);
    }
}

static void second_pair(char *pair)
{
    char *value = strchr(pair, ':');
    if (value != NULL)
        *value++ = '\0';
    else
        value = pair + strlen(pair);
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(pair, rows[i].name) != 0)
            continue;
        uintptr_t old = want.value[i];
        if (!second_value(i, value)) {
            want.value[i] = old;
            expect_line("sheaf: SHEAF_CONF: bad value \"%.63s\" for %s\n", value, pair);
        } else if (rows[i].state == LATER) {
            expect_line("sheaf: SHEAF_CONF: %s has no effect yet\n", pair);
        }
        return;
    }
    expect_line("sheaf: SHEAF_CONF: unknown option \"%.63s\"\n", pair);
}

static void second_parse(char *text)
{
    for (char *rest = text, *pair; (pair = strsep(&rest, ",")) != NULL;)
        if (*pair != '\0')
            second_pair(pair);
}

/* ---- one input ---- */

/* Words of the table are worth more than bytes: a byte of 128 or more stands for one, a few others for what is at home in
 * numbers. */
static size_t make_text(struct fuzz *f, char *text, size_t most)
{
    static const char *const words[] = {"true", "false", ":", ",", "18446744073709551615", "18446744073709551616", "k", "G",
                                        "17179869183", "0000000000000000000000001", "4096", "m"};
    size_t n = 0;
    while (fuzz_more(f)) {
        unsigned b = fuzz_byte(f);
        char one[2] = {(char)b, '\0'};
        const char *s = b < 128 ? one : b - 128 < ROWS ? rows[b - 128].name : NULL;
        if (s == NULL && b < 240)
            s = rows[b % ROWS].choices;
        if (s == NULL)
            s = words[b % (sizeof words / sizeof *words)];
        size_t len = strlen(s);
        if (n + len + 1 > most)
            break;
        memcpy(text + n, s, len);
        n += len;
    }
    text[n] = '\0';
    return strlen(text);
}

static void run_parser(const char *text)
{
    MUST(ftruncate(said_fd, 0) == 0 && lseek(said_fd, 0, SEEK_SET) == 0);
    MUST(dup2(said_fd, 2) == 2);
    opt_init(text);
    dup2(real_stderr, 2);
    off_t n = lseek(said_fd, 0, SEEK_CUR);
    MUST(n >= 0 && n < SAID_MAX && pread(said_fd, got_said, (size_t)n, 0) == n);
    got_said[n] = '\0';
}

static void compare_values(void)
{
    for (int i = 0; i < ROWS; i++) {
        uintptr_t got = *value_of(&rows[i]);
        if (rows[i].type == PATH)
            MUST(want.path[0] == '\0' ? got == 0 : got != 0 && strcmp((const char *)got, want.path) == 0);
        else
            MUST(got == want.value[i]);
        MUST(rows[i].type != BOOL || got <= 1);
    }
}

/* A line an option; into a buffer of any length, not a byte more. */
static void compare_table(size_t cap)
{
    static char whole[16384];
    struct fmt f = {.buf = whole, .cap = sizeof whole - 1, .fd = -1};
    opt_print(&f);
    whole[f.len] = '\0';
    size_t lines = 0;
    for (const char *p = whole; (p = strchr(p, '\n')) != NULL; p++)
        lines++;
    for (const char *p = want.path; (p = strchr(p, '\n')) != NULL; p++)
        lines--; /* the name of a file may have any */
    MUST(f.len < sizeof whole - 1 && lines == ROWS);
    char *part = malloc(cap);
    MUST(part != NULL);
    struct fmt small = {.buf = part, .cap = cap, .fd = -1};
    opt_print(&small);
    MUST(small.len == (cap < f.len ? cap : f.len) && memcmp(part, whole, small.len) == 0);
    free(part);
}

void fuzz_run(struct fuzz *f)
{
    enum { TEXT_MAX = 8192 };
    static char text[TEXT_MAX];
    size_t cap = fuzz_between(f, 1, 4096), n = make_text(f, text, sizeof text);
    opt = defaults;
    path_used = 0;
    memset(&want, 0, sizeof want);
    memcpy(want.value, &defaults, sizeof want.value);
    want_len = want_paths_used = 0;
    want_said[0] = '\0';
    char *exact = malloc(n + 1);
    MUST(exact != NULL);
    memcpy(exact, text, n + 1);
    run_parser(exact);
    MUST(memcmp(exact, text, n + 1) == 0);
    memset(exact, 'x', n);
    second_parse(text);
    compare_values();
    MUST(strcmp(got_said, want_said) == 0);
    compare_table(cap);
    free(exact);
    opt = defaults;
}
