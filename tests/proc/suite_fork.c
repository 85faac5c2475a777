/* SPDX-License-Identifier: BSD-2-Clause */
/* fork, vfork, posix_spawn: the programs of tests/prog/ that do them, beside busy threads and other libraries'
 * handlers. */
#include "helpers.h"

/* R01 */
PROC_TEST(fork, beside_busy_threads, "@", NULL, "proc_fork_busy", "8", proc_count(120, 10000))
PROC_TEST(fork, beside_busy_threads_hardened, "@", "hardened:true", "proc_fork_busy", "4", proc_count(40, 1000))

/* R02: other libraries' handlers allocate; who registered first differs. */
PROC_TEST(fork, handlers_loaded_before, "shim_atfork1.so:shim_atfork2.so:shim_atfork3.so:@", NULL, "proc_fork_busy",
          "4", proc_count(50, 1000), "handlers")
PROC_TEST(fork, handlers_loaded_after, "@:shim_atfork3.so:shim_atfork2.so:shim_atfork1.so", NULL, "proc_fork_busy", "4",
          proc_count(50, 1000), "handlers")
PROC_TEST(fork, handlers_on_both_sides, "shim_atfork3.so:shim_atfork1.so:@:shim_atfork2.so", NULL, "proc_fork_busy",
          "4", proc_count(30, 1000), "handlers")

/* Handlers that wait for a thread, which allocates until it ends. */
PROC_TEST(fork, handlers_wait_loaded_before, "shim_forkjoin.so:@", NULL, "proc_fork_plain", "single",
          proc_count(50, 1000))
PROC_TEST(fork, handlers_wait_loaded_after, "@:shim_forkjoin.so", NULL, "proc_fork_plain", "single",
          proc_count(50, 1000))

/* R33: how often, not how fast. */
PROC_TEST(fork, and_exec_from_64_threads, "@", NULL, "proc_fork_exec", "64", proc_count(5, 100))

/* R37 */
PROC_TEST(fork, vfork_child_uses_the_heap, "@", NULL, "proc_vfork", proc_count(1000, 10000), "4")

PROC_TEST(fork, posix_spawn, "@", NULL, "proc_spawn", proc_count(80, 2000), "4")
PROC_TEST(fork, without_threads, "@", NULL, "proc_fork_plain", "single", proc_count(150, 5000))
PROC_TEST(fork, without_threads_hardened, "@", "hardened:true", "proc_fork_plain", "single", proc_count(30, 500))
PROC_TEST(fork, of_a_fork, "@", NULL, "proc_fork_plain", "nested", "5")
