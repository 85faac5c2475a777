/* SPDX-License-Identifier: BSD-2-Clause */
#include "fuzz.h"

#include "compat/os/vm.h"
#include "core/limit.h"
#include "core/meta.h"
#include "core/pmap.h"
#include "core/region.h"
#include "core/zone.h"

#include <errno.h>

/* ---- the bytes ---- */

bool fuzz_more(const struct fuzz *f)
{
    return f->at < f->end;
}

unsigned fuzz_byte(struct fuzz *f)
{
    return fuzz_more(f) ? *f->at++ : 0;
}

uint64_t fuzz_word(struct fuzz *f)
{
    uint64_t w = 0;
    for (int i = 0; i < 8; i++)
        w = w << 8 | fuzz_byte(f);
    return w;
}

size_t fuzz_below(struct fuzz *f, size_t n)
{
    size_t x = fuzz_byte(f);
    for (size_t rest = (n - 1) >> 8; rest != 0; rest >>= 8)
        x = x << 8 | fuzz_byte(f);
    return x % n;
}

size_t fuzz_between(struct fuzz *f, size_t low, size_t high)
{
    size_t span = high - low + 1;
    unsigned bits = 64 - (unsigned)__builtin_clzl(span);
    size_t part = (size_t)1 << fuzz_below(f, bits), where = fuzz_below(f, 1 << 16);
    size_t x = part - 1 + (size_t)((unsigned __int128)part * where >> 16);
    return low + x % span;
}

bool fuzz_chance(struct fuzz *f, unsigned of_256)
{
    return fuzz_byte(f) >= 256 - of_256; /* an input that has ended says no */
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_setup();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz f = {data, data + (size < FUZZ_BYTES_MAX ? size : FUZZ_BYTES_MAX)};
    fuzz_run(&f);
    return 0;
}

/* ---- memory in use ---- */

enum { WHOLE = 1024, END = 64, STEP = 4096, WORD = sizeof(uint64_t), LONG = 1 << 20, LONG_STEP = 1 << 16 };

static uintptr_t step_for(size_t size)
{
    return size > LONG ? LONG_STEP : STEP;
}

/* The word of an address: where it lies depends on the address alone, so that a later block looks at the same places. */
static uintptr_t word_from(uintptr_t a, uintptr_t step)
{
    a = (a + step - 1) / step * step;
    return a + a / STEP * WORD % STEP;
}

static uint64_t word_of(uintptr_t a, uint64_t id)
{
    return (id * 0x9e3779b97f4a7c15u ^ a * 0xd6e8feb86659fd93u) | 1;
}

void fuzz_stamp(void *p, size_t size, uint64_t id)
{
    char *b = p;
    if (size <= WHOLE) {
        unit_stamp(b, size, id);
        return;
    }
    for (uintptr_t a = word_from((uintptr_t)b + END, step_for(size)); a + WORD <= (uintptr_t)b + size - END; a = word_from(a + 1, step_for(size)))
        *(uint64_t *)a = word_of(a, id);
    unit_stamp(b, END, id);
    unit_stamp(b + size - END, END, id);
}

bool fuzz_stamped(const void *p, size_t size, uint64_t id)
{
    const char *b = p;
    if (size <= WHOLE)
        return unit_stamped(b, size, id);
    for (uintptr_t a = word_from((uintptr_t)b + END, step_for(size)); a + WORD <= (uintptr_t)b + size - END; a = word_from(a + 1, step_for(size)))
        if (*(uint64_t *)a != word_of(a, id))
            return false;
    return unit_stamped(b, END, id) && unit_stamped(b + size - END, END, id);
}

bool fuzz_zero(const void *p, size_t size)
{
    const char *b = p;
    if (size <= (size_t)64 << 10)
        return unit_is_zero(b, size);
    for (uintptr_t a = word_from((uintptr_t)b + END, step_for(size)); a + WORD <= (uintptr_t)b + size - END; a = word_from(a + 1, step_for(size)))
        if (*(uint64_t *)a != 0)
            return false;
    return unit_is_zero(b, STEP) && unit_is_zero(b + size - STEP, STEP);
}

bool fuzz_overlaps(const struct fuzz_block *b, size_t n, const void *p, size_t size)
{
    const char *at = p;
    for (size_t i = 0; i < n; i++)
        if (b[i].p != NULL && at < b[i].p + b[i].size && b[i].p < at + size)
            return true;
    return false;
}

/* ---- the heap's accounts ---- */

static struct fuzz_heap heap_now(void)
{
    struct region_stats r = region_stats();
    return (struct fuzz_heap){
        .out = zone_stats(NODE).out,
        .charged = unit_charged_whole(),
        .own = r.bytes[REGION_OWN],
        .mapped = vm_mapped_bytes() - pmap_mapped_bytes() - meta_stats().mapped - r.bytes[REGION_ZONE],
    };
}

struct fuzz_heap fuzz_heap_begin(void)
{
    fuzz_madvise_works();
    unit_fresh();
    return heap_now();
}

void fuzz_heap_end(const struct fuzz_heap *before)
{
    struct fuzz_heap after = fuzz_heap_begin();
    EXPECT_EQ(after.out, before->out);
    EXPECT_EQ(after.charged, before->charged);
    EXPECT_EQ(after.own, before->own);
    EXPECT_EQ(zone_stats(NODE).dirty, 0);
}

void fuzz_heap_charged(void)
{
    struct zone_stats z = zone_stats(NODE);
    struct region_stats r = region_stats();
    EXPECT_EQ(unit_charged_whole(), z.out + z.dirty + r.bytes[REGION_OWN]);
}

void fuzz_madvise_fails(struct fuzz *f)
{
    static const int answers[] = {ENOMEM, EINVAL, EAGAIN, -1};
    bool forever = fuzz_chance(f, 64);
    unit_madvise_fails((long)fuzz_below(f, 16) + 1, forever, answers[fuzz_below(f, 4)]);
}

void fuzz_madvise_works(void)
{
    unit_madvise_fails(0, false, 0);
}
