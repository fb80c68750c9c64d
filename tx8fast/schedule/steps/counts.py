"""How often a group must be cut at least: from the bytes of its ops, then from the bytes alive at once.

May import: schedule.steps.slices, errors. Must not: place anything.

The order of preference is n, then channels where a group may be cut there, then depth, height, width (layer-group notes
5.3-5.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tx8fast.errors import InfeasibleError, raise_all

Counts = tuple[int, int, int, int, int]
MIN_WIDTH_BYTES = 256


@dataclass(frozen=True)
class Footprint:
    """Bytes an uncut op works on: activations with scratch, and weights that stay whole in every slice."""

    name: str
    activation_bytes: int
    weight_bytes: int = 0


def first_counts(ops: Sequence[Footprint], most: Counts, capacity_bytes: int, channels: bool = False,
                 weights_stay: bool = False) -> Counts:  # fmt: skip
    """Return slice counts that no op can do without.

    most: greatest count per dimension; channels: the group may be cut in c. weights_stay: weights take their bytes off the
    capacity of every slice, otherwise they are cut like the rest. Raises InfeasibleError naming every op that cannot be cut enough.
    """
    n = c = d = h = w = 1
    problems = []
    for op in ops:
        room = capacity_bytes - (op.weight_bytes if weights_stay else 0)
        if room <= 0:
            problems.append(
                f"{op.name}: weights of {op.weight_bytes:,} bytes fill the {capacity_bytes:,} of a scratchpad"
            )
            continue
        total = op.activation_bytes + (0 if weights_stay else op.weight_bytes)
        rest = -(-total // room)
        n = max(min(rest, most[0]), n)
        rest = -(-rest // n)
        if channels:
            per = max(most[1] // rest, 1)
            c = max(-(-most[1] // per) if rest <= most[1] else most[1], c)
            rest = -(-rest // c)
        d = max(min(rest, most[2]), d)
        rest = -(-rest // d)
        h = max(rest, h)
        if h > most[3]:
            w = max(-(-h // most[3]), w)
            h = most[3]
            if w > most[4]:
                problems.append(f"{op.name}: {total:,} bytes need {w} cuts in width, {most[4]} are possible")
    raise_all(InfeasibleError, "cutting a group into slices", problems)
    return n, c, d, h, w


def cut_height_and_width(
    total: int, most_h: int, most_w: int, size_h: int, size_w: int, item_bytes: int = 1
) -> tuple[int, int]:
    """Return the cheapest (h, w) with at least `total` pieces: seams weighted by their length, taller ones on ties.

    A piece is at least MIN_WIDTH_BYTES wide where height alone would do. Raises InfeasibleError if there is none.
    """
    best: tuple[int, int, int] | None = None
    for h in range(most_h, 0, -1):
        w = -(-total // h)
        if w > most_w or (total < most_h and w > 1 and size_w // w * item_bytes < MIN_WIDTH_BYTES):
            continue
        seams = (h - 1) + (w - 1) * (size_h // size_w)
        if best is None or seams < best[0]:
            best = (seams, h, w)
    if best is None:
        raise InfeasibleError(
            f"cutting a group into slices: {total} pieces needed, height and width allow {most_h} x {most_w}"
        )
    return best[1:]


def next_counts(counts: Counts, most: Counts) -> Counts | None:
    """Return the counts with one more slice in the first dimension that allows it, None if none does."""
    for d, (k, m) in enumerate(zip(counts, most, strict=True)):
        if k < m:
            return (*counts[:d], k + 1, *counts[d + 1 :])  # type: ignore[return-value]
    return None


def pieces_to_fit(op: Footprint, most: Counts, capacity_bytes: int) -> int:
    """Return into how many pieces an op alone must be cut; raises InfeasibleError if that is not possible."""
    counts: Counts | None = (1, 1, 1, 1, 1)
    while counts is not None:
        pieces = counts[0] * counts[1] * counts[2] * counts[3] * counts[4]
        if op.weight_bytes + -(-op.activation_bytes // pieces) <= capacity_bytes:
            return pieces
        counts = next_counts(counts, most)
    raise InfeasibleError(f"cutting {op.name}: even its smallest slice takes more than {capacity_bytes:,} bytes")
