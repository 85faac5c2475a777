/* SPDX-License-Identifier: BSD-2-Clause */
#include "unit.h"

#include "compat/os/sys.h"
#include "compat/os/tls.h"
#include "core/alloc.h"
#include "core/fast.h"
#include "core/life.h"
#include "core/limit.h"
#include "core/reclaim.h"
#include "core/slab.h"

#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The pcp is sized before anything lies on its lists, as in a real process. */
__attribute__((constructor)) static void start(void)
{
    life_start();
}

/* ---- randomness ---- */

uint64_t unit_random(uint64_t *seed)
{
    uint64_t x = *seed += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 29) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

size_t unit_below(uint64_t *seed, size_t n)
{
    return (size_t)(unit_random(seed) >> 16) % n;
}

/* ---- stamps ---- */

static unsigned char stamp_byte(size_t i, uint64_t id)
{
    return (unsigned char)((id * 0x9e3779b97f4a7c15u >> 32) + i * 7 + (i >> 8));
}

void unit_stamp(void *p, size_t size, uint64_t id)
{
    unsigned char *b = p;
    for (size_t i = 0; i < size; i++)
        b[i] = stamp_byte(i, id);
}

bool unit_stamped(const void *p, size_t size, uint64_t id)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < size; i++)
        if (b[i] != stamp_byte(i, id))
            return false;
    return true;
}

bool unit_is_zero(const void *p, size_t size)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < size; i++)
        if (b[i] != 0)
            return false;
    return true;
}

/* ---- standard error ---- */

static int saved_stderr = -1, capture_pipe = -1;

void unit_capture(void)
{
    int fds[2];
    MUST(pipe(fds) == 0);
    saved_stderr = dup(2);
    MUST(saved_stderr >= 0 && dup2(fds[1], 2) == 2);
    close(fds[1]);
    capture_pipe = fds[0];
}

static void read_all(int fd, char *buf, size_t size)
{
    size_t len = 0;
    ssize_t n;
    char rest[256];
    while ((n = len + 1 < size ? read(fd, buf + len, size - 1 - len) : read(fd, rest, sizeof rest)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        MUST(n > 0);
        if (len + 1 < size)
            len += (size_t)n;
    }
    buf[len] = '\0';
}

const char *unit_captured(char *buf, size_t size)
{
    dup2(saved_stderr, 2);
    close(saved_stderr);
    read_all(capture_pipe, buf, size);
    close(capture_pipe);
    return buf;
}

/* ---- children ---- */

static void plain_signals(void)
{
    static const int fatal[] = {SIGABRT, SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGFPE};
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i], SIG_DFL); /* sanitizers and Criterion have their own */
}

/* qemu-user writes a line of its own when a signal ends the program. */
static void cut_emulator_line(char *text)
{
    char *at = strstr(text, "qemu: uncaught target signal");
    if (at != NULL)
        *at = '\0';
}

void unit_child(struct unit_child *out, void (*body)(void *), void *arg)
{
    int fds[2];
    MUST(pipe(fds) == 0);
    fflush(NULL);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        plain_signals();
        dup2(fds[1], 2);
        close(fds[0]);
        close(fds[1]);
        body(arg);
        _exit(0);
    }
    close(fds[1]);
    read_all(fds[0], out->text, sizeof out->text);
    close(fds[0]);
    cut_emulator_line(out->text);
    while (waitpid(pid, &out->status, 0) < 0)
        MUST(errno == EINTR);
}

void unit_alone(void (*body)(void *), void *arg)
{
    struct unit_child c;
    unit_child(&c, body, arg);
    if (c.status != 0)
        TEST_FAIL("child ended with status 0x%x: %s", c.status, c.text);
}

static void expect_abort(const struct unit_child *c)
{
    if (!WIFSIGNALED(c->status) || WTERMSIG(c->status) != SIGABRT)
        TEST_FAIL("child did not abort, status 0x%x: %s", c->status, c->text);
}

void unit_dies(void (*body)(void *), void *arg, const char *line)
{
    struct unit_child c;
    unit_child(&c, body, arg);
    expect_abort(&c);
    size_t n = strlen(line);
    if (strncmp(c.text, line, n) != 0 || strcmp(c.text + n, "\n") != 0)
        TEST_FAIL("child said \"%s\", not \"%s\"", c.text, line);
}

void unit_dies_saying(void (*body)(void *), void *arg, const char *prefix)
{
    struct unit_child c;
    unit_child(&c, body, arg);
    expect_abort(&c);
    if (strncmp(c.text, prefix, strlen(prefix)) != 0)
        TEST_FAIL("child said \"%s\", not \"%s...\"", c.text, prefix);
}

void unit_fork_handlers(void)
{
    static bool done;
    if (!done)
        pthread_atfork(life_fork_prepare, life_fork_parent, life_fork_child);
    done = true;
}

__thread void (*unit_madvise_hook)(void);
__thread int unit_madvise_error;

static struct {
    long calls, k; /* calls: relaxed counter */
    bool forever;
    int answer;
} fault;

long unit_madvise_fails(long k, bool forever, int answer)
{
    long calls = load_relaxed(&fault.calls);
    fault.k = k;
    fault.forever = forever;
    fault.answer = answer;
    store_relaxed(&fault.calls, 0);
    return calls;
}

int madvise(void *p, size_t size, int advice)
{
    if (unit_madvise_hook != NULL)
        unit_madvise_hook();
    if (unit_madvise_error != 0) {
        errno = unit_madvise_error;
        unit_madvise_error = 0;
        return -1;
    }
    long call = add_relaxed(&fault.calls, 1) + 1;
    if (fault.k != 0 && (call == fault.k || (fault.forever && call > fault.k))) {
        if (fault.answer > 0)
            errno = fault.answer;
        return fault.answer > 0 ? -1 : 0;
    }
    long ret = sys_call3(SYS_madvise, (long)p, (long)size, advice);
    if (ret < 0)
        errno = (int)-ret;
    return ret < 0 ? -1 : 0;
}

/* ---- threads ---- */

/* TSan ends its thread in the last round of key destructors, before us: whatever of ours is instrumented and comes later
 * finds no thread. There each thread says goodbye itself. */
extern void tsan_init_symbol(void) __asm__("__tsan_init") __attribute__((weak));

struct job {
    void (*numbered)(unsigned);
    void (*single)(void *);
    void *arg;
    unsigned i;
    pthread_t thread;
};

static void *run_job(void *arg)
{
    struct job *j = arg;
    if (j->numbered != NULL)
        j->numbered(j->i);
    else
        j->single(j->arg);
    if (tsan_init_symbol != NULL)
        tcache_detach();
    return NULL;
}

static void arm_thread_exit(void)
{
    static bool done;
    if (!done && tsan_init_symbol == NULL)
        tls_exit_init(tcache_detach);
    done = true;
}

void unit_threads(unsigned n, void (*body)(unsigned))
{
    struct job jobs[64];
    MUST(n <= 64);
    arm_thread_exit();
    for (unsigned i = 0; i < n; i++) {
        jobs[i] = (struct job){.numbered = body, .i = i};
        MUST(pthread_create(&jobs[i].thread, NULL, run_job, &jobs[i]) == 0);
    }
    for (unsigned i = 0; i < n; i++)
        pthread_join(jobs[i].thread, NULL);
}

void unit_thread(void (*body)(void *), void *arg)
{
    struct job j = {.single = body, .arg = arg};
    arm_thread_exit();
    MUST(pthread_create(&j.thread, NULL, run_job, &j) == 0);
    pthread_join(j.thread, NULL);
}

/* ---- the heap ---- */

void unit_fresh(void)
{
    reclaim_trim(0);
}

static void free_slow(void *p)
{
    alloc_free_slow(p, "free");
}

void *unit_malloc(size_t size)
{
    return alloc_fast(size, alloc_slow);
}

void unit_free(void *p)
{
    free_fast(p, free_slow);
}

size_t unit_charged_whole(void)
{
    size_t sum = limit_stats().charged;
    for (class_t c = 0; c < SIZE_CLASSES; c++)
        sum += slab_stats(c, NODE).clean;
    return sum;
}

static cpu_set_t saved_cpus;

void unit_pin(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    sched_getaffinity(0, sizeof saved_cpus, &saved_cpus);
    sched_setaffinity(0, sizeof one, &one);
}

void unit_unpin(void)
{
    sched_setaffinity(0, sizeof saved_cpus, &saved_cpus);
}
