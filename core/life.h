/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The life of the process: first call, constructor, fork, exit. Level 10.
 *
 *     first call (may be the loader's, before any constructor) -> constructor -> main ... forks ... -> exit
 *
 * All state is valid as it lies in the file, so the first call has little to do: it sizes the pcp by the cpus we may use.
 * The constructor reads options, registers the fork handlers and the end of threads, and for off:true looks libc's functions up.
 */
#ifndef CORE_LIFE_H
#define CORE_LIFE_H

#include "compat/os/atomic.h"

extern uint32_t life_state; /* 0 new, 1 starting, 2 started */

/* What: what the first slow call does. Context: any thread. */
void life_start_slow(void);

static inline void life_start(void)
{
    if (UNLIKELY(load_acquire(&life_state) != 2)) /* pairs with the release at the end of life_start_slow */
        life_start_slow();
}

/* What: the constructor's work. env: the environment, NULL: libc's. Context: once, from our constructor, which is the
 * first of the process where the loader can be asked for that: other libraries' fork handlers must be registered after
 * ours, so that they have run, and need no lock of ours any more, when we take all locks. */
void life_construct(char **env);

/* What: is a sanitizer runtime in this process? Then its malloc is in use, and we stay passive. */
bool life_sanitizer(void);

/* What: make all layers' rows for so many nodes. Context: our constructor; tests. Fails: false, one node. */
bool life_make_nodes(unsigned count);

/* What: fork handlers, as registered with pthread_atfork; for tests. */
void life_fork_prepare(void);
void life_fork_parent(void);
void life_fork_child(void);

#endif
