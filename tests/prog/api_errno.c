/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * errno lives through every free and every successful allocation, also when the system calls behind them fail (R18).
 *
 *     api_errno [madvise] [munmap] [mremap] [mprotect]    the named calls fail with EINVAL from the start
 *
 * Sizes go from 16 B to 1 GiB, one at a time (so that the largest are really given back), in crowds of one size and in
 * one spike of many sizes, because what is done on the way to the kernel differs.
 */
#define _GNU_SOURCE
#include "api_routes.h"
#include "api_seccomp.h"

#include <sys/syscall.h>

#define CROWD_BYTES (24u << 20)
#define CROWD_MAX 4096

/* Which call it was, for the message. */
#define KEPT(what, size)                                                                                               \
    CHECKF(errno == ERRNO_MARK, "%s of %zu bytes set errno to %d", what, (size_t)(size), errno)

static void deny(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } calls[] = {
        {"madvise", SYS_madvise}, {"munmap", SYS_munmap}, {"mremap", SYS_mremap},
        {"mprotect", SYS_mprotect},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (strcmp(calls[i].name, name) == 0) {
            seccomp_answer(calls[i].number, EINVAL);
            return;
        }
    }
    FAILF("no call is named %s", name);
}

/* Enough to make the pages resident that a purge would want to give back. */
static void touch(unsigned char *p, size_t size)
{
    if (size <= (1u << 20)) {
        memset(p, 0x55, size);
        return;
    }
    memset(p, 0x55, 128u << 10);
    p[size - 1] = 0x55;
}

static void *get(const struct alloc_route *r, size_t align, size_t size)
{
    errno = ERRNO_MARK;
    void *p = route_alloc(r, align, size);
    CHECKF(p != NULL, "%s of %zu bytes is NULL", r->name, size);
    KEPT(r->name, size);
    touch(p, size);
    return p;
}

static void put(const struct free_route *r, void *p, size_t align, size_t size)
{
    errno = ERRNO_MARK;
    route_free(r, p, align, size);
    KEPT(r->name, size);
}

/* One block alone by every route back. */
static void one_by_one(size_t size)
{
    const struct alloc_route *plain = &alloc_routes[0], *aligned = NULL;
    for (size_t i = 0; i < ALLOC_ROUTES; i++)
        if (strcmp(alloc_routes[i].name, "aligned_alloc") == 0)
            aligned = &alloc_routes[i];
    for (size_t i = 0; i < FREE_ROUTES; i++) {
        if (!free_routes[i].f)
            continue;
        put(&free_routes[i], get(plain, 1, size), 1, size);
        put(&free_routes[i], get(aligned, 64, size), 64, size);
    }
    for (size_t i = 0; i < ALLOC_ROUTES; i++)
        if (alloc_routes[i].f)
            put(&free_routes[0], get(&alloc_routes[i], 64, size), 64, size);
}

/* Shrinking and growing that succeeds is a success too. */
static void by_realloc(size_t size)
{
    void *p = get(&alloc_routes[0], 1, size);
    errno = ERRNO_MARK;
    p = realloc(p, size / 2 + 1);
    CHECK(p);
    KEPT("shrinking realloc", size);
    p = realloc(p, size / 16 + 1);
    CHECK(p);
    KEPT("shrinking realloc", size);
    if (size <= (256u << 20)) {
        p = realloc(p, size + size / 2);
        CHECK(p);
        KEPT("growing realloc", size);
    }
    put(&free_routes[0], p, 1, size);
}

static void *crowd[CROWD_MAX];

/* Many of one size, all freed: caches overflow, slabs and pages go back. */
static void in_crowds(size_t size)
{
    size_t n = CROWD_BYTES / size;
    if (n > CROWD_MAX)
        n = CROWD_MAX;
    for (size_t i = 0; i < n; i++)
        crowd[i] = get(&alloc_routes[0], 1, size);
    for (size_t i = 0; i < n; i++)
        put(&free_routes[0], crowd[i], 1, size);
}

/* A spike of mixed sizes and a trim after it. */
static void spike(void)
{
    uint64_t seed = 18;
    size_t sizes[CROWD_MAX];
    for (size_t i = 0; i < CROWD_MAX; i++) {
        sizes[i] = rng_log(&seed, 16, 128u << 10);
        crowd[i] = get(&alloc_routes[0], 1, sizes[i]);
    }
    for (size_t i = 0; i < CROWD_MAX; i++)
        put(&free_routes[0], crowd[i], 1, sizes[i]);
    malloc_trim(0);
    put(&free_routes[0], get(&alloc_routes[0], 1, 100), 1, 100);
}

int main(int argc, char **argv)
{
    routes_init();
    for (int i = 1; i < argc; i++)
        deny(argv[i]);
    for (size_t size = 16; size <= ((size_t)1 << 30); size *= 4) {
        one_by_one(size);
        one_by_one(size + size / 2 > ((size_t)1 << 30) ? size : size + size / 2);
        by_realloc(size);
        if (size <= CROWD_BYTES / 4)
            in_crowds(size);
    }
    spike();
    return 0;
}
