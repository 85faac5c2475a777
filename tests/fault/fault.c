/* SPDX-License-Identifier: BSD-2-Clause */
/* See fault.h. The first call may be the loader's, before there is an environment or a libc: only raw system calls. */
#include "fault.h"

#include "compat/os/atomic.h"
#include "compat/os/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

const char *const fault_name[FAULT_CALLS] = {"mmap", "munmap", "madvise", "mremap", "mbind"};

enum { SPEC_MAX = 512 };

static struct {
    enum fault_call call;
    long k;
    bool forever;
    int answer;
} plan;
static long calls[FAULT_CALLS], hits;
static uint32_t begun; /* 1: the environment has been read */
static char spec[SPEC_MAX];
static const char *log_path;

/* ---- the environment ---- */

/* The value of SHEAF_FAULT, read by bytes from the list that the kernel keeps. Fails: false, not set. */
static bool read_environment(void)
{
    static const char name[] = "SHEAF_FAULT=";
    static char buf[4096];
    long fd = sys_call6(SYS_openat, AT_FDCWD, (long)"/proc/self/environ", O_RDONLY | O_CLOEXEC, 0, 0, 0), n;
    size_t matched = 0, len = 0;
    bool found = false, skip = false;
    if (fd < 0)
        return false;
    while ((n = sys_call3(SYS_read, fd, (long)buf, sizeof buf)) > 0)
        for (long i = 0; i < n; i++) {
            if (found && len + 1 < sizeof spec && buf[i] != '\0')
                spec[len++] = buf[i];
            else if (found)
                goto out;
            else if (buf[i] == '\0')
                matched = 0, skip = false;
            else if (skip || buf[i] != name[matched])
                skip = true;
            else
                found = ++matched == sizeof name - 1;
        }
out:
    sys_call3(SYS_close, fd, 0, 0);
    spec[len] = '\0';
    return found;
}

static long number(const char **s)
{
    long n = 0;
    for (; **s >= '0' && **s <= '9'; ++*s)
        n = n * 10 + (**s - '0');
    return n;
}

static void parse(void)
{
    size_t len = strcspn(spec, ":");
    const char *s = spec + len;
    while (plan.call < FAULT_CALLS && (strlen(fault_name[plan.call]) != len || memcmp(spec, fault_name[plan.call], len) != 0))
        plan.call++;
    plan.k = *s == ':' ? (s++, number(&s)) : 0;
    plan.forever = *s == '+' && s++;
    plan.answer = *s == ':' ? (s++, -(int)number(&s)) : 0;
    log_path = *s == ':' ? s + 1 : NULL;
    if (plan.call == FAULT_CALLS)
        plan.k = 0;
}

static void begin(void)
{
    store_relaxed(&begun, 1);
    if (read_environment())
        parse();
}

void fault_log(const char *line)
{
    if (log_path == NULL)
        return;
    long fd = sys_call6(SYS_openat, AT_FDCWD, (long)log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600, 0, 0);
    if (fd < 0)
        return;
    sys_call3(SYS_write, fd, (long)line, (long)strlen(line));
    sys_call3(SYS_close, fd, 0, 0);
}

/* ---- the seam ---- */

bool fault_hit(enum fault_call call, long *answer)
{
    if (load_relaxed(&begun) == 0)
        begin();
    long n = add_relaxed(&calls[call], 1) + 1;
    if (plan.k == 0 || call != plan.call || (n != plan.k && !(plan.forever && n > plan.k)))
        return false;
    if (add_relaxed(&hits, 1) == 0)
        fault_log("hit\n");
    *answer = plan.answer;
    return true;
}

void fault_set(enum fault_call call, long k, bool forever, int answer)
{
    store_relaxed(&begun, 1);
    plan.call = call;
    plan.k = k;
    plan.forever = forever;
    plan.answer = answer;
    memset(calls, 0, sizeof calls);
    hits = 0;
}

long fault_calls(enum fault_call call)
{
    return load_relaxed(&calls[call]);
}

long fault_hits(void)
{
    return load_relaxed(&hits);
}
