/* SPDX-License-Identifier: BSD-2-Clause */
/* compat/os/vm.h: mappings that grow and move. */
#include "unit.h"

#include "compat/os/vm.h"

#include <sys/mman.h>

#define MIB ((size_t)1 << 20)

static void fill(char *p, size_t size, uint64_t id)
{
    for (size_t i = 0; i < size; i += 4096)
        unit_stamp(p + i, 64, id + i);
}

static bool filled(const char *p, size_t size, uint64_t id)
{
    for (size_t i = 0; i < size; i += 4096)
        if (!unit_stamped(p + i, 64, id + i))
            return false;
    return true;
}

/* Something in the way, so that a mapping cannot grow where it is. */
static void *block_behind(char *p, size_t size)
{
    void *q = mmap(p + size, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    return q == p + size ? q : NULL; /* else somebody is in the way already */
}

TEST(vm, mapping_of_huge_pages_keeps_its_alignment)
{
    size_t mapped = vm_mapped_bytes();
    char *p = vm_map_aligned(6 * MIB, 2 * MIB, false);
    MUST(p != NULL);
    fill(p, 6 * MIB, 1);
    for (size_t size = 6 * MIB; size < 40 * MIB; size += 7 * MIB) {
        void *wall = block_behind(p, size);
        char *q = vm_remap(p, size, size + 7 * MIB);
        MUST(q != NULL);
        EXPECT_EQ((uintptr_t)q % (2 * MIB), 0);
        EXPECT(filled(q, 6 * MIB, 1));
        EXPECT(unit_is_zero(q + size, 7 * MIB));
        EXPECT_EQ(vm_mapped_bytes() - mapped, size + 7 * MIB);
        p = q;
        if (wall != NULL)
            munmap(wall, 4096);
    }
    EXPECT_EQ(vm_unmap(p, 41 * MIB), 0);
    EXPECT_EQ(vm_mapped_bytes(), mapped);
}

TEST(vm, part_of_a_mapping_moves_out_and_leaves_zeroes)
{
    size_t mapped = vm_mapped_bytes();
    char *p = vm_map_aligned(32 * MIB, 2 * MIB, false);
    MUST(p != NULL);
    fill(p, 32 * MIB, 9);
    char *q = vm_move_out(p + 8 * MIB, 8 * MIB, 20 * MIB, 2 * MIB);
    if (q == NULL) { /* a kernel or an emulator that cannot: nothing has happened */
        EXPECT(filled(p, 32 * MIB, 9));
        EXPECT_EQ(vm_mapped_bytes() - mapped, 32 * MIB);
        vm_unmap(p, 32 * MIB);
        return;
    }
    EXPECT_EQ((uintptr_t)q % (2 * MIB), 0);
    EXPECT(filled(q, 8 * MIB, 9 + 8 * MIB));
    EXPECT(unit_is_zero(q + 8 * MIB, 12 * MIB));
    EXPECT(filled(p, 8 * MIB, 9));
    EXPECT(filled(p + 16 * MIB, 16 * MIB, 9 + 16 * MIB));
    EXPECT(unit_is_zero(p + 8 * MIB, 8 * MIB));
    fill(p + 8 * MIB, 8 * MIB, 3);
    EXPECT_EQ(vm_mapped_bytes() - mapped, 52 * MIB);
    q = vm_remap(q, 20 * MIB, 30 * MIB); /* it is one mapping */
    MUST(q != NULL);
    EXPECT(filled(q, 8 * MIB, 9 + 8 * MIB));
    vm_unmap(q, 30 * MIB);
    vm_unmap(p, 32 * MIB);
    EXPECT_EQ(vm_mapped_bytes(), mapped);
}
