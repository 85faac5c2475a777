/* SPDX-License-Identifier: BSD-2-Clause */
/* What shim_runpath_outer.so finds by its RUNPATH. */
int shim_runpath_inner(void);
int shim_runpath_inner(void)
{
    return 42;
}
