/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A coarse clock for ageing. Level 0.
 *
 * Not through libc's clock_gettime: a preloaded shim may have put its own there, which may call malloc. The kernel's
 * vDSO has the function too; it is looked up once in the image itself (ELF, at AT_SYSINFO_EHDR). Without a vDSO, or on a
 * machine whose names we do not know, the system call.
 */
#ifndef COMPAT_OS_CLOCK_H
#define COMPAT_OS_CLOCK_H

#include "cc.h"

/* What: time since some start, never falling (CLOCK_MONOTONIC_COARSE). Units: milliseconds, in steps of a few.
 * Context: any thread, any time, also before constructors; in signal handlers. Cost: a few loads; the first call looks
 * the function up, about a microsecond. Fails: 0, where a filter forbids to ask. */
uint64_t clock_coarse_ms(void);

/* What: address of a function in the ELF image of a loaded shared object that lies at its first byte, as a vDSO does; no
 * bounds are known, so the image is believed. Units: 64-bit images of our byte order. Fails: NULL. Context: any time. */
void *clock_image_symbol(const void *image, const char *name);

#endif
