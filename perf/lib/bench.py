# SPDX-License-Identifier: BSD-2-Clause
"""One program under several allocators, interleaved.

Order of work: a look (one run without preload: does the program work, and does it bring a malloc of its own?), one
strace run an allocator, then the timed rounds, each of which begins with the next allocator, so that none is always
first. Every run's proof, exit status and standard output are kept and judged.
"""

import hashlib
import os
import shutil

from . import alloc, build, proof, table, trace, vma


class BenchError(Exception):
    pass


class Once:
    """One timed run: trace.Run, with stdout's digest and bytes (kept only if asked) and the end of stderr."""

    def __init__(self, run, digest, stdout, stderr):
        self.run, self.digest, self.stdout, self.stderr = run, digest, stdout, stderr


class Row:
    """All that was seen of one allocator. vma: beyond the control, None without strace. fail: why the row is void."""

    def __init__(self, allocator):
        self.allocator = allocator
        self.name = allocator.name
        self.runs, self.digests, self.proofs = [], [], []
        self.vma = self.vma_raw = self.vma_control = None
        self.fail = allocator.missing

    def median(self, key):
        return table.median([key(o) for o in self.runs]) if self.runs else None

    wall = property(lambda self: self.median(lambda o: o.wall))
    user = property(lambda self: self.median(lambda o: o.user))
    sys = property(lambda self: self.median(lambda o: o.sys))
    cpu = property(lambda self: self.median(lambda o: o.user + o.sys))
    rss_kib = property(lambda self: self.median(lambda o: o.rss_kib))
    minflt = property(lambda self: self.median(lambda o: o.minflt))

    def proven(self):
        """Words for the table; every run must agree."""
        texts = list(dict.fromkeys(p.text if p else "not seen" for p in self.proofs))
        return "; ".join(texts) if texts else "-"

    def is_proven(self):
        return bool(self.proofs) and all(p and p.ok for p in self.proofs)

    def json(self):
        keys = ("wall", "user", "sys", "rss_kib", "minflt")
        calls = {k: getattr(self, k).calls if getattr(self, k) else None for k in ("vma", "vma_raw", "vma_control")}
        return {"allocator": self.name, "library": self.allocator.path, "fail": self.fail, "served_by": self.proven(),
                "proven": self.is_proven(), "runs": [{k: getattr(r, k) for k in keys} for r in self.runs],
                "median": {k: getattr(self, k) for k in keys + ("cpu",)}, **calls}


class Bench:
    """argv, run under the named allocators. stdin: path; env: more variables; started(pid): called when a run has begun
    (to start a client of a server)."""

    def __init__(self, argv, names=None, sheaf_lib=None, stdin=None, env=None, started=None):
        self.argv, self.stdin, self.started = argv, stdin or os.devnull, started
        self.env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"} | (env or {})
        self.rows = [Row(alloc.find(name, sheaf_lib)) for name in names or alloc.ALL]
        self.brought = None  # path of the malloc that the program brings itself
        self.controls = {}
        if shutil.which(argv[0], path=self.env.get("PATH")) is None:
            raise BenchError(f"{argv[0]}: no such program")

    def env_for(self, path):
        return self.env | ({"LD_PRELOAD": path} if path else {})

    def once(self, argv, path, hook=None, keep=False):
        out, err = (os.path.join(build.scratch(), f) for f in ("stdout", "stderr"))

        def at_exit(pid, run):
            run.proof = proof.prove(pid, path)
            if hook:
                run.at_exit = hook(pid)

        with open(self.stdin, "rb") as i, open(out, "w+b") as o, open(err, "w+b") as e:
            run = trace.watch(argv, self.env, path, at_exit, [f.fileno() for f in (i, o, e)], self.started)
            o.seek(0)
            e.seek(0)
            digest = hashlib.file_digest(o, "sha256").hexdigest()
            o.seek(0)
            return Once(run, digest, o.read() if keep else None, e.read()[-400:].decode(errors="replace").strip())

    def look(self):
        """Run it once as it is. Raises BenchError if it fails even so."""
        got = self.once(self.argv, None, lambda pid: proof.others(pid))
        if got.run.status != 0:
            raise BenchError(f"{self.argv[0]} fails without any preload: {status_text(got.run.status)}\n{got.stderr}")
        server = got.run.proof.server if got.run.proof else None
        if got.run.at_exit and server in got.run.at_exit:
            self.brought = server
        for row in self.rows:
            if row.name == "glibc" and self.brought:
                row.allocator.path = alloc.libc_path()
        return got

    def control(self, path, threads, width):
        """VMA syscalls of a program that starts as many threads and allocates nothing, under the same library."""
        key = (path, threads, width)
        if key not in self.controls:
            argv = [build.program("control"), str(threads), str(width)]
            self.controls[key] = vma.measure(argv, self.env_for(path), build.scratch())[0]
        return self.controls[key]

    def count(self, row):
        with open(self.stdin, "rb") as stdin:
            raw, stdout, status = vma.measure(self.argv, self.env_for(row.allocator.path), build.scratch(), stdin,
                                              self.started)
        if status != 0:
            row.fail = f"{status_text(status)} under strace"
            return
        row.digests.append(hashlib.sha256(stdout).hexdigest())
        control = self.control(row.allocator.path, raw.threads, raw.width)
        row.vma_raw = raw
        row.vma_control = control
        row.vma = raw.minus(control)
        if raw.images > 1:
            row.vma = row.vma.minus(self.control(row.allocator.path, 0, 0), raw.images - 1)

    def time(self, row):
        got = self.once(self.argv, row.allocator.path)
        row.proofs.append(got.run.proof)
        if got.run.status != 0:
            row.fail = status_text(got.run.status) + (f": {got.stderr.splitlines()[-1]}" if got.stderr else "")
            return
        row.runs.append(got.run)
        row.digests.append(got.digest)

    def able(self):
        return [row for row in self.rows if not row.fail]

    def measure(self, runs, count=True, say=lambda text: None):
        self.look()
        if count and vma.available():
            for row in self.able():
                say(f"strace: {row.name}")
                try:
                    self.count(row)
                except OSError as e:
                    say(str(e))
        for n in range(runs):
            say(f"round {n + 1} of {runs}")
            for row in self.rows[n % len(self.rows):] + self.rows[:n % len(self.rows)]:
                if not row.fail:
                    self.time(row)
        return self.rows

    def output(self):
        """("same" | "differs" | "varies", words): is standard output the same under every allocator?"""
        rows = [row for row in self.rows if row.digests]
        for row in rows:
            if len(set(row.digests)) > 1:
                return "varies", f"standard output varies from run to run (under {row.name}): not compared"
        if len({row.digests[0] for row in rows}) > 1:
            return "differs", "standard output DIFFERS between allocators: " + ", ".join(
                f"{row.name} {row.digests[0][:8]}" for row in rows)
        return "same", "standard output is the same under every allocator"

    def row(self, name):
        return next((r for r in self.rows if r.name == name and r.runs), None)


def status_text(status):
    return f"exit status {status}" if status >= 0 else f"killed by signal {-status}"
