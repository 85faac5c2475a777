/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The system that numa.c asks: the kernel for what it tells without a file, and libnuma, if there is one, for distances
 * and for the nodes of cpus. It is opened by name, never linked: linking it costs every program files and calls at start.
 *
 * It gets a name space of its own, with a C library of its own. Our constructor runs before the C library's, and a plain
 * dlopen there runs that one on the way, with the arguments it will only have set afterwards: environ, the program's name
 * and what later modules' constructors are given would be NULL for the life of the process. So nothing that libnuma does
 * reaches the program: its malloc is the other C library's, its probing of policies ends before the program starts.
 */
#define _GNU_SOURCE
#include "numa.h"

#include "cpu.h"
#include "sys.h"

#include <dlfcn.h>

enum { MEMS_ALLOWED = 4 }; /* MPOL_F_MEMS_ALLOWED */

static long ask_allowed(unsigned long *mask, size_t bits)
{
    return sys_call6(SYS_get_mempolicy, 0, (long)mask, (long)bits, 0, MEMS_ALLOWED, 0);
}

static long ask_policy(void)
{
    enum { MODE_BITS = 0xff }; /* flags lie above */
    int mode = 0;
    long bad = sys_call6(SYS_get_mempolicy, (long)&mode, 0, 0, 0, 0, 0);
    return bad < 0 ? bad : mode & MODE_BITS;
}

static struct {
    void *handle;
    int (*available)(void);
    int (*max_possible_node)(void);
    int (*num_possible_cpus)(void);
    int (*node_of_cpu)(int);
    int (*distance)(int, int);
} lib;

static void close_lib(void)
{
    dlclose(lib.handle);
    lib.handle = NULL;
}

static bool open_lib(void)
{
    lib.handle = dlmopen(LM_ID_NEWLM, "libnuma.so.1", RTLD_NOW | RTLD_LOCAL);
    if (lib.handle == NULL) {
        dlerror(); /* the program's own next look at it must not find our failure */
        return false;
    }
    lib.available = (int (*)(void))dlsym(lib.handle, "numa_available");
    lib.max_possible_node = (int (*)(void))dlsym(lib.handle, "numa_max_possible_node");
    lib.num_possible_cpus = (int (*)(void))dlsym(lib.handle, "numa_num_possible_cpus");
    lib.node_of_cpu = (int (*)(int))dlsym(lib.handle, "numa_node_of_cpu");
    lib.distance = (int (*)(int, int))dlsym(lib.handle, "numa_distance");
    if (lib.available != NULL && lib.max_possible_node != NULL && lib.num_possible_cpus != NULL &&
        lib.node_of_cpu != NULL && lib.distance != NULL && lib.available() >= 0)
        return true;
    dlerror();
    close_lib();
    return false;
}

static int lib_nodes(void)
{
    return lib.max_possible_node() + 1;
}

static int lib_cpus(void)
{
    return lib.num_possible_cpus();
}

static int lib_node_of_cpu(int cpu)
{
    return lib.node_of_cpu(cpu);
}

static int lib_distance(int a, int b)
{
    return lib.distance(a, b);
}

static int node_here(void)
{
    int node = cpu_node_filled();
    return node >= 0 ? node : cpu_node_ask();
}

const struct numa_system numa_real_system = {
    .allowed = ask_allowed,
    .policy = ask_policy,
    .here = node_here,
    .open = open_lib,
    .nodes = lib_nodes,
    .cpus = lib_cpus,
    .node_of_cpu = lib_node_of_cpu,
    .distance = lib_distance,
    .close = close_lib,
};
