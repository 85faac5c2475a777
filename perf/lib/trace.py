# SPDX-License-Identifier: BSD-2-Clause
"""Start and watch one program.

The program is seized by ptrace with two events only: exec and exit. No system call, no thread and no child of it is
traced, so it runs at full speed, but even the shortest one stops just before its address space goes, where we ask which
malloc it used (proof.py) and what its memory was.

It is forked by a small shell, not by this Python: exec hands the peak memory of the forking process down (ru_maxrss
never says less), and that of a shell is small. What remains of that floor is known: below it the program's own VmHWM at
its exit counts, above it ru_maxrss, which also knows the program's children. Time and faults before the exec are taken
off.

    Python (tracer) -> sh -> (sh: says its pid, waits for the gate) exec PROGRAM

If ptrace is not allowed, /proc is polled instead; then a very short program may end unproven, which is said.
"""

import ctypes
import fcntl
import os
import signal
import time

PTRACE_CONT, PTRACE_SEIZE, PTRACE_LISTEN = 7, 0x4206, 0x4208
O_TRACEEXEC, O_TRACEEXIT, O_EXITKILL = 0x10, 0x40, 0x100000
EVENT_EXEC, EVENT_EXIT, EVENT_STOP = 4, 6, 128
WALL = 0x40000000
STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

# Opens /proc/self/stat in the subshell itself: $$ would be the outer shell's. A shell knows descriptors up to 9 only.
SHELL = """(
    read -r pid rest </proc/self/stat
    echo "$pid" >&8
    read -r gate <&9
    [ -z "$1" ] || export LD_PRELOAD="$1"
    shift
    exec "$@" 8>&- 9<&-
)
exit $?"""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class Run:
    """One run. wall, user, sys in seconds, rss_kib, minflt; status: exit status, negative for a signal; proof;
    at_exit: what the hook returned."""

    def __init__(self):
        self.wall = self.user = self.sys = 0.0
        self.rss_kib = self.minflt = self.status = 0
        self.proof = self.at_exit = None


def _ptrace(request, pid, data=0):
    if _libc.ptrace(request, pid, None, data) == -1:
        raise OSError(ctypes.get_errno(), "ptrace")


def _proc(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def _peak_kib(pid):
    line = next((line for line in _proc(pid, "status").splitlines() if line.startswith("VmHWM:")), None)
    return int(line.split()[1]) if line else 0


def _minflt(pid):
    fields = _proc(pid, "stat").rpartition(")")[2].split()
    return int(fields[7]) if fields else 0


def _cpu_seconds(pid):
    fields = _proc(pid, "schedstat").split()
    return int(fields[0]) / 1e9 if fields else 0.0


class _Watch:
    """The life of one seized program, from its exec to its end."""

    def __init__(self, pid, hook):
        self.pid, self.hook, self.run = pid, hook, Run()
        self.floor_kib = _peak_kib(pid)  # of the shell that becomes the program
        self.own_kib = self.minflt_before = 0
        self.cpu_before = 0.0
        self.seen_exec = False
        self.start = self.paused = 0.0

    def exec_stop(self):
        if not self.seen_exec:
            self.seen_exec = True
            self.minflt_before, self.cpu_before = _minflt(self.pid), _cpu_seconds(self.pid)
            self.start = time.monotonic()

    def exit_stop(self):
        """The address space is still there. Time spent looking is not the program's. A signal that kills the shell
        before its exec brings us here too: nothing to see."""
        before = time.monotonic()
        if self.seen_exec:
            self.own_kib = _peak_kib(self.pid)
            self.hook(self.pid, self.run)
        self.paused += time.monotonic() - before

    def stopped(self, status):
        """(request, data) with which the program goes on."""
        sig, event = os.WSTOPSIG(status), status >> 16
        if event == EVENT_EXEC:
            self.exec_stop()
        elif event == EVENT_EXIT:
            self.exit_stop()
        elif event == EVENT_STOP:
            if sig in STOPS:
                return PTRACE_LISTEN, 0
        else:
            return PTRACE_CONT, sig
        return PTRACE_CONT, 0

    def loop(self):
        self.start = time.monotonic()
        while True:
            _, status, usage = os.wait4(self.pid, WALL)
            if not os.WIFSTOPPED(status):
                self.finish(status, usage)
                return self.run
            request, data = self.stopped(status)
            try:
                _ptrace(request, self.pid, data)
            except OSError:
                pass  # killed while stopped: the next wait says so

    def finish(self, status, usage):
        run = self.run
        run.wall = time.monotonic() - self.start - self.paused
        from_sys = min(self.cpu_before, usage.ru_stime)  # an exec is mostly the kernel's work
        run.sys = usage.ru_stime - from_sys
        run.user = max(0.0, usage.ru_utime - (self.cpu_before - from_sys))
        run.minflt = usage.ru_minflt - self.minflt_before
        run.rss_kib = usage.ru_maxrss if usage.ru_maxrss > self.floor_kib or not self.own_kib else self.own_kib
        run.status = os.waitstatus_to_exitcode(status)


class _Poll(_Watch):
    """Without ptrace: ask now and then, and keep the last answer. The shell's usage is in the figures."""

    def __init__(self, pid, shell, hook):
        super().__init__(pid, hook)
        self.shell = shell

    def loop(self):
        self.start = time.monotonic()
        while True:
            pid, status, usage = os.wait4(self.shell, os.WNOHANG)
            if pid:
                self.finish(status, usage)
                if self.run.status > 128:  # how a shell says "by a signal"
                    self.run.status = 128 - self.run.status
                self.run.rss_kib = self.own_kib or self.run.rss_kib
                return self.run
            self.own_kib = max(self.own_kib, _peak_kib(self.pid))
            if os.path.basename(_exe(self.pid)) not in ("", _exe_of_shell()):
                self.hook(self.pid, self.run)
            time.sleep(0.001)


def _exe(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _exe_of_shell():
    return os.path.basename(os.path.realpath("/bin/sh"))


def _high(fd):
    """The same descriptor with a number that the shell's 8 and 9 cannot hit."""
    new = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)
    os.close(fd)
    return new


def _start(argv, env, preload, fds):
    """(pid of the shell, pid of the program to be, descriptor of the gate)."""
    (told, tell), (wait, gate) = (map(_high, os.pipe()) for _ in range(2))
    actions = [(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in enumerate(fds)]
    actions += [(os.POSIX_SPAWN_DUP2, tell, 8), (os.POSIX_SPAWN_DUP2, wait, 9)]
    shell = os.posix_spawn("/bin/sh", ["sh", "-c", SHELL, "sh", preload or ""] + argv, env, file_actions=actions)
    os.close(tell)
    os.close(wait)
    with os.fdopen(told) as f:
        said = f.readline()
    if not said.strip():
        os.waitpid(shell, 0)
        raise OSError("cannot start a shell")
    return shell, int(said), gate


def watch(argv, env, preload, hook, fds=(0, 1, 2), started=None):
    """Run argv to its end under the preloaded library (or None). hook(pid, run) is called while its address space can
    be looked at. fds: what becomes its 0, 1 and 2. started(pid): called once the program runs."""
    shell, pid, gate = _start(argv, env, preload, fds)
    try:
        _ptrace(PTRACE_SEIZE, pid, O_TRACEEXEC | O_TRACEEXIT | O_EXITKILL)
        watcher = _Watch(pid, hook)
    except OSError:
        watcher = _Poll(pid, shell, hook)
    os.write(gate, b"\n")
    os.close(gate)
    try:
        if started:
            started(pid)
        run = watcher.loop()
    except BaseException:
        _end(pid)
        raise
    if not isinstance(watcher, _Poll):
        os.waitpid(shell, 0)
    return run


def _end(pid):
    """Kill the program; it is ours, and stopped or running under our trace."""
    try:
        os.kill(pid, signal.SIGKILL)
        while os.WIFSTOPPED(os.waitpid(pid, WALL)[1]):
            _ptrace(PTRACE_CONT, pid)
    except OSError:
        pass
