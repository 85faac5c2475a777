/* SPDX-License-Identifier: BSD-2-Clause */
#include "tls.h"

#include "atomic.h"

#include <limits.h>
#include <pthread.h>

EARLY_DATA static pthread_key_t key;
EARLY_DATA static bool have_key;            /* release; pairs with the acquire in tls_exit_arm */
EARLY_DATA static void (*thread_end)(void); /* constant once have_key is set */

/* Not the last round: a thread that first comes here in another key's destructor is armed behind the first one, and sees
 * one less. */
enum { LAST_ROUND = PTHREAD_DESTRUCTOR_ITERATIONS - 1 };

/* The value counts the rounds so far, from 1 on. */
static void destructor(void *value)
{
    uintptr_t round = (uintptr_t)value;
    if (round < LAST_ROUND)
        pthread_setspecific(key, (void *)(round + 1));
    else
        thread_end();
}

void tls_exit_init(void (*at_exit)(void))
{
    thread_end = at_exit;
    if (pthread_key_create(&key, destructor) != 0)
        return;
    store_release(&have_key, true);
}

void tls_exit_arm(void)
{
    if (load_acquire(&have_key))
        pthread_setspecific(key, (void *)1);
}
