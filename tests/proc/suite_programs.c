/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unmodified programs. Each test is a shell script; it runs once as it is and once with the library preloaded into
 * the shell and into everything that the shell starts, in an empty directory each time. What it prints must be the
 * same, and the program's malloc must have been the library's: a second preload writes down who served each program.
 */
#define _GNU_SOURCE
#include "helpers.h"

#include <string.h>

static struct child_result run_script(const char *script, const char *preload, char *dir)
{
    char *proof = proc_text("SHIM_PROOF=%s/.proof", dir), *home = proc_text("HOME=%s", dir);
    char *wrapped = proc_text("exec 2>&1\nset -eu -o pipefail\n%s", script);
    const char *argv[] = {"/bin/bash", "-c", wrapped, NULL};
    const char *env[] = {proof,
                         home,
                         "LC_ALL=C",
                         "TZ=UTC",
                         "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                         "PYTHONHASHSEED=0",
                         "PERL_HASH_SEED=0",
                         NULL};
    struct child_spec spec = {.argv = argv, .preload = preload, .env = env, .cwd = dir};
    struct child_result r = child_run(&spec);
    free(wrapped);
    free(home);
    free(proof);
    return r;
}

/* Was `program` started, and each time served by the library? */
static void check_proof(const char *dir, const char *program)
{
    char *path = proc_text("%s/.proof", dir), *all = proc_slurp(path), *save = NULL;
    int seen = 0;
    for (char *line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *library = strrchr(line, ' ');
        if (!library)
            TEST_FAIL("odd line %s", line);
        *library++ = 0;
        seen += strcmp(line, program) == 0;
        char *real = realpath(library, NULL);
        if (!real || strcmp(real, child_lib()) != 0)
            TEST_FAIL("%s was served by %s", line, library);
        free(real);
    }
    if (!seen)
        TEST_FAIL("%s never ran with the library", program);
    free(all);
    free(path);
}

/* `program` is the name it has as a process, which for python3 is the name it was called by. */
static void same(const char *needs, const char *program, const char *script)
{
    if (!proc_which(needs))
        SKIP("%s is not installed", needs);
    char *dir = proc_temp_dir();
    struct child_result plain = run_script(script, "", dir);
    proc_temp_remove(dir);
    if (plain.exit_code != 0)
        SKIP("%s does not work here even by itself: %s", needs, plain.out);
    dir = proc_temp_dir();
    struct child_result r = run_script(script, "shim_proof.so:@", dir);
    if (r.exit_code != 0)
        TEST_FAIL("%s: exit code %d, signal %d%s: %s", program, r.exit_code, r.signal, r.timed_out ? ", hung" : "",
                  r.out);
    if (strcmp(r.out, plain.out) != 0)
        TEST_FAIL("%s printed: %.3000s; by itself: %.3000s", program, r.out, plain.out);
    EXPECT(r.out_len > 0);
    check_proof(dir, program);
    child_free(&r);
    child_free(&plain);
    proc_temp_remove(dir);
}

TEST(programs, bash)
{
    same("bash", "bash",
         "declare -A seen\n"
         "for i in {1..3000}; do seen[key$((i % 700))]+=x$i; done\n"
         "echo ${#seen[@]} ${seen[key42]}\n"
         "for i in {1..20}; do echo $(echo $i | (read n; echo $((n * n)))); done\n"
         "bash -c 'trap \"echo bye\" EXIT; f() { local n=$1; ((n == 0)) || f $((n - 1)); }; f 200'\n"
         "cat <<< \"${seen[*]:0:3}\"\n");
}

TEST(programs, coreutils)
{
    same(
        "sort", "uniq",
        "seq 1 20000 | sed 's/[05]$//' | sort -n | uniq -c | sort -rn | sed -n 1,20p\n"
        "seq 1 20000 | tac | cut -c1-3 | tr 0-9 a-j | paste - - - | md5sum\n"
        "mkdir -p a/b/c && seq 5000 > a/x && cp -r a d && ls -R d | wc -l && split -l 100 a/x a/b/y && ls a/b | wc -l\n"
        "join <(seq 100 | sort) <(seq 50 150 | sort) | wc -l; od -c a/x | tail -3; fold -w 7 a/x | cksum; rm -r a d\n");
}

TEST(programs, sort)
{
    same("sort", "sort",
         "n=120000; [ -z \"$SHEAF_TEST_LONG\" ] || n=13000000\n" /* 100 MB */
         "seq 1 $n | rev > in\n"
         "sort --parallel=4 -S 4M -T . in | md5sum; sort -n -u in | md5sum; sort -c in || echo unsorted\n");
}

TEST(programs, tar)
{
    same("tar", "tar",
         "mkdir in out && for i in {1..200}; do seq $i > in/file$i; done && ln -s file1 in/link\n"
         "tar -cf all.tar --sort=name --mtime=@0 --owner=0 --group=0 in && md5sum all.tar\n"
         "tar -xf all.tar -C out && diff -r in out/in && tar -tf all.tar | wc -l\n"
         "tar -czf all.tgz in && tar -tzf all.tgz | sort | md5sum\n");
}

TEST(programs, git)
{
    same("git", "git",
         "export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'\n"
         "git config --global user.name n; git config --global user.email e@example.org\n"
         "git config --global init.defaultBranch main\n"
         "git init -q repo && cd repo && for i in {1..50}; do seq $i > f$i; done && git add -A && git commit -qm one\n"
         "seq 1000 > f1 && git rm -q f2 && git commit -qam two && git log --format='%H %s' && git diff --stat HEAD~1\n"
         "git checkout -qb side HEAD~1 && seq 7 > new && git add new && git commit -qm three && git merge -q -m four "
         "main\n"
         "git gc -q && git fsck 2>/dev/null && git log --format=%T && git grep -c 9 HEAD -- f9 f40 && git status "
         "--short\n");
}

#define HELLO_C                                                                                                        \
    "cat > hello.c <<'E'\n#include <stdio.h>\n#include <string.h>\nstatic int fib(int n) { return n < 2 ? n : fib(n "  \
    "- 1)"                                                                                                             \
    " + fib(n - 2); }\nint main(void) { printf(\"hello %d %zu\\n\", fib(20), strlen(\"world\")); return 0; }\nE\n"

#define HELLO_CXX                                                                                                      \
    "cat > hello.cc <<'E'\n#include <iostream>\n#include <map>\n#include <string>\nint main() { "                      \
    "std::map<std::string, int>"                                                                                       \
    " m; for (int i = 0; i < 1000; i++) m[std::to_string(i % 37)] += i; for (auto &e : m) std::cout << e.first << ' "  \
    "' << "                                                                                                            \
    "e.second << '\\n'; try { throw std::string(\"thrown\"); } catch (std::string &s) { std::cout << s << '\\n'; } "   \
    "}\nE\n"

TEST(programs, gcc)
{
    same("gcc", "cc1", HELLO_C "gcc -O2 -Wall hello.c -o hello && ./hello && gcc -O2 -S -o - hello.c | md5sum\n");
}

TEST(programs, gxx)
{
    same("g++", "cc1plus", HELLO_CXX "g++ -O1 hello.cc -o hello && ./hello\n");
}

TEST(programs, clang)
{
    same("clang", "clang", HELLO_C "clang -O2 hello.c -o hello && ./hello && clang -O2 -S -o - hello.c | md5sum\n");
}

#define PYTHON                                                                                                         \
    "python3 - <<'E'\nimport json, threading, re, collections\n"                                                       \
    "d = {str(i): [i] * (i % 50) for i in range(20000)}\nprint(len(json.dumps(d)))\n"                                  \
    "out = [0] * 8\ndef work(n):\n    out[n] = sum(len(str(i) * n) for i in range(5000))\n"                            \
    "t = [threading.Thread(target=work, args=(n,)) for n in range(8)]\n[x.start() for x in t]; [x.join() for x in "    \
    "t]\n"                                                                                                             \
    "print(out, collections.Counter(re.findall('[0-9]', json.dumps(d))).most_common(3))\n"                             \
    "import subprocess\nprint(subprocess.run(['echo', 'child'], capture_output=True).stdout)\n"                        \
    "import os\npid = os.fork()\nif pid == 0:\n    x = [bytes(i) for i in range(3000)]; os._exit(len(x) % 256)\n"      \
    "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 7 ** 4000 % 1000007)\nE\n"

TEST(programs, python3)
{
    same("python3", "python3", PYTHON);
}

TEST(programs, python3_with_malloc)
{
    same("python3", "python3", "export PYTHONMALLOC=malloc\n" PYTHON);
}

TEST(programs, perl)
{
    same("perl", "perl",
         "perl -e 'my %h; $h{$_ % 997} .= \"x$_\" for 1 .. 50000; print scalar(keys %h), \" \", length($h{5}), \"\\n\";"
         " my @a = map { [ $_, \"s\" x ($_ % 90) ] } 1 .. 20000; @a = sort { $b->[1] cmp $a->[1] || $a->[0] <=> "
         "$b->[0] }"
         " @a; print $a[0][0], \" \", `echo child`; my $p = fork; exit 3 if !$p; waitpid $p, 0; print $? >> 8, \"\\n\";"
         " my $s = \"a\" x 1000000; $s =~ s/a{3}/bc/g; print length $s, \"\\n\"'\n");
}

TEST(programs, node)
{
    same("node", "node",
         "node -e 'const m = new Map(); for (let i = 0; i < 100000; i++) m.set(\"k\" + i % 5000, [i]);"
         " const b = Buffer.alloc(1 << 20, \"xy\"); console.log(m.size, b.toString().length, "
         "JSON.stringify([...m]).length);"
         " require(\"zlib\").gzip(b, (e, z) => console.log(e, require(\"zlib\").gunzipSync(z).length));"
         " console.log(require(\"child_process\").execSync(\"echo child\").toString())'\n");
}

TEST(programs, java_version)
{
    same("java", "java", "java -version\n");
}

TEST(programs, java)
{
    same("javac", "java",
         "cat > T.java <<'E'\nimport java.util.*;\npublic class T { public static void main(String[] a) throws "
         "Exception {\n"
         " Map<String, Integer> m = new HashMap<>(); for (int i = 0; i < 200000; i++) m.merge(\"k\" + i % 999, i, "
         "Integer::sum);\n"
         " Thread[] t = new Thread[8]; long[] s = new long[8]; for (int n = 0; n < 8; n++) { int k = n; t[n] = new "
         "Thread(() ->"
         " { for (int i = 0; i < 20000; i++) s[k] += new byte[k * 10 + 1].length; }); t[n].start(); }\n"
         " for (Thread x : t) x.join(); System.out.println(m.get(\"k7\") + \" \" + Arrays.toString(s)); } }\nE\n"
         "java -Xmx64m T.java\n");
}

TEST(programs, sqlite3)
{
    same("sqlite3", "sqlite3",
         "sqlite3 t.db \"create table t(a integer primary key, b text, c int); with recursive n(i) as (select 1 union "
         "all"
         " select i + 1 from n where i < 20000) insert into t select i, 'row ' || i * 7 % 1000, i % 97 from n;"
         " create index x on t(b, c); select c, count(*), max(b) from t group by c order by 2 desc, 1 limit 5;"
         " select count(distinct b) from t; delete from t where c % 2; vacuum; select sum(a), group_concat(c) from"
         " (select a, c from t order by b, a limit 20); pragma integrity_check;\"\n");
}

TEST(programs, xz)
{
    same("xz", "xz",
         "seq 1 120000 > in && xz -1 -T2 --block-size=200KiB -k in && md5sum < in.xz && xz -dc -T2 in.xz | cmp - in && "
         "xz -t"
         " in.xz && echo same\n");
}

TEST(programs, gdb)
{
    same("gdb", "gdb",
         "gdb -nx -batch -ex 'print 6 * 7' -ex 'print sizeof(long)' -ex 'python print(sum(range(1000)))' -ex 'file "
         "/bin/true'"
         " -ex 'run' -ex 'info files' | sed -e 's/process [0-9]*/process/g' -e 's/0x[0-9a-f]*/0x/g' | grep -v -e "
         "'\\.so' -e"
         " vdso -e libthread_db | sed -n 1,20p\n");
}

TEST(programs, cmake)
{
    same("cmake", "cmake",
         "cmake --version | sed -n 1p; cmake -E echo hello; cmake -E make_directory d; cmake -E touch d/f; cmake -E "
         "md5sum d/f\n"
         "echo 'foreach(i RANGE 3000)\nlist(APPEND all \"item${i}\")\nendforeach()\nlist(LENGTH all n)\nstring(MD5 h "
         "\"${all}\")\n"
         "message(STATUS \"${n} ${h}\")' > s.cmake && cmake -P s.cmake\n");
}

TEST(programs, stress_ng)
{
    same("stress-ng", "stress-ng",
         "stress-ng --malloc 4 --malloc-ops 4000 --malloc-bytes 64m --malloc-max 4000 --verify -t 30 --temp-path . "
         ">log 2>&1 ||"
         " { cat log; exit 1; }; echo done\n");
}

/* The benchmark's figures differ from run to run: what the server holds afterwards does not. */
TEST(programs, redis)
{
    if (!proc_which("redis-benchmark"))
        SKIP("redis-benchmark is not installed");
    same("redis-server", "redis-server",
         "redis-server --port 0 --unixsocket r.sock --save '' --appendonly no >log &\n"
         "cli() { redis-cli -s r.sock \"$@\"; }\n"
         "for i in {1..200}; do cli ping >/dev/null 2>&1 && break; sleep 0.05; done\n"
         "redis-benchmark -s r.sock -n 2000 -q -t set,get,incr,lpush,rpush,lpop,sadd,hset,zadd,mset >/dev/null 2>&1\n"
         "cli dbsize; cli llen mylist; cli get key:__rand_int__ | wc -c\n"
         "cli eval 'for i = 1, 5000 do redis.call(\"hset\", \"h\" .. i % 50, i, string.rep(\"v\", i % 300)) end return "
         "1' 0\n"
         "cli hlen h7; cli hget h7 7; cli save; cli debug reload || true; cli dbsize; cli flushall; cli memory purge "
         "|| true\n"
         "cli dbsize; cli shutdown nosave || true; wait\n");
}
