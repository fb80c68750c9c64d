"""What is placed (Buffer, Problem), the answer (Placement), and the CSV form of both.

May import: `_kernels` types, `errors`, `files`, numpy. Must not: decide anything; `solve.py` does.
All intervals are half-open: a buffer with lifetime (3, 5) is alive at times 3 and 4.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tx8fast.errors import AllocationError, raise_all
from tx8fast.files import replacing
from tx8fast.records import dataclass

Ints = npt.NDArray[np.int64]
Interval = tuple[int, int]
LIMIT = 2**61


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that keep one address over all their lifetimes; between these, others may use the space."""

    label: str
    lifetimes: tuple[Interval, ...]
    size_bytes: int
    align_bytes: int = 1
    fixed: int | None = None  # offset the buffer must get


@dataclass(frozen=True)
class Problem:
    """Buffers to place in [0, capacity); `capacity_bytes` None means that only the height matters."""

    buffers: tuple[Buffer, ...]
    capacity_bytes: int | None = None

    def check(self) -> None:
        """Raise AllocationError that names every ill-formed buffer."""
        problems = []
        for b in self.buffers:
            if b.size_bytes < 0:
                problems.append(f"buffer {b.label!r}: size of {b.size_bytes} bytes is negative")
            if b.align_bytes < 1:
                problems.append(f"buffer {b.label!r}: alignment of {b.align_bytes} bytes, at least 1 required")
            elif b.fixed is not None and (b.fixed < 0 or b.fixed % b.align_bytes):
                problems.append(
                    f"buffer {b.label!r}: fixed offset {b.fixed} is negative or not a multiple of {b.align_bytes} bytes"
                )
            for lo, hi in b.lifetimes:
                if lo >= hi:
                    problems.append(f"buffer {b.label!r}: lifetime [{lo}, {hi}) is empty or reversed")
        # Offsets, their sums and alignments must stay inside 63 bits in the kernels.
        sizes = sum(max(b.size_bytes, 0) for b in self.buffers)
        pads = 2 * len(self.buffers) * max((b.align_bytes for b in self.buffers), default=1)
        highest = max((b.fixed or 0 for b in self.buffers), default=0)
        if sizes + pads + highest >= LIMIT:
            problems.append(f"sizes and alignments add up to {sizes + pads + highest} bytes, below 2**61 required")
        far = max((max(-lo, hi) for b in self.buffers for lo, hi in b.lifetimes), default=0)
        if far >= LIMIT:
            problems.append(f"time {far} is out of range, below 2**61 required")
        raise_all(AllocationError, "placing buffers", problems)

    @cached_property
    def arrays(self) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
        """Return ptr (n + 1,), start (m,), end (m,), size (n,), align (n,), fixed (n,) or -1; int64."""
        counts = [len(b.lifetimes) for b in self.buffers]
        spans = [span for b in self.buffers for span in b.lifetimes]
        flat = np.array(spans, np.int64).reshape(-1, 2)
        return (
            np.concatenate(([0], np.cumsum(counts, dtype=np.int64))),
            np.ascontiguousarray(flat[:, 0]),
            np.ascontiguousarray(flat[:, 1]),
            np.array([b.size_bytes for b in self.buffers], np.int64),
            np.array([b.align_bytes for b in self.buffers], np.int64),
            np.array([-1 if b.fixed is None else b.fixed for b in self.buffers], np.int64),
        )


@dataclass(frozen=True)
class Placement:
    """Offsets in bytes, one per buffer of the problem, with the height and how good it is.

    `lower_bound_bytes` is a height that no placement can go below: the most bytes alive at one
    time, or more if a search has proven more.
    """

    offsets: tuple[int, ...]
    peak_bytes: int
    lower_bound_bytes: int

    @property
    def optimal(self) -> bool:
        """True when the height equals the lower bound, so that no placement can be lower."""
        return self.peak_bytes == self.lower_bound_bytes


def merge_intervals(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the sorted intervals with overlapping ones joined; adjacent ones stay apart.

    Source: back-end notes 13.3; the gap-free neighbours [0, 1) and [1, 2) are two uses of one
    address.
    """
    merged: list[Interval] = []
    for lo, hi in sorted(intervals):
        if merged and lo < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(hi, merged[-1][1]))
        else:
            merged.append((lo, hi))
    return tuple(merged)


def read_csv(path: str | os.PathLike[str], capacity_bytes: int | None = None) -> Problem:
    """Return the problem in a CSV with columns id, lower, upper, size and optionally offset.

    Rows with the same id are several disjoint lifetimes of one buffer. Raises AllocationError that lists all
    malformed rows. Source of the format: the MiniMalloc project.
    """
    required = ("id", "lower", "upper", "size")
    spans: dict[str, list[Interval]] = {}
    facts: dict[str, tuple[int, int | None]] = {}
    problems: list[str] = []
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            missing = [name for name in required if name not in (reader.fieldnames or ())]
            if missing:
                raise AllocationError(
                    f"reading {path}: column {', '.join(missing)} missing, required: {', '.join(required)}"
                )
            for row in reader:
                try:
                    key = row["id"].strip()
                    lo, hi, size = (int(row[name]) for name in required[1:])
                    fixed = int(row["offset"]) if row.get("offset") else None
                except (AttributeError, TypeError, ValueError):
                    found = ", ".join(f"{name} {str(row[name])[:20]!r}" for name in required)
                    problems.append(
                        f"line {reader.line_num}: lower, upper, size and offset must be integers, found {found}"
                    )
                    continue
                if facts.setdefault(key, (size, fixed)) != (size, fixed):
                    problems.append(f"line {reader.line_num}: buffer {key!r} repeats with another size or offset")
                spans.setdefault(key, []).append((lo, hi))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise AllocationError(f"reading {path}: {error}") from error
    for key, lives in spans.items():
        lives.sort()
        if any(b[0] < a[1] for a, b in zip(lives, lives[1:])):
            problems.append(f"buffer {key!r} is listed twice with overlapping lifetimes")
    raise_all(AllocationError, f"reading {path}", problems)
    buffers = (Buffer(k, merge_intervals(v), facts[k][0], fixed=facts[k][1]) for k, v in spans.items())
    problem = Problem(tuple(buffers), capacity_bytes)
    try:
        problem.check()
    except AllocationError as error:
        raise AllocationError(f"reading {path}: {error}") from error
    return problem


def write_csv(path: str | os.PathLike[str], problem: Problem, offsets: Sequence[int]) -> None:
    """Write problem and offsets as CSV; the file appears only when it is complete."""
    try:
        with replacing(path, "allocation") as raw:
            file = io.TextIOWrapper(raw, encoding="utf-8", newline="")
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("id", "lower", "upper", "size", "offset"))
            for buffer, offset in zip(problem.buffers, offsets, strict=True):
                for lo, hi in buffer.lifetimes:
                    writer.writerow((buffer.label, lo, hi, buffer.size_bytes, offset))
            file.detach()
    except OSError as error:
        raise AllocationError(f"writing {path}: {error}") from error
