/* SPDX-License-Identifier: BSD-2-Clause */
/* core/opt.h: SHEAF_CONF. Each test puts the options back. */
#include "unit.h"

#include "core/opt.h"

static char said[8192];

/* Parse a text; the messages are in said. */
static void parse(const char *conf)
{
    unit_capture();
    opt_init(conf);
    unit_captured(said, sizeof said);
}

#define SAID(text)                                                                                                     \
    do {                                                                                                               \
        if (strcmp(said, text) != 0)                                                                                   \
            TEST_FAIL("%s:%d: said \"%s\"", __FILE__, __LINE__, said);                                                 \
    } while (0)

static struct opt before;

static void begin(void)
{
    before = opt;
}

static void end(void)
{
    opt = before;
}

TEST(opt, defaults_are_those_of_the_table)
{
#define OPT(type, name, def, choices, state, doc) EXPECT_EQ(opt.name, def);
#include "core/opt.def"
#undef OPT
}

TEST(opt, nothing_to_parse_says_and_changes_nothing)
{
    begin();
    parse(NULL);
    SAID("");
    parse("");
    SAID("");
    parse(",,,");
    SAID("");
    EXPECT(memcmp(&opt, &before, sizeof opt) == 0);
}

TEST(opt, sizes_take_units)
{
    static const struct {
        const char *text;
        uintptr_t value;
    } good[] = {
        {"keep:0", 0},
        {"keep:1", 1},
        {"keep:4096", 4096},
        {"keep:1k", 1024},
        {"keep:3K", 3 * 1024},
        {"keep:2m", 2 << 20},
        {"keep:2M", 2 << 20},
        {"keep:5g", (uintptr_t)5 << 30},
        {"keep:1G", (uintptr_t)1 << 30},
        {"keep:18446744073709551615", UINTPTR_MAX},
        {"keep:17179869183g", (uintptr_t)17179869183u << 30},
    };
    begin();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        parse(good[i].text);
        SAID("");
        EXPECT_EQ(opt.keep, good[i].value);
    }
    end();
}

/* A bad value prints one line and is skipped: the option keeps what it had. */
TEST(opt, bad_values_are_named_and_skipped)
{
    static const char *const values[] = {
        "",    "k",   "-1",  "+1", " 1",  "1 ",  "5kb",  "5x",  "1.5m",
        "0x10", "1kk", "k1", "tru", "18446744073709551616", "18014398509481984k", "17179869184g", "99999999999999999999",
    };
    begin();
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char conf[64], want[128];
        opt.keep = 4711;
        snprintf(conf, sizeof conf, "keep:%s", values[i]);
        snprintf(want, sizeof want, "sheaf: SHEAF_CONF: bad value \"%s\" for keep\n", values[i]);
        parse(conf);
        SAID(want);
        EXPECT_EQ(opt.keep, 4711);
    }
    end();
}

TEST(opt, plain_numbers_take_no_unit)
{
    begin();
    parse("sheaf_cap:12");
    SAID("");
    EXPECT_EQ(opt.sheaf_cap, 12);
    parse("sheaf_cap:7k");
    SAID("sheaf: SHEAF_CONF: bad value \"7k\" for sheaf_cap\n");
    EXPECT_EQ(opt.sheaf_cap, 12);
    end();
}

TEST(opt, bools_are_two_words)
{
    begin();
    parse("strict:true");
    SAID("");
    EXPECT_EQ(opt.strict, 1);
    parse("strict:false");
    EXPECT_EQ(opt.strict, 0);
    opt.strict = 1;
    parse("strict:0");
    SAID("sheaf: SHEAF_CONF: bad value \"0\" for strict\n");
    parse("strict:truex");
    SAID("sheaf: SHEAF_CONF: bad value \"truex\" for strict\n");
    parse("strict");
    SAID("sheaf: SHEAF_CONF: bad value \"\" for strict\n");
    EXPECT_EQ(opt.strict, 1);
    end();
}

TEST(opt, choices_are_positions)
{
    begin();
    parse("thp:never");
    EXPECT_EQ(opt.thp, OPT_THP_NEVER);
    parse("thp:always");
    EXPECT_EQ(opt.thp, OPT_THP_ALWAYS);
    parse("thp:auto");
    EXPECT_EQ(opt.thp, OPT_THP_AUTO);
    parse("purge:off");
    EXPECT_EQ(opt.purge, OPT_PURGE_OFF);
    parse("deepbind:keep");
    EXPECT_EQ(opt.deepbind, OPT_DEEPBIND_KEEP);
    SAID("");
    static const char *const bad[] = {"nev", "never|auto", "alwaysx", "", "|", "Never"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char conf[64], want[128];
        snprintf(conf, sizeof conf, "thp:%s", bad[i]);
        snprintf(want, sizeof want, "sheaf: SHEAF_CONF: bad value \"%s\" for thp\n", bad[i]);
        parse(conf);
        SAID(want);
        EXPECT_EQ(opt.thp, OPT_THP_AUTO);
    }
    end();
}

TEST(opt, unknown_keys_are_named_and_the_rest_is_read)
{
    begin();
    parse("nope:1,keep:1m,kee:2,keepx:3,:4,thp:never");
    SAID("sheaf: SHEAF_CONF: unknown option \"nope\"\n"
         "sheaf: SHEAF_CONF: unknown option \"kee\"\n"
         "sheaf: SHEAF_CONF: unknown option \"keepx\"\n"
         "sheaf: SHEAF_CONF: unknown option \"\"\n");
    EXPECT_EQ(opt.keep, 1 << 20);
    EXPECT_EQ(opt.thp, OPT_THP_NEVER);
    end();
}

TEST(opt, last_of_two_wins_and_empty_pairs_are_nothing)
{
    begin();
    parse(",keep:1,,barn_max:3,keep:2,");
    SAID("");
    EXPECT_EQ(opt.keep, 2);
    EXPECT_EQ(opt.barn_max, 3);
    end();
}

TEST(opt, later_options_say_so)
{
    begin();
    parse("limits:cgroup");
    SAID("sheaf: SHEAF_CONF: limits has no effect yet\n");
    EXPECT_EQ(opt.limits, 1);
    end();
}

TEST(opt, paths_are_copied)
{
    char conf[64] = "stats_json:one/file.json,strict:true";
    begin();
    parse(conf);
    SAID("");
    memset(conf, 'x', sizeof conf - 1);
    EXPECT(strcmp((const char *)opt.stats_json, "one/file.json") == 0);
    EXPECT_EQ(opt.strict, 1);
    parse("stats_json:");
    SAID("sheaf: SHEAF_CONF: bad value \"\" for stats_json\n");
    EXPECT(strcmp((const char *)opt.stats_json, "one/file.json") == 0);
    parse("stats_json:two:with:colons");
    EXPECT(strcmp((const char *)opt.stats_json, "two:with:colons") == 0);
    end();
}

TEST(opt, too_long_path_is_a_bad_value_cut_in_the_message)
{
    static char conf[4096];
    begin();
    memset(conf, 'p', sizeof conf - 1);
    memcpy(conf, "stats_json:", 11);
    parse(conf);
    EXPECT(strncmp(said, "sheaf: SHEAF_CONF: bad value \"ppp", 33) == 0);
    EXPECT(strlen(said) < 200 && strstr(said, "\" for stats_json\n") != NULL);
    EXPECT_EQ(opt.stats_json, before.stats_json);
    memcpy(conf, "qqqqqqqqqqq", 11);
    parse(conf);
    EXPECT(strncmp(said, "sheaf: SHEAF_CONF: unknown option \"qqq", 38) == 0);
    EXPECT(strlen(said) < 200);
    end();
}

TEST(opt, print_has_every_option_once_with_its_value)
{
    static char text[16384];
    struct fmt f = {.buf = text, .cap = sizeof text - 1, .fd = -1};
    begin();
    parse("thp:always,keep:3k,strict:true,stats_json:some/path");
    opt_print(&f);
    text[f.len] = '\0';
    end();
    size_t lines = 0, options = 0;
    for (const char *s = text; (s = strchr(s, '\n')) != NULL; s++)
        lines++;
#define OPT(type, name, def, choices, state, doc)                                                                      \
    EXPECT(strstr(text, "  " #name ":") != NULL);                                                                      \
    options++;
#include "core/opt.def"
#undef OPT
    EXPECT_EQ(lines, options);
    EXPECT(strstr(text, "  thp:always  (") != NULL);
    EXPECT(strstr(text, "  keep:3072  (") != NULL);
    EXPECT(strstr(text, "  strict:true  (") != NULL);
    EXPECT(strstr(text, "  stats_json:some/path  (") != NULL);
    EXPECT(strstr(text, "  hardened:false  (") != NULL);
    EXPECT(strstr(text, "; no effect yet)") != NULL);
}
