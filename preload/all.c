/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The library as one unit (configure --enable-unity): every source in the order of its level, lowest first. The list is
 * kept by hand, as is the one in Makefile.am; no other file includes a .c.
 */
#include "compat/os/vm.c"
#include "compat/os/lock.c"
#include "compat/os/cpu.c"
#include "compat/os/clock.c"
#include "compat/os/fmt.c"
#include "compat/os/env.c"
#include "compat/os/tls.c"

#include "core/dbg.c"
#include "core/opt.c"
#include "core/misuse.c"
#include "core/size.c"
#include "core/giveback.c"
#include "core/limit.c"

#include "core/meta.c"
#include "core/pcp_tune.c"

#include "core/maple_frame.c"
#include "core/maple_path.c"
#include "core/maple_gap.c"
#include "core/maple_split.c"
#include "core/maple_rebalance.c"
#include "core/maple_span.c"
#include "core/maple_write.c"
#include "core/maple_read.c"
#include "core/maple_check.c"

#include "core/pmap.c"
#include "core/clean.c"
#include "core/region_space.c"
#include "core/region_window.c"
#include "core/region_block.c"
#include "core/region_look.c"

#include "core/zone.c"
#include "core/zone_purge.c"
#include "core/pcp.c"

#include "core/slab.c"
#include "core/slab_holes.c"
#include "core/hot.c"
#include "core/large.c"

#include "core/barn.c"
#include "core/tcache.c"

#include "core/libc.c"
#include "core/reclaim.c"
#include "core/report.c"
#include "core/alloc.c"
#include "core/life.c"

#include "compat/api/glibc.c"
#include "compat/api/jemalloc.c"
#include "preload/malloc.c"
#include "preload/new.c"
#include "preload/dlopen.c"
