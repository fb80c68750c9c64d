"""Check of what the tiles of a segment exchange: messages, partial barriers, handshakes.

May import: numpy, isa, machine, program.problems, program.verify_flow. Must not: share code with what produces programs, or simulate.

A segment is closed: what its tiles send they also receive, and no message is under way at a barrier. All codes of a segment are looked
at together, instruction by instruction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tx8fast import isa
from tx8fast.machine import Machine
from tx8fast.program.problems import Problems
from tx8fast.program.verify_flow import EXCHANGES, MESSAGES, Flow

MONITORS = 4
FIELDS = {name: isa.INSTRUCTIONS[name].FIELDS_P for name in EXCHANGES}
WIDTH = max(map(len, FIELDS.values()))


class TileRows(NamedTuple):
    """The rows of a code, how messages name it and the tiles that run it; the order in which some rows run, and their places."""

    where: str
    tiles: list[int]
    rows: np.ndarray
    places: np.ndarray
    flow: Flow


class _Rows(NamedTuple):
    """Rows of several codes, by code, row and interval (number of barriers before): how often they run in it, when for the last time,
    whether nothing waits for them after that, their place in the code, opcode and parameters."""

    code: np.ndarray
    interval: np.ndarray
    times: np.ndarray
    last: np.ndarray
    open: np.ndarray
    place: np.ndarray
    opcode: np.ndarray
    p: np.ndarray

    def some(self, which: np.ndarray) -> _Rows:
        return _Rows(*(column[which] for column in self))

    def of(self, name: str) -> _Rows:
        """Return the rows of an instruction."""
        return self.some(self.opcode == isa.INSTRUCTIONS[name].OPCODE)

    def fields(self, name: str) -> dict[str, np.ndarray]:
        """Return the parameters of rows that are all of one instruction."""
        return dict(zip(FIELDS[name], self.p.T, strict=False))


def _rows(codes: Sequence[TileRows]) -> _Rows:
    flows, places = [c.flow for c in codes], [c.places[c.flow.row] for c in codes]
    return _Rows(
        np.repeat(np.arange(len(codes)), [len(own) for own in places]),
        np.concatenate([flow.interval for flow in flows]),
        np.concatenate([flow.times for flow in flows]),
        np.concatenate([flow.last for flow in flows]),
        np.concatenate([(f.last > f.waits[f.interval]) & (f.interval < f.barriers) for f in flows]),
        np.concatenate(places),
        np.concatenate([flow.opcode for flow in flows]),
        np.concatenate([c.rows["p"][own, :WIDTH] for c, own in zip(codes, places, strict=True)]),
    )


class _Traffic:
    """What all tiles of a segment do, by barrier interval."""

    def __init__(self) -> None:
        # (tile, monitor) -> interval -> bytes
        self.sent: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.got: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        # (where, row, interval) -> targets that the sender does not wait for before the barrier
        self.open: dict[tuple[str, int, int], set[tuple[int, int]]] = {}
        self.groups: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.shakes: dict[tuple[int, int], int] = defaultdict(int)


def check_exchange(machine: Machine, name: str, codes: Sequence[TileRows], found: Problems, n_chips: int = 1) -> None:
    """Add to `found` what is wrong with the rows of segment `name` that involve other tiles, of other chips too.

    Tiles are counted on over the chips; `n_chips` that rows may name, 0: none, the segment is the same on every chip."""
    rows = _rows(codes)
    kinds = {kind: rows.of(kind) for kind in EXCHANGES}
    if not len(rows.code) or not _fields(machine, codes, kinds, found, n_chips):
        return
    traffic = _traffic(machine, codes, kinds)
    what = f"segment '{name}'"
    for tile, monitor in sorted(traffic.sent.keys() | traffic.got.keys()):
        sent = sum(traffic.sent[tile, monitor].values())
        got = sum(traffic.got[tile, monitor].values())
        if sent != got:
            found.add(f"{what} tile {tile} monitor {monitor}: {sent} bytes are sent to it, {got} received")
    for (where, at, interval), targets in traffic.open.items():
        late = [t for t in sorted(targets) if _until(traffic.sent[t], interval) != _until(traffic.got[t], interval)]
        if late:
            found.add(
                f"{where} instruction {at}: a message to tile {late[0][0]} may be under way at barrier {interval}; "
                f"a send_wait, or the matching recv before that barrier, ends it"
            )
    for (chip, mask), counts in sorted(traffic.groups.items()):
        times = {t: counts[t] for t in (chip * machine.n_tiles + m for m in _members(mask))}
        if len(set(times.values())) > 1:
            found.add(f"{what}: tiles meet at partial barrier {mask:#x} differently often: {times} (by tile)")
    for a, b in sorted(traffic.shakes):
        there, back = traffic.shakes[a, b], traffic.shakes.get((b, a), 0)
        if there > back:
            found.add(f"{what}: tile {a} does {there} handshakes with tile {b}, which answers {back}")


def _until(by_interval: dict[int, int], interval: int) -> int:
    return sum(n for i, n in by_interval.items() if i <= interval)


def _members(mask: int) -> list[int]:
    return [t for t in range(mask.bit_length()) if mask >> t & 1]


def _traffic(machine: Machine, codes: Sequence[TileRows], kinds: dict[str, _Rows]) -> _Traffic:
    """Return what rows with good fields do."""
    traffic, n = _Traffic(), machine.n_tiles
    for kind in MESSAGES:
        rows, p = kinds[kind], kinds[kind].fields(kind)
        chips = p.get("chip", np.zeros(len(rows.code), np.int64))
        for c, when, chip, mask, monitor, total, last in _sums(rows, chips, p["mask"], p["monitor"], p["bytes"]):
            code = codes[c]
            for home, senders in _homes(machine, code, chip).items():
                targets = {(home + t, monitor) for t in _members(mask)}
                for target in targets:
                    traffic.sent[target][when] += total * senders
                if rows.open[last]:
                    traffic.open.setdefault((code.where, int(rows.place[last]), when), set()).update(targets)
    rows, p = kinds["recv"], kinds["recv"].fields("recv")
    for c, when, monitor, total, _ in _sums(rows, p["monitor"], p["bytes"]):
        for tile in codes[c].tiles:
            traffic.got[tile, monitor][when] += total
    rows, p = kinds["barrier_sub"], kinds["barrier_sub"].fields("barrier_sub")
    for c, _, mask, times, _ in _sums(rows, p["mask"], np.ones(len(rows.code), np.int64)):
        for tile in codes[c].tiles:
            traffic.groups[tile // n, mask][tile] += times
    rows, p = kinds["handshake"], kinds["handshake"].fields("handshake")
    for c, _, peer, chip, times, _ in _sums(rows, p["peer"], p["chip"], np.ones(len(rows.code), np.int64)):
        for tile in codes[c].tiles:
            home = chip - 1 if chip else tile // n
            traffic.shakes[tile, home * n + peer] += times
    return traffic


def _homes(machine: Machine, code: TileRows, chip: int) -> dict[int, int]:
    """Return, of the chips that rows with field `chip` mean, the first tile and how many tiles of `code` mean it."""
    if chip:
        return {(chip - 1) * machine.n_tiles: len(code.tiles)}
    out: dict[int, int] = defaultdict(int)
    for tile in code.tiles:
        out[tile - tile % machine.n_tiles] += 1
    return out


def _sums(rows: _Rows, *columns: np.ndarray) -> Iterator[tuple[int, ...]]:
    """Yield code, interval, the values of all columns but the last, the sum of the last one over all times that rows with these run, and
    which of them is the last to run."""
    if not len(rows.code):
        return
    *keys, amounts = columns
    names = [rows.code, rows.interval, *keys]
    group = np.zeros(len(rows.code), np.int64)
    for column in names:
        values, number = np.unique(column, return_inverse=True)
        if len(values) > 1:
            group = np.unique(group * len(values) + number, return_inverse=True)[1]
    n = int(group.max()) + 1
    total, last, order = np.zeros(n, np.int64), np.zeros(n, np.int64), np.argsort(rows.last, kind="stable")
    np.add.at(total, group, amounts * rows.times)
    last[group[order]] = order  # of a group the one that runs last stays
    yield from zip(*(column[last].tolist() for column in names), total.tolist(), last.tolist(), strict=True)


def _fields(
    machine: Machine, codes: Sequence[TileRows], kinds: dict[str, _Rows], found: Problems, n_chips: int
) -> bool:
    """Check ranges of fields; return whether all are good."""
    n, before = machine.n_tiles, found.count
    p = {name: kinds[name].fields(name) for name in EXCHANGES}

    def report(name: str, bad: np.ndarray, text: str, values: np.ndarray | None = None) -> None:
        for c in isa.distinct(kinds[name].code[bad]) if bad.any() else ():
            own = np.flatnonzero(bad & (kinds[name].code == c))
            told = text if values is None else text.format(values[own[0]])
            found.rows(codes[c].where, kinds[name].place[own], told)

    for name, field, low, high in (
        *((name, "mask", 1, 1 << n) for name in MESSAGES),
        *((name, "bytes", 1, machine.tile.spm_bytes + 1) for name in MESSAGES),
        *((name, "monitor", 0, MONITORS) for name in MESSAGES),
        ("recv", "bytes", 1, 1 << 40),
        ("recv", "monitor", 0, MONITORS),
        ("barrier_sub", "mask", 1, 1 << n),
        ("handshake", "peer", 0, n),
        ("handshake", "chip", 0, n_chips + 1),
        ("send", "chip", 0, n_chips + 1),
        ("wait_worker", "workers", 1, 1 << machine.tile.workers),
    ):
        value = p[name][field]
        report(name, (value < low) | (value >= high), f"{field} {{}} of a {name} outside [{low}, {high})", value)
    several = {name: p[name]["mask"] & (p[name]["mask"] - 1) != 0 for name in ("send", "gather")}
    report("send", several["send"] & (p["send"]["chip"] > 0), "a message to several tiles of another chip")
    report("gather", several["gather"], "a gather for more than one tile")
    g = p["gather"]
    whole = g["run_bytes"] * g["n0"] * g["n1"] * g["n2"]
    report("gather", whole != g["bytes"], "the runs of a gather do not add up to its bytes")
    for c, code in enumerate(codes):
        own = {name: kinds[name].code == c for name in ("barrier_sub", "handshake")}
        for tile in code.tiles if any(some.any() for some in own.values()) else ():
            chip, number = divmod(tile, n)
            absent = own["barrier_sub"] & (p["barrier_sub"]["mask"] >> number & 1 == 0)
            report("barrier_sub", absent, f"tile {tile} is not in the mask of its barrier")
            there = p["handshake"]["chip"]
            alone = own["handshake"] & (p["handshake"]["peer"] == number) & ((there == 0) | (there == chip + 1))
            report("handshake", alone, f"tile {tile} does a handshake with itself")
    return found.count == before
