/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PRELOAD_DLOPEN_H
#define PRELOAD_DLOPEN_H

/*
 * Choose what happens to RTLD_DEEPBIND (option deepbind). The C library's dlopen is found at the first call.
 * Units:   keep_deepbind is 1 to pass the flag on, 0 to drop it.
 * Context: our constructor, once; earlier calls of dlopen drop the flag.
 * Cost:    a store.
 */
void dlopen_init(int keep_deepbind);

#endif
