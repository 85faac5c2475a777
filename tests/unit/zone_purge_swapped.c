/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/zone_purge.c once more, wrong on purpose: pages are put back before they are purged, not after. For the test that
 * must be able to tell the two apart; nothing else is different. madvise is noted down instead of done, and done when the
 * pages are back in the zone.
 */
#include "compat/os/vm.h"
#include "core/block.h"

enum { NOTES = 4096 };

static struct {
    void *p;
    size_t size;
} note[NOTES];
static unsigned notes;

static int purge_later(void *p, size_t size)
{
    if (notes == NOTES)
        return -1;
    note[notes].p = p;
    note[notes++].size = size;
    return 0;
}

#define vm_purge purge_later
#define zone_purge swapped_inner
#define zone_relax swapped_relax
#define zone_spiking swapped_spiking
#define zone_owes swapped_owes
#define zone_await_purge swapped_await
#define zone_fork_hold swapped_fork_hold
#define zone_fork_open swapped_fork_open
#include "core/zone_purge.c"
#undef vm_purge

size_t swapped_zone_purge(unsigned node, size_t keep);

size_t swapped_zone_purge(unsigned node, size_t keep)
{
    notes = 0;
    size_t given = swapped_inner(node, keep);
    for (unsigned i = 0; i < notes; i++)
        vm_purge(note[i].p, note[i].size);
    return given;
}
