/* SPDX-License-Identifier: BSD-2-Clause */
#include "pages.h"

#include "compat/os/vm.h"
#include "core/block.h"
#include "core/clean.h"

struct pages pages_held[PAGES_HELD];
static uint64_t last_id;

void pages_begin(void)
{
    memset(pages_held, 0, sizeof pages_held);
    last_id = 0;
}

struct pages *pages_unused(void)
{
    for (int i = 0; i < PAGES_HELD; i++)
        if (pages_held[i].pg == NULL)
            return &pages_held[i];
    return NULL;
}

/* Of those there are: an input that names one by number means one. */
struct pages *pages_any(struct fuzz *f)
{
    size_t from = fuzz_below(f, PAGES_HELD);
    for (size_t i = 0; i < PAGES_HELD; i++)
        if (pages_held[(from + i) % PAGES_HELD].pg != NULL)
            return &pages_held[(from + i) % PAGES_HELD];
    return NULL;
}

size_t pages_sum(void)
{
    size_t n = 0;
    for (int i = 0; i < PAGES_HELD; i++)
        n += pages_held[i].pg != NULL ? pages_held[i].npages : 0;
    return n;
}

bool pages_masked(const struct pages *h)
{
    return h->npages <= BLOCK_PAGES;
}

/* A word in each os page, where an address has it, and the first one of the page. */
static uint64_t *word_in(char *os_page)
{
    return (uint64_t *)(os_page + (uintptr_t)os_page / vm_page_size() * 8 % vm_page_size());
}

static uint64_t word_for(const char *os_page, uint64_t id)
{
    return ((uintptr_t)os_page * 0x9e3779b97f4a7c15u ^ id) | 1;
}

static void reads_as_zero(char *os_page)
{
    MUST(*word_in(os_page) == 0 && *(uint64_t *)os_page == 0);
}

void pages_took(struct pages *h, struct page *pg, size_t npages)
{
    char *a = page_address(pg);
    for (int i = 0; i < PAGES_HELD; i++) {
        const struct pages *o = &pages_held[i];
        MUST(o->pg == NULL || pg >= o->pg + o->npages || o->pg >= pg + npages);
    }
    MUST(pg->kind == PAGE_CACHED && pg->npages == npages && pg->node == NODE);
    *h = (struct pages){pg, npages, 0};
    if (pg->zeroed)
        for (size_t i = 0; i < npages * PAGE_BYTES; i += vm_page_size())
            reads_as_zero(a + i);
    for (unsigned u = 0; pages_masked(h) && u < clean_units(npages); u++)
        if (clean_test(pg, u))
            reads_as_zero(a + ((size_t)u << clean_shift()));
    if (!pg->zeroed)
        pages_write_all(h);
}

static void write_unit(const struct pages *h, unsigned u)
{
    char *os_page = page_address(h->pg) + ((size_t)u << clean_shift());
    *(uint64_t *)os_page = word_for(os_page, h->id);
    *word_in(os_page) = word_for(os_page, h->id);
    if (pages_masked(h))
        clean_clear(h->pg, u, 1);
}

void pages_write_all(struct pages *h)
{
    h->id = ++last_id;
    for (unsigned u = 0; u < clean_units(h->npages); u++)
        write_unit(h, u);
    h->pg->zeroed = false;
}

/* Some: then id stays 0, and what is not clean holds its words of id 0. */
void pages_write(struct pages *h, struct fuzz *f)
{
    size_t what = fuzz_below(f, 3);
    if (h->id != 0 || what == 0 || !pages_masked(h)) {
        pages_write_all(h);
        return;
    }
    unsigned units = clean_units(h->npages), first = (unsigned)fuzz_below(f, units);
    unsigned n = what == 1 ? 1 : 1 + (unsigned)fuzz_below(f, units - first);
    for (unsigned u = first; u < first + n; u++)
        write_unit(h, u);
    h->pg->zeroed = false;
}

void pages_intact(const struct pages *h)
{
    char *a = page_address(h->pg);
    for (unsigned u = 0; u < clean_units(h->npages); u++) {
        char *os_page = a + ((size_t)u << clean_shift());
        if (h->id == 0 && (!pages_masked(h) || clean_test(h->pg, u)))
            reads_as_zero(os_page);
        else
            MUST(*word_in(os_page) == word_for(os_page, h->id) && *(uint64_t *)os_page == word_for(os_page, h->id));
    }
}
