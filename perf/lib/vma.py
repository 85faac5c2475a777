# SPDX-License-Identifier: BSD-2-Clause
"""VMA syscalls and threads of a program and its children, counted from a raw strace of one run."""

import os
import re
import shutil
import subprocess

CALLS = ["brk", "mmap", "munmap", "mprotect", "mremap", "madvise"]
LINE = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+|\+\+\+)(.*)$")


class Count:
    """calls: name -> number; threads: started in all; width: most alive at once in one process (without the first);
    images: programs executed."""

    def __init__(self):
        self.calls = dict.fromkeys(CALLS, 0)
        self.threads = self.width = self.images = 0

    def total(self):
        return sum(self.calls.values())

    def minus(self, other, times=1):
        out = Count()
        out.calls = {name: n - times * other.calls[name] for name, n in self.calls.items()}
        out.threads, out.width, out.images = self.threads, self.width, self.images
        return out


def available():
    return shutil.which("strace") is not None


class _Threads:
    """Who started whom, to know how many threads of a process are alive at once."""

    def __init__(self, count):
        self.count, self.leader, self.alive, self.asked = count, {}, {}, {}

    def called(self, tid, flags):
        self.asked[tid] = "CLONE_THREAD" in flags

    def returned(self, tid, new):
        if not self.asked.pop(tid, False):
            return
        leader = self.leader.get(tid, tid)
        self.leader[new] = leader
        self.alive[leader] = self.alive.get(leader, 0) + 1
        self.count.threads += 1
        self.count.width = max(self.count.width, self.alive[leader])

    def exited(self, tid):
        if tid in self.leader:
            self.alive[self.leader.pop(tid)] -= 1


def parse(lines):
    count = Count()
    threads = _Threads(count)
    for line in lines:
        m = LINE.match(line)
        if not m:
            continue
        tid, word, rest = int(m[1]), m[2], m[3]
        resumed = "resumed>" in rest[:12]
        value = re.search(r"= (-?\d+)[^=]*$", rest)
        if word == "+++":
            threads.exited(tid)
        elif word in count.calls:
            count.calls[word] += not resumed
        elif word == "execve":
            count.images += bool(value and value[1] == "0")
        elif word in ("clone", "clone3"):
            if not resumed:
                threads.called(tid, rest)
            if value and "unfinished" not in rest:
                threads.returned(tid, int(value[1]))
    return count


def measure(argv, env, scratch, stdin=None, cwd=None, started=None):
    """(Count, stdout bytes, exit status). env is the program's; strace itself is not preloaded."""
    out = os.path.join(scratch, "strace.out")
    command = ["strace", "-f", "-q", "-s", "0", "-o", out, "-e", "signal=none"]
    command += ["-e", "trace=clone,clone3,execve," + ",".join(CALLS)]
    command += [word for key in sorted(env) if os.environ.get(key) != env[key] for word in ("-E", f"{key}={env[key]}")]
    child = subprocess.Popen(command + ["--"] + argv, stdin=stdin or subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, cwd=cwd)
    if started:
        started(child.pid)
    stdout, stderr = child.communicate()
    with open(out, encoding="utf-8", errors="replace") as f:
        count = parse(f)
    if not count.images:
        raise OSError("strace: " + (stderr.decode(errors="replace").strip() or "no trace"))
    return count, stdout, child.returncode
