"""Results that tiles send each other between two nests of a chain: every tile gets what it needs, whatever the grids of both are.

May import: lower, isa, machine, tile.{emit, multicast, nest, tiling}. Must not: choose plans, know what is computed.

The nest before leaves a result in scratchpad, a buffer per slice; the next one has a buffer per slice of its operand and loads none
of them. What goes from where to where say the transfers with DDR that neither does: a run of bytes that one tile would store and
another one load is a message from the one to the other, and one message to all tiles that want the same run at the same place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tx8fast import isa
from tx8fast.lower.transfer import PIECES, channel_form, runs
from tx8fast.machine import Machine
from tx8fast.machine.topology import mask_tiles
from tx8fast.tile import multicast
from tx8fast.tile.emit import code_key
from tx8fast.tile.nest import loop_steps
from tx8fast.tile.tiling import TileRange, Tiling

MONITOR = 2  # counts what is delivered; multicasts of nests have the first two
MOST_STEPS = 64  # of a tile's nest of which something is delivered, sums counted once
MOST_MESSAGES = 40  # of a tile at a border: the core sets up each of them, and all wait for it
MOST_RUNS = 256  # of a value that a tile has or gets: heads inside of channel blocks are a run per row
#: one value's way: access of the nest before, of the next one, and where the buffers of both begin
Way = tuple[int, int, int, int]


class Message(NamedTuple):
    """Bytes that a tile sends to the tiles of `mask`, to the same place in each."""

    source: int
    target: int
    size_bytes: int
    mask: int


Deliveries = tuple[tuple[Message, ...], ...]  # by the tile that sends


def delivered(a: Tiling, b: Tiling, ways: Sequence[Way]) -> Deliveries | None:
    """Return what every tile sends so that all have the operands of b that it gets from a; None if a's tiles do not have all of it,
    or several have the same bytes, or several bytes have one place, or nobody wants what a tile would make."""
    return sent(
        [(pieces(a, ka), pieces(b, kb), source, target) for ka, kb, source, target in ways], a.low.machine.n_tiles
    )


def sent(ways: Sequence[tuple[np.ndarray | None, np.ndarray | None, int, int]], n_tiles: int) -> Deliveries | None:
    """Return what every tile sends. ways: of every value what `pieces` says of both nests, and where the buffers begin."""
    out: list[list[Message]] = [[] for _ in range(n_tiles)]
    for have, want, source, target in ways:
        if (moved := _moved(have, want)) is None or len(moved) > MOST_RUNS * n_tiles:
            return None
        senders, found = _messages(moved)
        if max(map(int.__add__, map(len, out), np.bincount(senders, minlength=n_tiles).tolist())) > MOST_MESSAGES:
            return None
        for sender, (begin, to, size, mask) in zip(senders.tolist(), found.tolist(), strict=True):
            out[sender].append(Message(source + begin, target + to, size, mask))
    return tuple(map(tuple, out))


def stays_there(have: np.ndarray | None, want: np.ndarray | None) -> bool:
    """True if every tile finds all that it wants in its own scratchpad, at the same place behind where the first buffer begins. have and
    want: what `pieces` says of a nest and of a later one."""
    moved = _moved(have, want)
    return moved is not None and bool((moved[:, 0] == moved[:, 1]).all() and (moved[:, 2] == moved[:, 3]).all())


def pieces(how: Tiling, k: int, close: bool = False) -> np.ndarray | None:
    """Return (n, 4): of every run of every slice of an access its DDR byte, tile, byte behind the first buffer, and bytes; None of nests
    with too many slices. Results are those of whole sums. close: slices of an operand lie as those of a result that stays."""
    access, low, plan = how.accesses[k], how.low, how.plan
    if k >= len(low.reads):
        whole = zip(plan.slices, low.reduce, plan.shard, strict=True)
        made = how.but(slices=tuple([n if summed else size for size, summed, n in whole]))
    else:
        made = how
    if math.prod(made.trips) > MOST_STEPS:
        return None
    # tiles of equal code have equal runs but for where their ranges begin in DDR
    known: dict[tuple, np.ndarray] = {}
    out = [np.empty((0, 4), np.int64)]
    for tile, r in enumerate(how.ranges):
        if r.idle:
            continue
        box, key = access.box(r.lo, r.hi), code_key(low, r)
        base = np.array(access.origins(box), np.int64)
        if key not in known:
            known[key] = _runs(made, k, r, how.pitch(k, r) if close else pitch(how, k, r), base.tolist())
        piece, ddr, spm, size = known[key].T
        out.append(np.stack([base[piece] + ddr, np.full(len(ddr), tile), spm, size], axis=1))
    return np.concatenate(out)


def _runs(how: Tiling, k: int, r: TileRange, step: int, base: Sequence[int]) -> np.ndarray:
    """Return (n, 4): of every run of every slice of an access on a tile, each slice once, its piece of the tensor, DDR byte behind where
    that of the tile's range begins, byte behind the first buffer, and bytes. step: from one buffer to the next one."""
    access, low, read = how.accesses[k], how.low, k < len(how.low.reads)
    out: list[tuple[int, int, int, int]] = []
    forms: dict[tuple, list[tuple[int, int, int, int]]] = {}
    for s in loop_steps(how, r.lo, r.hi):
        if not (k in s.new if read else s.last):
            continue
        box = access.box(s.lo, s.hi)
        begin = access.origins(box)
        form = access.form(s.lo, s.hi), channel_form(access.spec, access.strides, *box[-1]), low.positional and s[:2]
        if form not in forms:
            found = access.transfers(s.lo, s.hi)
            own = [(piece, runs([d for d in found if d.piece == piece])) for piece in range(PIECES)]
            forms[form] = [(piece, ddr - begin[piece], spm, n) for piece, moved in own for ddr, spm, n in moved]
        at = s.copy[k] * step
        out += [(piece, begin[piece] - base[piece] + ddr, at + spm, n) for piece, ddr, spm, n in forms[form]]
    return np.array(out, np.int64).reshape(-1, 4)


def pitch(how: Tiling, k: int, r: TileRange) -> int:
    """Return the bytes from one slice's buffer to the next one's: only those of results that are kept lie closer where a tile has fewer
    rows."""
    return how.pitch(k, r) if k >= len(how.low.reads) and k in how.plan.kept else how.slot_bytes(k)


def _moved(have: np.ndarray | None, want: np.ndarray | None) -> np.ndarray | None:
    """Return (n, 5): of every run that one tile has and one wants, both tiles, both scratchpad bytes, and the bytes."""
    if have is None or want is None or not len(have) or not len(want):
        return None
    have = have[np.argsort(have[:, 0], kind="stable")]
    begin, end = have[:, 0], have[:, 0] + have[:, 3]
    there = want[np.lexsort((want[:, 2], want[:, 1]))]
    # loads that fill the same byte have an order: of heads with idle lanes the next one's values lie in the lanes of the one before
    twice = (there[1:, 1] == there[:-1, 1]) & (there[1:, 2] < there[:-1, 2] + there[:-1, 3])
    if (begin[1:] < end[:-1]).any() or twice.any():
        return None
    first = np.searchsorted(end, want[:, 0], "right")
    count = np.searchsorted(begin, want[:, 0] + want[:, 3], "left") - first
    to = np.repeat(np.arange(len(want)), count)
    of = np.arange(len(to)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    lo = np.maximum(begin[of], want[to, 0])
    size = np.minimum(end[of], want[to, 0] + want[to, 3]) - lo
    if size.sum() != want[:, 3].sum() or not np.bincount(of, minlength=len(have)).all():
        return None
    return np.stack(
        [have[of, 1], want[to, 1], have[of, 2] + lo - begin[of], want[to, 2] + lo - want[to, 0], size], axis=1
    )


def _messages(moved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the tiles that send and (n, 4) what a `Message` says: of runs that go on in both scratchpads one, to all tiles that want the
    same bytes in the same place."""
    moved = moved[np.lexsort((moved[:, 3], moved[:, 1], moved[:, 0]))]
    ends = moved[:, 2:4] + moved[:, 4:]
    new = np.ones(len(moved), bool)
    new[1:] = (moved[1:, :2] != moved[:-1, :2]).any(axis=1) | (moved[1:, 2:4] != ends[:-1]).any(axis=1)
    at = np.flatnonzero(new)
    sender, to, source, target, _ = moved[at].T
    size = np.add.reduceat(moved[:, 4], at)
    alike = np.lexsort((size, target, source, sender))
    same = np.stack([sender, source, target, size], axis=1)[alike]
    begin = np.flatnonzero(np.append(True, (same[1:] != same[:-1]).any(axis=1)))
    masks = np.bitwise_or.reduceat(np.int64(1) << to[alike], begin)
    turn = np.argsort(alike[begin])
    found = same[begin[turn]]
    return found[:, 0], np.concatenate([found[:, 1:], masks[turn, None]], axis=1)


def rows(made: Deliveries, tile: int, mask: int) -> list[tuple]:
    """Return the rows of a tile between the nests. mask: the tiles that take part, which all have ended the nest before. The next nest
    knows of no copies: where there are some, they are over before it begins."""
    here = 1 << tile
    copies = [m for m in made[tile] if m.mask == here]
    sends = [m for m in made[tile] if m.mask != here]
    out = [isa.make("barrier_sub", mask=mask)]
    for m in sends:
        out.append(isa.make("send", src=m.source, dst=m.target, bytes=m.size_bytes, mask=m.mask, monitor=MONITOR))
    out += [multicast.copy(m.source, m.target, m.size_bytes) for m in copies]
    arriving = sum(m.size_bytes for own in made for m in own if m.mask & here) - sum(m.size_bytes for m in copies)
    if arriving:
        out.append(isa.make("recv", monitor=MONITOR, bytes=arriving))
    if sends:
        out.append(isa.make("send_wait"))
    return [*out, isa.make("wait")] if copies else out


def cycles(machine: Machine, made: Deliveries) -> int:
    """Return the cycles from the tiles' meeting until all have what they need: of the tile that sends or gets most."""
    set_up = int(isa.issue_cycles(machine, isa.rows([isa.make("send", src=0, dst=0, bytes=0, mask=0)]))[0])
    meeting = isa.sequence_cycles(machine, isa.make("barrier_sub", mask=(1 << machine.n_tiles) - 1))
    busy, got = 0, [0] * machine.n_tiles
    for tile, own in enumerate(made):
        busy = max(busy, sum([m.mask != 1 << tile for m in own]) * set_up)
        for m in own:
            for to in mask_tiles(m.mask):
                got[to] += m.size_bytes
    port = machine.dte.write_port_bytes or machine.noc.link_bytes
    return meeting + max(busy, max(got) // port)
