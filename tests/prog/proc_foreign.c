/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pointers that no call of the family returned: proc_foreign free|realloc|usable|heap.
 *
 * Memory of the stack, of .data, the start of a mapping, a page without access, a block of another copy of libc, the
 * number 16. Nothing may crash, and later allocations never lie over them. The first pointer used is printed.
 * heap: blocks of the other copy of libc only, many of them, mixed with ours.
 */
#include "proc_util.h"

#include <dlfcn.h>
#include <sys/mman.h>

enum { FOREIGN = 6 };

static char data[256] __attribute__((aligned(16))) = "data";

static struct {
    char *p;
    size_t len;
} foreign[FOREIGN];

static char *map_page(int prot)
{
    void *p = mmap(NULL, 65536, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

static void *(*other_malloc(void))(size_t)
{
    void *libc = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
    if (!libc)
        FAIL("%s", dlerror());
    void *(*f)(size_t) = (void *(*)(size_t))dlsym(libc, "malloc");
    CHECK(f && f != malloc);
    return f;
}

static void collect(char *stack, size_t stack_len)
{
    char *block = other_malloc()(4000);
    CHECK(block);
    memset(stack, 's', stack_len);
    memset(block, 'b', 4000);
    foreign[0].p = data, foreign[0].len = sizeof data;
    foreign[1].p = stack, foreign[1].len = stack_len;
    foreign[2].p = map_page(PROT_READ | PROT_WRITE), foreign[2].len = 65536;
    foreign[3].p = map_page(PROT_NONE), foreign[3].len = 65536;
    foreign[4].p = block, foreign[4].len = 4000;
    foreign[5].p = (char *)16, foreign[5].len = 16;
}

static void print_first(void)
{
    char line[32];
    int n = snprintf(line, sizeof line, "%p\n", (void *)foreign[0].p);
    CHECK(write(1, line, (size_t)n) == n);
}

static void use(const char *how, char *p)
{
    if (strcmp(how, "free") == 0) {
        free(p);
    } else if (strcmp(how, "realloc") == 0) {
        errno = 0;
        CHECK(realloc(p, 5000) == NULL);
        CHECK(errno == ENOMEM);
    } else if (strcmp(how, "usable") == 0) {
        CHECK(malloc_usable_size(p) == 0);
    } else {
        FAIL("unknown command %s", how);
    }
}

static void mixed_heaps(void)
{
    void *(*other)(size_t) = other_malloc();
    for (size_t i = 0; i < 1000; i++) {
        char *theirs = other(16 + i);
        struct block ours = block_new(16 + i);
        CHECK(theirs);
        memset(theirs, 't', 16 + i);
        free(theirs);
        CHECK(theirs[0] == 't' && theirs[15 + i] == 't');
        block_free(&ours);
    }
}

int main(int argc, char **argv)
{
    char stack[256] __attribute__((aligned(16)));
    CHECK(argc == 2);
    if (strcmp(argv[1], "heap") == 0) {
        mixed_heaps();
        return 0;
    }
    struct block ours = block_new(100);
    collect(stack, sizeof stack);
    print_first();
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < FOREIGN; i++)
            use(argv[1], foreign[i].p);
    for (int i = 0; i < FOREIGN; i++)
        check_heap(2000, foreign[i].p, foreign[i].len);
    CHECK(strcmp(data, "data") == 0 && stack[255] == 's' && foreign[4].p[3999] == 'b' && foreign[2].p[0] == 0);
    block_free(&ours);
    return 0;
}
