/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The statistics calls tell the truth (R47) with 3 GiB live, most of it never touched.
 *
 *     api_stats [full]
 *
 * full: mallinfo's int fields saturate rather than turn negative (glibc's wrap). malloc_info's text goes to stdout;
 * that it is XML is checked here, by a parser that knows as much of XML as is needed: nesting, attributes, one root.
 */
#define _GNU_SOURCE
#include "api_check.h"

#include <ctype.h>
#include <malloc.h>
#include <stdbool.h>
#include <sys/mman.h>

#define GIB ((size_t)1 << 30)
#define LIVE_BYTES (3 * GIB)
#define BLOCKS_MAX 65536

static void *blocks[BLOCKS_MAX];
static size_t blocks_n, live;

/* The first byte only: 3 GiB of address space, few pages. */
static void take(size_t size, size_t bytes)
{
    for (size_t got = 0; got < bytes; got += size) {
        CHECK(blocks_n < BLOCKS_MAX);
        char *p = malloc(size);
        CHECKF(p != NULL, "malloc(%zu) is NULL with %zu bytes live", size, live);
        p[0] = 1;
        blocks[blocks_n++] = p;
        live += size;
    }
}

static void fill(void)
{
    take(100, 1u << 20);
    take(20000, 64u << 20);
    take(200000, GIB / 2);
    take(400000, GIB);
    take(1u << 20, GIB);
    take(16u << 20, LIVE_BYTES - live);
}

static void empty(void)
{
    while (blocks_n)
        free(blocks[--blocks_n]);
    live = 0;
}

static void never_negative(void)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct mallinfo m = mallinfo();
#pragma GCC diagnostic pop
    const int fields[] = {m.arena,    m.ordblks,  m.smblks,   m.hblks,    m.hblkhd,
                          m.usmblks,  m.fsmblks,  m.uordblks, m.fordblks, m.keepcost};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        CHECKF(fields[i] >= 0, "field %zu of mallinfo is %d", i, fields[i]);
    CHECKF(m.uordblks > 2000000000, "mallinfo.uordblks is %d with %zu live", m.uordblks, live);
}

static void within_tenth(void)
{
    struct mallinfo2 m = mallinfo2();
    /* Where os pages are as large as 64 KiB, blocks just above 32 KiB are half empty. */
    size_t low = live - live / 10, high = live + live / (os_page() > 16384 ? 5 : 10);
    CHECKF(m.uordblks >= low && m.uordblks <= high, "uordblks is %zu with %zu live", m.uordblks, live);
    struct mallinfo2 again = mallinfo2();
    CHECKF(again.uordblks == m.uordblks && again.arena == m.arena, "asking changed uordblks from %zu to %zu",
           m.uordblks, again.uordblks);
}

static void falls_after_free(void)
{
    size_t full = mallinfo2().uordblks;
    empty();
    int trimmed = malloc_trim(0);
    CHECKF(trimmed == 0 || trimmed == 1, "malloc_trim is %d", trimmed);
    size_t now = mallinfo2().uordblks;
    CHECKF(now < full / 10, "uordblks is %zu after all was freed, was %zu", now, full);
}

/* A memory file instead of a pipe or a stream in memory: nothing here may allocate behind the allocator's back. */
static size_t captured(int fd, char *text, size_t room)
{
    ssize_t n = pread(fd, text, room - 1, 0);
    CHECK(n >= 0 && (size_t)n < room - 1);
    text[n] = '\0';
    return (size_t)n;
}

static char text[1 << 20];

static void xml_name(const char **at, char *name, size_t room)
{
    size_t n = 0;
    while (isalnum((unsigned char)**at) || **at == '_' || **at == '-' || **at == ':') {
        CHECK(n + 1 < room);
        name[n++] = *(*at)++;
    }
    CHECKF(n > 0, "malloc_info: no name at \"%.20s\"", *at);
    name[n] = '\0';
}

static void xml_space(const char **at)
{
    while (isspace((unsigned char)**at))
        (*at)++;
}

/* Attributes up to ">" or "/>". True if the element is empty. */
static bool xml_attributes(const char **at)
{
    char name[64];
    for (;;) {
        xml_space(at);
        if (**at == '>') {
            (*at)++;
            return false;
        }
        if (strncmp(*at, "/>", 2) == 0) {
            *at += 2;
            return true;
        }
        xml_name(at, name, sizeof name);
        CHECKF(**at == '=' && (*at)[1] == '"', "malloc_info: attribute %s has no value in quotes", name);
        const char *end = strchr(*at + 2, '"');
        CHECKF(end && !memchr(*at, '<', (size_t)(end - *at)), "malloc_info: attribute %s does not end", name);
        *at = end + 1;
    }
}

static void xml_element(const char **at, int depth)
{
    char name[64], close[64];
    CHECKF(**at == '<', "malloc_info: no element at \"%.20s\"", *at);
    (*at)++;
    xml_name(at, name, sizeof name);
    if (depth == 0)
        CHECKF(strcmp(name, "malloc") == 0, "malloc_info: the root is %s", name);
    if (xml_attributes(at))
        return;
    for (;;) {
        *at += strcspn(*at, "<");
        CHECKF(**at, "malloc_info: %s is not closed", name);
        if ((*at)[1] == '/')
            break;
        xml_element(at, depth + 1);
    }
    *at += 2;
    xml_name(at, close, sizeof close);
    CHECKF(strcmp(name, close) == 0 && **at == '>', "malloc_info: %s is closed by %s", name, close);
    (*at)++;
}

static void info_is_xml(void)
{
    int fd = memfd_create("malloc_info", 0);
    CHECK(fd >= 0);
    FILE *f = fdopen(fd, "w");
    CHECK(f);
    CHECKF(malloc_info(1, f) == EINVAL, "malloc_info with options 1 is not EINVAL");
    CHECK(malloc_info(0, f) == 0 && fflush(f) == 0);
    size_t n = captured(fd, text, sizeof text);
    CHECKF(n > 0, "malloc_info wrote %zu bytes", n);
    fwrite(text, 1, n, stdout);
    const char *at = text;
    xml_space(&at);
    xml_element(&at, 0);
    xml_space(&at);
    CHECKF(*at == '\0', "malloc_info: after the root comes \"%.20s\"", at);
    fclose(f);
}

/* malloc_stats writes to stderr, and only there. */
static void stats_are_written(void)
{
    int fd = memfd_create("malloc_stats", 0), saved = dup(2);
    CHECK(fd >= 0 && saved >= 0 && dup2(fd, 2) == 2);
    malloc_stats();
    fflush(stderr);
    CHECK(dup2(saved, 2) == 2);
    CHECKF(captured(fd, text, sizeof text) > 0, "malloc_stats wrote nothing to stderr");
    close(fd);
    close(saved);
}

static void one_round(bool full)
{
    fill();
    within_tenth();
    if (full)
        never_negative();
    info_is_xml();
    stats_are_written();
    falls_after_free();
}

int main(int argc, char **argv)
{
    bool full = argc > 1 && strcmp(argv[1], "full") == 0;
    /* glibc counts what it maps apart; so that one program fits both, ask it to map less. */
    CHECK(mallopt(M_MMAP_THRESHOLD, 32 << 20) == 1);
    one_round(full);
    one_round(full);
    return 0;
}
