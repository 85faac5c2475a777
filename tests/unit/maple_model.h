/* SPDX-License-Identifier: BSD-2-Clause */
/* What the maple tests share: a source of nodes that counts and can refuse, and a sorted array of ranges as the model. */
#ifndef TESTS_MAPLE_MODEL_H
#define TESTS_MAPLE_MODEL_H

#include "unit.h"

#include "core/maple_edit.h"
#include "core/rank.h"

/* ---- nodes ---- */

struct nodes {
    struct maple_source source;
    pthread_mutex_t lock;
    void *free;              /* list through the first word, as maple.h allows */
    void *chunks;
    size_t stride;           /* bytes from node to node: 256, or a page, for tests that protect one */
    size_t out;              /* nodes handed out now */
    long allow;              /* how many more may be had; < 0: any number */
    void (*rival)(void *);   /* called at the start of every alloc */
    void *rival_arg;
};

void nodes_init(struct nodes *ns);
void nodes_fini(struct nodes *ns); /* all nodes must be back */

/* ---- the model ---- */

enum { MODEL_MAX = 8192 };

struct model {
    size_t n;
    struct maple_range r[MODEL_MAX + 2]; /* those with an entry, in order */
};

/* The entry of a range says its bounds, so that a torn answer shows; never NULL. */
void *bounds_entry(uintptr_t first, uintptr_t last);

void model_store(struct model *md, uintptr_t first, uintptr_t last, void *entry);
struct maple_range model_at(const struct model *md, uintptr_t index);
bool model_find(const struct model *md, uintptr_t from, uintptr_t to, struct maple_range *out);
bool model_find_last(const struct model *md, uintptr_t from, uintptr_t to, struct maple_range *out);
bool model_gap(const struct model *md, const struct maple_want *w, uintptr_t *first);

bool range_equal(const struct maple_range *a, const struct maple_range *b);

/* What: fail unless tree and model hold the same, walking both ways, and the tree keeps its invariants. */
void model_compare(const struct model *md, struct maple *m);

/* What: the model of what is in the tree. */
void model_copy(struct model *md, struct maple *m);

/* What: a tree of `ranges` ranges of 100 numbers each, [100 i, 100 i + 99], in ascending order, in the model too if there
 * is one. */
void build_blocks(struct maple *m, struct model *md, unsigned ranges);

#endif
