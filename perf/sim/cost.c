/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of costs, as it is in cost.def until --cost or --calibrate changes it. */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct cost cost = {
#define COST(name, value, source) .name = value,
#include "cost.def"
#undef COST
};

static const struct row {
    const char *name, *source;
    uint64_t *value;
} rows[] = {
#define COST(name, value, source) {#name, source, &cost.name},
#include "cost.def"
#undef COST
};
enum { ROWS = sizeof rows / sizeof *rows };

bool cost_set(const char *name, uint64_t value)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) {
            *rows[i].value = value;
            return true;
        }
    return false;
}

/* As cost.def has them, to be pasted. */
void cost_print(void)
{
    for (int i = 0; i < ROWS; i++)
        printf("COST(%s, %" PRIu64 ", \"%s\")\n", rows[i].name, *rows[i].value, rows[i].source);
}
