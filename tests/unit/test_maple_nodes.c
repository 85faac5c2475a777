/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core/maple.h: how many nodes each kind of write takes, to the node; what happens when one cannot be had; what a rival
 * may do while a writer waits for nodes.
 */
#include "maple_model.h"

#include <errno.h>

static struct nodes ns;
static struct maple m;
static struct model md;

static void start(bool gaps)
{
    nodes_init(&ns);
    maple_init(&m, gaps, RANK_REGION, &ns.source);
    m.keep = 0; /* every node is asked for when it is needed */
    md.n = 0;
}

static void finish(void)
{
    maple_check(&m);
    ns.allow = -1;
    maple_destroy(&m);
    nodes_fini(&ns);
}

/* ---- the shape of trees ---- */

/* Nodes of each level, as keys 0..1000 in order make them: 67 leaves, 5 or 8 above, a root. */
static void golden(bool gaps, bool descending, size_t nodes)
{
    start(gaps);
    for (uintptr_t i = 0; i <= 1000; i++)
        EXPECT_EQ(maple_store(&m, descending ? 1000 - i : i, descending ? 1000 - i : i, &m), 0);
    EXPECT_EQ(m.nodes, nodes);
    EXPECT_EQ(maple_stats(&m).taken, nodes);
    EXPECT_EQ(maple_height(m.root), 3);
    finish();
}

TEST(maple_nodes, golden_structure)
{
    golden(false, false, 73);
    golden(true, false, 76);
    golden(true, true, 76);
}

static struct maple_node *leaf_of(uintptr_t index)
{
    struct maple_path path;
    maple_path_to(&m, index, &path);
    return path.step[0].node;
}

/* Two levels: a root of n leaves, each of them full. Blocks of 100 numbers, some cut in two or three. */
static void pack(unsigned n)
{
    uintptr_t blocks = 0;
    for (; m.root == 0 || maple_height(m.root) < 2 || maple_root(m.root)->count < n; blocks++)
        EXPECT_EQ(maple_store(&m, 100 * blocks, 100 * blocks + 99, bounds_entry(blocks, 0)), 0);
    for (uintptr_t part = 50; part > 24; part /= 2)
        for (uintptr_t i = 0; i < blocks; i++)
            if (leaf_of(100 * i)->count < RANGE_SLOTS)
                EXPECT_EQ(maple_store(&m, 100 * i, 100 * i + part - 1, bounds_entry(i, part)), 0);
    for (uintptr_t i = 0; i < blocks; i++)
        EXPECT_EQ(leaf_of(100 * i)->count, RANGE_SLOTS);
    EXPECT_EQ(maple_root(m.root)->count, n);
    EXPECT_EQ(maple_height(m.root), 2);
    maple_check(&m);
}

static unsigned root_slots(bool gaps)
{
    return gaps ? ARANGE_SLOTS : RANGE_SLOTS;
}

/* The last number of leaf i of a packed tree, and its n-th entry. */
static uintptr_t leaf_end(unsigned i)
{
    return maple_pivots(maple_root(m.root))[i];
}

static struct maple_range leaf_entry(unsigned i, unsigned n)
{
    struct maple_range r;
    uintptr_t at = i > 0 ? leaf_end(i - 1) + 1 : 0;
    for (;; n--) {
        EXPECT_EQ(maple_at(&m, at, &r), 0);
        if (n == 0)
            return r;
        at = r.last + 1;
    }
}

/* ---- each kind of write ---- */

struct deed {
    const char *name;
    bool root_full;
    enum maple_write type;
    int nodes;           /* set aside and used; -1: none may be needed, some may be freed */
    void (*find)(uintptr_t *first, uintptr_t *last, void **entry); /* in a packed tree */
};

static void exact(uintptr_t *first, uintptr_t *last, void **entry)
{
    struct maple_range r = leaf_entry(1, 5);
    *first = r.first;
    *last = r.last;
    *entry = &m;
}

static void slot(uintptr_t *first, uintptr_t *last, void **entry)
{
    struct maple_range r = leaf_entry(1, 5);
    *first = r.first; /* one bound moves */
    *last = r.last + 5;
    *entry = &m;
}

static void append(uintptr_t *first, uintptr_t *last, void **entry)
{
    unsigned leaf = (unsigned)maple_root(m.root)->count - 1;
    struct maple_range r = leaf_entry(leaf, 3);
    EXPECT_EQ(maple_store(&m, r.first, leaf_entry(leaf, 5).last, &md), 0); /* room */
    r = leaf_entry(leaf, RANGE_SLOTS - 3);
    EXPECT(r.entry == NULL && r.last == UINTPTR_MAX);
    *first = r.first;
    *last = r.first + 9;
    *entry = &m;
}

static void node(uintptr_t *first, uintptr_t *last, void **entry)
{
    struct maple_range r = leaf_entry(2, 5);
    *first = r.first;
    *last = leaf_entry(2, 7).last;
    *entry = &m;
}

static void split(uintptr_t *first, uintptr_t *last, void **entry)
{
    struct maple_range r = leaf_entry(2, 5);
    *first = r.first + 10;
    *last = r.first + 20;
    *entry = &m;
}

static void make_room(unsigned leaf) /* 16 entries become 10 */
{
    struct maple_range r = leaf_entry(leaf, 3);
    EXPECT_EQ(maple_store(&m, r.first, leaf_entry(leaf, 9).last, &md), 0);
}

static void push_left(uintptr_t *first, uintptr_t *last, void **entry)
{
    make_room(1);
    split(first, last, entry);
}

static void push_right(uintptr_t *first, uintptr_t *last, void **entry)
{
    make_room(3);
    split(first, last, entry);
}

static void too_empty(uintptr_t *first, uintptr_t *last, void **entry)
{
    struct maple_range r = leaf_entry(2, 1);
    *first = r.first;
    *last = leaf_entry(2, 13).last;
    *entry = &m;
}

/* From within the last entry of a full leaf to within the first of the next: 33 entries for what was two leaves. */
static void span_three(uintptr_t *first, uintptr_t *last, void **entry)
{
    *first = leaf_end(2) - 10;
    *last = leaf_end(2) + 10;
    *entry = &m;
}

/* Over the last entry and the first: 31 entries, in the same two leaves. */
static void span_two(uintptr_t *first, uintptr_t *last, void **entry)
{
    *first = leaf_entry(2, RANGE_SLOTS - 1).first;
    *last = leaf_entry(3, 0).last;
    *entry = &m;
}

static void span_many(uintptr_t *first, uintptr_t *last, void **entry)
{
    *first = leaf_entry(1, 3).first;
    *last = leaf_entry(5, 9).last;
    *entry = NULL;
}

/* The last entry of a full leaf goes, beside a full leaf: 32 entries, and the 16th is the gap, which may not end a leaf. */
static void gap_at_end(uintptr_t *first, uintptr_t *last, void **entry)
{
    struct maple_range r = leaf_entry(2, RANGE_SLOTS - 1);
    *first = r.first;
    *last = r.last;
    *entry = NULL;
}

static void everything(uintptr_t *first, uintptr_t *last, void **entry)
{
    *first = 0;
    *last = UINTPTR_MAX;
    *entry = &m;
}

static void nothing_left(uintptr_t *first, uintptr_t *last, void **entry)
{
    *first = 0;
    *last = UINTPTR_MAX - 1; /* widened to the end */
    *entry = NULL;
}

static const struct deed deeds[] = {
    {"exact fit", false, MAPLE_EXACT_FIT, 0, exact},
    {"slot store", false, MAPLE_SLOT_STORE, 0, slot},
    {"append", false, MAPLE_APPEND, 0, append},
    {"node store", false, MAPLE_NODE_STORE, 0, node},
    {"split, parent has room", false, MAPLE_SPLIT, 1, split},
    {"split, parent full", true, MAPLE_SPLIT, 3, split},
    {"split, left sibling has room", true, MAPLE_SPLIT, 0, push_left},
    {"split, right sibling has room", true, MAPLE_SPLIT, 0, push_right},
    {"rebalance", false, MAPLE_REBALANCE, 0, too_empty},
    {"spanning, three for two", false, MAPLE_SPANNING, 1, span_three},
    {"spanning, three for two, parent full", true, MAPLE_SPANNING, 3, span_three},
    {"spanning, two for two", true, MAPLE_SPANNING, 0, span_two},
    {"spanning, over leaves", true, MAPLE_SPANNING, 0, span_many},
    {"spanning, gap in the middle", false, MAPLE_SPANNING, 1, gap_at_end},
    {"spanning, gap in the middle, parent full", true, MAPLE_SPANNING, 3, gap_at_end},
    {"new root", true, MAPLE_NEW_ROOT, 1, everything},
    {"new root, nothing left", true, MAPLE_NEW_ROOT, 0, nothing_left},
};
enum { DEEDS = sizeof deeds / sizeof *deeds };

static void prepare(const struct deed *d, bool gaps, uintptr_t *first, uintptr_t *last, void **entry)
{
    start(gaps);
    pack(d->root_full ? root_slots(gaps) : 7);
    d->find(first, last, entry);
    model_copy(&md, &m);
    EXPECT_EQ(m.nspare, 0);
}

static void node_counts(bool gaps)
{
    for (int i = 0; i < DEEDS; i++) {
        const struct deed *d = &deeds[i];
        uintptr_t first, last;
        void *entry;
        prepare(d, gaps, &first, &last, &entry);
        struct maple_stats before = maple_stats(&m);
        size_t had = m.nodes;
        EXPECT_EQ(maple_store(&m, first, last, entry), 0);
        struct maple_stats after = maple_stats(&m);
        if (after.writes[d->type] != before.writes[d->type] + 1)
            TEST_FAIL("%s: of another type", d->name);
        if (after.taken - before.taken != (uint64_t)d->nodes)
            TEST_FAIL("%s: took %d nodes", d->name, (int)(after.taken - before.taken));
        EXPECT_EQ(after.returned, 0);
        EXPECT_EQ(m.nodes + (after.freed - before.freed), had + (size_t)d->nodes);
        EXPECT_EQ(ns.out, m.nodes + m.nspare);
        model_store(&md, first, last, entry);
        model_compare(&md, &m);
        finish();
    }
}

TEST(maple_nodes, each_kind_of_write_takes_exactly_its_nodes)
{
    node_counts(false);
    node_counts(true);
}

TEST(maple_nodes, first_write_takes_one)
{
    start(true);
    EXPECT_EQ(maple_store(&m, 5, 9, &m), 0);
    EXPECT_EQ(maple_stats(&m).taken, 1);
    EXPECT_EQ(maple_stats(&m).writes[MAPLE_NEW_ROOT], 1);
    EXPECT_EQ(maple_erase(&m, 7, NULL), 0);
    EXPECT_EQ(m.nodes, 0);
    EXPECT_EQ(maple_stats(&m).freed, 1);
    finish();
}

/* A merge that empties the root of a tall tree: every level gives nodes back, none is taken. */
TEST(maple_nodes, spanning_a_tall_tree_frees_whole_subtrees)
{
    for (int gaps = 0; gaps < 2; gaps++) {
        start(gaps);
        build_blocks(&m, &md, 3000);
        size_t had = m.nodes;
        uint64_t taken = maple_stats(&m).taken;
        EXPECT_EQ(maple_store(&m, 550, 299000, &m), 0);
        model_store(&md, 550, 299000, &m);
        EXPECT_EQ(maple_stats(&m).taken, taken);
        EXPECT_EQ(maple_stats(&m).freed, had - m.nodes);
        EXPECT_EQ(ns.out, m.nodes);
        EXPECT(m.nodes < 4);
        model_compare(&md, &m);
        finish();
    }
}

/* ---- no node to be had ---- */

/* For each write that needs nodes, let every one of them be the one that cannot be had. */
static void refuse_each(bool gaps)
{
    unsigned refused = 0;
    for (int i = 0; i < DEEDS; i++)
        for (int had = 0; had < deeds[i].nodes; had++) {
            uintptr_t first, last;
            void *entry;
            prepare(&deeds[i], gaps, &first, &last, &entry);
            uintptr_t root = m.root;
            size_t nodes = m.nodes;
            ns.allow = had;
            EXPECT_EQ(maple_store(&m, first, last, entry), -ENOMEM);
            EXPECT(m.root == root && m.nodes == nodes);
            EXPECT_EQ(m.nspare, had); /* what could be had is kept for the next try */
            model_compare(&md, &m);
            ns.allow = deeds[i].nodes - had;
            EXPECT_EQ(maple_store(&m, first, last, entry), 0);
            model_store(&md, first, last, entry);
            model_compare(&md, &m);
            refused++;
            finish();
        }
    EXPECT_EQ(refused, 13);
}

TEST(maple_nodes, each_node_refused_leaves_the_tree_as_it_was)
{
    refuse_each(false);
    refuse_each(true);
}

/* A store over one whole range never needs a node, so a marker can always be set. */
TEST(maple_nodes, exact_fit_needs_no_memory)
{
    start(true);
    build_blocks(&m, &md, 500);
    ns.allow = 0;
    for (uintptr_t i = 0; i < 500; i++)
        EXPECT_EQ(maple_store(&m, 100 * i, 100 * i + 99, &m), 0);
    finish();
}

/* ---- the switches of the lab ---- */

TEST(maple_nodes, worst_case_preallocation_gives_most_back)
{
    for (int i = 0; i < DEEDS; i++) {
        uintptr_t first, last;
        void *entry;
        prepare(&deeds[i], true, &first, &last, &entry);
        struct maple_stats before = maple_stats(&m);
        unsigned worst = maple_height(m.root) + 1;
        m.worst = true;
        EXPECT_EQ(maple_store(&m, first, last, entry), 0);
        struct maple_stats after = maple_stats(&m);
        EXPECT_EQ(after.taken - before.taken, worst);
        if (after.returned - before.returned != worst - (unsigned)deeds[i].nodes)
            TEST_FAIL("%s: returned %d", deeds[i].name, (int)(after.returned - before.returned));
        model_store(&md, first, last, entry);
        model_compare(&md, &m);
        finish();
    }
}

TEST(maple_nodes, zeroing_is_counted_and_harmless)
{
    start(true);
    m.zero = true;
    build_blocks(&m, &md, 300);
    EXPECT_EQ(maple_stats(&m).bytes_zeroed, MAPLE_NODE_BYTES * maple_stats(&m).taken);
    model_compare(&md, &m);
    finish();
}

/* ---- the sheaf ---- */

TEST(maple_nodes, sheaf_is_filled_before_it_runs_dry)
{
    start(true);
    m.keep = MAPLE_KEEP;
    build_blocks(&m, NULL, 2000);
    struct maple_stats s = maple_stats(&m);
    EXPECT_EQ(s.retries, 0); /* no write ever found too few */
    EXPECT(s.refills < s.taken / 16);
    EXPECT_EQ(s.lock_holds, 2000);
    EXPECT(m.nspare <= MAPLE_KEEP);
    finish();
}

/* ---- rivals ---- */

struct rival {
    void (*deed)(void);
    bool done;
};

static void *rival_thread(void *arg)
{
    ((struct rival *)arg)->deed();
    return NULL;
}

/* Another thread writes while ours, having counted its nodes, waits for the source. */
static void let_rival_in(void *arg)
{
    struct rival *r = arg;
    pthread_t t;
    if (r->done)
        return;
    r->done = true;
    MUST(pthread_create(&t, NULL, rival_thread, r) == 0);
    MUST(pthread_join(t, NULL) == 0);
}

static void rival_makes_room(void)
{
    MUST(maple_store(&m, 100, 900, NULL) == 0);
}

static void rival_fills_up(void)
{
    MUST(maple_store(&m, leaf_end(2) + 40, leaf_end(2) + 45, &ns) == 0); /* splits leaf 3: the root is full now */
}

static uintptr_t place;

static void rival_takes_the_place(void)
{
    MUST(maple_insert(&m, place - 3, place + 3, &ns) == 0);
}

TEST(maple_nodes, rival_makes_the_nodes_superfluous)
{
    struct rival r = {.deed = rival_makes_room};
    start(true);
    pack(7);
    model_copy(&md, &m);
    ns.rival = let_rival_in;
    ns.rival_arg = &r;
    uint64_t retries = maple_stats(&m).retries;
    EXPECT_EQ(maple_store(&m, 110, 120, &m), 0);
    EXPECT(r.done);
    EXPECT_EQ(maple_stats(&m).retries, retries + 1);
    EXPECT_EQ(m.nspare, 1); /* had for nothing, kept */
    model_store(&md, 100, 900, NULL);
    model_store(&md, 110, 120, &m);
    model_compare(&md, &m);
    finish();
}

TEST(maple_nodes, rival_makes_more_nodes_needed)
{
    struct rival r = {.deed = rival_fills_up};
    start(true);
    pack(ARANGE_SLOTS - 1);
    model_copy(&md, &m);
    uintptr_t at = leaf_end(6) - 40;
    model_store(&md, leaf_end(2) + 40, leaf_end(2) + 45, &ns);
    ns.rival = let_rival_in;
    ns.rival_arg = &r;
    EXPECT_EQ(maple_store(&m, at, at + 5, &m), 0);
    struct maple_stats s = maple_stats(&m);
    EXPECT_EQ(s.returned, 0);
    EXPECT_EQ(s.taken, m.nodes + s.freed);
    EXPECT_EQ(maple_height(m.root), 3);
    model_store(&md, at, at + 5, &m);
    model_compare(&md, &m);
    finish();
}

/* An insert looks again: what was a gap may be taken by then. */
TEST(maple_nodes, rival_takes_the_place_of_an_insert)
{
    struct rival r = {.deed = rival_takes_the_place};
    start(true);
    pack(7);
    place = leaf_entry(2, 5).first + 20;
    EXPECT_EQ(maple_store(&m, leaf_entry(2, 5).first, leaf_entry(2, 6).last, NULL), 0); /* 15 entries, one a gap */
    ns.rival = let_rival_in;
    ns.rival_arg = &r;
    EXPECT_EQ(maple_insert(&m, place, place + 9, &m), -EEXIST);
    EXPECT(r.done);
    EXPECT(maple_load(&m, place) == &ns && maple_load(&m, place + 4) == NULL);
    finish();
}
