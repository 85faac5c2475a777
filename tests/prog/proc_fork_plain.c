/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fork without other threads, and forks of forks: proc_fork_plain single [forks] | nested [depth].
 *
 * single: the child finds the parent's blocks as they were, changes and frees them all and allocates anew; the parent's
 * copies do not notice. nested: each generation starts two busy threads and forks the next one while they run.
 */
#include "proc_util.h"

enum { BLOCKS = 200 };

static struct block blocks[BLOCKS];

static void make_blocks(uint64_t seed)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = block_new(rng_size(&seed, 17));
}

static void free_blocks(void)
{
    for (int i = 0; i < BLOCKS; i++)
        block_free(&blocks[i]);
}

static void single(long forks)
{
    make_blocks(1);
    for (long i = 0; i < forks; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            free_blocks();
            make_blocks((uint64_t)i);
            check_heap(200, NULL, 0);
            free_blocks();
            _exit(0);
        }
        block_free(&blocks[i % BLOCKS]);
        blocks[i % BLOCKS] = block_new(16 + (size_t)i * 8);
        wait_ok(pid, "child", i);
    }
    free_blocks();
}

static void nested(long depth)
{
    atomic_int stop = 0;
    struct busy *t;
    if (depth == 0)
        return;
    t = busy_start(2, 18, &stop);
    make_blocks((uint64_t)depth);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(30);
        free_blocks();
        nested(depth - 1);
        _exit(0);
    }
    wait_ok(pid, "generation", depth);
    busy_stop(t, 2);
    free_blocks();
    every_class(MiB(4));
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    if (strcmp(argv[1], "single") == 0)
        single(arg_count(argc, argv, 2, 200));
    else if (strcmp(argv[1], "nested") == 0)
        nested(arg_count(argc, argv, 2, 6));
    else
        FAIL("unknown command %s", argv[1]);
    printf("done\n");
    return 0;
}
