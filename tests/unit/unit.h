/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the unit tests share: seeded randomness, stamps, children, captured messages.
 *
 * The suite is linked with the debug build of our layers, and its own malloc stays libc's. Under Criterion each test has
 * a process and a fresh heap; under the plain runner all tests share one. So tests compare with what was before, and
 * whatever cannot be undone (address space, constructors, orphans) happens in a forked child.
 */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include "test.h"

#include "compat/os/atomic.h"
#include "core/size.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

/* For threads and forked children, where a failed EXPECT has nowhere to go. */
#define MUST(cond)                                                                                                     \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "FAIL %s:%d: %s\n", __FILE__, __LINE__, #cond);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- randomness: the same sequence in every run ---- */

uint64_t unit_random(uint64_t *seed);
size_t unit_below(uint64_t *seed, size_t n); /* 0..n-1 */

/* ---- stamps: does a block still hold what was written? ---- */

/* What: fill the block with a pattern of id, and see whether it is still there. */
void unit_stamp(void *p, size_t size, uint64_t id);
bool unit_stamped(const void *p, size_t size, uint64_t id);
bool unit_is_zero(const void *p, size_t size);

/* ---- standard error of this process ---- */

/* What: what is written to descriptor 2 from here on goes to a pipe (64 KiB at most) and is returned by the second call,
 * zero-terminated, in the caller's buffer. */
void unit_capture(void);
const char *unit_captured(char *buf, size_t size);

/* ---- children ---- */

struct unit_child {
    int status;      /* of waitpid */
    char text[4096]; /* what it wrote to standard error */
};

/* What: run body in a forked child with core files off and default signals; it leaves by _exit(0) when body returns. */
void unit_child(struct unit_child *out, void (*body)(void *), void *arg);

/* What: fail the test unless body ends well in a child of its own. */
void unit_alone(void (*body)(void *), void *arg);

/* What: fail the test unless body aborts in a child, having said exactly this (or, if prefix, begun so). */
void unit_dies(void (*body)(void *), void *arg, const char *line);
void unit_dies_saying(void (*body)(void *), void *arg, const char *prefix);

/* What: register the fork handlers of life.c, once a process. */
void unit_fork_handlers(void);

/* What: the suite has its own madvise. Once vm_use_libc was called, which lasts (so: in a child), it runs the calling
 * thread's hook first: a shim of the program, in the middle of a purge. If that leaves an errno in unit_madvise_error, the
 * call fails with it, once, and does nothing. */
extern __thread void (*unit_madvise_hook)(void);
extern __thread int unit_madvise_error;

/* What: the suite's madvise fails from now on: the k-th call, or all from the k-th on, by errno `answer`; -1: it says 0 and
 * does nothing. k 0: none. Result: how many calls there were since the last time. */
long unit_madvise_fails(long k, bool forever, int answer);

/* What: does the system hold a process to its limit on address space? qemu-user does not. */
bool unit_limits_hold(void);

/* ---- threads ---- */

enum { UNIT_THREADS = 4 };

/* What: run body(i) in n threads at once, and wait for all. Each ends as a thread of the library does: detached from its
 * cache by the key destructor (under TSan by us). */
void unit_threads(unsigned n, void (*body)(unsigned));

/* What: run body in one thread, which begins without a cache. */
void unit_thread(void (*body)(void *), void *arg);

/* ---- the heap ---- */

enum { NODE = 0 };

/* What: give everything free back, so that a class holds no slab unless objects are live. */
void unit_fresh(void);

/* What: what the limits would have charged if slabs had no clean os pages. */
size_t unit_charged_whole(void);

/* What: malloc and free as programs call them: the hit path, then the slow one. */
void *unit_malloc(size_t size);
void unit_free(void *p);

/* What: keep the calling thread on the cpu it is on, so that it meets one pcp shard; undo. */
void unit_pin(void);
void unit_unpin(void);

#endif
