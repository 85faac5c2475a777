/* SPDX-License-Identifier: BSD-2-Clause */
#include "maple_model.h"

#include <errno.h>
#include <sys/mman.h>

/* ---- nodes ---- */

enum { CHUNK_NODES = 64 };

struct chunk {
    struct chunk *next;
    void *memory;
    size_t size;
};

static void add_chunk(struct nodes *ns)
{
    struct chunk *c = malloc(sizeof *c);
    MUST(c != NULL);
    c->size = CHUNK_NODES * ns->stride;
    c->memory = mmap(NULL, c->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(c->memory != MAP_FAILED);
    memset(c->memory, 0xa5, c->size); /* nothing may count on zeroes */
    c->next = ns->chunks;
    ns->chunks = c;
    for (size_t i = 0; i < CHUNK_NODES; i++) {
        void **node = (void **)(void *)((char *)c->memory + i * ns->stride);
        *node = ns->free;
        ns->free = node;
    }
}

static unsigned nodes_alloc(void *ctx, void **node, unsigned n)
{
    struct nodes *ns = ctx;
    unsigned got = 0;
    if (ns->rival != NULL)
        ns->rival(ns->rival_arg);
    pthread_mutex_lock(&ns->lock);
    for (; got < n && ns->allow != 0; got++) {
        if (ns->free == NULL)
            add_chunk(ns);
        node[got] = ns->free;
        ns->free = *(void **)node[got];
        ns->out++;
        if (ns->allow > 0)
            ns->allow--;
    }
    pthread_mutex_unlock(&ns->lock);
    return got;
}

static void nodes_free(void *ctx, void **node, unsigned n)
{
    struct nodes *ns = ctx;
    pthread_mutex_lock(&ns->lock);
    for (unsigned i = 0; i < n; i++) {
        *(void **)node[i] = ns->free;
        ns->free = node[i];
    }
    MUST(ns->out >= n);
    ns->out -= n;
    pthread_mutex_unlock(&ns->lock);
}

void nodes_init(struct nodes *ns)
{
    *ns = (struct nodes){.lock = PTHREAD_MUTEX_INITIALIZER, .stride = MAPLE_NODE_BYTES, .allow = -1};
    ns->source = (struct maple_source){.alloc = nodes_alloc, .free = nodes_free, .ctx = ns};
}

void nodes_fini(struct nodes *ns)
{
    EXPECT_EQ(ns->out, 0);
    while (ns->chunks != NULL) {
        struct chunk *c = ns->chunks;
        ns->chunks = c->next;
        munmap(c->memory, c->size);
        free(c);
    }
}

/* ---- the model ---- */

void *bounds_entry(uintptr_t first, uintptr_t last)
{
    return (void *)((first * 0x9e3779b97f4a7c15u ^ last * 0xd6e8feb86659fd93u) | 2);
}

/* The first range that ends at index or later. */
static size_t position(const struct model *md, uintptr_t index)
{
    size_t lo = 0, hi = md->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (md->r[mid].last < index)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void model_store(struct model *md, uintptr_t first, uintptr_t last, void *entry)
{
    struct maple_range put[3];
    size_t from = position(md, first), to = from, k = 0;
    while (to < md->n && md->r[to].first <= last)
        to++;
    if (from < to && md->r[from].first < first)
        put[k++] = (struct maple_range){md->r[from].first, first - 1, md->r[from].entry};
    if (entry != NULL)
        put[k++] = (struct maple_range){first, last, entry};
    if (from < to && md->r[to - 1].last > last)
        put[k++] = (struct maple_range){last + 1, md->r[to - 1].last, md->r[to - 1].entry};
    MUST(md->n + k - (to - from) <= MODEL_MAX);
    memmove(md->r + from + k, md->r + to, (md->n - to) * sizeof *md->r);
    memcpy(md->r + from, put, k * sizeof *put);
    md->n += k;
    md->n -= to - from;
}

struct maple_range model_at(const struct model *md, uintptr_t index)
{
    size_t i = position(md, index);
    if (i < md->n && md->r[i].first <= index)
        return md->r[i];
    return (struct maple_range){
        .first = i > 0 ? md->r[i - 1].last + 1 : 0,
        .last = i < md->n ? md->r[i].first - 1 : UINTPTR_MAX,
    };
}

bool model_find(const struct model *md, uintptr_t from, uintptr_t to, struct maple_range *out)
{
    size_t i = position(md, from);
    if (i == md->n || md->r[i].first > to)
        return false;
    *out = md->r[i];
    return true;
}

bool model_find_last(const struct model *md, uintptr_t from, uintptr_t to, struct maple_range *out)
{
    size_t i = position(md, to);
    if (i == md->n || md->r[i].first > to) {
        if (i == 0)
            return false;
        i--;
    }
    if (md->r[i].last < from)
        return false;
    *out = md->r[i];
    return true;
}

/* One gap, in steps that cannot overflow: __int128. */
static bool place_in(const struct maple_want *w, uintptr_t first, uintptr_t last, uintptr_t *at)
{
    __int128 lo = first > w->from ? first : w->from, hi = last < w->to ? last : w->to, a = w->align;
    __int128 low = (lo + a - 1) / a * a, high = hi - (__int128)w->size + 1;
    high = high < 0 ? -1 : high / a * a;
    if (low + (__int128)w->size - 1 > hi || high < lo)
        return false;
    *at = (uintptr_t)(w->high ? high : low);
    return true;
}

bool model_gap(const struct model *md, const struct maple_want *w, uintptr_t *first)
{
    bool found = false;
    uintptr_t start = 0, at;
    for (size_t i = 0; i <= md->n; i++) {
        bool any = i == md->n ? md->n == 0 || md->r[i - 1].last < UINTPTR_MAX : md->r[i].first > start;
        uintptr_t end = i == md->n ? UINTPTR_MAX : md->r[i].first - 1;
        if (any && place_in(w, start, end, &at)) {
            *first = at;
            found = true;
            if (!w->high)
                return true;
        }
        start = i < md->n ? md->r[i].last + 1 : 0;
    }
    return found;
}

bool range_equal(const struct maple_range *a, const struct maple_range *b)
{
    return a->first == b->first && a->last == b->last && a->entry == b->entry;
}

void model_compare(const struct model *md, struct maple *m)
{
    struct maple_cursor c;
    struct maple_range r;
    maple_check(m);
    maple_cursor_init(&c, m, 0);
    for (size_t i = 0; i < md->n; i++) {
        EXPECT_EQ(maple_next(&c, &r), 0);
        EXPECT(range_equal(&r, &md->r[i]));
    }
    EXPECT_EQ(maple_next(&c, &r), -ENOENT);
    maple_cursor_init(&c, m, UINTPTR_MAX);
    for (size_t i = md->n; i-- > 0;) {
        EXPECT_EQ(maple_prev(&c, &r), 0);
        EXPECT(range_equal(&r, &md->r[i]));
    }
    EXPECT_EQ(maple_prev(&c, &r), -ENOENT);
}

static int add_range(void *arg, const struct maple_range *r)
{
    struct model *md = arg;
    MUST(md->n < MODEL_MAX);
    md->r[md->n++] = *r;
    return 0;
}

void model_copy(struct model *md, struct maple *m)
{
    md->n = 0;
    EXPECT_EQ(maple_walk(m, add_range, md), 0);
}

void build_blocks(struct maple *m, struct model *md, unsigned ranges)
{
    for (uintptr_t i = 0; i < ranges; i++) {
        EXPECT_EQ(maple_store(m, 100 * i, 100 * i + 99, bounds_entry(100 * i, 100 * i + 99)), 0);
        if (md != NULL)
            model_store(md, 100 * i, 100 * i + 99, bounds_entry(100 * i, 100 * i + 99));
    }
}
