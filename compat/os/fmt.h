/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Formatted text without malloc, locale or stdio. Level 0. Usable in an abort path, a signal handler, a fork child.
 *
 * A struct fmt collects text in a caller's buffer and writes it to a file descriptor when the buffer is full and at
 * fmt_flush; with fd < 0 and no sink it only fills the buffer and drops what does not fit.
 */
#ifndef COMPAT_OS_FMT_H
#define COMPAT_OS_FMT_H

#include "cc.h"

#include <stdarg.h>

struct fmt {
    char *buf;
    size_t cap, len;
    int fd;
    void (*sink)(void *arg, const char *text, size_t len); /* if set: takes the text instead of fd */
    void *arg;
};

/* What: append. Knows %s %c %d %u %x %p %%, the lengths l and z, a width, 0 and - flags; %p is 0x and hex digits. */
void fmt_add(struct fmt *f, const char *text, ...) PRINTF_LIKE(2, 3);
void fmt_addv(struct fmt *f, const char *text, va_list args);

/* What: write out what is collected. Fails: silently; errno is preserved. */
void fmt_flush(struct fmt *f);

/* What: one line to standard error in one write: "sheaf: " text "\n". Units: text of at most about 400 characters. */
void fmt_message(const char *text, ...) PRINTF_LIKE(1, 2);

#endif
