/* SPDX-License-Identifier: BSD-2-Clause */
/* One run: the library started on the made-up machine, the virtual threads, the figures of the window. */
#include "sim.h"

#include "compat/os/numa.h"
#include "core/barn.h"
#include "core/life.h"
#include "core/meta.h"
#include "core/opt.h"
#include "core/pcp.h"
#include "core/slab.h"
#include "core/zone.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct figures *result;
static bool last_figures; /* nothing is wanted after the window */
static int result_pipe;

/* ---- what is parked ---- */

static void park_class(struct figures *f, class_t c)
{
    for (unsigned n = 0; n < numa_count(); n++) {
        f->barn += barn_stats(c, n).objs * class_to_size(c);
        f->remote_and_slabs += slab_stats(c, n).free_objs * class_to_size(c);
    }
}

static void park(struct figures *f)
{
    struct tcache_stats ts;
    tcache_stats(&ts);
    for (class_t c = 0; c < SIZE_CLASSES; c++) {
        park_class(f, c);
        f->sheaves += ts.cached[c] * class_to_size(c);
    }
    for (unsigned n = 0; n < numa_count(); n++)
        f->pages += zone_stats(n).dirty;
    f->pages += pcp_stats().resident;
    f->meta = meta_stats().used;
    f->barn_gets = ts.counts.barn_get;
    f->refills = ts.counts.refills;
}

static void take_figures(void)
{
    memset(result, 0, sizeof *result);
    for (unsigned i = 0; i < machine.cpus; i++) {
        result->ops += sim.cpu[i].ops;
        result->wait += sim_waited(&sim.cpu[i]);
    }
    result->window = sim.to - sim.from;
    for (unsigned r = 0; r < RANKS; r++)
        result->rank[r] = lock_figures(r);
    park(result);
    result->live = (uint64_t)traffic_live;
    if (last_figures) {
        ssize_t n = write(result_pipe, result, sizeof *result);
        _exit(n == (ssize_t)sizeof *result ? 0 : 1);
    }
}

/* ---- after it ---- */

static void verify(void)
{
    size_t objs = 0, free_objs = 0;
    for (unsigned n = 0; n < numa_count(); n++) {
        zone_check(n);
        for (class_t c = 0; c < SIZE_CLASSES; c++) {
            barn_check(c, n);
            slab_check(c, n);
            objs += slab_stats(c, n).slabs * size_info[c].objs;
            free_objs += slab_stats(c, n).free_objs + barn_stats(c, n).objs;
        }
    }
    pcp_check();
    if (traffic_live != 0 || objs != free_objs) {
        fprintf(stderr, "sim: %lld blocks not freed; of %zu objects %zu are free\n", (long long)traffic_live, objs,
                free_objs);
        abort();
    }
}

static void thread(struct vcpu *v)
{
    traffic_body(v);
    tcache_check();
    tcache_detach();
}

void run_here(const struct plan *p, struct figures *out)
{
    machine = p->machine;
    load = p->load;
    opt.sheaf_cap = p->sheaf_cap;
    opt.barn_max = p->barn_max;
    result = out;
    sim.from = (uint64_t)p->warm_ms * PS_PER_MS;
    sim.to = sim.from + (uint64_t)p->window_ms * PS_PER_MS;
    sim.at_end = take_figures;
    life_start();
    machine_tell();
    traffic_begin();
    sched_run(thread, p->seed);
    if (p->check)
        verify();
}

bool run_plan(const struct plan *p, struct figures *out)
{
    int fd[2], status = 0;
    if (pipe(fd) != 0)
        return false;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(fd[0]);
        result_pipe = fd[1];
        last_figures = !p->check;
        run_here(p, out);
        _exit(write(fd[1], out, sizeof *out) == (ssize_t)sizeof *out ? 0 : 1);
    }
    close(fd[1]);
    bool whole = pid > 0 && read(fd[0], out, sizeof *out) == (ssize_t)sizeof *out;
    close(fd[0]);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 && whole;
}
