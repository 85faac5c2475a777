/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * control NTHREADS [WIDTH]: start NTHREADS threads, at most WIDTH of them alive at once (default: all), and allocate
 * nothing.
 *
 * perf/compare subtracts this program's VMA syscalls from those of the program it measures. What is left was asked for
 * by the program's use of memory: the loader's mappings, thread stacks and what an allocator does for a thread that
 * never calls it are in both. WIDTH matters because glibc keeps the stacks of dead threads: a program that starts
 * 10,000 threads one after the other maps one stack, not 10,000.
 */
#include <alloca.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

/* One thread. go: posted by main when the thread may end. It lives on main's stack: malloc would spoil the control. */
struct seat {
    pthread_t thread;
    sem_t go;
};

static void *wait_for_go(void *arg)
{
    struct seat *seat = arg;
    while (sem_wait(&seat->go) != 0)
        ;
    return NULL;
}

static int start(struct seat *seat)
{
    sem_init(&seat->go, 0, 0);
    return pthread_create(&seat->thread, NULL, wait_for_go, seat);
}

static void finish(struct seat *seat)
{
    sem_post(&seat->go);
    pthread_join(seat->thread, NULL);
}

static int complain(const char *what, size_t len)
{
    return write(2, what, len) < 0 ? 2 : 1;
}

int main(int argc, char **argv)
{
    static const char usage[] = "usage: control NTHREADS [WIDTH]\n", no_thread[] = "control: cannot start a thread\n";
    long threads = argc > 1 ? atol(argv[1]) : -1, width = argc > 2 ? atol(argv[2]) : threads;
    if (argc > 3 || threads < 0 || (threads > 0 && width < 1))
        return complain(usage, sizeof usage - 1);
    if (width > threads)
        width = threads;
    struct seat *ring = alloca(sizeof *ring * (size_t)(width + 1));
    for (long i = 0; i < threads; i++) {
        if (i >= width)
            finish(&ring[i % width]);
        if (start(&ring[i % width]) != 0)
            return complain(no_thread, sizeof no_thread - 1);
    }
    for (long i = threads - width; i < threads; i++)
        finish(&ring[i % width]);
    return 0;
}
