# SPDX-License-Identifier: BSD-2-Clause
"""Fork, exec and watch one program.

The program is seized by ptrace with two events only: exec and exit. No system call, no thread and no child of it is
traced, so it runs at full speed, but even the shortest one stops just before its address space goes, where we ask which
malloc it used (proof.py) and what its memory was. If ptrace is not allowed, /proc is polled instead.

Before its exec the child is a copy of this Python; it reports its own usage up to there, and that is taken off.

Peak memory: the kernel hands the peak of the forking process (this Python) down to the child through exec, so that
wait4's ru_maxrss never says less than Python's own peak. The program's own peak is VmHWM at its exit; ru_maxrss, which
also knows the program's children, is used when it is above that floor.
"""

import ctypes
import os
import resource
import signal
import shutil
import struct
import time

PTRACE_CONT, PTRACE_SEIZE, PTRACE_LISTEN = 7, 0x4206, 0x4208
O_TRACEEXEC, O_TRACEEXIT, O_EXITKILL = 0x10, 0x40, 0x100000
EVENT_EXEC, EVENT_EXIT, EVENT_STOP = 4, 6, 128
WALL = 0x40000000
USED = struct.Struct("ddq")  # user and system seconds and minor faults of the child before its exec
STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

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


def _child(path, argv, env, fds, cwd, gate, tell):
    """In the forked child: wait until the parent watches, tell what has been used so far, become the program."""
    try:
        os.read(gate, 1)
        for to, fd in enumerate(fds):
            os.dup2(fd, to)
        if cwd:
            os.chdir(cwd)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        os.write(tell, USED.pack(usage.ru_utime, usage.ru_stime, usage.ru_minflt))
        os.execve(path, argv, env)
    except OSError as e:
        os.write(2, f"{argv[0]}: {e.strerror}\n".encode())
    finally:
        os._exit(127)


def _status_kib(pid, key):
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            for line in f:
                if line.startswith(key):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def _minflt(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return int(f.read().rpartition(")")[2].split()[7])
    except (OSError, IndexError):
        return 0


class _Watch:
    """The life of one seized child, from its exec to its end."""

    def __init__(self, pid, hook):
        self.pid, self.hook, self.run = pid, hook, Run()
        self.own_kib = 0
        self.used = (0.0, 0.0, 0)
        self.seen_exec = False
        self.start = self.paused = 0.0

    def exec_stop(self):
        if not self.seen_exec:
            self.seen_exec = True
            self.used = (self.used[0], self.used[1], max(self.used[2], _minflt(self.pid)))
            self.start = time.monotonic()

    def exit_stop(self):
        """The address space is still there. Time spent looking is not the program's."""
        before = time.monotonic()
        self.own_kib = _status_kib(self.pid, "VmHWM:")
        self.hook(self.pid, self.run)
        self.paused += time.monotonic() - before

    def stopped(self, status):
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
                self.finish(status, usage, time.monotonic())
                return self.run
            request, data = self.stopped(status)
            try:
                _ptrace(request, self.pid, data)
            except OSError:
                pass  # killed while stopped: the next wait says so

    def finish(self, status, usage, now):
        run = self.run
        run.wall = now - self.start - self.paused
        run.user, run.sys = usage.ru_utime - self.used[0], usage.ru_stime - self.used[1]
        run.minflt = usage.ru_minflt - self.used[2]
        floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run.rss_kib = usage.ru_maxrss if usage.ru_maxrss > floor or not self.own_kib else self.own_kib
        run.status = os.waitstatus_to_exitcode(status)


class _Poll(_Watch):
    """Without ptrace: ask now and then, and keep the last answer."""

    def loop(self):
        self.start = time.monotonic()
        while True:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.finish(status, usage, time.monotonic())
                return self.run
            self.own_kib = max(self.own_kib, _status_kib(self.pid, "VmHWM:"))
            if self.own_kib:
                self.hook(self.pid, self.run)
            time.sleep(0.001)


def watch(argv, env, hook, fds=(0, 1, 2), cwd=None, started=None):
    """Run argv to its end. hook(pid, run) is called while its address space can be looked at. fds: what becomes its
    0, 1 and 2. started(pid): called once the program runs."""
    path = shutil.which(argv[0], path=env.get("PATH")) or argv[0]
    gate_read, gate_write = os.pipe()
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(gate_write)
        _child(path, argv, env, fds, cwd, gate_read, tell)
    os.close(gate_read)
    os.close(tell)
    try:
        _ptrace(PTRACE_SEIZE, pid, O_TRACEEXEC | O_TRACEEXIT | O_EXITKILL)
        watcher = _Watch(pid, hook)
    except OSError:
        watcher = _Poll(pid, hook)
    os.write(gate_write, b"g")
    os.close(gate_write)
    try:
        watcher.used = _heard(told)
        if started:
            started(pid)
        return watcher.loop()
    except BaseException:
        _reap(pid)
        raise


def _heard(told):
    """What the child tells before its exec; nothing if it failed earlier."""
    try:
        said = os.read(told, USED.size)
        return USED.unpack(said) if len(said) == USED.size else (0.0, 0.0, 0)
    finally:
        os.close(told)


def _reap(pid):
    try:
        os.kill(pid, signal.SIGKILL)
        while os.WIFSTOPPED(os.waitpid(pid, WALL)[1]):
            _ptrace(PTRACE_CONT, pid)
    except OSError:
        pass
