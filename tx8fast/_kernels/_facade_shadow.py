"""The door to the shadow memory's kernels: ranges are checked here, so that a wrong address is an error and not a crash.

May import: numpy, errors, the compiled module beside it. Must not: know rows or formats. Addresses and strides count cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import shadow as _shadow
from tx8fast._kernels._checks import require
from tx8fast._kernels._facade_field import RANK, Thin
from tx8fast.errors import SimulationError

Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]
_NO_WORDS = np.zeros(0, np.uint32)
_NO_MATRIX = Thin(np.zeros((0, RANK)), np.zeros((RANK, 0)))
LOAD_P, LOAD_Q, STORE_P, STORE_Q = range(4)


class Form(NamedTuple):
    """How an operand of (n, pos, c) elements lies: its numbers for the kernel, the cells of an element, its kind, the cells it spans."""

    shape: tuple[int, int, int]
    numbers: npt.NDArray[np.int64]
    width: int
    kind: int
    cells: int

    @property
    def size(self) -> int:
        n, pos, c = self.shape
        return n * pos * c


@lru_cache(maxsize=1 << 12)
def form(n: int, pos: int, c: int, block: int, full: int, tail: int, stride: int, width: int, kind: int) -> Form:
    """Return a form: `full` blocks of `block` channels, then a tail of `tail`; `stride` cells from batch to batch."""
    require(
        "shadow", min(n, pos, c, full, tail) >= 0 and block > 0 and width in (1, 2), "a form's numbers are out of range"
    )
    require(
        "shadow", full * block + tail >= c and (full - (tail == 0)) * block <= c, "a form has not room for its channels"
    )
    cells = max(0, (n - 1) * stride + (full * block + tail) * pos * width)
    return Form((n, pos, c), np.array([n, pos, c, block, full, tail, stride], np.int64), width, kind, cells)


def _inside(what: str, plane: Words, at: int, cells: int) -> None:
    if at < 0 or at + cells > len(plane):
        raise SimulationError(f"{what}: cells [{at}, {at + cells}) are outside of the {len(plane)} of this memory")


def load(plane: Words, at: int, operand: Form, q: bool = False) -> tuple[Words, int]:
    """Return an operand's words (size,) and how many of its elements were written in another format."""
    _inside("reading an operand", plane, at, operand.cells)
    out = np.empty(operand.size, np.uint32)
    bad = _shadow.words(plane, at, operand.numbers, operand.width, operand.kind, out, LOAD_Q if q else LOAD_P)
    return out, bad


def store(plane: Words, at: int, operand: Form, words: Words, q: bool = False) -> None:
    """Write an operand's words; what a block has beyond the channels becomes zero."""
    _inside("writing an operand", plane, at, operand.cells)
    require("shadow", words.size == operand.size and words.dtype == np.uint32, "the words do not fit the operand")
    # the kernel's view serves loads and stores and wants memory that may be written
    words = np.require(words, requirements=("C", "W")).reshape(-1)
    _shadow.words(plane, at, operand.numbers, operand.width, operand.kind, words, STORE_Q if q else STORE_P)


def centred(
    plane: Words, at: int, operand: Form, modulus: int, q: bool = False, out: Floats | None = None
) -> tuple[Floats, int]:
    """Return an operand as float64 residues (n, pos, c) around zero, maybe in `out`, and how many of its elements have none."""
    _inside("reading an operand", plane, at, operand.cells)
    if out is None:
        out = np.empty(operand.shape)
    require("shadow", out.shape == operand.shape and out.flags.c_contiguous, "the array does not fit the operand")
    bad = _shadow.centred(plane, at, operand.numbers, operand.width, operand.kind, out.reshape(-1), modulus, q)
    return out, bad


def finish(
    total: Floats, plane: Words, at: int, operand: Form, partial: tuple[int, Form] | None, modulus: int, q: bool = False
) -> None:
    """Store sums (n, pos, c), integers below 2^53, as an operand of that shape; `partial`: cell and form of partial sums to add, of its shape."""
    _inside("writing an operand", plane, at, operand.cells)
    fits = total.shape == operand.shape and (total.shape[2] < 2 or total.strides[2] == total.itemsize)
    require("shadow", fits and operand.numbers[3] <= 128, "the sums do not fit the operand")
    add_at, add = partial or (0, operand)
    if partial:
        _inside("reading an operand", plane, add_at, add.cells)
        require(
            "shadow",
            add.shape == operand.shape and add.numbers[3] == operand.numbers[3],
            "partial sums differ in shape",
        )
    source = plane
    if add_at < at + operand.cells and at < add_at + add.cells and (add_at, add.width) != (at, operand.width):
        source, add_at = plane[add_at : add_at + add.cells].copy(), 0
    _shadow.finish(
        total,
        plane,
        at,
        operand.numbers,
        operand.width,
        operand.kind,
        source,
        add_at,
        add.numbers,
        add.width if partial else 0,
        add.kind,
        modulus,
        q,
    )


def span(size: int, levels: Sequence[int]) -> int:
    """Return the cells from the first to the last cell of runs; levels are (stride, count) three times."""
    return size + sum((count - 1) * stride for stride, count in zip(levels[::2], levels[1::2]))


def move(
    dst: Words, dst_at: int, dst_levels: Sequence[int], src: Words, src_at: int, src_levels: Sequence[int], size: int
) -> None:
    """Copy runs of `size` cells, as if all were read before the first is written. Strides may not be negative."""
    counts = [levels[1] * levels[3] * levels[5] for levels in (dst_levels, src_levels)]
    require(
        "shadow", counts[0] == counts[1] and min(*dst_levels, *src_levels, size) >= 0, "the runs of a move do not fit"
    )
    if not counts[0] or not size:
        return
    ends = [span(size, levels) for levels in (dst_levels, src_levels)]
    _inside("writing runs", dst, dst_at, ends[0])
    _inside("reading runs", src, src_at, ends[1])
    if dst is src and dst_at < src_at + ends[1] and src_at < dst_at + ends[0]:
        src = src[src_at : src_at + ends[1]].copy()
        src_at = 0
    levels = np.array([dst_levels, src_levels], np.int64)
    _shadow.runs(dst, dst_at, levels[0], src, src_at, levels[1], size)


class Stream(NamedTuple):
    """A tensor of random elements that is nowhere stored: its form and the key of its elements, or what tells its factors modulo
    p and q."""

    form: Form
    key: int
    thin: Callable[[], tuple[Thin, Thin]] | None = None


def draw(
    dst_p: Words,
    dst_q: Words | None,
    dst_at: int,
    stream: Stream,
    src_at: int,
    levels: Sequence[int],
    size: int,
    p: int,
    q: int,
) -> None:
    """Fill consecutive cells with runs of a random tensor, counted in its cells."""
    runs = levels[1] * levels[3] * levels[5]
    _inside("writing runs", dst_p, dst_at, runs * size)
    require("shadow", src_at >= 0 and min(*levels, size) >= 0, "runs of a random tensor start before it")
    if runs * size:
        thin = (_NO_MATRIX, _NO_MATRIX) if stream.thin is None else stream.thin()
        if stream.thin is not None:
            fits = [len(x.left) * x.right.shape[1] == stream.form.size for x in thin]
            require("shadow", all(fits), "a thin matrix has not as many elements as its tensor")
            end = int(stream.form.numbers[0] * stream.form.numbers[6])
            require("shadow", src_at + span(size, levels) <= end, "runs of a thin matrix end behind it")
        _shadow.drawn(
            dst_p,
            _NO_WORDS if dst_q is None else dst_q,
            dst_at,
            src_at,
            np.array(levels, np.int64),
            size,
            stream.form.numbers,
            stream.form.width,
            stream.form.kind,
            stream.key,
            p,
            q,
            *thin[0],
            *thin[1],
        )


def add_reduced(total: Floats, part: Floats, modulus: int) -> None:
    """Add `part` to `total`, in place, both integers below 2^53; each of `part` is brought near zero first."""
    require("shadow", total.size == part.size, "the sums differ in size")
    _shadow.add_reduced(total.reshape(-1), part.reshape(-1), modulus)


def residues(total: Floats, modulus: int) -> Words:
    """Return integers below 2^53 modulo the modulus."""
    out = np.empty(total.shape, np.uint32)
    _shadow.residues(np.ascontiguousarray(total).reshape(-1), out.reshape(-1), modulus)
    return out
