/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Says who serves a process: appends "PROGRAM LIBRARY-OF-MALLOC" to the file named by SHIM_PROOF, once per program
 * started. Preloaded just before the library under test.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A program that takes the address of malloc may have a stub of its own stand for it: then it is the one behind us. */
static int find_malloc(Dl_info *info)
{
    void *served = dlsym(RTLD_DEFAULT, "malloc");
    if (!served || !dladdr(served, info))
        return 0;
    if (strstr(info->dli_fname, ".so"))
        return 1;
    served = dlsym(RTLD_NEXT, "malloc");
    return served && dladdr(served, info);
}

__attribute__((constructor)) static void shim_proof_start(void)
{
    char line[1024];
    Dl_info info;
    const char *path = getenv("SHIM_PROOF");
    if (!path || !find_malloc(&info))
        return;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    int len = snprintf(line, sizeof line, "%s %s\n", program_invocation_short_name, info.dli_fname);
    if (write(fd, line, (size_t)len) != len)
        abort();
    close(fd);
}
