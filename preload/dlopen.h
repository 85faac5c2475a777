/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PRELOAD_DLOPEN_H
#define PRELOAD_DLOPEN_H

/*
 * Find the C library's dlopen and choose what happens to RTLD_DEEPBIND (option deepbind).
 * Units:   keep_deepbind is 1 to pass the flag on, 0 to drop it.
 * Context: our constructor, once; earlier calls of dlopen resolve themselves and drop the flag.
 * Fails:   never; with no dlopen to be found, ours answers NULL.
 * Cost:    one dlsym.
 */
void dlopen_init(int keep_deepbind);

#endif
