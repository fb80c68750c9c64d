"""The code of a tile whose launch runs one nest or several, in the nests' order.

May import: isa, tile.{blocks, fills, nodes, pins}. Must not: choose an order, know ops.

Nests of one launch are one code, so that what a nest needs first may come while the one before works on its last slices. At a
border the tile has its messages sent; then whatever they were read from may be written over.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.records import dataclass
from tx8fast.tile.blocks import Code, Columns
from tx8fast.tile.fills import Multicasts, in_turn
from tx8fast.tile.nodes import Border
from tx8fast.tile.pins import Span, merged


@dataclass(frozen=True)
class TileCode:
    """A tile's code in nest order. step (n,): of the loop nest, to which each row belongs; multicasts: of the tile; fill (n,): the number
    of the multicast that the row's slice belongs to; borders: of several nests; begins: of each of them, its first row and multicast."""

    code: Code
    step: np.ndarray
    multicasts: Multicasts
    fill: np.ndarray
    borders: tuple[Border, ...] = ()
    begins: tuple[tuple[int, int], ...] = ()

    def tail(self, fills: int) -> list[Span]:
        """Return the bytes of the scratchpad that the last multicasts and the rows behind them touch, or of the last steps if there are
        none."""
        number = self.fill if self.multicasts.count else self.step
        at = isa.distinct(self.code.at[number > number.max(initial=0) - fills])
        columns = self.code.columns
        spans = np.concatenate([columns.read[at].reshape(-1, 2), columns.write[at].reshape(-1, 2)])
        sent = [span for read, write in self.multicasts.last(fills) for span in (*read, *write)]
        return merged((lo, hi) for lo, hi in [*spans.tolist(), *sent])


def joined(
    nests: Sequence[TileCode],
    numbers: Sequence[int],
    slots: Sequence[int],
    early: Sequence[bool],
    border: tuple[np.ndarray, Columns],
) -> TileCode:
    """Return nests one behind the other as one code. numbers: of the nests; slots: by number, that of the first DDR slot; early: by
    number, whether rows may go before the nest before is over; border: the row that stands between nests, and its columns. What rows have for an op says which nest they are of (`nest_of`)."""
    plain, at, ddr, step, fill = [], [], [], [], []
    columns: Columns | None = None
    multicasts: list[Multicasts] = []
    borders: list[Border] = []
    begins: list[tuple[int, int]] = []
    n_rows = n_plain = n_steps = count = reaches = 0

    def add(code: Code, steps: np.ndarray, fills: np.ndarray) -> None:
        nonlocal columns, n_rows, n_plain
        plain.append(code.plain)
        at.append(code.at + n_plain)
        ddr.append(code.ddr)
        step.append(steps + n_steps)
        fill.append(np.maximum(fills, 0))
        columns = code.columns if columns is None else columns.followed_by(code.columns)
        n_rows, n_plain = n_rows + len(code.at), n_plain + len(code.plain)

    for i, nest in zip(numbers, nests, strict=True):
        if begins and any(nest.multicasts.count for nest in nests):
            sent = Code(_tagged(border[0], i), np.zeros(1, np.int64), np.zeros(1, np.int64), border[1])
            add(sent, np.zeros(1, np.int64), np.full(1, count - 1))
            borders.append(Border(n_rows - 1, count, not early[i]))
        begins.append((n_rows, count))
        own = nest.multicasts
        multicasts.append(own.moved(n_rows, count, reaches))
        rows = _tagged(nest.code.plain, i)
        rows["slot"][rows["slot"] >= 0] += slots[i]
        code = Code(rows, nest.code.at, nest.code.ddr, nest.code.columns)
        add(code, nest.step, nest.fill + count if own.count else np.full(len(nest.fill), count - 1))
        count, reaches = count + own.count, reaches + len(own.reaches)
        n_steps += int(nest.step.max(initial=0)) + 1
    assert columns is not None
    code = Code(np.concatenate(plain), np.concatenate(at), np.concatenate(ddr), columns)
    return TileCode(
        code, np.concatenate(step), in_turn(multicasts), np.concatenate(fill), tuple(borders), tuple(begins)
    )


def _tagged(rows: np.ndarray, nest: int) -> np.ndarray:
    rows = rows.copy()
    rows["op"] = np.where(rows["op"] >= 0, nest, -1 - nest)
    return rows


def nest_of(rows: np.ndarray) -> np.ndarray:
    """Return the nest of each row of a joined code; of waits that an order has added, 0."""
    return np.where(rows["op"] >= 0, rows["op"], -1 - rows["op"])


def named(rows: np.ndarray, names: Sequence[int]) -> np.ndarray:
    """Return rows of a joined code with the op that stands for their nest, if they name one."""
    rows = rows.copy()
    rows["op"] = np.where(rows["op"] >= 0, np.array(names)[np.maximum(rows["op"], 0)], -1)
    return rows
