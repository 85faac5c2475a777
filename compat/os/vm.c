/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "vm.h"

#include "atomic.h"
#include "bits.h"
#include "sys.h"

#include <errno.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { RESIDENT_PAGES = 512 }; /* os pages asked about at once */
enum { HUGE_BYTES = 2 << 20 }; /* a huge page of most machines; where it is another, nothing breaks */

#ifndef MREMAP_DONTUNMAP /* Linux 5.7 */
#define MREMAP_DONTUNMAP 4
#endif

static struct vm_failure last_failure; /* racy on purpose: a message, not a decision */
static size_t page_size;               /* 0 until asked for; every thread computes the same value */
static size_t mapped_bytes;
EARLY_DATA static bool through_libc, space_is_limited;
EARLY_DATA static size_t limit_as, limit_data; /* bytes as found at the start, 0: none */

size_t vm_page_size(void)
{
    size_t size = load_relaxed(&page_size);
    if (UNLIKELY(size == 0)) {
        size = getauxval(AT_PAGESZ);
        if (size == 0)
            size = 4096;
        store_relaxed(&page_size, size);
    }
    return size;
}

static void *fail(const char *call, size_t size, int error)
{
    last_failure.call = call;
    last_failure.size = size;
    last_failure.error = error;
    return NULL;
}

void *vm_map(size_t size, bool reserve)
{
    long flags = MAP_PRIVATE | MAP_ANONYMOUS | (reserve ? 0 : MAP_NORESERVE);
    long ret = sys_call6(SYS_mmap, 0, (long)size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (ret < 0 && ret > -4096)
        return fail("mmap", size, (int)-ret);
    add_relaxed(&mapped_bytes, size);
    return (void *)ret;
}

void *vm_map_aligned(size_t size, size_t align, bool reserve)
{
    char *p = vm_map(size, reserve);
    if (p == NULL || ((uintptr_t)p & (align - 1)) == 0)
        return p;
    vm_unmap(p, size);
    size_t padded = size + align - vm_page_size();
    if (padded < size || (p = vm_map(padded, reserve)) == NULL)
        return NULL;
    size_t head = align_up((uintptr_t)p, align) - (uintptr_t)p;
    if (head != 0)
        vm_unmap(p, head);
    if (padded - head != size)
        vm_unmap(p + head + size, padded - head - size);
    return p + head;
}

int vm_unmap(void *p, size_t size)
{
    long ret;
    if (load_relaxed(&through_libc)) {
        int saved = errno;
        ret = munmap(p, size) == 0 ? 0 : -errno;
        errno = saved;
    } else {
        ret = sys_call3(SYS_munmap, (long)p, (long)size, 0);
    }
    if (ret != 0) {
        fail("munmap", size, (int)-ret);
        return (int)ret;
    }
    sub_relaxed(&mapped_bytes, size);
    return 0;
}

static int advise(void *p, size_t size, int advice)
{
    if (!load_relaxed(&through_libc))
        return (int)sys_call3(SYS_madvise, (long)p, (long)size, advice);
    int saved = errno;
    int ret = madvise(p, size, advice) == 0 ? 0 : -errno;
    errno = saved;
    return ret;
}

int vm_purge_more(void *p, size_t size)
{
    return advise(p, size, MADV_DONTNEED);
}

int vm_purge(void *p, size_t size)
{
    volatile uint64_t *first = p;
    *first = ~(uint64_t)0;
    int ret = advise(p, size, MADV_DONTNEED);
    if (ret == 0 && *first != 0)
        ret = -ENOSYS;
    return ret != 0 ? ret : advise(p, size < HUGE_BYTES ? size : HUGE_BYTES, MADV_DONTNEED);
}

int vm_purge_lazily(void *p, size_t size)
{
    return advise(p, size, MADV_FREE);
}

/* Result: the address, or -errno. */
static long remap(void *p, size_t old_size, size_t new_size, int flags, void *to)
{
    if (!load_relaxed(&through_libc))
        return sys_call6(SYS_mremap, (long)p, (long)old_size, (long)new_size, flags, (long)to, 0);
    int saved = errno;
    void *q = mremap(p, old_size, new_size, flags, to);
    long ret = q == MAP_FAILED ? -errno : (long)q;
    errno = saved;
    return ret;
}

static bool is_error(long ret)
{
    return ret < 0 && ret > -4096;
}

/* Move to a multiple of align: the place is taken first, and the mapping laid over it. */
static long remap_aligned(void *p, size_t old_size, size_t new_size, size_t align)
{
    void *to = vm_map_aligned(new_size, align, false);
    if (to == NULL)
        return -ENOMEM;
    long ret = remap(p, old_size, new_size, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    if (is_error(ret))
        vm_unmap(to, new_size);
    else
        sub_relaxed(&mapped_bytes, new_size);
    return ret;
}

void *vm_remap(void *p, size_t old_size, size_t new_size)
{
    bool huge = old_size >= HUGE_BYTES && new_size > old_size && ((uintptr_t)p & (HUGE_BYTES - 1)) == 0;
    long ret = -ENOMEM;
    if (huge) {
        ret = remap(p, old_size, new_size, 0, NULL);
        if (is_error(ret))
            ret = remap_aligned(p, old_size, new_size, HUGE_BYTES);
    }
    if (is_error(ret))
        ret = remap(p, old_size, new_size, MREMAP_MAYMOVE, NULL);
    if (is_error(ret))
        return fail("mremap", new_size, (int)-ret);
    add_relaxed(&mapped_bytes, new_size - old_size);
    return (void *)ret;
}

/* Pages move only to a mapping of their old length; it is made longer afterwards, in the room that was kept for it, or,
 * if somebody has taken that meanwhile, elsewhere. */
void *vm_move_out(void *p, size_t old_size, size_t new_size, size_t align)
{
    char *to = vm_map_aligned(new_size, align, false);
    if (to == NULL)
        return NULL;
    long ret = remap(p, old_size, old_size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
    if (is_error(ret)) {
        vm_unmap(to, new_size);
        return fail("mremap", new_size, (int)-ret);
    }
    if (new_size == old_size)
        return to;
    if (vm_unmap(to + old_size, new_size - old_size) == 0) {
        char *grown = vm_remap(to, old_size, new_size);
        if (grown != NULL)
            return grown;
    }
    /* The contents have moved, and must go back. */
    remap(to, old_size, old_size, MREMAP_MAYMOVE | MREMAP_FIXED, p);
    sub_relaxed(&mapped_bytes, old_size);
    return NULL;
}

size_t vm_resident(const void *p, size_t size)
{
    unsigned char in[RESIDENT_PAGES] = {0};
    size_t page = vm_page_size(), sum = 0;
    for (size_t at = 0, part; at < size; at += part) {
        part = size - at < sizeof in * page ? size - at : sizeof in * page;
        if (sys_call3(SYS_mincore, (long)((const char *)p + at), (long)part, (long)in) != 0)
            return sum;
        for (size_t i = 0; i < part / page; i++)
            sum += (in[i] & 1) * page;
    }
    return sum;
}

bool vm_is_mapped(const void *p)
{
    unsigned char in = 0;
    uintptr_t a = (uintptr_t)p & ~(uintptr_t)(vm_page_size() - 1);
    return sys_call3(SYS_mincore, (long)a, 1, (long)&in) == 0;
}

void vm_huge_pages(void *p, size_t size, bool want)
{
    advise(p, size, want ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

void vm_small_pages(void *p, size_t size)
{
    static uint32_t advising;
    uint32_t nobody = 0;
    if (!cas_acquire(&advising, &nobody, 1)) /* pairs with the release below */
        return;
    vm_huge_pages(p, size, false);
    store_release(&advising, 0);
}

static size_t limit_of(int what)
{
    struct rlimit l = {RLIM_INFINITY, RLIM_INFINITY};
    return sys_call6(SYS_prlimit64, 0, what, 0, (long)&l, 0, 0) == 0 && l.rlim_cur != RLIM_INFINITY ? l.rlim_cur : 0;
}

bool vm_space_is_limited(void)
{
    return load_relaxed(&space_is_limited);
}

void vm_read_limits(void)
{
    limit_as = limit_of(RLIMIT_AS);
    limit_data = limit_of(RLIMIT_DATA);
    store_relaxed(&space_is_limited, limit_as != 0 || limit_data != 0);
}

void vm_use_libc(void)
{
    store_relaxed(&through_libc, true);
}

struct vm_failure vm_last_failure(void)
{
    struct vm_failure v = last_failure;
    v.limit_as = limit_as;
    v.limit_data = limit_data;
    return v;
}

size_t vm_mapped_bytes(void)
{
    return load_relaxed(&mapped_bytes);
}
