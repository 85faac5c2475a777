/* SPDX-License-Identifier: BSD-2-Clause */
/* compat/os/clock.h: the coarse clock, and the look-up in an ELF image. */
#include "unit.h"

#include "compat/os/clock.h"
#include "compat/os/sys.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <time.h>

/* The system call itself, in milliseconds. */
static uint64_t kernel_ms(void)
{
    struct timespec t;
    EXPECT_EQ(sys_call3(SYS_clock_gettime, CLOCK_MONOTONIC_COARSE, (long)&t, 0), 0);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Each reading lies between two of the kernel's: right unit, right clock, never falling. */
TEST(clock, tells_the_kernels_coarse_time)
{
    for (int i = 0; i < 1000; i++) {
        uint64_t before = kernel_ms(), ours = clock_coarse_ms(), after = kernel_ms();
        EXPECT(ours != 0);
        EXPECT(before <= ours && ours <= after);
    }
}

TEST(clock, moves_on)
{
    uint64_t start = clock_coarse_ms();
    struct timespec nap = {0, 1000000};
    for (int i = 0; i < 10000 && clock_coarse_ms() < start + 20; i++)
        nanosleep(&nap, NULL);
    EXPECT(clock_coarse_ms() >= start + 20);
}

TEST(clock, finds_the_functions_of_the_vdso)
{
    const void *vdso = (const void *)getauxval(AT_SYSINFO_EHDR);
    if (vdso == NULL)
        return;
#if defined(__x86_64__)
    const char *name = "__vdso_clock_gettime";
#elif defined(__aarch64__)
    const char *name = "__kernel_clock_gettime";
#else
    return;
#endif
    char *p = clock_image_symbol(vdso, name);
    EXPECT(p != NULL);
    EXPECT(p > (const char *)vdso && p < (const char *)vdso + (1 << 20));
    EXPECT(clock_image_symbol(vdso, "no_such_function") == NULL);
}

/* ---- images made by hand ---- */

enum {
    SHIFT = 0x1000,
    FIRST = 0x40,
    SECOND = 0x80
}; /* the image says it lies at 0x1000; values of the two functions */

struct tiny {
    ElfW(Ehdr) file;
    ElfW(Phdr) part[2];
    ElfW(Dyn) dynamic[5];
    ElfW(Sym) symbol[5];         /* nothing, undefined "second", object "second", "first", "second" */
    uint32_t hash[2];            /* buckets, symbols; nothing else of it is read */
    uint32_t gnu[4 + 2 + 3 + 2]; /* 3 buckets, hashed from 3 on, one bloom word; chains of symbols 3 and 4 */
    char names[16];
};

#define AT(field) (SHIFT + offsetof(struct tiny, field))

static struct tiny tiny_image(bool with_hash, bool with_gnu)
{
    struct tiny t = {
        .file = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64}, .e_phoff = offsetof(struct tiny, part), .e_phnum = 2},
        .part = {{.p_type = PT_DYNAMIC, .p_offset = offsetof(struct tiny, dynamic)},
                 {.p_type = PT_LOAD, .p_vaddr = SHIFT}},
        .dynamic = {{.d_tag = DT_SYMTAB, .d_un.d_ptr = AT(symbol)}, {.d_tag = DT_STRTAB, .d_un.d_ptr = AT(names)}},
        .symbol = {{0},
                   {.st_name = 7, .st_info = STT_FUNC, .st_shndx = SHN_UNDEF, .st_value = SHIFT},
                   {.st_name = 7, .st_info = STT_OBJECT, .st_shndx = 1, .st_value = SHIFT},
                   {.st_name = 1, .st_info = STT_FUNC, .st_shndx = 1, .st_value = SHIFT + FIRST},
                   {.st_name = 7, .st_info = STT_NOTYPE, .st_shndx = 1, .st_value = SHIFT + SECOND}},
        .hash = {1, 5},
        .gnu = {3, 3, 1, 0, 0, 0, /* buckets: */ 0, 3, 0, /* chain: */ 2, 5},
        .names = "\0first\0second",
    };
    int n = 2;
    if (with_hash)
        t.dynamic[n++] = (ElfW(Dyn)){.d_tag = DT_HASH, .d_un.d_ptr = AT(hash)};
    if (with_gnu)
        t.dynamic[n] = (ElfW(Dyn)){.d_tag = DT_GNU_HASH, .d_un.d_ptr = AT(gnu)};
    return t;
}

TEST(clock, reads_either_table_of_an_image)
{
    for (int kind = 1; kind < 4; kind++) {
        struct tiny t = tiny_image((kind & 1) != 0, (kind & 2) != 0);
        EXPECT(clock_image_symbol(&t, "first") == (char *)&t + FIRST);
        EXPECT(clock_image_symbol(&t, "second") == (char *)&t + SECOND);
        EXPECT(clock_image_symbol(&t, "econd") == NULL);
        EXPECT(clock_image_symbol(&t, "firs") == NULL);
    }
}

TEST(clock, an_image_without_the_parts_has_no_functions)
{
    struct tiny t = tiny_image(false, false);
    EXPECT(clock_image_symbol(&t, "first") == NULL);
    t = tiny_image(true, false);
    t.file.e_ident[0] = 0;
    EXPECT(clock_image_symbol(&t, "first") == NULL);
    t = tiny_image(true, false);
    t.file.e_ident[EI_CLASS] = ELFCLASS32;
    EXPECT(clock_image_symbol(&t, "first") == NULL);
    for (int i = 0; i < 2; i++) {
        t = tiny_image(true, false);
        t.part[i].p_type = PT_NULL;
        EXPECT(clock_image_symbol(&t, "first") == NULL);
        t = tiny_image(true, false);
        t.dynamic[i].d_tag = DT_INIT;
        EXPECT(clock_image_symbol(&t, "first") == NULL);
    }
    t = tiny_image(false, true);
    t.gnu[7] = 0; /* no chain begins: nothing is hashed */
    EXPECT(clock_image_symbol(&t, "first") == NULL);
}
