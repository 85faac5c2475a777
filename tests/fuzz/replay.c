/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A main function for a fuzz target where there is no libFuzzer: it runs each input that it is given once, and inputs that
 * it makes up.
 *
 *     replay_TARGET [-n COUNT] [-s SEED] [FILE | FOLDER | FILE.hex]...
 *
 * -n: that many inputs more, made from SEED, SEED + 1 ... A .hex file has an input a line, in hexadecimal; lines that begin
 * with # say something. Which input failed is on standard error. Exits 0, 1, or as the failure has it.
 */
#include "fuzz.h"

#include <dirent.h>
#include <sys/stat.h>

static size_t ran;
static char now_running[4200]; /* for whoever looks at a core file or the last line */

static void run_bytes(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size != 0 ? size : 1); /* its own, so that a checker sees a read beyond it */
    MUST(copy != NULL);
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    ran++;
}

static void run_file(const char *path)
{
    static uint8_t data[FUZZ_BYTES_MAX + 1];
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    snprintf(now_running, sizeof now_running, "%s", path);
    run_bytes(data, n);
}

static unsigned digit(int c)
{
    return (unsigned)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
}

static void run_line(const char *line)
{
    static uint8_t data[FUZZ_BYTES_MAX];
    size_t n = 0;
    for (; n < sizeof data && line[2 * n] > ' ' && line[2 * n + 1] > ' '; n++)
        data[n] = (uint8_t)(digit(line[2 * n]) << 4 | digit(line[2 * n + 1]));
    run_bytes(data, n);
}

static void run_hex(const char *path)
{
    static char line[2 * FUZZ_BYTES_MAX + 64];
    FILE *f = fopen(path, "r");
    MUST(f != NULL);
    for (unsigned i = 1; fgets(line, sizeof line, f) != NULL; i++) {
        snprintf(now_running, sizeof now_running, "%s:%u", path, i);
        if (line[0] != '#')
            run_line(line);
    }
    fclose(f);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void run_folder(const char *path)
{
    static char *names[65536];
    size_t n = 0;
    DIR *d = opendir(path);
    MUST(d != NULL);
    for (struct dirent *e; n < sizeof names / sizeof *names && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.')
            MUST(asprintf(&names[n++], "%s/%s", path, e->d_name) > 0);
    closedir(d);
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++) {
        run_file(names[i]);
        free(names[i]);
    }
}

static void run_path(const char *path)
{
    struct stat st;
    size_t n = strlen(path);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        run_folder(path);
    else if (n > 4 && strcmp(path + n - 4, ".hex") == 0)
        run_hex(path);
    else
        run_file(path);
}

static void run_seed(uint64_t seed)
{
    static uint8_t data[FUZZ_BYTES_MAX];
    snprintf(now_running, sizeof now_running, "seed %llu", (unsigned long long)seed);
    uint64_t state = seed;
    size_t n = unit_below(&state, 8) == 0 ? unit_below(&state, 1024) : unit_below(&state, 256);
    for (size_t i = 0; i < n; i++)
        data[i] = (uint8_t)(unit_random(&state) >> 24);
    run_bytes(data, n);
}

static void say_which(void)
{
    fprintf(stderr, "fuzz %s: in %s\n", fuzz_name, now_running);
}

static void on_signal(int sig)
{
    say_which();
    signal(sig, SIG_DFL);
    raise(sig);
}

static void on_exit_early(void)
{
    if (now_running[0] != '\0')
        say_which();
}

int main(int argc, char **argv)
{
    uint64_t seed = 1;
    unsigned long count = 0;
    static const int fatal[] = {SIGABRT, SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGFPE, SIGTERM};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i], on_signal);
    atexit(on_exit_early);
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-n") == 0 && i + 1 < argc)
            count = strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "-s") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else
            run_path(argv[i]);
    }
    for (unsigned long i = 0; i < count; i++)
        run_seed(seed + i);
    now_running[0] = '\0';
    printf("fuzz %s: %zu inputs, no failure\n", fuzz_name, ran);
    return ran == 0;
}
