# SPDX-License-Identifier: BSD-2-Clause
"""The program of perf/regions under every allocator, and on the kernel itself: timed runs interleaved, counted runs
apart, bars beside the figures."""

from . import alloc, bench, build, counts, table, vma

KERNEL = "kernel"
PEERS = ["jemalloc", "mimalloc", "tcmalloc"]


class Bars:
    """What must be reached. A verdict stands beside its row; the sum of all comes last."""

    def __init__(self):
        self.verdicts = []

    def at_most(self, what, value, limit, digits=2):
        """The words for the cell; "-" if there is no figure."""
        if value is None or limit is None:
            return "-"
        ok = value <= limit
        self.verdicts.append((what, ok))
        if isinstance(value, float) and 0 < value < 0.095:
            digits = 4
        return f"{table.fmt(value, digits)} <= {table.fmt(limit, digits)} {'ok' if ok else 'OVER'}"

    def yes(self, what, ok):
        self.verdicts.append((what, bool(ok)))
        return "ok" if ok else "OVER"

    def summary(self):
        over = [what for what, ok in self.verdicts if not ok]
        text = f"{len(self.verdicts)} bars: {len(self.verdicts) - len(over)} ok, {len(over)} over"
        return text + (": " + "; ".join(over) if over else "")


class Rig:
    """names: who can be measured, the kernel first. fails: what could not, in words."""

    def __init__(self, names, lib, runs, say):
        self.program, self.runs, self.say, self.bars = build.program("regions"), runs, say, Bars()
        self.bench = bench.Bench([self.program], names, lib)
        self.paths = {row.name: row.allocator.path for row in self.bench.rows if not row.fail}
        self.names = [KERNEL] + list(self.paths)
        self.fails = [f"{row.name}: {row.fail}" for row in self.bench.rows if row.fail]
        self.void = []  # failures of runs: figures are missing

    def allocators(self):
        return self.names[1:]

    def argv(self, name, args):
        return [self.program] + (["-k"] if name == KERNEL else []) + [str(a) for a in args]

    def path(self, name):
        return self.paths.get(name)

    def failed(self, name, args, why):
        self.void.append(f"{' '.join(str(a) for a in args)} under {name}: {why}")

    def once(self, name, args):
        """name -> value of what the program printed, with run's own figures as run.*; None if it failed."""
        got = self.bench.once(self.argv(name, args), self.path(name), keep=True)
        if got.run.status != 0:
            return self.failed(name, args, got.stderr.removeprefix("regions: ") or bench.status_text(got.run.status))
        if not (got.run.proof and got.run.proof.ok):
            return self.failed(name, args, got.run.proof.text if got.run.proof else "not proven")
        values = {key: float(value) for key, value in (line.split() for line in got.stdout.decode().splitlines())}
        return values | {"run.cpu": got.run.user + got.run.sys, "run.rss_kib": got.run.rss_kib}

    def interleave(self, args, names=None, runs=None):
        """name -> list of results; who fails once is not asked again."""
        names = list(names or self.names)
        results = {name: [] for name in names}
        for n in range(runs or self.runs):
            self.say(f"{' '.join(str(a) for a in args)}: run {n + 1} of {runs or self.runs}")
            for name in names[n % len(names):] + names[:n % len(names)]:
                if results[name] is not None:
                    got = self.once(name, args)
                    results[name] = results[name] + [got] if got else None
        return {name: got or [] for name, got in results.items()}

    def medians(self, args, key, names=None, runs=None):
        """name -> median of one value."""
        return {name: table.median([r[key] for r in got]) for name, got in self.interleave(args, names, runs).items()}

    def count(self, name, args, control):
        """VMA syscalls beyond those of the control arguments; None without strace or if it fails."""
        if not vma.available():
            return None
        self.say(f"{' '.join(str(a) for a in args)}: counting under {name}")
        env = self.bench.env_for(self.path(name))
        try:
            of_run, of_control = (counts.measure(self.argv(name, a), env, build.scratch()) for a in (args, control))
        except OSError as e:
            return self.failed(name, args, str(e))
        return of_run.minus(of_control)

    def per_call(self, args, control, calls):
        """name -> VMA syscalls a call."""
        got = {name: self.count(name, args, control) for name in self.names}
        return {name: None if t is None else t.total() / calls for name, t in got.items()}

    def best(self, values, names):
        present = [values[name] for name in names if values.get(name)]
        return min(present) if present else None

    def head(self):
        return self.names + ["to kernel", "to glibc", "to best peer"]

    def ratios(self, values):
        """Of Sheaf to the kernel, to glibc, to the best peer."""
        bases = [values.get(KERNEL), values.get("glibc"), self.best(values, PEERS)]
        return [table.ratio(values.get("sheaf"), base) for base in bases]

    def cells(self, values):
        """A row's figures, then the ratios in words: small ones would be rounded to nothing."""
        small = [r is not None and r < 0.095 for r in self.ratios(values)]
        return [values.get(name) for name in self.names] + [
            table.fmt(r, 4 if s else 2) for r, s in zip(self.ratios(values), small)]


def known(name):
    return name in alloc.ALL
