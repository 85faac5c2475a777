/* SPDX-License-Identifier: BSD-2-Clause */
/* Beginning and end of threads, blocks that cross between them, small stacks, signals. */
#include "helpers.h"

#include <string.h>

/* R07 */
PROC_TEST(thread, key_destructors_allocate, "@", NULL, "proc_teardown", "keys", proc_count(3000, 100000))
PROC_TEST(thread, key_destructors_allocate_hardened, "@", "hardened:true", "proc_teardown", "keys",
          proc_count(300, 3000))
PROC_TEST(thread, first_call_is_free, "@", NULL, "proc_teardown", "first_free", proc_count(2000, 10000))
PROC_TEST(thread, cxx_thread_locals, "@", NULL, "proc_thread_local", proc_count(1000, 20000))

/* R08 */
PROC_TEST(thread, blocks_freed_elsewhere_are_bounded, "@", NULL, "proc_crossfree", "bounded", proc_count(24, 370))
PROC_TEST(thread, trim_from_a_third_thread, "@", NULL, "proc_crossfree", "third_trim", proc_count(64, 1000))

/* R40 */
PROC_TEST(thread, smallest_stack, "@", NULL, "proc_small_stack", proc_count(100, 2000))
PROC_TEST(thread, smallest_stack_hardened, "@", "hardened:true", "proc_small_stack", proc_count(20, 200))

/* R38: best effort, as the documentation says, and a test only in the long form; glibc's own malloc hangs in it. */
TEST(thread, signal_handler_allocates)
{
    if (!proc_long())
        SKIP("only with SHEAF_TEST_LONG: a promise of best effort");
    proc_quiet("@", NULL, (const char *const[]){"proc_signal", "10000", NULL});
}

/* R41: without restartable sequences everything works. */
TEST(thread, without_rseq)
{
    char *path = child_bin_path("proc_mixed");
    const char *argv[] = {path, "4", proc_count(30000, 1000000), NULL};
    const char *env[] = {"GLIBC_TUNABLES=glibc.pthread.rseq=0", NULL};
    struct child_spec spec = {.argv = argv, .env = env};
    proc_run_quiet(&spec, "4 threads\n");
    free(path);
}
