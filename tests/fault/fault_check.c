/* SPDX-License-Identifier: BSD-2-Clause */
#include "fault_check.h"

#include "compat/os/numa.h"
#include "core/barn.h"
#include "core/pcp.h"
#include "core/region.h"
#include "core/slab.h"
#include "core/tcache.h"
#include "core/zone.h"

void fault_check_all(void)
{
    region_check();
    pcp_check();
    tcache_check();
    for (unsigned node = 0; node < numa_count(); node++) {
        zone_check(node);
        for (class_t c = 0; c < SIZE_CLASSES; c++) {
            slab_check(c, node);
            barn_check(c, node);
        }
    }
}
