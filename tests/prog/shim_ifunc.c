/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A function chosen at load time by a resolver that allocates. The resolver runs while this library is relocated,
 * before any constructor of it. To be opened with dlopen: at the start of a program the loader gives thread-local
 * variables their initial values only after all resolvers ran, so an allocator with thread-local state cannot serve
 * those (docs/design.md, "Life"). Linked with -z lazy: the call of malloc in the resolver needs it.
 */
#include <stdlib.h>
#include <string.h>

static void *kept;

static int answer(void)
{
    char *p = kept;
    int ok = p && p[0] == 'k' && p[99] == 'k';
    free(p);
    kept = NULL;
    return ok ? 42 : 0;
}

__attribute__((used)) static int (*resolve(void))(void)
{
    char *p = malloc(100), *gone = calloc(7, 9);
    free(gone);
    if (p)
        memset(p, 'k', 100);
    kept = p;
    return answer;
}

/* Hidden: the resolver then runs after this library's other relocations, not in the middle of them. */
int shim_ifunc_chosen(void) __attribute__((ifunc("resolve"), visibility("hidden")));

int shim_ifunc(void);
int shim_ifunc(void)
{
    return shim_ifunc_chosen();
}
