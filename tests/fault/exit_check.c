/* SPDX-License-Identifier: BSD-2-Clause */
/* In libsheaf-fault.so: when the program ends, every module is checked, and the log says how much is mapped. */
#include "fault.h"

#include "compat/os/fmt.h"
#include "compat/os/vm.h"
#include "fault_check.h"

__attribute__((destructor)) static void at_exit(void)
{
    char buf[128];
    struct fmt f = {.buf = buf, .cap = sizeof buf, .fd = -1};
    fault_check_all();
    fmt_add(&f, "calls %zu %zu %zu %zu %zu mapped %zu\n", (size_t)fault_calls(FAULT_MMAP),
            (size_t)fault_calls(FAULT_MUNMAP), (size_t)fault_calls(FAULT_MADVISE), (size_t)fault_calls(FAULT_MREMAP),
            (size_t)fault_calls(FAULT_MBIND), vm_mapped_bytes());
    buf[f.len] = '\0';
    fault_log(buf);
}
