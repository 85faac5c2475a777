# SPDX-License-Identifier: BSD-2-Clause
"""What the commands of perf/ share. Python 3 standard library only.

trace.py  start and watch one program, with its usage of time and memory
proof.py  which malloc a stopped process really uses
vma.py    VMA syscalls and threads of a program, counted by strace
alloc.py  the allocators: where their libraries are, how to preload them
build.py  our own small C programs: found beside the build, or compiled
bench.py  a program under several allocators, interleaved: all of the above together
counts.py totals of VMA syscalls, where a program makes too many of them for a raw trace
regions.py  the program of perf/regions under every allocator and on the kernel itself
table.py  aligned tables, medians, ratios
"""
