/* SPDX-License-Identifier: BSD-2-Clause */
/* A library that does nothing: what preloading costs by itself, for tests that compare. */
extern const char shim_empty[];
const char shim_empty[] = "nothing";
