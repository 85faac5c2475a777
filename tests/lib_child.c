/* SPDX-License-Identifier: BSD-2-Clause */
/* See lib_child.h. What the child needs is made before fork; between fork and exec only plain system calls run. */
#define _GNU_SOURCE
#include "lib_child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static char *format(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    if (n < 0)
        TEST_FAIL("%s", "out of memory in the suite");
    return s;
}

const char *child_lib(void)
{
    static char path[PATH_MAX];
    const char *lib = getenv("SHEAF_LIB");
    if (!lib || !*lib)
        TEST_FAIL("%s", "SHEAF_LIB is not set: it must name the built library; use make check");
    if (!realpath(lib, path) || access(path, R_OK) != 0)
        TEST_FAIL("SHEAF_LIB=%s: %s", lib, strerror(errno));
    return path;
}

static char *dir_path(const char *variable, const char *name)
{
    const char *dir = getenv(variable);
    if (!dir || !*dir)
        TEST_FAIL("%s is not set; use make check", variable);
    return format("%s/%s", dir, name);
}

char *child_bin_path(const char *name)
{
    return dir_path("SHEAF_TEST_BIN", name);
}

char *child_src_path(const char *name)
{
    return dir_path("SHEAF_TEST_SRC", name);
}

/* One element of a preload order, absolute where we know it. */
static char *preload_item(const char *item)
{
    if (strcmp(item, "@") == 0)
        return format("%s", child_lib());
    if (strchr(item, '/') || !getenv("SHEAF_TEST_BIN"))
        return format("%s", item);
    static const char *const folders[] = {"", ".libs/"};
    for (int i = 0; i < 2; i++) {
        char *name = format("%s%s", folders[i], item);
        char *path = child_bin_path(name);
        char *real = realpath(path, NULL);
        free(name);
        free(path);
        if (real)
            return real;
    }
    return format("%s", item);
}

char *child_preload(const char *order)
{
    char *rest = format("%s", order ? order : "@"), *save = NULL;
    char *value = format("%s", "");
    for (char *item = strtok_r(rest, ":", &save); item; item = strtok_r(NULL, ":", &save)) {
        char *path = preload_item(item);
        char *longer = format("%s%s%s", value, *value ? ":" : "", path);
        free(path);
        free(value);
        value = longer;
    }
    free(rest);
    return value;
}

/* The child's environment: a NULL-terminated vector of strings, all our own. */
struct env {
    char **v;
    size_t n;
};

static bool same_key(const char *entry, const char *key, size_t len)
{
    return strncmp(entry, key, len) == 0 && (entry[len] == '=' || entry[len] == '\0');
}

static void env_remove(struct env *e, const char *key)
{
    size_t len = strcspn(key, "="), kept = 0;
    for (size_t i = 0; i < e->n; i++) {
        if (same_key(e->v[i], key, len))
            free(e->v[i]);
        else
            e->v[kept++] = e->v[i];
    }
    e->n = kept;
    e->v[kept] = NULL;
}

/* "KEY=value" sets, "KEY" alone removes. */
static void env_apply(struct env *e, const char *entry)
{
    env_remove(e, entry);
    if (!strchr(entry, '='))
        return;
    e->v[e->n++] = format("%s", entry);
    e->v[e->n] = NULL;
}

static struct env env_make(const struct child_spec *spec)
{
    size_t room = 3;
    for (char **p = environ; *p; p++)
        room++;
    for (const char *const *p = spec->env; p && *p; p++)
        room++;
    struct env e = {.v = calloc(room, sizeof *e.v)};
    if (!e.v)
        TEST_FAIL("%s", "out of memory in the suite");
    for (char **p = environ; *p; p++)
        e.v[e.n++] = format("%s", *p);
    env_remove(&e, "LD_PRELOAD");
    env_remove(&e, "SHEAF_CONF");

    char *preload = child_preload(spec->preload);
    if (*preload)
        e.v[e.n++] = format("LD_PRELOAD=%s", preload);
    if (spec->conf)
        e.v[e.n++] = format("SHEAF_CONF=%s", spec->conf);
    e.v[e.n] = NULL;
    free(preload);
    for (const char *const *p = spec->env; p && *p; p++)
        env_apply(&e, *p);
    return e;
}

static void env_free(struct env *e)
{
    for (size_t i = 0; i < e->n; i++)
        free(e->v[i]);
    free(e->v);
}

static int memory_file(void)
{
    int fd = memfd_create("child output", MFD_CLOEXEC);
    if (fd < 0)
        TEST_FAIL("memfd_create: %s", strerror(errno));
    /* Appending, so that a parent and its child that share the file do not write over each other. */
    if (fcntl(fd, F_SETFL, O_APPEND) != 0)
        TEST_FAIL("F_SETFL: %s", strerror(errno));
    return fd;
}

static char *memory_file_read(int fd, size_t *len)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        TEST_FAIL("fstat: %s", strerror(errno));
    char *text = malloc((size_t)st.st_size + 1);
    if (!text)
        TEST_FAIL("%s", "out of memory in the suite");
    size_t got = 0;
    while (got < (size_t)st.st_size) {
        ssize_t n = pread(fd, text + got, (size_t)st.st_size - got, (off_t)got);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    text[got] = '\0';
    *len = got;
    return text;
}

/* The child's side: never returns. Says on its own stderr why it could not start. */
static _Noreturn void child_become(const struct child_spec *spec, char **envp, int in, int out, int err)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    bool ok = dup2(in, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0;
    if (ok && spec->cwd)
        ok = chdir(spec->cwd) == 0;
    if (ok && spec->limit_as) {
        struct rlimit limit = {spec->limit_as, spec->limit_as};
        ok = setrlimit(RLIMIT_AS, &limit) == 0;
    }
    if (ok)
        execvpe(spec->argv[0], (char *const *)spec->argv, envp);
    const char *why = strerrordesc_np(errno);
    dprintf(2, "cannot start %s: %s\n", spec->argv[0], why ? why : "?");
    _exit(127);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Wait with short naps: works the same on every kernel and under emulation. The child stays a zombie until its group
 * has been killed, so the group's number cannot have been reused. */
static void child_wait(pid_t pid, int timeout_s, struct child_result *r)
{
    double end = now_s() + timeout_s;
    struct timespec nap = {0, 500000};
    siginfo_t info = {0};
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
        if (now_s() > end) {
            r->timed_out = true;
            break;
        }
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < 10000000)
            nap.tv_nsec *= 2;
    }
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    r->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    r->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

struct child_result child_run(const struct child_spec *spec)
{
    struct child_result r = {.exit_code = -1};
    struct env env = env_make(spec);
    int in = open(spec->stdin_path ? spec->stdin_path : "/dev/null", O_RDONLY | O_CLOEXEC);
    if (in < 0)
        TEST_FAIL("%s: %s", spec->stdin_path, strerror(errno));
    int out = memory_file(), err = memory_file();
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        TEST_FAIL("fork: %s", strerror(errno));
    if (pid == 0)
        child_become(spec, env.v, in, out, err);
    setpgid(pid, pid); /* both sides do it, so that it holds whoever comes first */
    child_wait(pid, spec->timeout_s ? spec->timeout_s : CHILD_TIMEOUT_S, &r);
    r.out = memory_file_read(out, &r.out_len);
    r.err = memory_file_read(err, &r.err_len);
    close(in);
    close(out);
    close(err);
    env_free(&env);
    return r;
}

struct child_result child_run_argv(const char *conf, const char *const *name_and_args)
{
    size_t n = 0;
    while (name_and_args[n])
        n++;
    const char **argv = calloc(n + 1, sizeof *argv);
    if (!argv)
        TEST_FAIL("%s", "out of memory in the suite");
    memcpy(argv, name_and_args, n * sizeof *argv);
    char *path = child_bin_path(name_and_args[0]);
    argv[0] = path;
    struct child_spec spec = {.argv = argv, .conf = conf};
    struct child_result r = child_run(&spec);
    free(path);
    free(argv);
    return r;
}

void child_free(struct child_result *r)
{
    free(r->out);
    free(r->err);
    r->out = r->err = NULL;
    r->out_len = r->err_len = 0;
}

const char *child_why_bad(const struct child_result *r)
{
    static char why[8192];
    /* The loader only warns when it cannot preload, and runs the program without: that is not a pass. */
    bool not_loaded = strstr(r->err, "cannot be preloaded") != NULL;
    if (r->exit_code == 0 && !r->timed_out && !not_loaded)
        return NULL;
    const char *name = r->signal ? sigabbrev_np(r->signal) : NULL;
    char end[64];
    if (r->timed_out)
        snprintf(end, sizeof end, "child ran out of time");
    else if (r->signal)
        snprintf(end, sizeof end, "child died of SIG%s", name ? name : "?");
    else
        snprintf(end, sizeof end, "child exited with %d", r->exit_code);
    snprintf(why, sizeof why, "%s%s; stderr: %.6000s", end, not_loaded ? " without the library" : "",
             r->err_len ? r->err : "(empty)");
    return why;
}
