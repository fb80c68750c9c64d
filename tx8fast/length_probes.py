"""Is a model the same at the lengths that are served without being compiled? Its imported graphs are compared at some of them.

May import: frontend, ir, passes, errors. Must not: analyse what padding reaches, or compile.

Passes choose by sizes, so what they leave at a few tokens is another graph of the same model. What a reader makes is compared
first; only where that differs (a slice that keeps all is none, a constant that nobody reads) what passes leave is.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tx8fast.errors import ConfigError, Tx8Error
from tx8fast.files import open_input
from tx8fast.ir.core import Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.types import TensorType
from tx8fast.passes.same_lengths import check_same_model, computing, constant

#: of a file at most so many lengths are imported, of so many ops in all (an import costs `IMPORT` more), and at least so many
MOST, OPS, LEAST = 128, 16_000, 8
IMPORT = 50
#: lengths of a model that tx8fast's own readers build for any length: at one token alone a table of rotations is the same for all divisors
BUILT = 3

Shapes = list[tuple[int, ...]]
Import = Callable[[int], IRProgram]


class Probes:
    """Compares graphs of other lengths with the `raw` one of `length`, which passes have not touched."""

    def __init__(self, raw: IRProgram, length: int, load: Import, doing: str) -> None:
        self.raw, self.length, self.load, self.doing = raw, length, load, doing
        self.differ: list[int] = []  # lengths at which what the reader makes is no longer or shorter form of `raw`
        self.sizes = {length: shapes_of(raw)}

    def compare(self, lengths: Sequence[int]) -> None:
        """Note the lengths whose graphs differ."""
        for n in lengths:
            try:
                other = _quiet(self.load, n)
                one, two = (other, self.raw) if n < self.length else (self.raw, other)
                if len(list(one.functions)) != 1 or len(list(two.functions)) != 1:
                    self.differ.append(n)
                    continue
                check_same_model(one, two, self.doing)
            except Tx8Error:
                self.differ.append(n)
                continue
            shapes = shapes_of(other)
            if _bent({**self.sizes, n: shapes}) is None:
                self.sizes[n] = shapes
            else:
                self.differ.append(n)

    def settle(self, probe: IRProgram, others: dict[int, Shapes], after_passes: Callable[[IRProgram], None]) -> int:
        """Compare what passes leave of the lengths noted. probe: the graph of `length`, others: sizes of the bounds' graphs.

        Return the least length that is served: 2 if the model is another one for a single element, where readers and passes
        leave out what does nothing. Raises ConfigError for any other length at which it is another one.
        """
        least = 1
        sizes = {self.length: shapes_of(probe), **others}
        for n in self.differ:
            try:
                self._settle(n, probe, sizes, after_passes)
            except ConfigError:
                if n != 1:
                    raise
                least = 2
        return least

    def _settle(
        self, n: int, probe: IRProgram, sizes: dict[int, Shapes], after_passes: Callable[[IRProgram], None]
    ) -> None:
        try:
            other = _quiet(self.load, n)
            after_passes(other)
        except Tx8Error as e:
            raise ConfigError(f"{self.doing}: there is no model of length {n}, which would be served: {e}") from e
        doing = f"{self.doing}: served without being compiled, {n}"
        check_same_model(*((other, probe) if n < self.length else (probe, other)), doing)
        sizes[n] = shapes_of(other)
        bent = _bent(sizes)
        if bent is not None:
            op = [op.loc or op.kind for op, _ in _sized(other)][bent]
            raise ConfigError(
                f"{doing}: a size of '{op}' does not follow it evenly; the model is another one at another length; compile each length by itself"
            )


def _sized(program: IRProgram) -> Iterator[tuple[Op, Value]]:
    """What has sizes: the results of what computes, and constants where they are taken."""
    for op in computing(program):
        for v in (*filter(constant, op.operands), *op.results):
            yield op, v


def shapes_of(program: IRProgram) -> Shapes:
    return [v.shape if isinstance(v.type, TensorType) else () for _, v in _sized(program)]


def _bent(sizes: dict[int, Shapes]) -> int | None:
    """Return the first value with a size that does not grow by one amount per element of length: min(n, 4), n / 2 rounded."""
    (a, first), (b, second), *rest = sorted(sizes.items()) if len(sizes) > 1 else [(0, []), (1, [])]
    for n, shapes in rest:
        for i, (x, y, z) in enumerate(zip(first, second, shapes, strict=True)):
            if x == y == z:
                continue
            if any((q - p) * (n - a) != (r - p) * (b - a) for p, q, r in zip(x, y, z, strict=True)):
                return i
    return None


def _quiet(load: Import, length: int) -> IRProgram:
    """Import without the warnings that the import of a bound gives as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load(length)


def lengths_to_compare(bounds: Sequence[int], compared: Sequence[int], built: bool, ops: int) -> list[int]:
    """Return lengths up to the last bound, those first at which a model is most likely another one, without those `compared`.

    Beside bounds and powers of two is what the rest of a division tells apart, small ones meet every rest, and a
    threshold lies between the least and the last.
    """
    last = bounds[-1]
    near = [n for b in bounds for n in (b - 1, b + 1)]
    powers = [n for k in range(last.bit_length() + 1) for n in ((1 << k), (1 << k) - 1, (1 << k) + 1)]
    order = [last - 1, 1, 2, 3, *near, *range(4, 10), *powers, *range(10, min(last, 10 * MOST))]
    found = [n for n in dict.fromkeys(order) if 1 <= n <= last and n not in compared and n not in bounds]
    return found[: BUILT if built else min(MOST, max(LEAST, OPS // (ops + IMPORT)))]


def built_here(model: str | os.PathLike[str]) -> bool:
    """True for a configuration: the reader writes its graph for any length. False for graphs that anybody has written."""
    path = Path(model)
    if path.is_dir():
        return (path / "config.json").is_file() or bool(list(path.glob("*.gguf")))
    with open_input(path) as f:
        head = f.read(64)
    return head.lstrip()[:1] == b"{" or head.startswith(b"GGUF") or path.suffix == ".gguf"
