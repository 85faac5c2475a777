# SPDX-License-Identifier: BSD-2-Clause
"""Which malloc does a process really use?

Asked of a process that is stopped (at its exit), so that its memory can still be read. Two sources:

1. /proc/PID/maps says which files are mapped. A preloaded library that is not there served nothing (static binaries,
   setuid programs, a wrong architecture).
2. The loader's link map (found through AT_PHDR, PT_DYNAMIC, DT_DEBUG) says in which order they are searched. The first
   one that exports malloc is the one that serves. This is what tells libc from a linked libjemalloc, when both are
   mapped, and finds a program that brings a malloc of its own.
"""

import functools
import os
import struct

AT_PHDR, AT_PHNUM = 3, 5
PT_DYNAMIC, PT_PHDR = 2, 6
DT_DEBUG = 21
SHT_DYNSYM = 11


@functools.lru_cache(maxsize=None)
def exports_malloc(path):
    """Does this ELF file's dynamic symbol table define malloc? False also for what cannot be read."""
    try:
        with open(path, "rb") as f:
            data = f.read()
    except OSError:
        return False
    try:
        return _dynsym_defines(data, b"malloc")
    except (struct.error, IndexError):
        return False


def _dynsym_defines(data, name):
    if data[:4] != b"\x7fELF" or data[4] != 2 or name + b"\0" not in data:
        return False
    shoff, = struct.unpack_from("<Q", data, 40)
    shentsize, shnum = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + i * shentsize) for i in range(shnum)]
    for _, kind, _, _, offset, size, link, _, _, entsize in sections:
        if kind != SHT_DYNSYM:
            continue
        names = sections[link][4]
        for at in range(offset, offset + size, entsize):
            st_name, _, _, shndx, _, _ = struct.unpack_from("<IBBHQQ", data, at)
            if shndx and data.startswith(name + b"\0", names + st_name):
                return True
    return False


def mapped_files(pid):
    """Paths of the files that are mapped, in order of address, each once."""
    files = {}
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                field = line.rstrip("\n").split(maxsplit=5)
                if len(field) == 6 and field[5].startswith("/"):
                    files[field[5]] = True
    except OSError:
        pass
    return list(files)


def _read(mem, address, form):
    mem.seek(address)
    return struct.unpack(form, mem.read(struct.calcsize(form)))


def _string(mem, address):
    mem.seek(address)
    return mem.read(4096).split(b"\0")[0] if address else b""


def _debug_address(mem, pid):
    with open(f"/proc/{pid}/auxv", "rb") as f:
        raw = f.read()
    auxv = dict(struct.unpack_from("<QQ", raw, i) for i in range(0, len(raw) - 15, 16))
    phdr, base, dynamic = auxv[AT_PHDR], 0, None
    for i in range(auxv[AT_PHNUM]):
        kind, _, _, vaddr, _, _, _, _ = _read(mem, phdr + i * 56, "<IIQQQQQQ")
        if kind == PT_PHDR:
            base = phdr - vaddr
        elif kind == PT_DYNAMIC:
            dynamic = vaddr
    at = dynamic + base if dynamic is not None else None
    while at is not None:
        tag, value = _read(mem, at, "<QQ")
        if tag == DT_DEBUG:
            return value
        at = at + 16 if tag else None
    return 0


def search_order(pid):
    """Paths in the order the loader searches them, the program first. None if there is no loader or no permission."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
            debug = _debug_address(mem, pid)
            if not debug:
                return None
            order, at = [os.readlink(f"/proc/{pid}/exe")], _read(mem, debug + 8, "<Q")[0]
            while at:
                _, name, _, following = _read(mem, at, "<QQQQ")
                path = os.fsdecode(_string(mem, name))
                if path.startswith("/"):
                    order.append(os.path.realpath(path))
                at = following
            return order
    except (OSError, struct.error, KeyError, MemoryError, OverflowError, ValueError):
        return None


class Proof:
    """server: path of what serves malloc, None if unknown. text: the words for the table. ok: it is the one wanted."""

    def __init__(self, server, text, ok):
        self.server, self.text, self.ok = server, text, ok


def others(pid):
    """Mapped libraries, other than libc, that export malloc."""
    names = [f for f in mapped_files(pid) if ".so" in os.path.basename(f) and exports_malloc(f)]
    return [f for f in names if not os.path.basename(f).startswith(("libc.so", "libc-2", "ld-linux", "ld-musl"))]


def prove(pid, wanted):
    """wanted: real path of the preloaded library, or None for "no preload, so libc"."""
    files = mapped_files(pid)
    if not files:
        return Proof(None, "not seen: the process was gone", False)
    order = search_order(pid)
    if wanted is not None and wanted not in [os.path.realpath(f) for f in files]:
        why = "static program" if order is None else "not loaded (setuid, or preload refused)"
        return Proof(None, f"NOT {os.path.basename(wanted)}: {why}", False)
    if order is None:
        return Proof(None, "static program: its own malloc", False)
    server = next((f for f in order if exports_malloc(f)), None)
    if server is None:
        return Proof(None, "unknown: nobody exports malloc", False)
    if server == order[0] and server != wanted:
        return Proof(server, "NOT served: the program exports its own malloc", False)
    name = os.path.basename(server)
    libc = next((f for f in order if os.path.basename(f).startswith("libc.so")), None)
    expected = wanted if wanted is not None else libc
    return Proof(server, name, True) if server == expected else Proof(server, f"NOT the one wanted: {name}", False)
