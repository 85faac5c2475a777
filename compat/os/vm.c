/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "vm.h"

#include "atomic.h"
#include "bits.h"
#include "fault.h"
#include "sys.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { RESIDENT_PAGES = 512 }; /* os pages asked about at once */
enum { HUGE_BYTES = 2 << 20 }; /* a huge page of most machines; where it is another, nothing breaks */

#ifndef MREMAP_DONTUNMAP /* Linux 5.7 */
#define MREMAP_DONTUNMAP 4
#endif

/*
 * Test builds (make check-pages) give a number here: os pages are then as large as that, on a kernel whose own are smaller.
 * We believe in it, mappings lie as such a kernel would lay them, and whatever is no whole number of such pages traps.
 */
#ifndef VM_TEST_PAGE
#define VM_TEST_PAGE 0
#endif
enum { TEST_PAGE = VM_TEST_PAGE };

static struct vm_failure last_failure; /* racy on purpose: a message, not a decision */
static size_t page_size;               /* 0 until asked for; every thread computes the same value */
static size_t mapped_bytes;
EARLY_DATA static bool through_libc, space_is_limited;
EARLY_DATA static size_t limit_as, limit_data; /* bytes as found at the start, 0: none */

size_t vm_page_size(void)
{
    size_t size = load_relaxed(&page_size);
    if (UNLIKELY(size == 0)) {
        size_t least = TEST_PAGE;
        size = getauxval(AT_PAGESZ);
        if (size == 0)
            size = 4096;
        if (size < least)
            size = least;
        store_relaxed(&page_size, size);
    }
    return size;
}

/* What a kernel with such pages would refuse, or round. */
static void whole_pages(const void *p, size_t size)
{
    if (TEST_PAGE != 0 && (((uintptr_t)p | size) & (vm_page_size() - 1)) != 0)
        __builtin_trap();
}

static void *fail(const char *call, size_t size, int error)
{
    last_failure.call = call;
    last_failure.size = size;
    last_failure.error = error;
    return NULL;
}

static bool is_error(long ret)
{
    return ret < 0 && ret > -4096;
}

/* Result: the address, or -errno. */
static long map(size_t size, bool reserve)
{
    long flags = MAP_PRIVATE | MAP_ANONYMOUS | (reserve ? 0 : MAP_NORESERVE);
    return sys_call6(SYS_mmap, 0, (long)size, PROT_READ | PROT_WRITE, flags, -1, 0);
}

/* A mapping of the real kernel's, laid as a kernel with larger pages would. */
static long map_test_pages(size_t size, bool reserve, long ret)
{
    size_t slack = vm_page_size() - 1;
    if (is_error(ret) || ((size_t)ret & slack) == 0)
        return ret;
    sys_call3(SYS_munmap, ret, (long)size, 0);
    ret = map(size + slack + 1, reserve);
    if (is_error(ret))
        return ret;
    size_t base = align_up((size_t)ret, slack + 1), head = base - (size_t)ret;
    if (head != 0)
        sys_call3(SYS_munmap, ret, (long)head, 0);
    sys_call3(SYS_munmap, (long)(base + size), (long)(slack + 1 - head), 0);
    return (long)base;
}

void *vm_map(size_t size, bool reserve)
{
    whole_pages(NULL, size);
    long ret;
    if (!fault_hit(FAULT_MMAP, &ret))
        ret = map(size, reserve);
    if (TEST_PAGE != 0)
        ret = map_test_pages(size, reserve, ret);
    if (is_error(ret))
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
    whole_pages(p, size);
    if (fault_hit(FAULT_MUNMAP, &ret)) {
        /* ret is the answer */
    } else if (load_relaxed(&through_libc)) {
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
    long answer;
    whole_pages(p, size);
    if (fault_hit(FAULT_MADVISE, &answer))
        return (int)answer;
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
    whole_pages(p, old_size | new_size | (size_t)to);
    long answer;
    if (fault_hit(FAULT_MREMAP, &answer))
        return answer;
    if (!load_relaxed(&through_libc))
        return sys_call6(SYS_mremap, (long)p, (long)old_size, (long)new_size, flags, (long)to, 0);
    int saved = errno;
    void *q = mremap(p, old_size, new_size, flags, to);
    long ret = q == MAP_FAILED ? -errno : (long)q;
    errno = saved;
    return ret;
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
    size_t align = huge ? HUGE_BYTES : TEST_PAGE;
    long ret = -ENOMEM;
    if (align != 0) {
        ret = remap(p, old_size, new_size, 0, NULL);
        if (is_error(ret))
            ret = remap_aligned(p, old_size, new_size, align);
    }
    if (is_error(ret) && TEST_PAGE == 0)
        ret = remap(p, old_size, new_size, MREMAP_MAYMOVE, NULL);
    if (is_error(ret))
        return fail("mremap", new_size, (int)-ret);
    add_relaxed(&mapped_bytes, new_size - old_size);
    return (void *)ret;
}

/* The contents have moved, and must go back, even if the system moves nothing any more. */
static void move_back(void *p, void *from, size_t size)
{
    if (is_error(remap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, p))) {
        memcpy(p, from, size);
        vm_unmap(from, size);
    } else {
        sub_relaxed(&mapped_bytes, size);
    }
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
    move_back(p, to, old_size);
    return NULL;
}

/* Is any of n of the kernel's pages in memory? n is 1 outside of a test. */
static bool is_in(const unsigned char *in, size_t n)
{
    unsigned any = 0;
    for (size_t i = 0; i < n; i++)
        any |= in[i];
    return (any & 1) != 0;
}

size_t vm_resident(const void *p, size_t size)
{
    unsigned char in[RESIDENT_PAGES] = {0};
    size_t page = vm_page_size(), kernels = TEST_PAGE == 0 ? page : getauxval(AT_PAGESZ), sum = 0;
    whole_pages(p, size);
    for (size_t at = 0, part; at < size; at += part) {
        part = size - at < sizeof in * kernels ? size - at : sizeof in * kernels;
        if (sys_call3(SYS_mincore, (long)((const char *)p + at), (long)part, (long)in) != 0)
            return sum;
        for (size_t i = 0; i < part / page; i++)
            sum += is_in(in + i * (page / kernels), page / kernels) ? page : 0;
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
