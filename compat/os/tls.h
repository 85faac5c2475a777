/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A call at the end of a thread, late among its pthread key destructors. Level 0.
 *
 * Other keys' destructors run in rounds and may allocate: ours re-arms itself until the last but one that POSIX promises.
 * What runs later finds a dead thread, which is slower but right.
 */
#ifndef COMPAT_OS_TLS_H
#define COMPAT_OS_TLS_H

#include "cc.h"

/* What: choose the function that ends a thread, and arm the calling thread. Context: constructor, once.
 * Fails: silently when no key is left; threads then end without a word. */
void tls_exit_init(void (*at_exit)(void));

/* What: have the function called when this thread ends. Context: any thread; may allocate (a thread's keys beyond the
 * first 32 do). Does nothing before tls_exit_init. */
void tls_exit_arm(void);

#endif
