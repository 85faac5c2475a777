/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "clock.h"

#include "atomic.h"
#include "sys.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#define VDSO_CLOCK "__vdso_clock_gettime"
#elif defined(__aarch64__)
#define VDSO_CLOCK "__kernel_clock_gettime"
#else
#define VDSO_CLOCK "" /* no such symbol */
#endif

typedef int clock_function(clockid_t, struct timespec *);

/* What the dynamic section says, as addresses in memory; NULL: not there. */
struct image {
    const ElfW(Sym) * symbols;
    const char *names;
    const uint32_t *hash, *gnu_hash;
};

/* Number of symbols by a DT_GNU_HASH table, which has no such field: one behind the end of the last chain.
 * Table: buckets, first hashed symbol, bloom words, shift; bloom; buckets; chains, the last entry of each is odd. */
static uint32_t gnu_symbol_count(const uint32_t *table)
{
    uint32_t buckets = table[0], first = table[1], last = 0;
    const uint32_t *bucket = table + 4 + (size_t)table[2] * (sizeof(ElfW(Addr)) / sizeof *table);
    const uint32_t *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first)
        return first;
    while ((chain[last - first] & 1) == 0)
        last++;
    return last + 1;
}

/* Where an image lies compared with what its headers say, and its dynamic section. Fails: NULL. */
static const ElfW(Dyn) * find_dynamic(const char *base, uintptr_t *shift)
{
    const ElfW(Ehdr) *file = (const void *)base;
    const ElfW(Phdr) *part = (const void *)(base + file->e_phoff);
    const ElfW(Dyn) *dynamic = NULL;
    bool loaded = false;
    for (int i = 0; i < file->e_phnum; i++) {
        if (part[i].p_type == PT_LOAD && !loaded) {
            *shift = (uintptr_t)base + part[i].p_offset - part[i].p_vaddr;
            loaded = true;
        } else if (part[i].p_type == PT_DYNAMIC) {
            dynamic = (const void *)(base + part[i].p_offset);
        }
    }
    return loaded ? dynamic : NULL;
}

static struct image read_dynamic(const ElfW(Dyn) * d, uintptr_t shift)
{
    struct image m = {0};
    for (; d->d_tag != DT_NULL; d++) {
        const void *p = (const void *)(shift + d->d_un.d_ptr);
        if (d->d_tag == DT_SYMTAB)
            m.symbols = p;
        else if (d->d_tag == DT_STRTAB)
            m.names = p;
        else if (d->d_tag == DT_HASH)
            m.hash = p;
        else if (d->d_tag == DT_GNU_HASH)
            m.gnu_hash = p;
    }
    return m;
}

/* Address of a function, 0 if there is none. Linear: it is done once, and a vDSO has a dozen. */
static uintptr_t find_symbol(const struct image *m, uintptr_t shift, const char *name)
{
    uint32_t count = m->hash != NULL ? m->hash[1] : m->gnu_hash != NULL ? gnu_symbol_count(m->gnu_hash) : 0;
    for (uint32_t i = 1; i < count; i++) {
        const ElfW(Sym) *s = &m->symbols[i];
        unsigned type = s->st_info & 0xf;
        if (s->st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_NOTYPE) &&
            strcmp(m->names + s->st_name, name) == 0)
            return shift + s->st_value;
    }
    return 0;
}

void *clock_image_symbol(const void *base, const char *name)
{
    const unsigned char *ident = base;
    uintptr_t shift = 0;
    if (memcmp(ident, ELFMAG, SELFMAG) != 0 || ident[EI_CLASS] != ELFCLASS64 || sizeof(ElfW(Addr)) != 8)
        return NULL;
    const ElfW(Dyn) *dynamic = find_dynamic(base, &shift);
    struct image m = dynamic != NULL ? read_dynamic(dynamic, shift) : (struct image){0};
    if (m.symbols == NULL || m.names == NULL)
        return NULL;
    return (void *)find_symbol(&m, shift, name);
}

static int ask_kernel(clockid_t clock, struct timespec *t)
{
    return (int)sys_call3(SYS_clock_gettime, clock, (long)t, 0);
}

/* NULL until looked for. Every thread finds the same, so any number of them may store it. On the page of initialised
 * data: a look at it must not be the first touch of a page. */
static clock_function *found EARLY_DATA;

COLD static clock_function *find_function(void)
{
    const void *vdso = (const void *)sys_auxv(AT_SYSINFO_EHDR);
    void *p = vdso != NULL ? clock_image_symbol(vdso, VDSO_CLOCK) : NULL;
    clock_function *f = ask_kernel;
    if (p != NULL)
        memcpy(&f, &p, sizeof f); /* a data pointer, to C */
    store_relaxed(&found, f);     /* relaxed: what it points at was there before us */
    return f;
}

uint64_t clock_coarse_ms(void)
{
    struct timespec t = {0, 0};
    clock_function *f = load_relaxed(&found);
    if (UNLIKELY(f == NULL))
        f = find_function();
    if (UNLIKELY(f(CLOCK_MONOTONIC_COARSE, &t) != 0))
        return 0;
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}
