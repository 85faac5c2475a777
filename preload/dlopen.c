/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dlopen without RTLD_DEEPBIND.
 *
 * A module opened with RTLD_DEEPBIND looks for malloc in its own dependencies first, finds the C library's and from then
 * on mixes two heaps with the rest of the process: a string that libc allocated through us is freed into glibc's heap.
 * So the flag is taken out of the mode, unless the option deepbind:keep asks for it.
 *
 * The real dlopen must see the return address of the true caller: the object it lies in decides RUNPATH, $ORIGIN and the
 * name space. A wrapper in C would put our own object there, so the wrapper is three instructions that change one
 * argument register and jump. The gate tests/gate/thunk checks that they stay a jump.
 *
 *     caller -> dlopen: mode &= dlopen_mode_mask; jump *dlopen_real
 *                                                       |-> dlopen_first: dlopen_resolve(), jump *dlopen_real
 *                                                       '-> the C library's dlopen, from then on
 *
 * Place in the layers: level 11, calls nothing of ours. Only the names of dlopen.h are for others.
 */
#include "preload/dlopen.h"

#include <dlfcn.h>
#include <stddef.h>

typedef void *dlopen_fn(const char *file, int mode);

#define HIDDEN_USED __attribute__((used, visibility("hidden")))

/*
 * The names the assembly below uses. Each is one aligned word; the first caller of dlopen resolves the real one, so that
 * a program that never calls it pays no look-up at its start. Every writer writes the same value, so relaxed is enough,
 * and the assembly reads with one plain load.
 */
extern dlopen_fn dlopen_first __attribute__((visibility("hidden")));
HIDDEN_USED int dlopen_mode_mask = ~RTLD_DEEPBIND;
HIDDEN_USED dlopen_fn *dlopen_real = dlopen_first;
HIDDEN_USED void dlopen_resolve(void);

/* Stands in for the real one where the process has none (a static dlsym, a C library before 2.34 without libdl). */
static void *dlopen_none(const char *file, int mode)
{
    (void)file;
    (void)mode;
    return NULL;
}

void dlopen_resolve(void)
{
    void *found = dlsym(RTLD_NEXT, "dlopen");
    dlopen_fn *real = found ? (dlopen_fn *)found : dlopen_none;
    __atomic_store_n(&dlopen_real, real, __ATOMIC_RELAXED);
}

void dlopen_init(int keep_deepbind)
{
    if (keep_deepbind)
        __atomic_store_n(&dlopen_mode_mask, ~0, __ATOMIC_RELAXED);
}

#if defined __x86_64__ /* if: the jump is written per instruction set */

#if defined __CET__ && (__CET__ & 1) /* if: a landing pad where indirect branches are tracked */
#define LANDING "endbr64\n"
#else
#define LANDING ""
#endif

/*
 * Entry of dlopen_first: the stack is 8 short of 16-byte alignment; two saved registers and a gap of 8 align it. The
 * resolver may change any other register that a call may change, and the real dlopen takes its arguments in these two.
 */
__asm__(".pushsection .text\n"
        ".globl dlopen\n"
        ".type dlopen, @function\n"
        ".p2align 4\n"
        "dlopen:\n"
        ".cfi_startproc\n" LANDING "    andl dlopen_mode_mask(%rip), %esi\n"
        "    jmp *dlopen_real(%rip)\n"
        ".cfi_endproc\n"
        ".size dlopen, .-dlopen\n"

        ".globl dlopen_first\n"
        ".hidden dlopen_first\n"
        ".type dlopen_first, @function\n"
        ".p2align 4\n"
        "dlopen_first:\n"
        ".cfi_startproc\n" LANDING "    pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    call dlopen_resolve\n"
        "    addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    jmp *dlopen_real(%rip)\n"
        ".cfi_endproc\n"
        ".size dlopen_first, .-dlopen_first\n"
        ".popsection\n");

#elif defined __aarch64__ /* if: the jump is written per instruction set */

/*
 * hint #34 is "bti c", a landing pad that older cores take for a nop. x16 and x17 are the registers a jump may come
 * through to such a pad; the linker may use them between functions only.
 */
__asm__(".pushsection .text\n"
        ".globl dlopen\n"
        ".type dlopen, %function\n"
        ".p2align 4\n"
        "dlopen:\n"
        ".cfi_startproc\n"
        "    hint #34\n"
        "    adrp x16, dlopen_mode_mask\n"
        "    ldr w16, [x16, #:lo12:dlopen_mode_mask]\n"
        "    and w1, w1, w16\n"
        "    adrp x16, dlopen_real\n"
        "    ldr x16, [x16, #:lo12:dlopen_real]\n"
        "    br x16\n"
        ".cfi_endproc\n"
        ".size dlopen, .-dlopen\n"

        ".globl dlopen_first\n"
        ".hidden dlopen_first\n"
        ".type dlopen_first, %function\n"
        ".p2align 4\n"
        "dlopen_first:\n"
        ".cfi_startproc\n"
        "    hint #34\n"
        "    stp x29, x30, [sp, #-32]!\n"
        ".cfi_def_cfa_offset 32\n"
        ".cfi_offset 29, -32\n"
        ".cfi_offset 30, -24\n"
        "    mov x29, sp\n"
        "    stp x0, x1, [sp, #16]\n"
        "    bl dlopen_resolve\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        ".cfi_def_cfa_offset 0\n"
        "    adrp x16, dlopen_real\n"
        "    ldr x16, [x16, #:lo12:dlopen_real]\n"
        "    br x16\n"
        ".cfi_endproc\n"
        ".size dlopen_first, .-dlopen_first\n"
        ".popsection\n");

#else

/*
 * Other instruction sets: a plain call. The compiler makes a jump of it at -O2 where the machine allows, but nobody
 * promises that; where it does not, a library that calls dlopen with a bare file name loses its own RUNPATH.
 */
void *dlopen_first(const char *file, int mode)
{
    dlopen_resolve();
    return __atomic_load_n(&dlopen_real, __ATOMIC_RELAXED)(file, mode);
}

__attribute__((visibility("default"))) void *dlopen(const char *file, int mode)
{
    dlopen_fn *real = __atomic_load_n(&dlopen_real, __ATOMIC_RELAXED);
    return real(file, mode & __atomic_load_n(&dlopen_mode_mask, __ATOMIC_RELAXED));
}

#endif
