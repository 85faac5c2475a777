/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef COMPAT_OS_CLOCK_H
#define COMPAT_OS_CLOCK_H
#include "cc.h"
uint64_t clock_coarse_ms(void);
#endif
