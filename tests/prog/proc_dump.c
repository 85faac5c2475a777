/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Dies by abort with a core dump wanted in the current directory, with about MIB live of twice as many that were allocated
 * (R25): proc_dump MIB.
 */
#include "proc_util.h"

#include <sys/resource.h>

int main(int argc, char **argv)
{
    enum { MOST = 200000 };
    static char *block[MOST];
    size_t sum = 0, n = 0, limit = 2 * MiB((size_t)arg_count(argc, argv, 1, 20));
    uint64_t seed = 25;
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_CORE, &all) != 0) {
        fprintf(stderr, "no core dumps: %s\n", strerror(errno));
        return 77;
    }
    for (; sum < limit && n < MOST; n++) {
        size_t size = rng_size(&seed, n % 50 == 0 ? 22 : 12);
        block[n] = malloc(size);
        CHECK(block[n]);
        memset(block[n], 1, size);
        sum += size;
    }
    for (size_t i = 0; i < n; i++)
        if (rng_next(&seed) % 2)
            free(block[i]);
    abort();
}
