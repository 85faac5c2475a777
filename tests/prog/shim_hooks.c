/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A preload like those of tracers and clock fakers: it stands before libc's mmap, munmap, madvise, open, read,
 * clock_gettime, sysconf and pthread_create, and each call looks up the real one and allocates. An allocator that
 * starts through one of these meets itself again.
 *
 * With SHIM_HOOKS_REPORT in the environment it prints at exit how many calls it saw.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Without an end to the nesting, no allocator that maps through libc could serve us. */
enum { NESTED_MAX = 4 };

static __thread int nested;
static long calls;

static void *before(const char *name)
{
    void *real = NULL;
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (nested++ < NESTED_MAX) {
        char *p = calloc(3, 40);
        if (!p || p[0] || p[119])
            abort();
        p[0] = 1;
        real = dlsym(RTLD_NEXT, name);
        free(p);
    } else {
        real = dlsym(RTLD_NEXT, name);
    }
    nested--;
    if (!real)
        abort();
    return real;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))before(#name)

void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    REAL(mmap);
    return real(at, len, prot, flags, fd, offset);
}

void *mmap64(void *at, size_t len, int prot, int flags, int fd, off64_t offset)
{
    REAL(mmap64);
    return real(at, len, prot, flags, fd, offset);
}

int munmap(void *at, size_t len)
{
    REAL(munmap);
    return real(at, len);
}

int madvise(void *at, size_t len, int advice)
{
    REAL(madvise);
    return real(at, len, advice);
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(args, int) : 0;
}

int open(const char *path, int flags, ...)
{
    REAL(open);
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return real(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    REAL(open64);
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return real(path, flags, mode);
}

ssize_t read(int fd, void *to, size_t len)
{
    REAL(read);
    return real(fd, to, len);
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    REAL(clock_gettime);
    return real(id, now);
}

long sysconf(int name)
{
    REAL(sysconf);
    return real(name);
}

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*main_of)(void *), void *arg)
{
    REAL(pthread_create);
    return real(t, attr, main_of, arg);
}

__attribute__((destructor)) static void report(void)
{
    if (getenv("SHIM_HOOKS_REPORT"))
        dprintf(2, "shim_hooks: %ld calls\n", calls);
}
