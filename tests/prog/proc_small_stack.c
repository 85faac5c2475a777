/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads of PTHREAD_STACK_MIN bytes do every kind of allocation, from the first call on: proc_small_stack [threads].
 * Also from a signal handler on an alternate stack of the smallest size.
 */
#include "proc_util.h"

#include <limits.h>
#include <signal.h>

__attribute__((noinline)) static void mixed(size_t i)
{
    void *p = malloc(16 + i * 97), *q = calloc(1, KiB(40) + i), *r = aligned_alloc(4096, 8192), *s = NULL;
    CHECK(p && q && r);
    CHECK(posix_memalign(&s, 64, 100 + i) == 0);
    p = realloc(p, KiB(3) + i * 1000);
    q = realloc(q, MiB(3));
    CHECK(p && q);
    memset(p, 1, KiB(3));
    memset(q, 1, KiB(64));
    free(p);
    free(s);
    CHECK(malloc_usable_size(r) >= 8192);
    free(q);
    free(r);
}

static void *thread(void *arg)
{
    for (size_t i = 0; i < 50; i++)
        mixed(i);
    malloc_trim(0);
    return arg;
}

static void on_signal(int sig)
{
    (void)sig;
    mixed(3);
}

static void alternate_stack(void)
{
    stack_t stack = {.ss_size = MINSIGSTKSZ < 8192 ? 8192 : MINSIGSTKSZ};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    stack.ss_sp = malloc(stack.ss_size);
    CHECK(stack.ss_sp);
    CHECK(sigaltstack(&stack, NULL) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(raise(SIGUSR1) == 0);
    check_heap(500, stack.ss_sp, stack.ss_size);
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0);
}

int main(int argc, char **argv)
{
    long threads = arg_count(argc, argv, 1, 200);
    pthread_attr_t attr;
    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setstacksize(&attr, (size_t)PTHREAD_STACK_MIN) == 0);
    for (long i = 0; i < threads; i++) {
        pthread_t t;
        CHECK(pthread_create(&t, &attr, thread, NULL) == 0);
        CHECK(pthread_join(t, NULL) == 0);
    }
    alternate_stack();
    printf("%ld threads\n", threads);
    return 0;
}
