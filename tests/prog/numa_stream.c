/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects that are born on one node and die on another: numa_stream [--messages N] [--judge PERCENT]
 *
 * A producer on the first node sends messages of 16 B to 2 KiB through a ring to a consumer on the last node, which
 * checks and frees them. Says where the pages of one in some thousand messages lay, and how the resident size went.
 * Judged: the largest resident size in the last quarter of the messages is no more than PERCENT and 4 MiB above that in
 * the quarter before.
 */
#include "numa_util.h"

enum { RING = 4096, SAMPLES = 4096 };

struct message {
    uint64_t number;
    uint32_t size;
};

static struct message *ring[RING];
static atomic_ulong sent, taken;
static unsigned long messages;
static long rss_early, rss_late, rss_end; /* KiB: the most in the third quarter, in the last one; at the end */
static struct placement where;

static void produce(struct worker *w)
{
    uint64_t seed = 5;
    (void)w;
    for (unsigned long i = 0; i < messages; i++) {
        size_t size = rng_size(&seed, 11);
        struct message *m = malloc(size);
        CHECK(m);
        touch_pages((unsigned char *)m, size);
        *m = (struct message){i, (uint32_t)size};
        while (i - atomic_load_explicit(&taken, memory_order_acquire) >= RING)
            sched_yield();
        ring[i % RING] = m;
        atomic_store_explicit(&sent, i + 1, memory_order_release);
    }
}

static void look(unsigned long i, struct message *m)
{
    uintptr_t page = (uintptr_t)m & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    if (i % (messages / SAMPLES + 1) == 0)
        place_pages(&where, &page, 1);
    if (i % (messages / 100 + 1) != 0 || i < messages / 2)
        return;
    long *most = i < messages / 4 * 3 ? &rss_early : &rss_late;
    rss_end = status_kib("VmRSS:");
    *most = rss_end > *most ? rss_end : *most;
}

static void consume(struct worker *w)
{
    (void)w;
    for (unsigned long i = 0; i < messages; i++) {
        while (atomic_load_explicit(&sent, memory_order_acquire) == i)
            sched_yield();
        struct message *m = ring[i % RING];
        if (m->number != i)
            FAIL("message %lu came as %lu", (unsigned long)m->number, i);
        look(i, m);
        free(m);
        atomic_store_explicit(&taken, i + 1, memory_order_release);
    }
}

int main(int argc, char **argv)
{
    double bar = judge_percent(argc, argv);
    messages = (unsigned long)option_count(argc, argv, "--messages", 10000000);
    CHECK(messages >= 1000);
    numa_scan();
    need_nodes(2);
    const struct node *first = &nodes[0], *last = &nodes[node_count - 1];
    struct worker producer = {0, first, 0, produce, NULL}, consumer = {0, last, 0, consume, NULL};
    worker_start(&consumer);
    worker_start(&producer);
    worker_join(&producer);
    worker_join(&consumer);
    printf("on the producer's node: %.2f %%\n", percent(where.on[first->memory], where.pages));
    printf("on the consumer's node: %.2f %%\n", percent(where.on[last->memory], where.pages));
    printf("resident, KiB: %ld in the third quarter, %ld in the last, %ld at the end\n", rss_early, rss_late, rss_end);
    printf("grew: %.1f %%\n", percent(rss_late - rss_early, rss_early));
    fflush(stdout);
    CHECK(rss_early > 0 && where.pages > 0);
    if (bar < 0 || (double)rss_late <= (double)rss_early * (1 + bar / 100) + 4096)
        return 0;
    /* A return, not FAIL: what the allocator writes at exit is wanted all the same. */
    fprintf(stderr, "FAIL %s:%d: memory grew from %ld to %ld KiB\n", __FILE__, __LINE__, rss_early, rss_late);
    return 1;
}
