/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "opt.h"

#include "tunables.h"

#include <string.h>

enum row_type { BOOL, SIZE, UINT, PATH, CHOICE };
enum row_state { LIVE, LATER };

struct row {
    const char *name, *choices, *doc;
    uint8_t type, state; /* enum row_type, enum row_state */
};

struct opt opt = {
#define OPT(type, name, def, choices, state, doc) .name = (def),
#include "opt.def"
#undef OPT
};

static const struct row rows[] = {
#define OPT(type, name, def, choices, state, doc) {#name, choices, doc, type, state},
#include "opt.def"
#undef OPT
};
enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert(sizeof opt == ROWS * sizeof(uintptr_t), "one word a row, in order");

/* Computed, not stored: a pointer in the table would be one more word for the loader to relocate at every start. */
static uintptr_t *value_of(const struct row *r)
{
    return (uintptr_t *)&opt + (r - rows);
}

/* The environment belongs to the program, which may overwrite it: paths live on in this copy. */
static char path_copy[1024];
static size_t path_used;

/* A piece of the text: not ended by a zero. */
struct piece {
    const char *s;
    size_t len;
};

static bool piece_is(struct piece p, const char *word)
{
    return strlen(word) == p.len && memcmp(word, p.s, p.len) == 0;
}

static bool parse_number(struct piece p, bool with_unit, uintptr_t *out)
{
    uintptr_t v = 0;
    size_t i = 0;
    for (; i < p.len && p.s[i] >= '0' && p.s[i] <= '9'; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uintptr_t)(p.s[i] - '0'), &v))
            return false;
    if (i == 0)
        return false;
    if (with_unit && i + 1 == p.len) {
        const char *units = "kmg", *u = memchr(units, p.s[i] | 0x20, 3);
        if (u == NULL || __builtin_mul_overflow(v, (uintptr_t)1 << (10 * (u - units + 1)), &v))
            return false;
        i++;
    }
    if (i != p.len)
        return false;
    *out = v;
    return true;
}

static bool parse_choice(const char *choices, struct piece p, uintptr_t *out)
{
    for (uintptr_t n = 0;; n++) {
        const char *end = strchr(choices, '|');
        size_t len = end != NULL ? (size_t)(end - choices) : strlen(choices);
        if (len == p.len && memcmp(choices, p.s, len) == 0) {
            *out = n;
            return true;
        }
        if (end == NULL)
            return false;
        choices = end + 1;
    }
}

static bool parse_path(struct piece p, uintptr_t *out)
{
    if (p.len == 0 || p.len + 1 > sizeof path_copy - path_used)
        return false;
    char *copy = path_copy + path_used;
    memcpy(copy, p.s, p.len);
    copy[p.len] = '\0';
    path_used += p.len + 1;
    *out = (uintptr_t)copy;
    return true;
}

static bool parse_value(const struct row *r, struct piece p)
{
    switch (r->type) {
    case BOOL:
        if (!piece_is(p, "true") && !piece_is(p, "false"))
            return false;
        *value_of(r) = piece_is(p, "true");
        return true;
    case SIZE:
        return parse_number(p, true, value_of(r));
    case UINT:
        return parse_number(p, false, value_of(r));
    case CHOICE:
        return parse_choice(r->choices, p, value_of(r));
    case PATH:
        return parse_path(p, value_of(r));
    }
    return false;
}

static const struct row *find_row(struct piece key)
{
    for (int i = 0; i < ROWS; i++)
        if (piece_is(key, rows[i].name))
            return &rows[i];
    return NULL;
}

/* Piece as a string for a message, cut where a message would get too long. */
static const char *piece_text(char *buf, size_t size, struct piece p)
{
    size_t len = p.len < size - 1 ? p.len : size - 1;
    memcpy(buf, p.s, len);
    buf[len] = '\0';
    return buf;
}

static void parse_pair(struct piece key, struct piece value)
{
    char k[64], v[64];
    const struct row *r = find_row(key);
    if (r == NULL)
        fmt_message("SHEAF_CONF: unknown option \"%s\"", piece_text(k, sizeof k, key));
    else if (!parse_value(r, value))
        fmt_message("SHEAF_CONF: bad value \"%s\" for %s", piece_text(v, sizeof v, value), r->name);
    else if (r->state == LATER)
        fmt_message("SHEAF_CONF: %s has no effect yet", r->name);
}

void opt_init(const char *conf)
{
    while (conf != NULL && *conf != '\0') {
        const char *end = strchrnul(conf, ',');
        const char *colon = memchr(conf, ':', (size_t)(end - conf));
        const char *key_end = colon != NULL ? colon : end;
        const char *value = colon != NULL ? colon + 1 : end;
        if (end != conf)
            parse_pair((struct piece){conf, (size_t)(key_end - conf)}, (struct piece){value, (size_t)(end - value)});
        conf = *end == ',' ? end + 1 : end;
    }
}

static void print_value(struct fmt *f, const struct row *r)
{
    uintptr_t v = *value_of(r);
    if (r->type == PATH) {
        fmt_add(f, "%s", v != 0 ? (const char *)v : "-");
    } else if (r->type == CHOICE) {
        const char *c = r->choices;
        for (; v > 0; v--)
            c = strchr(c, '|') + 1;
        for (; *c != '\0' && *c != '|'; c++)
            fmt_add(f, "%c", *c);
    } else if (r->type == BOOL) {
        fmt_add(f, "%s", v ? "true" : "false");
    } else {
        fmt_add(f, "%lu", (unsigned long)v);
    }
}

void opt_print(struct fmt *f)
{
    for (int i = 0; i < ROWS; i++) {
        fmt_add(f, "  %s:", rows[i].name);
        print_value(f, &rows[i]);
        fmt_add(f, "  (%s%s)\n", rows[i].doc, rows[i].state == LATER ? "; no effect yet" : "");
    }
}
