/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Libraries opened at run time: proc_dlopen tls|deepbind|runpath|ifunc|self LIBRARY.
 *
 * tls, deepbind, runpath, ifunc open the shim of that name and call into it. self opens an allocator in a program that
 * was not started with it, and uses it through its handle from two threads, beside libc's own.
 */
#include "proc_util.h"

#include <dlfcn.h>

static void *open_lib(const char *path, int flags)
{
    void *lib = dlopen(path, flags);
    if (!lib)
        FAIL("%s", dlerror());
    return lib;
}

static void *symbol(void *lib, const char *name)
{
    void *p = dlsym(lib, name);
    if (!p)
        FAIL("no %s", name);
    return p;
}

static int call(void *lib, const char *name)
{
    int (*f)(void) = (int (*)(void))symbol(lib, name);
    return f();
}

static void *touch_tls(void *lib)
{
    char *(*tls)(void) = (char *(*)(void))symbol(lib, "shim_tls");
    char *area = tls();
    CHECK(area[0] == 0 && area[1599] == 0);
    memset(area, 1, 1600);
    return area;
}

static void tls(const char *path)
{
    pthread_t t;
    void *lib = open_lib(path, RTLD_NOW), *other;
    void *mine = touch_tls(lib);
    CHECK(pthread_create(&t, NULL, touch_tls, lib) == 0);
    CHECK(pthread_join(t, &other) == 0);
    CHECK(other != mine);
    check_heap(500, mine, 1600);
}

static void runpath(const char *path)
{
    CHECK(dlopen("shim_runpath_inner.so", RTLD_NOW) == NULL);
    CHECK(call(open_lib(path, RTLD_NOW), "shim_runpath_outer") == 42);
}

struct family {
    void *(*malloc)(size_t);
    void *(*realloc)(void *, size_t);
    void (*free)(void *);
};

static void *use_family(void *arg)
{
    const struct family *f = arg;
    unsigned char *p[300];
    for (size_t i = 0; i < 300; i++) {
        p[i] = f->malloc(16 + i * 50);
        CHECK(p[i]);
        memset(p[i], (int)i, 16 + i * 50);
    }
    for (size_t i = 0; i < 300; i++) {
        p[i] = f->realloc(p[i], 32 + i * 100);
        CHECK(p[i] && p[i][0] == (unsigned char)i && p[i][15 + i * 50] == (unsigned char)i);
        f->free(p[i]);
    }
    return arg;
}

static void self(const char *path)
{
    pthread_t t;
    void *lib = open_lib(path, RTLD_NOW | RTLD_LOCAL);
    struct family f = {(void *(*)(size_t))symbol(lib, "malloc"), (void *(*)(void *, size_t))symbol(lib, "realloc"),
                       (void (*)(void *))symbol(lib, "free")};
    CHECK(f.malloc != malloc);
    use_family(&f);
    CHECK(pthread_create(&t, NULL, use_family, &f) == 0);
    CHECK(pthread_join(t, NULL) == 0);
    check_heap(500, NULL, 0);
    CHECK(dlclose(lib) == 0);
    check_heap(500, NULL, 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    if (strcmp(argv[1], "tls") == 0)
        tls(argv[2]);
    else if (strcmp(argv[1], "deepbind") == 0)
        CHECK(call(open_lib(argv[2], RTLD_NOW | RTLD_DEEPBIND), "shim_deepbind") == 0);
    else if (strcmp(argv[1], "runpath") == 0)
        runpath(argv[2]);
    else if (strcmp(argv[1], "ifunc") == 0)
        CHECK(call(open_lib(argv[2], RTLD_NOW), "shim_ifunc") == 42);
    else if (strcmp(argv[1], "self") == 0)
        self(argv[2]);
    else
        FAIL("unknown command %s", argv[1]);
    printf("done\n");
    return 0;
}
