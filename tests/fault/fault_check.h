/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TESTS_FAULT_FAULT_CHECK_H
#define TESTS_FAULT_FAULT_CHECK_H

/* What: the check of every module, on all nodes. Locks: none may be held. Fails: dbg_fail, which aborts. */
void fault_check_all(void);

#endif
