"""From rows between tiles to what the event kernel needs: arguments, tile sets, routes (`machine.noc`).

May import: isa, machine, errors, _kernels. Must not: know segments or launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tx8fast import isa
from tx8fast._kernels import Routes
from tx8fast._kernels._facade_events import (
    KIND_BARRIER_SUB,
    KIND_CORE,
    KIND_HANDSHAKE,
    KIND_RECV,
    KIND_SEND,
    KIND_SEND_WAIT,
    KIND_WAIT_WORKER,
)
from tx8fast.errors import SimulationError
from tx8fast.isa.comm import N_MONITORS
from tx8fast.machine import ChipGrid, Machine, noc
from tx8fast.records import dataclass

LARGEST = 1 << 40  # bytes that one row may name; the event kernel adds up in 64 bits
#: kinds of rows in the event kernel
SEND, RECV, SEND_WAIT, WAIT_WORKER = KIND_SEND, KIND_RECV, KIND_SEND_WAIT, KIND_WAIT_WORKER
BARRIER_SUB, HANDSHAKE, CORE = KIND_BARRIER_SUB, KIND_HANDSHAKE, KIND_CORE
SCATTER = 15  # a send whose tiles get their parts one after the other; the kernel sees it in the tile set's tree
#: instruction -> (kind, fields that become the three arguments of the kernel, and the chip that is meant)
ROWS: Mapping[str, tuple[int, tuple[str | None, ...]]] = {
    "send": (SEND, ("bytes", "mask", "monitor", "chip")),
    "gather": (SEND, ("bytes", "mask", "monitor")),
    "scatter": (SCATTER, ("bytes", "mask", "monitor")),
    "recv": (RECV, ("bytes", None, "monitor")),
    "send_wait": (SEND_WAIT, ()),
    "wait_worker": (WAIT_WORKER, ("workers",)),
    "barrier_sub": (BARRIER_SUB, (None, "mask")),
    "handshake": (HANDSHAKE, ("peer", None, None, "chip")),
    "fence": (CORE, ()),
} | {cls.NAME: (CORE, ()) for cls in isa.INSTRUCTIONS.values() if cls.UNIT == "scalar"}


def arguments(rows: np.ndarray, kind: np.ndarray) -> np.ndarray | None:
    """Set `kind` of the rows that involve other tiles or single workers; return their arguments (n, 4), or None.

    Tile sets are still bit masks; the last column is the chip as rows name it.
    """
    arg = np.zeros((len(rows), 4), np.int64)
    some = False
    for name, (number, fields) in ROWS.items():
        cls = isa.INSTRUCTIONS[name]
        at = np.flatnonzero(rows["opcode"] == cls.OPCODE)
        if not len(at):
            continue
        some = True
        kind[at] = number
        for column, field in enumerate(fields):
            if field is not None:
                arg[at, column] = rows["p"][at, cls.FIELDS_P.index(field)]
    return arg if some else None


@dataclass(frozen=True)
class Rows:
    """Code rows (n,) with their kind and form; of the forms (k,) arg (k, 4) and the chip that runs them."""

    kind: np.ndarray
    form: np.ndarray
    arg: np.ndarray
    home: np.ndarray


def connect(
    machine: Machine,
    rows: Rows,
    code_begin: Sequence[int],
    fixed: Sequence[np.ndarray],
    chips: tuple[int, int] = (1, 1),
) -> Routes:
    """Number the tile sets in `rows.arg`, make scatters sends, add the way of handshakes to `fixed` (one array per tile); return the
    routes.

    Tile t (of all `chips`) runs `len(fixed[t])` code rows from `code_begin[t]`; tiles of different chips share no forms.
    Raises SimulationError for chips, tiles, monitors or workers that do not exist.
    """
    tiles = noc.grid(machine, chips)
    arg = rows.arg
    kind = np.zeros(len(arg), np.uint8)  # of the forms that have arguments
    special = np.flatnonzero(rows.kind >= SEND)
    kind[rows.form[special]] = rows.kind[special]
    own: dict[tuple[int, int], np.ndarray] = {}  # by code: which of its rows have arguments
    for tile, (begin, cycles) in enumerate(zip(code_begin, fixed, strict=True)):
        if (begin, len(cycles)) not in own:
            span = np.searchsorted(special, [begin, begin + len(cycles)])
            own[begin, len(cycles)] = special[span[0] : span[1]] - begin
        at = own[begin, len(cycles)]
        forms = rows.form[begin + at]
        _check(machine, tile, kind[forms], arg[forms], at, chips[0] * chips[1])
    named = (kind == SEND) | (kind == SCATTER) | (kind == BARRIER_SUB)
    chip = np.where(arg[:, 3] > 0, arg[:, 3] - 1, rows.home)
    sets, index = np.unique(np.stack([arg[named, 1], kind[named] == SCATTER, chip[named]]), axis=1, return_inverse=True)
    index = index.reshape(-1)
    mask_at = np.full(len(kind), -1, np.int64)
    mask_at[named] = index
    senders: list[tuple[int, int]] = []
    for tile, (begin, cycles) in enumerate(zip(code_begin, fixed, strict=True)):
        at = own[begin, len(cycles)]
        forms = rows.form[begin + at]
        sends = (kind[forms] == SEND) | (kind[forms] == SCATTER)
        senders += [(tile, int(m)) for m in np.unique(mask_at[forms[sends]])]
        shaking = kind[forms] == HANDSHAKE
        for row, form in zip(at[shaking].tolist(), forms[shaking].tolist()):
            cycles[row] += noc.way_cycles(machine, tiles, tile, int(chip[form] * machine.n_tiles + arg[form, 0]))
    shakes = kind == HANDSHAKE
    arg[shakes, 0] += chip[shakes] * machine.n_tiles
    arg[named, 1] = index
    rows.kind[rows.kind == SCATTER] = SEND
    routes = noc.build_routes(
        tiles,
        [m << c * machine.n_tiles for m, c in zip(sets[0].tolist(), sets[2].tolist())],
        senders,
        machine.dte.engines,
        machine.noc.link_bytes,
        machine.noc.hop_cycles,
        sets[1].tolist(),
        machine.dte.write_port_bytes,
    )
    if isinstance(tiles, ChipGrid):
        routes = replace(
            routes, slow_links=len(tiles.chip_links), slow_rate=machine.c2c.link_bytes, slow_cycles=machine.c2c.latency
        )
    return routes


def _check(machine: Machine, tile: int, kind: np.ndarray, arg: np.ndarray, at: np.ndarray, n_chips: int) -> None:
    n, workers = machine.n_tiles, machine.tile.workers
    first, mask, monitor, chip = arg.T
    message = (kind == SEND) | (kind == SCATTER)
    sets = message | (kind == BARRIER_SUB)
    sized = message | (kind == RECV)
    shake = kind == HANDSHAKE
    for bad, text in (
        (sets & ((mask <= 0) | (mask >= 1 << n)), f"names tiles outside 0..{n - 1}, or none"),
        (
            sized & ((monitor < 0) | (monitor >= N_MONITORS)),
            f"uses a monitor outside 0..{N_MONITORS - 1}",
        ),
        (
            sized & ((first < 0) | (first >= LARGEST)),
            f"moves less than 0 or more than {LARGEST - 1} bytes",
        ),
        (
            shake & ((first < 0) | (first >= n) | ((first == tile % n) & ((chip == 0) | (chip == tile // n + 1)))),
            "shakes hands with itself or no tile",
        ),
        ((chip < 0) | (chip > n_chips), f"names a chip outside 0..{n_chips - 1}"),
        (message & (chip > 0) & (mask & (mask - 1) != 0), "sends to several tiles of another chip"),
        ((kind == BARRIER_SUB) & (mask >> tile % n & 1 == 0), "is at a barrier it is not part of"),
        (
            (kind == WAIT_WORKER) & ((first < 0) | (first >= 1 << workers)),
            f"waits for workers beyond {workers}",
        ),
    ):
        if bad.any():
            raise SimulationError(
                f"cycle simulation: tile {tile} {text} in instruction {int(at[np.argmax(bad)])} of its stretch"
            )
