/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mapping of somebody else's where a large block of ours was: its free is a stranger's, not a double free (R06). Exit
 * 77 where the address is not to be had again.
 */
#include "proc_util.h"

#include <sys/mman.h>

int main(void)
{
    char *p = malloc(MiB(300));
    CHECK(p);
    p[0] = 1;
    uintptr_t was = (uintptr_t)p;
    free(p);
    char *q = mmap((void *)(was & ~(uintptr_t)4095), MiB(300), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (q != (char *)was) {
        fprintf(stderr, "the address is in use\n");
        return 77;
    }
    q[0] = 2;
    free(q);
    CHECK(q[0] == 2);
    printf("left alone\n");
    return 0;
}
