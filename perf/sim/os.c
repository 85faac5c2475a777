/* SPDX-License-Identifier: BSD-2-Clause */
/* compat/os/cpu.h and clock.h of the made-up machine: the virtual cpu that runs, and simulated time. */
#include "sim.h"

#include "compat/os/clock.h"
#include "compat/os/cpu.h"
#include "core/tunables.h"

enum { COARSE_MS = 4, UPTIME_MS = 3600000 }; /* a kernel of 250 Hz that has been up for an hour */

static unsigned here(void)
{
    return sim.running == NULL ? 0 : sim.running->id;
}

/* Only barns ask, and divide by BARN_CPUS. */
unsigned cpu_current(void)
{
    return machine.barn_cpus == 0 ? here() : here() / machine.barn_cpus * BARN_CPUS;
}

unsigned cpu_shard(void)
{
    return here();
}

int cpu_filled(void)
{
    return (int)here();
}

int cpu_node_filled(void)
{
    return (int)machine_home_of(here());
}

int cpu_node_ask(void)
{
    return (int)machine_home_of(here());
}

unsigned cpu_count(void)
{
    return machine.cpus;
}

uint64_t clock_coarse_ms(void)
{
    uint64_t ms = sim.running == NULL ? 0 : sim.running->now / PS_PER_MS;
    return UPTIME_MS + ms / COARSE_MS * COARSE_MS;
}

void *clock_image_symbol(const void *image UNUSED, const char *name UNUSED)
{
    return NULL;
}
