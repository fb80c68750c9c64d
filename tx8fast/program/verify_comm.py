"""Check of what the tiles of a segment exchange: messages, partial barriers, handshakes.

May import: numpy, isa, machine. Must not: share code with what produces programs, or simulate.

A segment is closed: what its tiles send they also receive, and no message is under way at a barrier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tx8fast import isa
from tx8fast.machine import Machine

MONITORS = 4
MESSAGES = ("send", "scatter", "gather")
EXCHANGES = (*MESSAGES, "recv", "send_wait", "barrier_sub", "handshake", "wait_worker")
NOWHERE = np.zeros(0, np.int64)


class TileRows(NamedTuple):
    """Rows of a code, their places in it and the order in which they run; the tiles that run them, and how messages name them."""

    where: str
    tiles: list[int]
    rows: np.ndarray
    places: np.ndarray
    flow: Any  # verify_flow.Flow

    def at(self, name: str) -> np.ndarray:
        """Return where the columns of `flow` speak of an instruction."""
        return self.flow.at.get(isa.INSTRUCTIONS[name].OPCODE, NOWHERE)

    def fields(self, name: str) -> dict[str, np.ndarray]:
        """Return the parameters of those rows."""
        names, at = isa.INSTRUCTIONS[name].FIELDS_P, self.at(name)
        if not len(at):
            return dict.fromkeys(names, NOWHERE)
        return dict(zip(names, self.rows["p"][self.flow.row[at], : len(names)].T, strict=True))

    def place(self, at: np.ndarray) -> np.ndarray:
        """Return the places in the code of rows that the columns speak of there."""
        return self.places[self.flow.row[at]]


class _Traffic:
    """What all tiles of a segment do, by barrier interval (number of barriers before a row)."""

    def __init__(self) -> None:
        # (tile, monitor) -> interval -> bytes
        self.sent: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.got: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        # (where, row, interval) -> targets that the sender does not wait for before the barrier
        self.open: dict[tuple[str, int, int], set[tuple[int, int]]] = {}
        self.groups: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.shakes: dict[tuple[int, int], int] = defaultdict(int)


def check_exchange(machine: Machine, name: str, codes: Sequence[TileRows], found: Any, n_chips: int = 1) -> None:
    """Add to `found` what is wrong with the rows of segment `name` that involve other tiles, of other chips too.

    Tiles are counted on over the chips; `n_chips` that rows may name, 0: none, the segment is the same on every chip."""
    traffic = _Traffic()
    before = found.count
    some = False
    for code in codes:
        some |= _one_code(machine, code, traffic, found, n_chips)
    if not some or found.count > before:
        return
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


def _one_code(machine: Machine, code: TileRows, traffic: _Traffic, found: Any, n_chips: int) -> bool:
    """Add one code's part to `traffic`; return whether it has any."""
    at = {name: code.at(name) for name in EXCHANGES}
    if not any(len(where) for where in at.values()):
        return False
    p = {name: code.fields(name) for name in EXCHANGES}
    if not _fields(machine, code, at, p, found, n_chips):
        return True
    flow = code.flow
    sent = np.concatenate([at[name] for name in MESSAGES])
    mask, monitor, size = (np.concatenate([p[n][f] for n in MESSAGES]) for f in ("mask", "monitor", "bytes"))
    there = np.concatenate([p[n].get("chip", np.zeros(len(at[n]), np.int64)) for n in MESSAGES])
    for chip in sorted(set(there.tolist())):
        some = there == chip
        for when, m, mon, total, last in _sums(flow, sent[some], mask[some], monitor[some], size[some]):
            for home, senders in _homes(machine, code, chip).items():
                targets = {(home + t, mon) for t in _members(m)}
                for target in targets:
                    traffic.sent[target][when] += total * senders
                if when < flow.barriers and flow.last[last] > flow.waits[when]:
                    traffic.open.setdefault((code.where, int(code.places[flow.row[last]]), when), set()).update(targets)
    recv, zeros = p["recv"], np.zeros(len(at["recv"]), np.int64)
    for when, _, monitor, total, _ in _sums(flow, at["recv"], zeros, recv["monitor"], recv["bytes"]):
        for t in code.tiles:
            traffic.got[t, monitor][when] += total
    meets = _times(flow, at["barrier_sub"], p["barrier_sub"]["mask"].tolist())
    shakes = _times(
        flow, at["handshake"], zip(p["handshake"]["peer"].tolist(), p["handshake"]["chip"].tolist(), strict=True)
    )
    for tile in code.tiles:
        for mask, n in meets.items():
            traffic.groups[tile // machine.n_tiles, mask][tile] += n
        for (peer, chip), n in shakes.items():
            home = chip - 1 if chip else tile // machine.n_tiles
            traffic.shakes[tile, home * machine.n_tiles + peer] += n
    return True


def _times(flow: Any, at: np.ndarray, keys: Iterable[Any]) -> dict[Any, int]:
    """Return how often rows run, by a key of each."""
    out: dict[Any, int] = defaultdict(int)
    for key, times in zip(keys, flow.times[at].tolist(), strict=True):
        out[key] += times
    return out


def _homes(machine: Machine, code: TileRows, chip: int) -> dict[int, int]:
    """Return, of the chips that rows with field `chip` mean, the first tile and how many tiles of `code` mean it."""
    if chip:
        return {(chip - 1) * machine.n_tiles: len(code.tiles)}
    out: dict[int, int] = defaultdict(int)
    for tile in code.tiles:
        out[tile - tile % machine.n_tiles] += 1
    return out


def _sums(
    flow: Any, at: np.ndarray, mask: np.ndarray, monitor: np.ndarray, nbytes: np.ndarray
) -> list[tuple[int, int, int, int, int]]:
    """Return (interval, mask, monitor, bytes in all, where `flow` speaks of the last row) per distinct first three."""
    out: dict[tuple[int, int, int], list[int]] = {}
    columns = (flow.interval[at], mask, monitor, nbytes * flow.times[at], at, flow.last[at])
    for when, m, mon, total, place, last in zip(*(c.tolist() for c in columns), strict=True):
        found = out.setdefault((when, m, mon), [0, place, last])
        found[0] += total
        if last > found[2]:
            found[1:] = place, last
    return [(*key, total, place) for key, (total, place, _) in out.items()]


def _fields(machine: Machine, code: TileRows, at, p, found: Any, n_chips: int) -> bool:
    """Check ranges of fields; return whether all are good."""
    at = {name: code.place(where) for name, where in at.items()}
    n, before = machine.n_tiles, found.count
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
        if not len(value):
            continue
        bad = (value < low) | (value >= high)
        if bad.any():
            text = f"{field} {int(value[np.argmax(bad)])} of a {name} outside [{low}, {high})"
            found.rows(code.where, at[name][bad], text)
    if len(at["send"]):
        far = (p["send"]["chip"] > 0) & (p["send"]["mask"] & (p["send"]["mask"] - 1) != 0)
        found.rows(code.where, at["send"][far], "a message to several tiles of another chip")
    if len(at["gather"]):
        g = p["gather"]
        found.rows(code.where, at["gather"][g["mask"] & (g["mask"] - 1) != 0], "a gather for more than one tile")
        whole = g["run_bytes"] * g["n0"] * g["n1"] * g["n2"]
        found.rows(code.where, at["gather"][whole != g["bytes"]], "the runs of a gather do not add up to its bytes")
    for tile in code.tiles if len(at["barrier_sub"]) or len(at["handshake"]) else ():
        chip, own = divmod(tile, n)
        absent = p["barrier_sub"]["mask"] >> own & 1 == 0
        found.rows(code.where, at["barrier_sub"][absent], f"tile {tile} is not in the mask of its barrier")
        there = p["handshake"]["chip"]
        alone = (p["handshake"]["peer"] == own) & ((there == 0) | (there == chip + 1))
        found.rows(code.where, at["handshake"][alone], f"tile {tile} does a handshake with itself")
    return found.count == before
