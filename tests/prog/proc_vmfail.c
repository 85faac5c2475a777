/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The k-th mmap, munmap, mremap or madvise is refused, for every k that a run of large blocks comes to: proc_vmfail CALL.
 * A request may then fail with ENOMEM, and what was there before is there still; a free fails never, nor does a shrink;
 * errno lives through both; afterwards all is as ever. Each k has a process of its own.
 */
#include "proc_calls.h"

#include <sys/mman.h>

#define GiB(n) ((size_t)(n) << 30)

enum { NOT_REACHED = 3, K_MOST = 1000 };

/* One byte in each MiB. */
static void stamp(unsigned char *p, size_t from, size_t to)
{
    for (size_t at = (from + MiB(1) - 1) & ~(MiB(1) - 1); at < to; at += MiB(1))
        p[at] = (unsigned char)(at / MiB(1) * 7 + 1);
}

static void check_stamps(const unsigned char *p, size_t size, const char *after)
{
    for (size_t at = 0; at < size; at += MiB(1))
        if (p[at] != (unsigned char)(at / MiB(1) * 7 + 1))
            FAIL("MiB %zu of %zu bytes is lost %s", at / MiB(1), size, after);
}

struct buffer {
    unsigned char *p;
    size_t size;
};

static void release(struct buffer *b)
{
    check_stamps(b->p, b->p ? b->size : 0, "before its free");
    errno = 1234;
    free(b->p);
    CHECK(errno == 1234);
    b->p = NULL;
}

/* realloc. Growing may be refused, shrinking not. */
static void resize(struct buffer *b, size_t size)
{
    if (!b->p)
        return;
    size_t kept = size < b->size ? size : b->size;
    errno = 1234;
    unsigned char *q = realloc(b->p, size);
    if (!q) {
        CHECK(errno == ENOMEM);
        if (size <= b->size)
            FAIL("a shrink from %zu to %zu bytes was refused", b->size, size);
        check_stamps(b->p, b->size, "after a refused realloc");
        return;
    }
    CHECK(errno == 1234);
    check_stamps(q, kept, "after realloc");
    CHECK(malloc_usable_size(q) >= size);
    stamp(q, kept, size);
    *b = (struct buffer){q, size};
}

static struct buffer take(size_t align, size_t size, int zero)
{
    errno = 1234;
    unsigned char *p = zero ? calloc(1, size) : align > 16 ? aligned_alloc(align, size) : malloc(size);
    if (!p) {
        CHECK(errno == ENOMEM);
        return (struct buffer){NULL, 0};
    }
    CHECK(errno == 1234 && (uintptr_t)p % align == 0);
    for (size_t at = 0; zero && at < size; at += MiB(1))
        CHECK(p[at] == 0);
    stamp(p, 0, size);
    return (struct buffer){p, size};
}

/* Address space in the way: what moves from here on goes gigabytes away, where the allocator has nothing yet. */
static char *wall(void)
{
    for (int tries = 0; tries < 2; tries++) { /* the refusal may be meant for the allocator and meet us */
        void *p = mmap(NULL, GiB(9), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p != MAP_FAILED)
            return p;
    }
    return NULL;
}

/* Blocks of 66 MiB and more may be mappings of their own, the others parts of larger ones. */
static void scenario(void)
{
    struct buffer a = take(16, MiB(66), 0), b = take(16, MiB(3), 0), c = take(MiB(4), MiB(68), 0);
    char *far = wall();
    resize(&a, MiB(130));
    resize(&a, MiB(131) + 12345);
    resize(&b, MiB(5));
    resize(&a, MiB(70));
    resize(&c, MiB(90));
    resize(&a, MiB(20));
    resize(&b, MiB(67));
    struct buffer d = take(16, MiB(80), 1), e = take(16, MiB(9), 1);
    resize(&c, MiB(2));
    resize(&a, MiB(1));
    resize(&d, MiB(140));
    release(&e);
    release(&b);
    e = take(MiB(128), 1000, 0);
    release(&a);
    b = take(16, MiB(67), 1);
    release(&d);
    release(&c);
    release(&e);
    release(&b);
    malloc_trim(0);
    if (far)
        munmap(far, GiB(9));
}

static void once(int number, long k)
{
    calls_watch();
    calls_refuse(number, k, ENOMEM);
    scenario();
    int refused = calls_refused();
    calls_refuse(-1, 0, 0);
    struct buffer a = take(16, MiB(66), 1), b = take(16, MiB(3), 1);
    resize(&a, MiB(67));
    CHECK(a.p && b.p && a.size == MiB(67));
    release(&a);
    release(&b);
    check_heap(300, NULL, 0);
    fflush(NULL);
    _exit(refused ? 0 : NOT_REACHED);
}

static int number_of(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } all[] = {{"mmap", SYS_mmap}, {"munmap", SYS_munmap}, {"mremap", SYS_mremap}, {"madvise", SYS_madvise}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].number;
    FAIL("no call is named %s", name);
}

int main(int argc, char **argv)
{
    int number = number_of(argc > 1 ? argv[1] : "mremap"), status = 0;
    long k = 1;
    for (; k < K_MOST; k++) {
        pid_t pid = fork();
        if (pid == 0)
            once(number, k);
        while (waitpid(pid, &status, 0) < 0)
            CHECK(errno == EINTR);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
            return 77;
        if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_REACHED)
            break;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            FAIL("%s number %ld refused: ended with status %#x", argv[1], k, (unsigned)status);
    }
    CHECK(k < K_MOST);
    printf("%ld\n", k - 1);
    return 0;
}
