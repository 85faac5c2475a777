/* SPDX-License-Identifier: BSD-2-Clause */
/* core/sheaf.h: the stack with sentinels. */
#include "unit.h"

#include "core/sheaf.h"

enum { ROOM = 40 };

static union {
    struct sheaf s;
    void *words[ROOM + 16];
} mem;

static struct sheaf *made(uint32_t cap)
{
    for (size_t i = 0; i < sizeof mem.words / sizeof *mem.words; i++)
        mem.words[i] = SHEAF_END; /* memory as it comes: full of stale ends */
    sheaf_init(&mem.s, cap, (uint32_t)sheaf_bytes(cap));
    return &mem.s;
}

/* INV-SHEAF-1, INV-SHEAF-2 */
TEST(sheaf, init_sets_both_sentinels_and_clears_stale_ends)
{
    for (uint32_t cap = 0; cap <= ROOM; cap++) {
        struct sheaf *s = made(cap);
        EXPECT_EQ(s->cap, cap);
        EXPECT_EQ(s->n, 0);
        EXPECT_EQ(s->bytes, sheaf_bytes(cap));
        EXPECT(s->slot[0] == NULL);
        EXPECT(s->slot[cap + 1] == SHEAF_END);
        for (uint32_t i = 1; i <= cap; i++)
            EXPECT(s->slot[i] != SHEAF_END);
    }
}

TEST(sheaf, holds_exactly_its_capacity_last_in_first_out)
{
    static char objs[ROOM + 1];
    for (uint32_t cap = 0; cap <= ROOM; cap++) {
        struct sheaf *s = made(cap);
        void **top = s->slot;
        for (uint32_t i = 0; i < cap; i++) {
            EXPECT(sheaf_push(&top, &objs[i]));
            EXPECT_EQ(sheaf_count(s, top), i + 1);
        }
        EXPECT(!sheaf_push(&top, &objs[cap]));
        EXPECT_EQ(sheaf_count(s, top), cap);
        for (uint32_t i = cap; i > 0; i--)
            EXPECT(sheaf_pop(&top) == &objs[i - 1]);
        EXPECT(sheaf_pop(&top) == NULL);
        EXPECT(top == s->slot);
    }
}

/* INV-SHEAF-2: what pops leave behind above top never looks like the end. */
TEST(sheaf, random_walk_equals_a_plain_stack)
{
    static char objs[ROOM];
    uint64_t seed = 1;
    struct sheaf *s = made(ROOM);
    void **top = s->slot, *model[ROOM];
    unsigned n = 0;
    for (int step = 0; step < 20000; step++) {
        unsigned up = step / 500 % 2 == 0 ? 7 : 3; /* drift to full, then to empty */
        if (unit_below(&seed, 10) < up) {
            void *p = &objs[unit_below(&seed, ROOM)];
            EXPECT_EQ(sheaf_push(&top, p), n < ROOM);
            if (n < ROOM)
                model[n++] = p;
        } else {
            void *p = sheaf_pop(&top);
            EXPECT(p == (n == 0 ? NULL : model[n - 1]));
            n -= n > 0;
        }
        EXPECT_EQ(sheaf_count(s, top), n);
        EXPECT(s->slot[0] == NULL && s->slot[ROOM + 1] == SHEAF_END);
        for (unsigned i = 1; i <= ROOM; i++)
            EXPECT(s->slot[i] != SHEAF_END);
    }
}

TEST(sheaf, room_is_what_fits)
{
    for (size_t cap = 0; cap < 600; cap++) {
        EXPECT_EQ(sheaf_room(sheaf_bytes(cap)), cap);
        EXPECT_EQ(sheaf_room(sheaf_bytes(cap) + sizeof(void *) - 1), cap);
        EXPECT_EQ(sheaf_bytes(cap), offsetof(struct sheaf, slot) + (cap + 2) * sizeof(void *));
    }
}
