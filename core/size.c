/* SPDX-License-Identifier: BSD-2-Clause */
#include "size.h"

#define BYTES(high) ((high) << SIZE_UNIT_SHIFT)
#define OBJS(high, slab_order) ((PAGE_BYTES << (slab_order)) / BYTES(high))
/* Objects a whole number of lines apart share no line; else the smallest group that ends on a line boundary. */
#define GROUP(high) ((high) % 4 == 0 ? 1 : (high) % 2 == 0 ? 2 : 4)

const uint8_t size_table[(SIZE_SMALL_MAX >> SIZE_UNIT_SHIFT) + 1] = {
#define SIZE(c, low, high, order) [low... high] = (c),
#include "size.def"
#undef SIZE
};

const struct size_info size_info[SIZE_CLASSES] = {
#define SIZE(c, low, high, slab_order)                                                                                 \
    [c] = {.size = BYTES(high),                                                                                        \
           .order = (slab_order),                                                                                      \
           .group = GROUP(high),                                                                                       \
           .objs = OBJS(high, slab_order),                                                                             \
           .bucket_recip = (SLAB_BUCKETS << 16) / (OBJS(high, slab_order) + 1),                                        \
           .recip = (((uint64_t)1 << SIZE_RECIP_SHIFT) + BYTES(high) - 1) / BYTES(high)},
#include "size.def"
#undef SIZE
};

class_t size_aligned_class(size_t size, size_t align)
{
    if (size > SIZE_SMALL_MAX || align > SIZE_SMALL_MAX)
        return SIZE_CLASSES;
    class_t c = size_to_class(size < align ? align : size);
    while (c < SIZE_CLASSES && (class_to_size(c) & (align - 1)) != 0)
        c++;
    return c;
}
