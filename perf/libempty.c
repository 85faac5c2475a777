/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An empty shared library. Preloading any library costs the loader some work; perf/startup compares with this one, so
 * that only what the allocator itself adds is seen.
 */
extern const char perf_empty[];
const char perf_empty[] = "empty";
