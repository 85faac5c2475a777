/* SPDX-License-Identifier: BSD-2-Clause */
#include "life.h"

#include "barn.h"
#include "compat/os/cpu.h"
#include "compat/os/env.h"
#include "compat/os/fmt.h"
#include "compat/os/lock.h"
#include "compat/os/numa.h"
#include "compat/os/tls.h"
#include "compat/os/vm.h"
#include "libc.h"
#include "meta.h"
#include "opt.h"
#include "pcp.h"
#include "rank.h"
#include "region.h"
#include "report.h"
#include "slab.h"
#include "tcache.h"
#include "zone.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

uint32_t life_state;
static struct lock fork_lock; /* one fork at a time: the lock layer knows one forking thread */

void life_start_slow(void)
{
    uint32_t fresh = 0;
    if (cas_acquire(&life_state, &fresh, 1)) {
        pcp_init();
        store_release(&life_state, 2); /* pairs with life_start's acquire */
        return;
    }
    while (load_acquire(&life_state) != 2) /* a few microseconds; a filter may forbid to yield */
        cpu_relax();
}

/* ---- fork ---- */

void life_fork_prepare(void)
{
    lock_fork_hold(&fork_lock, RANK_FORK);
    lock_fork_begin();
    tcache_fork_hold();
    barn_fork_hold();
    slab_fork_hold();
    pcp_fork_hold();
    zone_fork_hold();
    region_fork_hold();
    meta_fork_hold();
}

static void open_all(bool child)
{
    meta_fork_open();
    region_fork_open(child);
    zone_fork_open(child);
    pcp_fork_open();
    slab_fork_open(child);
    barn_fork_open();
    tcache_fork_open(child);
    lock_fork_end();
    lock_fork_open(&fork_lock);
}

void life_fork_parent(void)
{
    open_all(false);
}

void life_fork_child(void)
{
    open_all(true);
}

/* ---- constructor, exit ---- */

extern void asan_init_symbol(void) __asm__("__asan_init") __attribute__((weak));
extern void tsan_init_symbol(void) __asm__("__tsan_init") __attribute__((weak));
extern void msan_init_symbol(void) __asm__("__msan_init") __attribute__((weak));

bool life_sanitizer(void)
{
    return asan_init_symbol != NULL || tsan_init_symbol != NULL || msan_init_symbol != NULL;
}

/* Programs close standard error in their exit handlers, before our destructor: keep a copy, out of their way. Low numbers
 * are in use, 200 by shell scripts that hold a lock. */
enum { STATS_FD_MIN = 1000 };
static int stats_fd = 2;
static struct stat stats_file; /* what stats_fd was when we made it */

static void keep_stderr(void)
{
    int saved = errno, fd = fcntl(2, F_DUPFD_CLOEXEC, STATS_FD_MIN);
    if (fd >= 0 && fstat(fd, &stats_file) == 0)
        stats_fd = fd;
    errno = saved;
}

/* The program may have closed the copy and opened a file of its own under that number. */
static int stats_target(void)
{
    struct stat now;
    bool ours = fstat(stats_fd, &now) == 0 && now.st_dev == stats_file.st_dev && now.st_ino == stats_file.st_ino;
    return ours ? stats_fd : 2;
}

static void say_hello(void)
{
    char buf[512];
    struct fmt f = {.buf = buf, .cap = sizeof buf, .fd = 2};
    fmt_add(&f, "sheaf: in use%s\n", libc_in_use() ? " (off: calls go to the C library)" : "");
    opt_print(&f);
    fmt_flush(&f);
}

/* The per-node rows of all layers. */
bool life_make_nodes(unsigned count)
{
    life_start(); /* page lists are made for all cpus, a set a node */
    return zone_nodes(count) && pcp_nodes(count) && slab_nodes(count) && barn_nodes(count, cpu_count());
}

void life_construct(char **env)
{
    opt_init(env_get(env, "SHEAF_CONF"));
    if (!opt.off && opt.numa != OPT_NUMA_OFF)
        numa_init(TAG_NODES_MAX, life_make_nodes);
    if (numa_count() == 1)
        barn_nodes(1, cpu_count()); /* without memory for parts: one */
    if (opt.off && libc_init())
        tcache_detach(); /* what the loader allocated from us stays ours; nothing new does */
    else if (opt.hardened)
        tcache_flush("start");
    tls_exit_init(tcache_detach);
    if (tcache_self()->state == TCACHE_LIVE)
        tls_exit_arm(); /* attached before there was a key */
    pthread_atfork(life_fork_prepare, life_fork_parent, life_fork_child);
    vm_read_limits();
    vm_use_libc();
    if (opt.stats_print)
        keep_stderr();
    if (opt.verbose)
        say_hello();
}

__attribute__((destructor)) static void at_exit(void)
{
    if (opt.stats_print)
        report_print(stats_target());
    if (opt.stats_json != 0)
        report_json_file((const char *)opt.stats_json);
}
