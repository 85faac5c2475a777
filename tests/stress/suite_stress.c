/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stress programs under preload, for 1, 2, 8 and 64 threads and several seeds. SHEAF_STRESS_OPS, when set, is the
 * number of operations of each run: more for a night, fewer under an emulator.
 */
#include "lib_child.h"

#define SEEDS 3

static void stress(const char *conf, const char *program, const char *threads, const char *default_ops)
{
    const char *ops = getenv("SHEAF_STRESS_OPS");
    for (int seed = 1; seed <= SEEDS; seed++) {
        char seed_text[16];
        snprintf(seed_text, sizeof seed_text, "%d", seed);
        struct child_result r =
            child_run_conf(conf, program, "-t", threads, "-s", seed_text, "-n", ops && *ops ? ops : default_ops);
        EXPECT_CHILD_OK(r);
        if (r.err_len != 0)
            TEST_FAIL("%s:%d: on stderr: %s", __FILE__, __LINE__, r.err);
        child_free(&r);
    }
}

TEST(stress_mixed, threads_1) { stress(NULL, "stress_mixed", "1", "200000"); }
TEST(stress_mixed, threads_2) { stress(NULL, "stress_mixed", "2", "200000"); }
TEST(stress_mixed, threads_8) { stress(NULL, "stress_mixed", "8", "200000"); }
TEST(stress_mixed, threads_64) { stress(NULL, "stress_mixed", "64", "200000"); }

TEST(stress_churn, threads_1) { stress(NULL, "stress_churn", "1", "100000"); }
TEST(stress_churn, threads_2) { stress(NULL, "stress_churn", "2", "100000"); }
TEST(stress_churn, threads_8) { stress(NULL, "stress_churn", "8", "200000"); }
TEST(stress_churn, threads_64) { stress(NULL, "stress_churn", "64", "200000"); }

TEST(stress_own, threads_4) { stress(NULL, "stress_own", "4", "12000"); }

/* Every operation checked at the call. */
TEST(stress_hardened, mixed) { stress("hardened:true", "stress_mixed", "8", "40000"); }
TEST(stress_hardened, churn) { stress("hardened:true", "stress_churn", "8", "40000"); }

/* Wrong use ends the process: right use must not be taken for it. */
TEST(stress_strict, mixed) { stress("strict:true", "stress_mixed", "8", "100000"); }

/* Sheaves of the kernel's size: more visits to the barn, other boundaries. */
TEST(stress_small_sheaves, mixed) { stress("sheaf_cap:32", "stress_mixed", "8", "100000"); }
