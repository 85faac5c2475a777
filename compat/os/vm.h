/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The only place that asks the kernel for address space. Level 0.
 *
 * Mapping always uses raw system calls: a preloaded shim around mmap may call back into malloc. Giving memory back goes
 * through libc's exported functions once the process has started (vm_use_libc), because MPI and RDMA registration caches
 * hook those. errno is left as it was by every function here.
 */
#ifndef COMPAT_OS_VM_H
#define COMPAT_OS_VM_H

#include "cc.h"

/* Why the last system call of this process failed, for the "why did my allocation fail" line; and the limits that the
 * process began with (0: none). Later ones are not known: asking then would be a call that a filter may forbid. */
struct vm_failure {
    const char *call;
    size_t size;
    int error;
    size_t limit_as, limit_data;
};

/* What: the kernel's page size in bytes, read once. Context: any time, also before init. Cost: a load. */
size_t vm_page_size(void);

/* What: map size bytes of zeroed private memory at an address of the kernel's choice. Units: bytes, a multiple of
 * vm_page_size(). Owner: the caller. Fails: NULL, reason kept for vm_last_failure. Locks: none may be held.
 * Context: any time. Cost: one mmap. `reserve` false adds MAP_NORESERVE. */
void *vm_map(size_t size, bool reserve);

/* What: as vm_map, at a multiple of align (a power of two >= page size). Cost: one mmap and up to two munmap. */
void *vm_map_aligned(size_t size, size_t align, bool reserve);

/* What: unmap. Fails: -errno; the range is then as it was. Locks: none may be held. */
int vm_unmap(void *p, size_t size);

/* What: give the pages of a range back; they read as zero afterwards if 0 is returned, which is verified on the first
 * word: an emulator or a filter may do nothing and say yes. The look may leave a page behind, where the kernel has no
 * shared one for reads, so that page is given back once more, or all that a huge one in its place would be.
 * Fails: -errno, contents then unknown. Locks: none. Cost: two madvise. */
int vm_purge(void *p, size_t size);

/* What: the same without the look, for one of many ranges: vm_purge has just said 0 for the first. Cost: one madvise. */
int vm_purge_more(void *p, size_t size);

/* What: let the system take the pages of a range when it needs memory (MADV_FREE): resident until then, and of unknown
 * contents until written. Fails: -errno. Locks: none may be held. */
int vm_purge_lazily(void *p, size_t size);

/* What: resize a mapping made by vm_map, moving it if need be; one of several huge pages that begins at a multiple of
 * them does so afterwards too, as else each of its huge pages would be broken up. Fails: NULL and the old one is
 * untouched. Cost: one mremap, or two and what vm_map_aligned takes. */
void *vm_remap(void *p, size_t old_size, size_t new_size);

/* What: move the contents of a part of a mapping into a mapping of its own, new_size >= old_size, at a multiple of align;
 * the part stays mapped and reads as zero. Fails: NULL, unchanged. Cost: up to six system calls, no copying. */
void *vm_move_out(void *p, size_t old_size, size_t new_size, size_t align);

/* What: bytes of a range that are in memory, by mincore; 0 where the system does not say. For statistics. */
size_t vm_resident(const void *p, size_t size);

/* What: is there any mapping at p, whoever's it is? For messages about wrong pointers. */
bool vm_is_mapped(const void *p);

/* What: ask for (or refuse) huge pages on a whole mapping. Fails: silently, it is advice. */
void vm_huge_pages(void *p, size_t size, bool want);

/* What: is there a limit on address space (RLIMIT_AS) or on data (RLIMIT_DATA)? As vm_read_limits found it; false before.
 * Context: any time. Cost: a load. */
bool vm_space_is_limited(void);

/* What: read those limits. Context: our constructor, once. Cost: two system calls. */
void vm_read_limits(void);

/* What: from now on release memory by libc's munmap, mremap and madvise. Context: our constructor, once. */
void vm_use_libc(void);

/* What: the last failure; call is NULL when there was none. Not exact under races; for messages only. */
struct vm_failure vm_last_failure(void);

/* What: bytes currently mapped through this file. For statistics; relaxed. Context: any time. */
size_t vm_mapped_bytes(void);

#endif
