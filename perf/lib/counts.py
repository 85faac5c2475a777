# SPDX-License-Identifier: BSD-2-Clause
"""Totals of VMA syscalls, as strace -c adds them up: for programs that make millions of them. vma.py reads a raw trace
instead, and can set thread stacks aside; here the caller takes off a control run that starts the same threads."""

import os
import subprocess

from . import vma


class Totals:
    """calls: name -> number; failed: how many of them returned an error; stdout of the program."""

    def __init__(self, calls, failed, stdout=b""):
        self.calls, self.failed, self.stdout = calls, failed, stdout

    def total(self):
        return sum(self.calls.values())

    def minus(self, other):
        calls = {name: n - other.calls.get(name, 0) for name, n in self.calls.items()}
        return Totals(calls, self.failed - other.failed, self.stdout)


def parse(text):
    """The table of strace -c: "% seconds usecs calls [errors] name"."""
    calls, failed = dict.fromkeys(vma.CALLS, 0), 0
    for line in text.splitlines():
        word = line.split()
        if len(word) >= 5 and word[-1] in calls:
            calls[word[-1]] += int(word[3])
            failed += int(word[4]) if len(word) > 5 else 0
    return Totals(calls, failed)


def measure(argv, env, scratch):
    """Totals of one run. env is the program's; strace itself is not preloaded. Fails: OSError."""
    out = os.path.join(scratch, "strace.totals")
    # seccomp-bpf: other system calls do not stop; without it a counted run of a million rounds takes minutes.
    command = ["strace", "-f", "--seccomp-bpf", "-c", "-o", out, "-e", "trace=" + ",".join(vma.CALLS)]
    command += [word for key in sorted(env) if os.environ.get(key) != env[key] for word in ("-E", f"{key}={env[key]}")]
    done = subprocess.run(command + ["--"] + argv, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        raise OSError(f"status {done.returncode} under strace: {done.stderr.decode(errors='replace').strip()}")
    with open(out, encoding="utf-8", errors="replace") as f:
        totals = parse(f.read())
    totals.stdout = done.stdout
    return totals
