/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of regions share. */
#ifndef TESTS_UNIT_REGION_UTIL_H
#define TESTS_UNIT_REGION_UTIL_H

#include "unit.h"

#include "compat/os/vm.h"
#include "core/large.h"
#include "core/region.h"

#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* Bytes mapped by the process. */
static inline size_t address_space(void)
{
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    MUST(f != NULL && fscanf(f, "%zu", &pages) == 1);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE); /* the kernel's, whatever vm.h says */
}

/* Huge windows. */
static inline size_t seen_windows(void)
{
    return region_stats().windows;
}

/* Let go of the empty windows that other tests of the process have left: a request that cannot be served does that. */
static inline void drop_empty_windows(void)
{
    large_drain(false);
    MUST(region_map_window((size_t)1 << 47, NODE) == NULL);
}

/* In a child that begins without them. */
static inline void region_alone(void (*body)(void *), void *arg)
{
    drop_empty_windows();
    unit_alone(body, arg);
}

#endif
