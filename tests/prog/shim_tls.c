/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 1600 bytes of initial-exec TLS: about all that glibc keeps free for libraries opened later. It loads only if the
 * libraries that were there before did not use that room up.
 */
static __thread char shim_tls_area[1600] __attribute__((tls_model("initial-exec"), aligned(16)));

char *shim_tls(void);
char *shim_tls(void)
{
    return shim_tls_area;
}
