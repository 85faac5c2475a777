# SPDX-License-Identifier: BSD-2-Clause
"""Aligned tables, medians and ratios."""

import math
import statistics


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def geomean(values):
    values = [v for v in values if v]
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else None


def ratio(value, base):
    """value/base, or None if either is missing or the base is nothing."""
    return value / base if value is not None and base else None


def fmt(value, digits=2):
    """A cell: text as it is, a number rounded, None as a dash."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    return f"{value:.{digits}f}"


def show(head, rows, left=(0,)):
    """The table as text: the columns numbered in `left` to the left, the others to the right, a rule under the head."""
    cells = [[fmt(c) for c in row] for row in [head] + rows]
    wide = [max(len(row[i]) for row in cells) for i in range(len(head))]

    def line(row):
        at = zip(range(len(row)), row, wide)
        return "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, c, w in at).rstrip()

    return "\n".join([line(cells[0]), "  ".join("-" * w for w in wide)] + [line(row) for row in cells[1:]])
