/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Linked with RUNPATH $ORIGIN/private: opens shim_runpath_inner.so by its bare name. The loader finds it only if it
 * sees this library as the caller of dlopen.
 */
#include <dlfcn.h>
#include <stddef.h>

int shim_runpath_outer(void);
int shim_runpath_outer(void)
{
    void *inner = dlopen("shim_runpath_inner.so", RTLD_NOW);
    int (*answer)(void) = inner ? (int (*)(void))dlsym(inner, "shim_runpath_inner") : NULL;
    /* Used after the call, so that the compiler cannot make it a tail call of ours. */
    return answer ? answer() : -1;
}
