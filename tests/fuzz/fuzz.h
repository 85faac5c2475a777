/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the fuzz targets share: bytes as a sequence of choices, and blocks that are in use.
 *
 *     bytes -> struct fuzz -> operations of one layer          target: fuzz_maple.c, fuzz_region.c ...
 *                             a model beside it, <module>_check
 *
 * A target is one file. With clang it is linked with libFuzzer, which has the main function; with any compiler it is
 * linked with replay.c, which runs files and folders, and inputs made from seeds. One process runs many inputs, and the
 * modules' state is global: each input frees what it took and trims, and the target compares with what was before.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include "unit/unit.h"

/* ---- the bytes ---- */

enum { FUZZ_BYTES_MAX = 4096 }; /* what is longer is cut */

/* Past the end every byte is 0: a choice never fails, and a target asks fuzz_more before its next step. */
struct fuzz {
    const uint8_t *at, *end;
};

bool fuzz_more(const struct fuzz *f);
unsigned fuzz_byte(struct fuzz *f);
uint64_t fuzz_word(struct fuzz *f); /* eight bytes */

/* What: 0..n-1; n > 0. Cost: as many bytes as n - 1 needs, at least one. */
size_t fuzz_below(struct fuzz *f, size_t n);

/* What: low..high, each power of two as likely as the others: a byte says which, two more where in it. */
size_t fuzz_between(struct fuzz *f, size_t low, size_t high);

/* What: yes, in so many of 256 cases. */
bool fuzz_chance(struct fuzz *f, unsigned of_256);

/* A function of a model that compares in a loop: the fuzzer is not to learn from it, nor to be slowed down. */
#ifdef __clang__
#define FUZZ_MODEL __attribute__((no_sanitize("coverage", "address")))
#else
#define FUZZ_MODEL
#endif

/* ---- a target ---- */

extern const char fuzz_name[];

/* What: once, before the first input. */
void fuzz_setup(void);

/* What: one input. Fails: abort, or exit with a status. */
void fuzz_run(struct fuzz *f);

/* What: libFuzzer's two. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- memory in use ---- */

/* What: a mark of id in a block: all of it up to 1 KiB, else both ends and a word in every 4 KiB (64 KiB above 1 MiB); and
 * is it still there? */
void fuzz_stamp(void *p, size_t size, uint64_t id);
bool fuzz_stamped(const void *p, size_t size, uint64_t id);

/* What: does a block read as zero, where fuzz_stamp may have written to it or to one that overlapped it? */
bool fuzz_zero(const void *p, size_t size);

struct fuzz_block {
    char *p;     /* NULL: unused */
    size_t size;
    uint64_t id; /* 0: never written */
};

/* What: does [p, p + size) share a byte with one of n blocks? */
bool fuzz_overlaps(const struct fuzz_block *b, size_t n, const void *p, size_t size);

/* ---- the heap's accounts ---- */

struct fuzz_heap {
    size_t out;     /* bytes that the zone has handed out */
    size_t charged; /* as the limits count, slabs whole */
    size_t own;     /* mappings of a block each */
    size_t mapped;  /* address space without bookkeeping and areas of the zone */
};

/* What: give everything back, then look; and: give everything back, and fail unless all is as it was. */
struct fuzz_heap fuzz_heap_begin(void);
void fuzz_heap_end(const struct fuzz_heap *before);

/* What: what the limits have charged is what is out or dirty, and mappings of their own. */
void fuzz_heap_charged(void);

/* What: from now on madvise may fail, as the input says; and: no more. */
void fuzz_madvise_fails(struct fuzz *f);
void fuzz_madvise_works(void);

#endif
