/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "numa.h"

#include "bits.h"
#include "cpu.h"
#include "fault.h"
#include "sys.h"
#include "vm.h"

#include <errno.h>

/* No id of a node or cpu beyond these is believed when tables are made; the kernel's own limits are 1,024 and 8,192. */
enum { NODE_IDS_MAX = 1 << 14, CPU_IDS_MAX = 1 << 16 };
enum { WORD_BITS = 8 * sizeof(long), SMALL_WORDS = 1024 / WORD_BITS };
enum { DISTANCE_FAR = 255 };       /* what the kernel says at most */
enum { DEFAULT = 0, LOCAL = 4 };   /* policies that are nobody's wish */

struct numa_map *numa_map;
static bool user_policy;

/* ---- which nodes ---- */

struct mask {
    unsigned long small[SMALL_WORDS];
    unsigned long *words; /* small, or a mapping of `size` bytes */
    size_t size;
};

static bool mask_has(const struct mask *m, unsigned bit)
{
    return bit < m->size * 8 && (m->words[bit / WORD_BITS] >> bit % WORD_BITS & 1) != 0;
}

static void mask_drop(struct mask *m)
{
    if (m->words != m->small)
        vm_unmap(m->words, m->size);
}

/* A kernel built for more nodes than the mask holds says EINVAL: try larger ones. */
static bool mask_ask(struct mask *m, const struct numa_system *sys)
{
    m->words = m->small;
    m->size = sizeof m->small;
    long bad = sys->allowed(m->words, m->size * 8);
    for (size_t size = vm_page_size(); bad == -EINVAL && size <= 4 * vm_page_size(); size *= 2) {
        mask_drop(m);
        m->words = vm_map(size, false);
        m->size = size;
        if (m->words == NULL) {
            m->words = m->small;
            return false;
        }
        bad = sys->allowed(m->words, size * 8);
    }
    return bad == 0;
}

static unsigned mask_count(const struct mask *m)
{
    unsigned n = 0;
    for (size_t i = 0; i < m->size / sizeof(long); i++)
        n += (unsigned)__builtin_popcountl(m->words[i]);
    return n;
}

/* What the map is made from. Nobody's answers are trusted: they are cut to these bounds once, here. */
struct plan {
    const struct numa_system *sys;
    struct mask mask;
    bool told; /* somebody knows distances and cpus */
    unsigned node_slots, cpu_slots;
};

static unsigned bounded(int said, unsigned least, unsigned most)
{
    unsigned n = said < 0 ? 0 : (unsigned)said;
    return n < least ? least : n > most ? most : n;
}

/* 0 to itself, so that nobody can say that another node is as near. */
static unsigned distance(const struct plan *p, unsigned a, unsigned b)
{
    int d = p->told && a != b ? p->sys->distance((int)a, (int)b) : 0;
    return a == b ? 0 : d <= 0 || d > DISTANCE_FAR ? DISTANCE_FAR : (unsigned)d;
}

static void plan_slots(struct plan *p)
{
    unsigned above = 0;
    for (unsigned i = 0; i < p->mask.size * 8 && i < NODE_IDS_MAX; i++)
        if (mask_has(&p->mask, i))
            above = i + 1;
    p->node_slots = bounded(p->told ? p->sys->nodes() : 0, above, NODE_IDS_MAX);
    p->cpu_slots = p->told ? bounded(p->sys->cpus(), 0, CPU_IDS_MAX) : 0;
}

/* ---- the map ---- */

static uint16_t *carve(char **at, size_t entries)
{
    uint16_t *p = (uint16_t *)*at;
    *at += align_up(entries * sizeof *p, sizeof(uint32_t));
    return p;
}

static struct numa_map *map_new(unsigned count, const struct plan *p)
{
    size_t words = (size_t)count * count + p->node_slots + p->cpu_slots + 6;
    size_t size =
        align_up(sizeof(struct numa_map) + count * sizeof(uint32_t) + words * sizeof(uint16_t), vm_page_size());
    struct numa_map *m = vm_map(size, true);
    if (m == NULL)
        return NULL;
    char *at = (char *)(m + 1);
    *m = (struct numa_map){.size = size,
                           .count = count,
                           .node_slots = p->node_slots,
                           .cpu_slots = p->cpu_slots,
                           .made_up = p->sys != &numa_real_system,
                           .real = (uint32_t *)at};
    at += count * sizeof *m->real;
    m->order = carve(&at, (size_t)count * count);
    m->home_of_node = carve(&at, m->node_slots);
    m->home_of_cpu = carve(&at, m->cpu_slots);
    return m;
}

/* Marks the nodes that have cpus in home_of_node; all, if nobody says which. */
static void mark_nodes_with_cpus(uint16_t *marks, const struct plan *p)
{
    unsigned marked = 0;
    for (unsigned cpu = 0; cpu < p->cpu_slots; cpu++) {
        int node = p->sys->node_of_cpu((int)cpu);
        if (node >= 0 && (unsigned)node < p->node_slots && mask_has(&p->mask, (unsigned)node)) {
            marked += !marks[node];
            marks[node] = 1;
        }
    }
    for (unsigned i = 0; marked == 0 && i < p->node_slots; i++)
        marks[i] = mask_has(&p->mask, i);
}

/* The marked node nearest to where we are; any if nobody knows. */
static unsigned first_node(const uint16_t *marks, const struct plan *p)
{
    int here = p->sys->here();
    unsigned best = 0, least = UINT32_MAX;
    for (unsigned i = 0; i < p->node_slots; i++) {
        unsigned d = here < 0 || (unsigned)here >= p->node_slots ? DISTANCE_FAR : distance(p, (unsigned)here, i);
        if (marks[i] && d < least) {
            least = d;
            best = i;
        }
    }
    return best;
}

/* The marked nodes into real: the one we are on, then the others, ascending. */
static unsigned number_nodes(uint32_t *real, unsigned most, const uint16_t *marks, const struct plan *p)
{
    unsigned n = 0;
    real[n++] = first_node(marks, p);
    for (unsigned i = 0; i < p->node_slots && n < most; i++)
        if (marks[i] && real[0] != i)
            real[n++] = i;
    return n;
}

static unsigned nearest_to(unsigned node, const struct numa_map *m, const struct plan *p)
{
    unsigned best = 0, least = UINT32_MAX;
    for (unsigned i = 0; i < m->count; i++) {
        unsigned d = distance(p, node, m->real[i]);
        if (d < least) {
            least = d;
            best = i;
        }
    }
    return best;
}

/* Sorted by counting: distances are small numbers, and equal ones stay in the order of their indices. */
static void order_from(unsigned node, struct numa_map *m, const struct plan *p)
{
    uint16_t start[DISTANCE_FAR + 2] = {0};
    uint16_t *row = m->order + (size_t)node * m->count;
    for (unsigned i = 0; i < m->count; i++)
        start[distance(p, m->real[node], m->real[i]) + 1]++;
    for (unsigned d = 1; d <= DISTANCE_FAR + 1; d++)
        start[d] = (uint16_t)(start[d] + start[d - 1]);
    unsigned before = 0;
    for (unsigned i = 0; i < m->count; i++) {
        unsigned at = start[distance(p, m->real[node], m->real[i])]++;
        if (i == node)
            before = at;
        row[at] = (uint16_t)i;
    }
    /* Itself first, whatever somebody says about the others. */
    for (unsigned i = before; i > 0; i--)
        row[i] = row[i - 1];
    row[0] = (uint16_t)node;
}

static void map_fill(struct numa_map *m, const struct plan *p)
{
    for (unsigned i = 0; i < m->node_slots; i++)
        m->home_of_node[i] = (uint16_t)nearest_to(i, m, p);
    for (unsigned i = 0; i < m->cpu_slots; i++) {
        int node = p->sys->node_of_cpu((int)i);
        m->home_of_cpu[i] = node >= 0 && (unsigned)node < m->node_slots ? m->home_of_node[node] : NUMA_NO_HOME;
    }
    for (unsigned i = 0; i < m->count; i++)
        order_from(i, m, p);
}

/* A map for as many nodes as the mask has, which may be a few too many, gives the room to find the right number. */
static struct numa_map *map_make(const struct plan *p, unsigned most)
{
    unsigned allowed = mask_count(&p->mask);
    struct numa_map *rough = map_new(allowed, p), *m = NULL;
    if (rough == NULL)
        return NULL;
    mark_nodes_with_cpus(rough->home_of_node, p);
    unsigned n = number_nodes(rough->real, allowed < most ? allowed : most, rough->home_of_node, p);
    if (n > 1 && (m = map_new(n, p)) != NULL) {
        for (unsigned i = 0; i < n; i++)
            m->real[i] = rough->real[i];
        map_fill(m, p);
    }
    vm_unmap(rough, rough->size);
    return m;
}

void numa_init_from(const struct numa_system *sys, unsigned most, bool (*prepare)(unsigned count))
{
    struct plan p = {.sys = sys};
    int saved = errno;
    most = most < NUMA_NO_HOME ? most : NUMA_NO_HOME;
    if (mask_ask(&p.mask, sys) && mask_count(&p.mask) > 1 && most > 1) {
        /* Before libnuma is there: it tries policies out while it starts. */
        long policy = sys->policy();
        user_policy = policy >= 0 && policy != DEFAULT && policy != LOCAL;
        p.told = sys->open();
        plan_slots(&p);
        struct numa_map *m = map_make(&p, most);
        if (m != NULL && prepare != NULL && !prepare(m->count)) {
            vm_unmap(m, m->size);
            m = NULL;
        }
        store_release(&numa_map, m);
        if (p.told)
            sys->close();
    }
    mask_drop(&p.mask);
    errno = saved;
}

void numa_init(unsigned most, bool (*prepare)(unsigned count))
{
    numa_init_from(&numa_real_system, most, prepare);
}

void numa_reset(void)
{
    struct numa_map *m = numa_map;
    store_release(&numa_map, NULL);
    user_policy = false;
    if (m != NULL)
        vm_unmap(m, m->size);
}

/* ---- questions ---- */

static unsigned home_of_node(const struct numa_map *m, int node)
{
    return node >= 0 && (unsigned)node < m->node_slots ? m->home_of_node[node] : 0;
}

static unsigned home_of_cpu(const struct numa_map *m, unsigned cpu)
{
    return cpu < m->cpu_slots ? m->home_of_cpu[cpu] : NUMA_NO_HOME;
}

unsigned numa_here_slow(const struct numa_map *m)
{
    int node = UNLIKELY(m->made_up) ? -1 : cpu_node_filled();
    if (node >= 0)
        return home_of_node(m, node);
    int cpu = UNLIKELY(m->made_up) ? (int)cpu_current() : cpu_filled();
    unsigned home = cpu >= 0 ? home_of_cpu(m, (unsigned)cpu) : NUMA_NO_HOME;
    return home != NUMA_NO_HOME ? home : home_of_node(m, cpu_node_ask());
}

unsigned numa_home_of_node(int node)
{
    const struct numa_map *m = load_acquire(&numa_map);
    return m == NULL ? 0 : home_of_node(m, node);
}

unsigned numa_home_of_cpu(unsigned cpu)
{
    const struct numa_map *m = load_acquire(&numa_map);
    return m == NULL ? 0 : home_of_cpu(m, cpu);
}

unsigned numa_nearest(unsigned node, unsigned i)
{
    const struct numa_map *m = load_acquire(&numa_map);
    return m == NULL ? 0 : m->order[(size_t)node * m->count + i];
}

unsigned numa_real(unsigned node)
{
    const struct numa_map *m = load_acquire(&numa_map);
    return m == NULL ? 0 : m->real[node];
}

bool numa_user_policy(void)
{
    return user_policy;
}

/* ---- wishes ---- */

enum { PREFERRED = 1, INTERLEAVE = 3, PLACE_IDS = 4096 }; /* nodes with larger numbers are left out */

void numa_place(void *p, size_t size, unsigned node)
{
    const struct numa_map *m = load_acquire(&numa_map);
    unsigned long mask[PLACE_IDS / WORD_BITS] = {0};
    if (m == NULL || user_policy)
        return;
    for (unsigned i = 0; i < m->count; i++)
        if ((node == NUMA_NO_HOME || node == i) && m->real[i] < PLACE_IDS)
            mask[m->real[i] / WORD_BITS] |= 1ul << m->real[i] % WORD_BITS;
    long answer;
    if (!fault_hit(FAULT_MBIND, &answer))
        sys_call6(SYS_mbind, (long)p, (long)size, node == NUMA_NO_HOME ? INTERLEAVE : PREFERRED, (long)mask, PLACE_IDS, 0);
}
