/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * compat/os/vm.h out of one range of addresses, which begins at the same multiple of 4 GiB in every run: so all that
 * depends on addresses comes out the same. Nothing is used twice. A purge is a real one; time passes as cost.def says.
 */
#include "sim.h"

#include "compat/os/bits.h"
#include "compat/os/vm.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/auxv.h>

#define ARENA_AT ((char *)0x100000000000)
#define ARENA_BYTES ((size_t)1 << 40)
enum { PIECE = 64 << 10 };

static char *arena, *next;
static size_t mapped;

static void make_arena(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    next = arena = mmap(ARENA_AT, ARENA_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (arena == MAP_FAILED || arena != ARENA_AT) {
        fprintf(stderr, "sim: this system gives no terabyte of addresses\n");
        exit(77);
    }
}

size_t vm_page_size(void)
{
    return 4096; /* of the made-up machine; a larger real one is no harm but to vm_purge */
}

void *vm_map_aligned(size_t size, size_t align, bool reserve UNUSED)
{
    if (arena == NULL)
        make_arena();
    char *p = (char *)align_up((uintptr_t)next, align > PIECE ? align : PIECE);
    if (size > (size_t)(arena + ARENA_BYTES - p))
        return NULL;
    next = p + size;
    mapped += size;
    sim_spend(cost.mmap);
    return p;
}

void *vm_map(size_t size, bool reserve)
{
    return vm_map_aligned(size, PIECE, reserve);
}

static void discard(void *p, size_t size)
{
    size_t page = getauxval(AT_PAGESZ);
    char *first = (char *)align_up((uintptr_t)p, page), *end = (char *)((uintptr_t)((char *)p + size) & ~(page - 1));
    if (first < end)
        madvise(first, (size_t)(end - first), MADV_DONTNEED);
}

int vm_unmap(void *p, size_t size)
{
    mapped -= size;
    sim_spend(cost.mmap);
    discard(p, size);
    return 0;
}

int vm_purge(void *p, size_t size)
{
    sim_spend(cost.purge + cost.purge_page * (size / PIECE));
    discard(p, size);
    return 0;
}

int vm_purge_more(void *p, size_t size)
{
    return vm_purge(p, size);
}

int vm_purge_lazily(void *p, size_t size)
{
    return vm_purge(p, size);
}

void *vm_remap(void *p UNUSED, size_t old_size UNUSED, size_t new_size UNUSED)
{
    return NULL; /* no traffic here grows a mapping */
}

void *vm_move_out(void *p UNUSED, size_t old_size UNUSED, size_t new_size UNUSED, size_t align UNUSED)
{
    return NULL;
}

size_t vm_resident(const void *p UNUSED, size_t size UNUSED)
{
    return 0;
}

bool vm_is_mapped(const void *p)
{
    return arena != NULL && (const char *)p >= arena && (const char *)p < next;
}

void vm_huge_pages(void *p UNUSED, size_t size UNUSED, bool want UNUSED)
{
}

bool vm_space_is_limited(void)
{
    return false;
}

void vm_read_limits(void)
{
}

void vm_use_libc(void)
{
}

struct vm_failure vm_last_failure(void)
{
    return (struct vm_failure){0};
}

size_t vm_mapped_bytes(void)
{
    return mapped;
}
