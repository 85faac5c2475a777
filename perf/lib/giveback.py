# SPDX-License-Identifier: BSD-2-Clause
"""The items of perf/giveback: which programs are run, what each prints, and the bar for it.

A Case is one row of a table: a program with arguments, the value taken from its key=value lines, and a bar that is
either a number or a function of the row's values by allocator. All cases are run under all allocators, interleaved.
"""

import os
import re
import subprocess

from . import bench, build, table, vma

PEERS = ("jemalloc", "mimalloc", "tcmalloc")


class Case:
    """what: the row's name. argv: program and arguments. take(values): the figure. bar: a number, None (only shown), or
    bar(row) with row: allocator -> median. least: the figure must be at least the bar. only: allocators it is for.
    env: more variables. traced: run under strace, and what stands between its two getppid calls is in values."""

    def __init__(self, what, argv, take, bar=None, unit="", least=False, only=None, env=None, traced=False, control=None):
        self.what, self.argv, self.take, self.bar, self.unit = what, [str(a) for a in argv], take, bar, unit
        self.least, self.only, self.env, self.traced, self.control = least, only, env or {}, traced, control

    def command(self):
        return [build.program(self.argv[0])] + self.argv[1:]

    def key(self):
        """Cases with the same key are one run."""
        return (tuple(self.argv), tuple(sorted(self.env.items())), self.traced)


def _part(value, quick):
    return max(1, value // 10) if quick else value


def spikes(quick):
    cases = []
    blocks = {"order": 1000000, "random": 1000000, "mib": 1000, "cross": 100000, "cross-random": 100000}
    words = {"order": "1 M x 120 B, freed in order", "random": "1 M x 120 B, freed in random order",
             "mib": "1,000 x 1 MiB, last one kept", "cross": "100 k mixed, freed by another thread",
             "cross-random": "the same in random order"}
    for name, count in blocks.items():
        argv = ["gb_spike", name, _part(count, quick)]
        if name in ("order", "mib", "cross"):
            cases.append(Case(words[name] + ": before", argv, lambda v: v["before_kib"] / 1024, None, "MiB"))
            cases.append(Case(words[name] + ": peak", argv, lambda v: v["peak_kib"] / 1024, None, "MiB"))
        cases.append(Case(words[name] + ": left after 2 s", argv, lambda v: v["left_kib"] / 1024, 8, "MiB"))
    for name in ("random", "mib", "cross"):
        for times in (2, 10):
            cases.append(Case(f"{words[name]}, {times} times: left", ["gb_spike", name, _part(blocks[name], quick), times],
                              lambda v: v["left_kib"] / 1024, 72, "MiB"))
    return cases


def _best(row, names):
    values = [row[n] for n in names if row.get(n) is not None]
    return min(values) if values else None


def _scaled(row, names, factor):
    best = _best(row, names)
    return None if best is None else factor * best


def frag(quick):
    argv = ["gb_frag", _part(1024, quick)]

    def live(v):
        return v["after_kib"] * 1024 / v["live_bytes"]

    return [Case("resident after the frees / live", argv, lambda v: v["freed_kib"] * 1024 / v["live_bytes"], None, "x"),
            Case("resident after the own purge / live", argv, live, 2.6, "x"),
            Case("... bar: 0.45 of the best of jemalloc, mimalloc, tcmalloc", argv, live,
                 lambda row: _scaled(row, PEERS, 0.45), "x"),
            Case("... bar: 0.9 of glibc", argv, live, lambda row: _scaled(row, ("glibc",), 0.9), "x"),
            Case("of it only lazily free", argv, lambda v: v["lazy_kib"] / 1024, None, "MiB")]


def thrash(quick):
    batch = ["gb_batch", _part(100000, quick)]
    cases = [Case("batches of 3,500 x 32-256 B: minor faults", batch, lambda v: v["faults"], 10000),
             Case("... ns a pair", batch, lambda v: v["ns_per_pair"], None, "ns")]
    for kind, words in (("none", "malloc(6 MiB), touch, free"), ("mib", "the same after 1 GiB of 1 MiB blocks"),
                        ("small", "the same after 1 GiB of 120 B blocks"), ("one", "the same after one block of 1 GiB")):
        argv = ["gb_loop", 1000] + [kind, _part(1024, quick)]
        cases.append(Case(f"{words}: syscalls per 100 rounds", argv, lambda v: v["calls"] / 10, 2, traced=True))
        cases.append(Case("... madvise in 1,000 rounds", argv, lambda v: v["madvise"], None if kind == "none" else 0,
                          traced=True))
    return cases


def pipe(quick, seconds):
    argv = ["gb_pipe", seconds or (3 if quick else 30), _part(370, quick)]
    return [Case("16 threads allocate, one frees: peak resident / live", argv,
                 lambda v: v["peak_kib"] * 1024 / v["live_bytes"], 1.22, "x"),
            Case("... million blocks passed", argv, lambda v: v["blocks"] / 1e6)]


def threads(quick, count):
    count = count or _part(4000, quick)
    return [Case(f"{count} threads, 64 sizes to 32 KiB, asleep: beside the stack", ["gb_threads", count],
                 lambda v: (v["bytes_a_thread"] - v["control.bytes_a_thread"]) / 1024, 16, "KiB",
                 control=["gb_threads", str(count), "control"]),
            Case("... with the stack", ["gb_threads", count], lambda v: v["bytes_a_thread"] / 1024, None, "KiB",
                 control=["gb_threads", str(count), "control"])]


def child(quick):
    return [Case(f"child frees a tenth of 1 GiB of 500 B, {words}: dirtied / freed",
                 ["gb_child", order, _part(1024, quick)],
                 lambda v: 100 * (v["dirty_kib"] - v["control_kib"]) * 1024 / v["freed_bytes"], 3, "%")
            for order, words in (("order", "in order"), ("random", "at random"))]


LOCK_LINE = re.compile(r"^sheaf: lock (\w+) (\d+): (\d+) holds, longest (\d+) ns, (\d+) over 10 us, (\d+) over 100 us; "
                       r"with a switch inside (\d+), longest (\d+) ns", re.M)
LOCK_BAR_NS = 100000


def latency(quick):
    argv = ["gb_latency", _part(2048, quick)]

    def us(key):
        return lambda v: max(0, v[key] - v["clock_ns"]) / 1000

    names = (("p50_ns", "median"), ("p99_ns", "p99"), ("p999_ns", "p99.9"), ("p9999_ns", "p99.99"), ("max_ns", "longest"))
    cases = [Case(f"malloc while 2 GiB are freed and trimmed: {words}", argv, us(key), 50 if key == "p9999_ns" else None,
                  "us") for key, words in names]
    return cases + [Case("... million calls", argv, lambda v: v["calls"] / 1e6),
                    Case("... stopped by the scheduler", argv, lambda v: v["stops"]),
                    Case("... free and trim took", argv, lambda v: v["took_ms"], None, "ms"),
                    Case("... in cpu time of that thread", argv, lambda v: v["took_cpu_ms"], None, "ms")]


def huge(quick):
    argv = ["gb_huge", _part(256, quick), _part(500, quick)]
    cases = []
    for mode in ("auto", "never", "always"):
        env = {"SHEAF_CONF": f"thp:{mode}"}
        bar, least = (0, False) if mode == "never" else (_part(200, quick), True)
        cases.append(Case(f"256 MiB written: on huge pages, thp:{mode}", argv, lambda v: v["huge_kib"] / 1024, bar, "MiB",
                          least=least, only=("sheaf",), env=env))
    return cases + [Case("256 MiB written: on huge pages, as it comes", argv, lambda v: v["huge_kib"] / 1024, None, "MiB"),
                    Case("500 MiB freed: only lazily free", argv, lambda v: v["lazy_kib"] / 1024, 0, "MiB"),
                    Case("500 MiB freed: resident", argv, lambda v: v["rss_kib"] / 1024, None, "MiB")]


TITLES = {"spikes": "after a spike the process only sleeps", "frag": "95 % freed at random, then the own purge",
          "thrash": "a steady program gives nothing back", "pipe": "freed by another thread than the one that allocates",
          "threads": "many threads asleep", "child": "a fork child that frees", "latency": "malloc beside a purge",
          "huge": "huge pages and lazily freed memory"}


def values(text):
    return {k: int(n) for k, n in re.findall(r"^([\w.]+)=(-?\d+)$", text, re.M)}


def between(command, env):
    """(values, calls): every system call between the program's two getppid calls, by name, from strace."""
    out = os.path.join(build.scratch(), "between")
    words = ["strace", "-f", "-q", "-s", "0", "-o", out, "-e", "signal=none"]
    words += [w for k in sorted(env) if os.environ.get(k) != env[k] for w in ("-E", f"{k}={env[k]}")]
    done = subprocess.run(words + ["--"] + command, capture_output=True, text=True)
    if done.returncode != 0:
        raise bench.BenchError(done.stderr.strip() or bench.status_text(done.returncode))
    calls, inside = {}, False
    with open(out, encoding="utf-8", errors="replace") as f:
        for m in (vma.LINE.match(line) for line in f):
            if m and m[2] == "getppid":
                inside = not inside
            elif m and inside and m[2] != "+++" and not m[3].startswith(" resumed>"):
                calls[m[2]] = calls.get(m[2], 0) + 1
    return values(done.stdout), calls


class Giveback:
    """Runs cases. cells: (key of the run, allocator) -> list of values; fails: the same -> why there are none."""

    def __init__(self, names, lib):
        self.bench = bench.Bench([build.program("gb_spike")], names, lib)
        self.base_env = dict(self.bench.env)
        self.rows = [r for r in self.bench.rows if not r.fail]
        self.cells, self.fails = {}, {}

    def one(self, argv, env, path):
        self.bench.env = self.base_env | env
        got = self.bench.once(argv, path, keep=True)
        if got.run.status != 0:
            raise bench.BenchError(got.stderr or bench.status_text(got.run.status))
        if not (got.run.proof and got.run.proof.ok):
            raise bench.BenchError(got.run.proof.text if got.run.proof else "not proven")
        return values(got.stdout.decode())

    def run(self, case, row):
        if case.traced:
            env = self.base_env | case.env | ({"LD_PRELOAD": row.allocator.path} if row.allocator.path else {})
            got, calls = between(case.command(), env)
            return got | {"calls": sum(calls.values()), "madvise": calls.get("madvise", 0)}
        got = self.one(case.command(), case.env, row.allocator.path)
        if case.control:
            control = [build.program(case.control[0])] + case.control[1:]
            got |= {f"control.{k}": v for k, v in self.one(control, case.env, row.allocator.path).items()}
        return got

    def measure(self, cases, runs, say):
        once = {}
        for case in cases:
            if case.key() not in once or case.control:
                once[case.key()] = case
        for case in once.values():
            if case.traced and not vma.available():
                continue
            for n in range(1 if case.traced else runs):
                say(f"{' '.join(case.argv)}: run {n + 1} of {runs}")
                for row in self.rows[n % len(self.rows):] + self.rows[:n % len(self.rows)]:
                    self.keep(case, row)
        say("")

    def keep(self, case, row):
        at = (case.key(), row.name)
        if at in self.fails or case.only and row.name not in case.only:
            return
        try:
            self.cells.setdefault(at, []).append(self.run(case, row))
        except bench.BenchError as e:
            self.fails[at] = str(e)

    def figure(self, case, name):
        at = (case.key(), name)
        if at in self.fails or at not in self.cells:
            return None
        return table.median([case.take(v) for v in self.cells[at]])

    def row(self, case):
        return {r.name: self.figure(case, r.name) for r in self.rows}


def verdict(case, bar, value):
    if bar is None:
        return ""
    if value is None:
        return "none"
    return "ok" if (value >= bar if case.least else value <= bar) else "over"


def rank_names():
    """Rank -> name, from the source beside us."""
    try:
        with open(os.path.join(build.PERF, "..", "core", "rank.h"), encoding="utf-8") as f:
            return dict(enumerate(name.lower() for name in re.findall(r"^    RANK_(\w+),", f.read(), re.M)))
    except OSError:
        return {}


class Hold:
    """What one line of a build with lock times says."""

    def __init__(self, m):
        self.kind, self.rank = m[1], int(m[2])
        self.holds, self.longest, self.over_10, self.over_100, self.switched, self.longest_switched = map(int, m.groups()[2:])


def _hold_run(lib, quick):
    argv = [build.program("gb_latency"), str(_part(2048, quick))]
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    conf = ",".join(filter(None, [env.get("SHEAF_CONF"), "stats_print:true"]))
    done = subprocess.run(["env", f"LD_PRELOAD={lib}"] + argv, env=env | {"SHEAF_CONF": conf}, capture_output=True, text=True)
    if done.returncode != 0:
        raise bench.BenchError(f"{lib}: " + (done.stderr.strip()[-400:] or bench.status_text(done.returncode)))
    found = [Hold(m) for m in LOCK_LINE.finditer(done.stderr)]
    if not found:
        raise bench.BenchError(f"{lib} prints no lock times: configure it with --enable-lock-times")
    return found


def lock_rows(lib, quick, runs):
    """Rows for a table: rank, holds, longest us, holds over 100 us, as many by the rate of empty holds, verdict, and the
    longest with a switch inside. Medians of the runs. An empty hold is measured after each real one, in the same way:
    what it shows is the machine. A rank is over if it passes the bar more often than that explains."""
    lib = os.path.realpath(lib)
    all_runs = [{(h.kind, h.rank): h for h in _hold_run(lib, quick)} for _ in range(runs)]
    names, rows = rank_names(), []

    def med(key, attr):
        return table.median([getattr(run[key], attr) for run in all_runs if key in run])

    empty = ("empty", 0)
    rate = med(empty, "over_100") / med(empty, "holds")
    for key in sorted(set().union(*all_runs), key=lambda k: (k[0] == "empty", k[1])):
        longest, over, holds = med(key, "longest"), med(key, "over_100"), med(key, "holds")
        words = "ok" if longest <= LOCK_BAR_NS else "noise" if over <= 2 + 3 * rate * holds else "over"
        name = "an empty hold" if key == empty else names.get(key[1], f"rank {key[1]}")
        rows.append([name, int(holds), longest / 1000, int(over), rate * holds, med(key, "longest_switched") / 1000,
                     "" if key == empty else words])
    return rows
