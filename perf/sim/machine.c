/* SPDX-License-Identifier: BSD-2-Clause */
/* The made-up machine: cpus in groups that share a cache, groups in nodes; and what compat/os/numa.c is told of it. */
#include "sim.h"
#include "tests/made_up.h"

#include "compat/os/numa.h"
#include "core/barn.h"
#include "core/pcp.h"
#include "core/slab.h"
#include "core/tunables.h"
#include "core/zone.h"

#include <stdlib.h>
#include <string.h>

struct machine machine = {.cpus = 8, .nodes = 1, .llc = 8};

static unsigned node_of(unsigned cpu)
{
    return (unsigned)((uint64_t)cpu * machine.nodes / machine.cpus);
}

static unsigned group_of(unsigned cpu)
{
    return cpu / machine.llc;
}

unsigned machine_home_of(unsigned cpu)
{
    return machine.tell_llc ? group_of(cpu) : node_of(cpu);
}

unsigned machine_homes(void)
{
    return machine_home_of(machine.cpus - 1) + 1;
}

enum tier machine_tier(unsigned a, unsigned b)
{
    return a == b ? TIER_SELF : node_of(a) != node_of(b) ? TIER_FAR : group_of(a) != group_of(b) ? TIER_NODE : TIER_LLC;
}

/* ---- struct numa_system ---- */

static long say_allowed(unsigned long *mask, size_t bits)
{
    memset(mask, 0, bits / 8);
    for (unsigned i = 0; i < machine_homes() && i < bits; i++)
        mask[i / (8 * sizeof *mask)] |= 1ul << i % (8 * sizeof *mask);
    return 0;
}

static int say_nodes(void)
{
    return (int)machine_homes();
}

static int say_cpus(void)
{
    return (int)machine.cpus;
}

static int say_node_of_cpu(int cpu)
{
    return (int)machine_home_of((unsigned)cpu);
}

static unsigned first_cpu_of(int home)
{
    unsigned cpu = 0;
    while (cpu + 1 < machine.cpus && machine_home_of(cpu) < (unsigned)home)
        cpu++;
    return cpu;
}

static int say_distance(int a, int b)
{
    static const int by_tier[] = {10, 11, 12, 20};
    return by_tier[machine_tier(first_cpu_of(a), first_cpu_of(b))];
}

static const struct numa_system made_up = {say_allowed, say_no_policy, say_first, say_yes, say_nodes,
                                           say_cpus, say_node_of_cpu, say_distance, close_nothing};

/* What barn_nodes takes for the number of cpus: --barn-cpus asks for other parts than BARN_CPUS makes. */
static unsigned cpus_for_barns(unsigned count)
{
    unsigned each = machine.barn_cpus == 0 ? BARN_CPUS : machine.barn_cpus;
    return (machine.cpus + count * each - 1) / (count * each) * count * BARN_CPUS;
}

/* life_make_nodes, but for that. */
static bool make_nodes(unsigned count)
{
    return zone_nodes(count) && pcp_nodes(count) && slab_nodes(count) && barn_nodes(count, cpus_for_barns(count));
}

void machine_tell(void)
{
    if (machine_homes() > 1)
        numa_init_from(&made_up, TAG_NODES_MAX, make_nodes);
    else if (!barn_nodes(1, cpus_for_barns(1)))
        abort();
}
