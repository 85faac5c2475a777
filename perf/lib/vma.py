# SPDX-License-Identifier: BSD-2-Clause
"""VMA syscalls and threads of a program and its children, counted from a raw strace of one run."""

import os
import re
import shutil
import subprocess

CALLS = ["brk", "mmap", "munmap", "mprotect", "mremap", "madvise"]
LINE = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+|\+\+\+)(.*)$")


class Count:
    """calls: name -> number, without those for thread stacks; stacks: the number of those; threads: started in all;
    width: most alive at once in one process (without the first); images: programs executed."""

    def __init__(self):
        self.calls = dict.fromkeys(CALLS, 0)
        self.stacks = self.threads = self.width = self.images = 0

    def total(self):
        return sum(self.calls.values())

    def minus(self, other, times=1):
        out = Count()
        out.calls = {name: n - times * other.calls[name] for name, n in self.calls.items()}
        out.stacks, out.threads, out.width, out.images = self.stacks, self.threads, self.width, self.images
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


class _Stacks:
    """Thread stacks: libc maps them with MAP_STACK, opens them with mprotect, keeps some when their threads die and
    unmaps the rest. How many depends on the order in which threads die, so the control cannot repeat it: what touches a
    stack is set aside by address. Addresses of all traced processes are kept together: a forked child has its
    parent's."""

    def __init__(self):
        self.spans = {}

    def _owner(self, address):
        return next((start for start, end in self.spans.items() if start <= address < end), None)

    def owns(self, name, text):
        """Is this finished call about a stack? text: from the opening bracket to the result."""
        if name == "mmap":
            m = re.search(r"\(\w+, (\d+), .*MAP_STACK.* = 0x([0-9a-f]+)", text)
            if m:
                self.spans[int(m[2], 16)] = int(m[2], 16) + int(m[1])
            return bool(m)
        m = re.match(r"\(0x([0-9a-f]+), (\d+)", text)
        start = self._owner(int(m[1], 16)) if m else None
        if start is not None and name == "munmap":
            del self.spans[start]
        return start is not None


class _Parser:
    """One pass over the lines of strace -f. A call that another thread's line cuts in two is put together first."""

    def __init__(self):
        self.count = Count()
        self.threads = _Threads(self.count)
        self.stacks = _Stacks()
        self.begun = {}  # tid -> first half of a call

    def line(self, line):
        m = LINE.match(line)
        if not m:
            return
        tid, word, rest = int(m[1]), m[2], m[3]
        if word == "+++":
            self.threads.exited(tid)
        elif rest.endswith("<unfinished ...>"):
            self.begun[tid] = rest[:-len("<unfinished ...>")]
            if word in ("clone", "clone3"):
                self.threads.called(tid, rest)
        elif rest.startswith(" resumed>"):
            self.call(tid, word, self.begun.pop(tid, "(") + rest[len(" resumed>"):])
        else:
            if word in ("clone", "clone3"):
                self.threads.called(tid, rest)
            self.call(tid, word, rest)

    def call(self, tid, name, text):
        count = self.count
        value = re.search(r"= (-?\d+)[^=]*$", text)
        if name == "execve":
            count.images += bool(value and value[1] == "0")
        elif name in ("clone", "clone3"):
            if value:
                self.threads.returned(tid, int(value[1]))
        elif name in count.calls:
            if self.stacks.owns(name, text):
                count.stacks += 1
            else:
                count.calls[name] += 1


def parse(lines):
    parser = _Parser()
    for line in lines:
        parser.line(line.rstrip())
    return parser.count


def measure(argv, env, scratch, stdin=None, started=None):
    """(Count, stdout bytes, exit status). env is the program's; strace itself is not preloaded."""
    out = os.path.join(scratch, "strace.out")
    command = ["strace", "-f", "-q", "-s", "0", "-o", out, "-e", "signal=none"]
    command += ["-e", "trace=clone,clone3,execve," + ",".join(CALLS)]
    command += [word for key in sorted(env) if os.environ.get(key) != env[key] for word in ("-E", f"{key}={env[key]}")]
    child = subprocess.Popen(command + ["--"] + argv, stdin=stdin or subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
    if started:
        started(child.pid)
    stdout, stderr = child.communicate()
    with open(out, encoding="utf-8", errors="replace") as f:
        count = parse(f)
    if not count.images:
        raise OSError("strace: " + (stderr.decode(errors="replace").strip() or "no trace"))
    return count, stdout, child.returncode
