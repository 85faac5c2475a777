# SPDX-License-Identifier: BSD-2-Clause
"""Our own small C programs: found where make left them, else compiled into a temporary directory of this run."""

import atexit
import glob
import os
import shutil
import subprocess
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
PERF = os.path.dirname(HERE)
TOP = os.path.dirname(PERF)
FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
# name -> (sources under perf/, further flags); Makefile.am says the same.
PROGRAMS = {
    "control": (["control.c"], []),
    "nothing": (["nothing.c"], []),
    "starts": (["starts.c"], []),
    "micro": ([f"micro/{n}.c" for n in ("micro", "pairs", "batch", "replace", "grow", "aligned", "large", "prodcons",
                                        "churn")], ["-fno-builtin"]),
    "pagetrace": (["micro/pagetrace.c"], ["-fno-builtin"]),
    "regions": (["regions/*.c"], ["-fno-builtin"]),
    "wordcount": (["wordcount.c"], ["-fno-builtin"]),
    "maple_bench": (["maple_*.c"] + ["../core/maple_*.c", "../core/dbg.c", "../compat/os/fmt.c", "../compat/os/lock.c"],
                    ["-D_GNU_SOURCE=", "-DSHEAF_DEBUG=0", "-fvisibility=hidden", "-iquote", TOP, "-iquote",
                     os.path.join(TOP, "core"), "-iquote", os.path.join(TOP, "compat", "os")]),
    "libempty.so": (["libempty.c"], ["-fPIC", "-shared"]),
} | {f"gb_{n}": ([f"micro/gb_{n}.c"], ["-fno-builtin"])
     for n in ("spike", "frag", "batch", "loop", "pipe", "threads", "child", "latency", "huge")}
_made = {}


class BuildError(Exception):
    pass


def scratch():
    """A temporary directory that lives as long as this run."""
    if "dir" not in _made:
        _made["dir"] = tempfile.mkdtemp(prefix="sheaf-perf-")
        atexit.register(shutil.rmtree, _made["dir"], True)
    return _made["dir"]


def _compile(name):
    sources, more = PROGRAMS[name]
    files = [f for s in sources for f in sorted(glob.glob(os.path.join(PERF, s)))]
    out = os.path.join(scratch(), name)
    cc = os.environ.get("CC", "cc")
    try:
        done = subprocess.run(cc.split() + FLAGS + more + files + ["-o", out], capture_output=True, text=True)
    except OSError as e:
        raise BuildError(f"{name} is not built and there is no compiler: {e}") from e
    if done.returncode != 0:
        raise BuildError(f"cannot compile {name}:\n{done.stderr}")
    return out


def program(name):
    """The path of one of PROGRAMS. $SHEAF_PERF_BIN, then perf/ of the source and of a build tree, then the compiler."""
    if name not in _made:
        dirs = [os.environ.get("SHEAF_PERF_BIN"), PERF, os.path.join(os.getcwd(), "perf"),
                os.path.join(TOP, "build", "perf")]
        files = [os.path.join(d, f) for d in dirs if d for f in (name, os.path.join(name, name), os.path.join("micro", name))]
        found = [f for f in files if os.path.isfile(f) and os.access(f, os.X_OK)]
        _made[name] = found[0] if found else _compile(name)
    return _made[name]
