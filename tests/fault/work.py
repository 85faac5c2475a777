# SPDX-License-Identifier: BSD-2-Clause
"""Rounds of mixed work for the allocator below. Each round must give the same sum, and after a few rounds the process
must not grow any more; whatever was refused on the way, only MemoryError may be seen, and then a round is begun anew.
Prints "ok"."""
import sys
import threading

ROUNDS_MOST = 14  # 5 or 6 do


def work():
    words = {}
    for i in range(2000):
        words.setdefault("w%d" % (i * 7919 % 1500), []).append(i)
    text = " ".join(sorted(words)) * 20
    big = bytearray(9 << 20)
    for at in range(0, len(big), 65536):
        big[at] = at // 65536 % 251
    big += bytes(30 << 20)
    del big[1 << 20:]
    huge = bytearray(70 << 20)
    huge[-1] = 1
    parts = [bytes([i % 256]) * (i * 37 % 9000) for i in range(400)]
    sums = []
    threads = [threading.Thread(target=lambda: sums.append(sum(len(p) for p in parts))) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return (len(text), sum(map(sum, words.values())), sum(big[::65536]), huge[-1], huge[5], sums,
            sum(p[-1] for p in parts if p))


def space():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[0]) * 4096


def main():
    expected, most, flat = None, 0, 0
    for _ in range(ROUNDS_MOST):
        try:
            got = work()
        except (MemoryError, RuntimeError):  # RuntimeError: a thread that could not be started
            continue
        if expected is not None and got != expected:
            sys.exit("FAIL a round gave %r, not %r" % (got, expected))
        expected = got
        now = space()
        flat = flat + 1 if now <= most else 0
        most = max(most, now)
        if flat == 3:
            print("ok")
            return
    sys.exit("FAIL the process grows from round to round, to %d bytes" % most)


main()
