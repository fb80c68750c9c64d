"""A tile's finished code made fit for another tile that loads and sends other parts of shared operands.

May import: lower, isa, tile.{emit, transfers}. Must not: choose orders, make instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tx8fast import isa
from tx8fast.lower.transfer import PIECES, Descriptor
from tx8fast.tile.emit import NestCode, Share
from tx8fast.tile.transfers import in_spans


def fitted(
    nest: NestCode, code: np.ndarray, mine: np.ndarray, shares: Sequence[Share], others: Sequence[Share]
) -> np.ndarray | None:
    """Make a tile's finished code fit for another tile, and return by how many bytes the slots of that tile's part loads are
    shifted; None if it needs a code of its own. mine (n,): the rows that are of this nest; shares, others: how the two tiles take
    part."""
    own, other = ({s.access: s for s in both} for both in (shares, others))
    if not _meets_alike(nest, own, other):
        return None
    shift = np.zeros(PIECES * len(nest.low.reads), np.int64)
    seen: dict[int, int] = {}
    source: dict[int, int] = {}  # where sends begin in staging -> the read
    moved: dict[tuple[int, int], int] = {}
    for key, (k, found, spans) in nest.part_forms.items():
        ours, start, size, total = nest.cut(key, found, own[k])
        theirs, their_start, their_size, _ = nest.cut(key, found, other[k])
        spans = spans or [(0, total)]
        sent, others_sent = list(in_spans(spans, start, size)), list(in_spans(spans, their_start, their_size))
        alike = [(at, n) for at, _, n in sent] == [(at, n) for at, _, n in others_sent]
        if not alike or [_shape(d) for d in ours] != [_shape(d) for d in theirs]:
            return None
        for a, b in zip(ours, theirs, strict=True):
            if seen.setdefault(PIECES * k + a.piece, b.ddr - a.ddr) != b.ddr - a.ddr:
                return None
        source |= {at + staged: k for at in nest.at.staging[k] for staged, *_ in sent}
        for (_, a, n), (_, b, _) in zip(sent, others_sent, strict=True):
            if moved.setdefault((k, n), b - a) != b - a:
                return None
    for slot, value in seen.items():
        shift[slot] = value
    for n in np.flatnonzero(mine & (code["opcode"] == isa.INSTRUCTIONS["send"].OPCODE)):
        k = source.get(int(code["spm"][n, 0]))
        if k is not None:
            code["spm"][n, 1] += moved[k, int(code["p"][n, 0])]
        (k,) = nest.gathered if k is None else (k,)  # of equal ranks, pieces are equal
        code["p"][n, 1] = other[k].mask
    masks = {own[k].mask: other[k].mask for k in own}
    for n in np.flatnonzero(mine & (code["opcode"] == isa.INSTRUCTIONS["barrier_sub"].OPCODE)):
        code["p"][n, 0] = masks[int(code["p"][n, 0])]
    return shift


def _meets_alike(nest: NestCode, own: Mapping[int, Share], other: Mapping[int, Share]) -> bool:
    """True if both tiles meet as many sets of tiles before each exchange, and in the same order: all tiles meet in that of the masks
    (`multicast.meet`)."""
    masks: dict[int, int] = {}
    if any(masks.setdefault(own[k].mask, other[k].mask) != other[k].mask for k in own):
        return False
    for changed in {fill.changed for fill in nest.order.fills}:
        ours, theirs = ({s[k].mask for k in changed} for s in (own, other))
        if [masks[mask] for mask in sorted(ours)] != sorted(theirs):
            return False
    return True


def _shape(d: Descriptor) -> tuple:
    return d.piece, d.spm, d.run_bytes, d.loops
