/* SPDX-License-Identifier: BSD-2-Clause */
#include "fmt.h"

#include "sys.h"

#include <string.h>

struct spec {
    bool left, zero, is_long;
    unsigned width;
};

static void put(struct fmt *f, const char *s, size_t n)
{
    while (n > 0) {
        size_t room = f->cap - f->len;
        if (room == 0) {
            if (f->fd < 0 && f->sink == NULL)
                return;
            fmt_flush(f);
            room = f->cap;
        }
        size_t part = n < room ? n : room;
        memcpy(f->buf + f->len, s, part);
        f->len += part;
        s += part;
        n -= part;
    }
}

static void put_padded(struct fmt *f, const struct spec *sp, const char *s, size_t n)
{
    size_t pad = sp->width > n ? sp->width - n : 0;
    if (sp->left)
        put(f, s, n);
    for (; pad > 0; pad--)
        put(f, sp->zero && !sp->left ? "0" : " ", 1);
    if (!sp->left)
        put(f, s, n);
}

static void put_number(struct fmt *f, const struct spec *sp, uint64_t v, unsigned base, const char *prefix)
{
    char digits[24];
    char *end = digits + sizeof digits, *p = end;
    do {
        *--p = "0123456789abcdef"[v % base];
        v /= base;
    } while (v != 0);
    for (size_t i = strlen(prefix); i > 0; i--)
        *--p = prefix[i - 1];
    put_padded(f, sp, p, (size_t)(end - p));
}

static const char *parse_spec(const char *s, struct spec *sp)
{
    *sp = (struct spec){0};
    for (; *s == '-' || *s == '0'; s++) {
        sp->left |= *s == '-';
        sp->zero |= *s == '0';
    }
    for (; *s >= '0' && *s <= '9'; s++)
        sp->width = sp->width * 10 + (unsigned)(*s - '0');
    for (; *s == 'l' || *s == 'z'; s++)
        sp->is_long = true;
    return s;
}

void fmt_addv(struct fmt *f, const char *s, va_list args)
{
    for (; *s != '\0'; s++) {
        const char *plain = s;
        while (*s != '\0' && *s != '%')
            s++;
        put(f, plain, (size_t)(s - plain));
        if (*s == '\0')
            return;
        struct spec sp;
        s = parse_spec(s + 1, &sp);
        switch (*s) {
        case 's': {
            const char *t = va_arg(args, const char *);
            put_padded(f, &sp, t, strlen(t));
            break;
        }
        case 'c': {
            char c = (char)va_arg(args, int);
            put(f, &c, 1);
            break;
        }
        case 'd': {
            long v = sp.is_long ? va_arg(args, long) : va_arg(args, int);
            put_number(f, &sp, v < 0 ? -(uint64_t)v : (uint64_t)v, 10, v < 0 ? "-" : "");
            break;
        }
        case 'u':
        case 'x': {
            uint64_t v = sp.is_long ? va_arg(args, unsigned long) : va_arg(args, unsigned);
            put_number(f, &sp, v, *s == 'u' ? 10 : 16, "");
            break;
        }
        case 'p':
            put_number(f, &sp, (uintptr_t)va_arg(args, void *), 16, "0x");
            break;
        default:
            put(f, s, 1);
        }
    }
}

void fmt_add(struct fmt *f, const char *text, ...)
{
    va_list args;
    va_start(args, text);
    fmt_addv(f, text, args);
    va_end(args);
}

void fmt_flush(struct fmt *f)
{
    size_t done = 0;
    if (f->sink != NULL) {
        f->sink(f->arg, f->buf, f->len);
        f->len = 0;
        return;
    }
    while (f->fd >= 0 && done < f->len) {
        long n = sys_call3(SYS_write, f->fd, (long)(f->buf + done), (long)(f->len - done));
        if (n <= 0 && n != -4) /* EINTR: again; anything else: there is no one left to tell */
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    if (f->fd >= 0)
        f->len = 0;
}

void fmt_message(const char *text, ...)
{
    char buf[512];
    struct fmt f = {.buf = buf, .cap = sizeof buf - 1, .fd = -1};
    va_list args;
    fmt_add(&f, "sheaf: ");
    va_start(args, text);
    fmt_addv(&f, text, args);
    va_end(args);
    buf[f.len++] = '\n';
    f.cap = sizeof buf;
    f.fd = 2;
    fmt_flush(&f);
}
