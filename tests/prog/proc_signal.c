/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A profiling signal whose handler allocates and frees while threads work: proc_signal [signals].
 *
 * POSIX does not allow it; programs do it. The handler frees what it took before it returns, which is the case that
 * must not hang or corrupt anything; an alarm ends a run that hangs.
 */
#include "proc_util.h"

#include <signal.h>
#include <sys/time.h>

static atomic_long handled;

static void on_prof(int sig)
{
    int saved = errno;
    char *p = malloc(100);
    (void)sig;
    if (p) {
        memset(p, 's', 100);
        free(p);
    }
    atomic_fetch_add(&handled, 1);
    errno = saved;
}

int main(int argc, char **argv)
{
    long signals = arg_count(argc, argv, 1, 10000);
    struct sigaction action = {.sa_handler = on_prof, .sa_flags = SA_RESTART};
    struct itimerval every_ms = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    atomic_int stop = 0;
    uint64_t seed = 3;
    alarm(90);
    CHECK(sigaction(SIGPROF, &action, NULL) == 0);
    struct busy *t = busy_start(3, 14, &stop);
    CHECK(setitimer(ITIMER_PROF, &every_ms, NULL) == 0);
    while (atomic_load(&handled) < signals) {
        struct block b[64];
        for (int i = 0; i < 64; i++)
            b[i] = block_new(rng_size(&seed, 12));
        for (int i = 0; i < 64; i++)
            block_free(&b[i]);
    }
    CHECK(setitimer(ITIMER_PROF, &never, NULL) == 0);
    busy_stop(t, 3);
    check_heap(3000, NULL, 0);
    printf("done\n");
    return 0;
}
