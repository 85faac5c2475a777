# SPDX-License-Identifier: BSD-2-Clause
"""The allocators: where their libraries are and how to preload them."""

import glob
import os
import subprocess

HERE = os.path.dirname(os.path.realpath(__file__))
ALL = ["glibc", "sheaf", "jemalloc", "mimalloc", "tcmalloc"]
SONAMES = {
    "jemalloc": ["libjemalloc.so.2"],
    "mimalloc": ["libmimalloc.so.2", "libmimalloc.so.2.0", "libmimalloc.so.3"],
    "tcmalloc": ["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"],
}
PACKAGES = {"jemalloc": "libjemalloc2", "mimalloc": "libmimalloc2.0", "tcmalloc": "libtcmalloc-minimal4"}
DIRS = ["/usr/lib/*-linux-gnu", "/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"]


class Allocator:
    """name; path of the library to preload (None: nothing is preloaded); missing: why it cannot run, or None."""

    def __init__(self, name, path=None, missing=None):
        self.name, self.path, self.missing = name, path, missing


def _ldconfig():
    """soname -> path, as the loader's cache has it for this machine (the first one listed wins, as with the loader)."""
    table = {}
    for tool in ("/sbin/ldconfig", "ldconfig"):
        try:
            text = subprocess.run([tool, "-p"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        for line in text.splitlines():
            if " => " in line:
                table.setdefault(line.split()[0], line.split(" => ")[1].strip())
        break
    return table


def find_soname(names):
    cache = _ldconfig()
    for name in names:
        if name in cache and os.path.exists(cache[name]):
            return os.path.realpath(cache[name])
        for pattern in DIRS:
            for path in glob.glob(os.path.join(pattern, name)):
                return os.path.realpath(path)
    return None


def find_sheaf(given=None):
    """libsheaf.so: the one given, or $SHEAF_LIB, or that of the build tree around us or the current directory."""
    if given or os.environ.get("SHEAF_LIB"):
        return os.path.realpath(given or os.environ["SHEAF_LIB"])
    for top in (os.path.join(HERE, "..", ".."), os.getcwd(), os.path.join(os.getcwd(), "..")):
        path = os.path.join(top, ".libs", "libsheaf.so")
        if os.path.exists(path):
            return os.path.realpath(path)
    return None


def libc_path():
    """The libc.so.6 that this process runs on: what is preloaded when a program would bring another malloc."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").split(maxsplit=5)[-1]
            if os.path.basename(path).startswith(("libc.so.6", "libc-2")):
                return path
    return find_soname(["libc.so.6"])


def find(name, sheaf_lib=None):
    if name == "glibc":
        return Allocator(name)
    if name == "sheaf":
        path = find_sheaf(sheaf_lib)
        if path is None:
            return Allocator(name, missing="not built (make it, or give --lib)")
        if not os.path.exists(path):
            return Allocator(name, missing=f"no such file: {path}")
        return Allocator(name, path)
    path = find_soname(SONAMES[name])
    return Allocator(name, path, None if path else f"not installed (apt install {PACKAGES[name]})")
