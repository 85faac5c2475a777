/* SPDX-License-Identifier: BSD-2-Clause */
/* core/report.h: do the numbers add up, and can the JSON be read? */
#include "unit.h"

#include "core/alloc.h"
#include "core/region.h"
#include "core/report.h"
#include "core/tcache.h"
#include "core/zone.h"

#include <ctype.h>
#include <fcntl.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

enum { N = 3000 };

static void *objs[N];

static size_t class_bytes(size_t i)
{
    return 1 + i * 37 % 20000;
}

static void load(void)
{
    for (size_t i = 0; i < N; i++)
        MUST((objs[i] = unit_malloc(class_bytes(i))) != NULL);
    for (size_t i = 0; i < N; i += 3) {
        unit_free(objs[i]);
        objs[i] = NULL;
    }
}

static void unload(void)
{
    for (size_t i = 0; i < N; i++)
        unit_free(objs[i]);
}

static size_t sum_of_windows(const struct report *r)
{
    return r->small_live + r->small_cached + r->small_barn + r->small_free + r->small_waste + r->run_bytes +
           r->large_bytes + r->pcp_bytes + r->zone_dirty + r->zone_lazy + r->zone_clean + r->in_transit;
}

TEST(report, window_group_adds_up_to_the_windows)
{
    load();
    void *run = unit_malloc(100000), *window = unit_malloc(3 * MIB), *own = unit_malloc(70 * MIB);
    struct report *r = report_take();
    size_t sum = sum_of_windows(r), windows = r->window_bytes, transit = r->in_transit, live = r->small_live;
    report_done(r);
    EXPECT(live > 0 && windows > 0);
    EXPECT_EQ(sum, windows);
    EXPECT_EQ(transit, 0); /* nobody else is at work: every page has a name */
    unit_free(run);
    unit_free(window);
    unit_free(own);
    unload();
    r = report_take();
    sum = sum_of_windows(r);
    windows = r->window_bytes;
    transit = r->in_transit;
    report_done(r);
    EXPECT_EQ(sum, windows);
    EXPECT_EQ(transit, 0);
}

TEST(report, live_is_what_the_program_holds)
{
    static size_t before[SIZE_CLASSES], want[SIZE_CLASSES];
    struct report *r = report_take();
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        before[c] = r->classes[c].live;
        want[c] = 0;
    }
    size_t small_live = r->small_live, bytes = 0;
    report_done(r);
    load();
    for (size_t i = 0; i < N; i++)
        if (objs[i] != NULL) {
            want[size_to_class(class_bytes(i))]++;
            bytes += class_to_size(size_to_class(class_bytes(i)));
        }
    r = report_take();
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        const struct report_class *k = &r->classes[c];
        if (k->live - before[c] != want[c] || k->live + k->free + k->barn + k->cached != k->objs ||
            k->size != class_to_size(c)) {
            report_done(r);
            TEST_FAIL("class %u: live %zu, before %zu, want %zu", c, k->live, before[c], want[c]);
        }
    }
    size_t now = r->small_live;
    report_done(r);
    EXPECT_EQ(now - small_live, bytes);
    unload();
}

TEST(report, blocks_and_mappings_are_counted)
{
    struct report *r = report_take();
    struct report *before = malloc(sizeof *before);
    EXPECT(before != NULL);
    *before = *r;
    report_done(r);
    void *run = unit_malloc(100000), *window = unit_malloc(3 * MIB + 1), *own = unit_malloc(70 * MIB);
    r = report_take();
    size_t d[] = {
        r->run_count - before->run_count,       r->run_bytes - before->run_bytes,
        r->large_count - before->large_count,   r->large_bytes - before->large_bytes,
        r->own_count - before->own_count,       r->own_bytes - before->own_bytes,
        r->run_usable - before->run_usable,     r->large_usable - before->large_usable,
    };
    size_t mapped = r->mapped, known = r->window_bytes + r->own_bytes + r->leaf_bytes;
    size_t all = known + r->stale_bytes + r->gap_bytes + r->meta_bytes - r->meta_static + r->edges, edges = r->edges;
    report_done(r);
    EXPECT_EQ(mapped, all);
    struct region_stats rs = region_stats();
    EXPECT(edges < 3 * MIB + (rs.windows + rs.count[REGION_ZONE]) * 2 * MIB); /* nearly all has a name: what aligns windows has not */
    EXPECT_EQ(d[0], 1);
    EXPECT_EQ(d[1], 131072);
    EXPECT_EQ(d[2], 1);
    EXPECT_EQ(d[3], 49 * PAGE_BYTES);
    EXPECT_EQ(d[4], 1);
    EXPECT_EQ(d[5], 70 * MIB);
    EXPECT(d[6] >= 100000 && d[6] <= 131072);
    EXPECT(d[7] > 3 * MIB && d[7] <= 49 * PAGE_BYTES);
    EXPECT(mapped >= known);
    free(before);
    unit_free(run);
    unit_free(window);
    unit_free(own);
}

static void slow_calls(void *arg)
{
    size_t *slow = arg;
    void *p[200];
    for (int i = 0; i < 200; i++)
        p[i] = unit_malloc(1000);
    for (int i = 0; i < 200; i++)
        unit_free(p[i]);
    struct report *r = report_take();
    slow[0] = r->slow_alloc;
    slow[1] = r->slow_free;
    slow[2] = r->threads;
    report_done(r);
}

TEST(report, counts_of_ended_threads_stay)
{
    size_t slow[3];
    struct report *r = report_take();
    size_t threads = r->threads, before = r->slow_alloc;
    report_done(r);
    unit_thread(slow_calls, slow);
    r = report_take();
    size_t after = r->threads, slow_alloc = r->slow_alloc, slow_free = r->slow_free;
    report_done(r);
    EXPECT_EQ(slow[2], threads + 1);
    EXPECT_EQ(after, threads);
    EXPECT(slow[0] > before);
    EXPECT(slow_alloc >= slow[0]);
    EXPECT(slow_free >= slow[1]);
}

/* ---- JSON ---- */

static const char *value(const char *s);

static const char *space(const char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    return s;
}

static const char *string(const char *s)
{
    if (*s++ != '"')
        return NULL;
    for (; *s != '"'; s++)
        if (*s == '\0' || *s == '\\' || *s == '\n')
            return NULL;
    return s + 1;
}

static const char *number(const char *s)
{
    if (!isdigit((unsigned char)*s))
        return NULL;
    while (isdigit((unsigned char)*s))
        s++;
    return s;
}

/* The inside of {} or []. */
static const char *members(const char *s, char end, bool named)
{
    s = space(s);
    if (*s == end)
        return s + 1;
    for (;;) {
        if (named) {
            if ((s = string(space(s))) == NULL || *(s = space(s)) != ':')
                return NULL;
            s++;
        }
        if ((s = value(s)) == NULL)
            return NULL;
        s = space(s);
        if (*s == end)
            return s + 1;
        if (*s++ != ',')
            return NULL;
    }
}

static const char *value(const char *s)
{
    s = space(s);
    return *s == '{' ? members(s + 1, '}', true) : *s == '[' ? members(s + 1, ']', false) : *s == '"' ? string(s) : number(s);
}

static char *slurp(int fd)
{
    static char text[1 << 16];
    size_t len = 0;
    ssize_t n;
    MUST(lseek(fd, 0, SEEK_SET) == 0);
    while ((n = read(fd, text + len, sizeof text - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = '\0';
    return text;
}

static int scratch_file(char *name)
{
    strcpy(name, "/tmp/sheaf-unit-XXXXXX");
    int fd = mkstemp(name);
    MUST(fd >= 0);
    return fd;
}

static size_t field(const char *text, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(text, key);
    return at == NULL ? SIZE_MAX : strtoul(at + strlen(key), NULL, 10);
}

TEST(report, json_can_be_read_and_adds_up)
{
    char name[64];
    int fd = scratch_file(name);
    load();
    report_json(fd);
    unload();
    char *text = slurp(fd);
    close(fd);
    unlink(name);
    const char *end = value(text);
    EXPECT(end != NULL && *space(end) == '\0');
    static const char *const group[] = {"small_live", "small_cached", "small_barn", "small_free", "small_waste", "run",
                                        "large",      "pcp",          "zone_dirty", "zone_lazy", "zone_clean", "in_transit"};
    size_t sum = 0;
    for (size_t i = 0; i < sizeof group / sizeof *group; i++) {
        EXPECT(field(text, group[i]) != SIZE_MAX);
        sum += field(text, group[i]);
    }
    EXPECT_EQ(sum, field(text, "windows"));
    EXPECT(strstr(text, "{\"size\": 16, \"slabs\": ") != NULL);
    size_t classes = 0;
    for (const char *s = text; (s = strstr(s, "{\"size\": ")) != NULL; s++)
        classes++;
    EXPECT(classes >= 30 && classes <= SIZE_CLASSES);
}

TEST(report, json_file_replaces_what_was_there)
{
    char name[64];
    static char junk[40000];
    int fd = scratch_file(name);
    memset(junk, 'x', sizeof junk);
    EXPECT_EQ(write(fd, junk, sizeof junk), sizeof junk);
    report_json_file(name);
    char *text = slurp(fd);
    close(fd);
    unlink(name);
    const char *end = value(text);
    EXPECT(end != NULL && *space(end) == '\0');
}

TEST(report, file_that_cannot_be_written_is_said)
{
    char text[256];
    unit_capture();
    report_json_file("/nonexistent/folder/file");
    unit_captured(text, sizeof text);
    EXPECT(strcmp(text, "sheaf: stats_json: cannot write /nonexistent/folder/file\n") == 0);
}

/* ---- for people ---- */

TEST(report, table_names_every_part)
{
    static const char *const parts[] = {
        "sheaf statistics\n", "    size    slabs", "windows (bytes)\n", "small objects, live", "ends of slabs",
        "page runs to 512 KiB", "large blocks", "pcp lists", "zone, dirty", "zone, clean", "in transit", "= windows",
        "blocks with their own mapping", "metadata", "page map leaves", "= mapped, with the windows", "purged so far",
        "slow calls: malloc ", "foreign pointers ", "options\n", "  strict:false", "  keep:4194304",
    };
    char name[64];
    int fd = scratch_file(name);
    load();
    report_print(fd);
    unload();
    char *text = slurp(fd);
    close(fd);
    unlink(name);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(text, parts[i]) == NULL)
            TEST_FAIL("no \"%s\" in:\n%s", parts[i], text);
    for (const char *s = text; *s != '\0'; s++)
        EXPECT(isprint((unsigned char)*s) || *s == '\n');
}
