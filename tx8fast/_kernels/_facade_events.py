"""The door to the event kernel: checks what the kernel trusts, allocates its outputs.

May import: numpy, errors, and the package's own door and kernels. Must not: know instructions or machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tx8fast._kernels import events as _events
from tx8fast._kernels._checks import check_status, int_array, require
from tx8fast.errors import SimulationError
from tx8fast.records import dataclass

Ints = npt.NDArray[np.int64]
RouteColumns = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]

KERNEL = "events"
N_UNITS = 9
N_ENGINES = 5
N_WORKERS = 3
N_MONITORS = 4
MAX_DEPTH = 15  # the kernel remembers 16 rows per queue
MAX_TILES = 1 << 13  # of all chips
MAX_ENGINES = 1 << 12
MAX_LINKS = 2046  # of one tree; the kernel numbers them, and what lies before the first one, with 11 bits
DEADLOCK = 4
# Kinds of rows: the engines 0 ct, 1 ne, 2 rdma, 3 wdma, 4 tdma, what the kernel core does itself, and what
# involves other tiles or single workers.
KIND_KCORE, KIND_WAIT, KIND_BARRIER, KIND_SEND, KIND_RECV = 5, 6, 7, 8, 9
KIND_SEND_WAIT, KIND_WAIT_WORKER, KIND_BARRIER_SUB, KIND_HANDSHAKE, KIND_CORE = 10, 11, 12, 13, 14
#: what the kernel's check finds, by its numbers (_rows.pxd)
UNSOUND = (
    "",
    "unknown kind of row",
    f"worker of {N_WORKERS} or more",
    "value below 0, or of 2**40 or more, in issue, fixed or ddr_bytes",
    "arg is missing",
    "bytes out of range",
    "monitor out of range",
    "tile set out of range",
    "workers out of range",
    "peer out of range",
    "tile_begin does not partition the rows",
    "a tile's code lies outside the code rows",
    "a tile sends without a tree",
    "cycles add up to more than 2**61",
    "form out of range",
    "ddr_slot out of range",
)


class EventDeadlock(SimulationError):
    """Tiles wait for each other. stuck: tile -> its row; monitors (n_tiles, 4): bytes arrived and not taken."""

    def __init__(self, stuck: dict[int, int], monitors: Ints) -> None:
        super().__init__(f"kernel {KERNEL}: tiles {sorted(stuck)} wait for something that never happens")
        self.stuck = stuck
        self.monitors = monitors


def _ints(*values: int) -> Ints:
    return np.array(values, np.int64)


@dataclass(frozen=True)
class Routes:
    """Tile sets that rows name by index, and the trees of links along which messages reach them.

    mask_size (n_masks,) tiles of each set. tree_of (n_tiles, n_masks): tree of a message from that tile to that
    set, -1 = nobody sends that. Tree i: its links hop_link, each behind link hop_parent of the same tree
    (position in the tree, earlier than itself; -1 = the source), at [tree_begin[i], tree_begin[i + 1]); its
    destinations leaf_tile behind link leaf_hop (-1 = the source), at [leaf_begin[i], leaf_begin[i + 1]).
    Links and destinations at the source get their bytes hop_turn or leaf_turn messages later: 0 for all of a
    broadcast, one after the other for a scatter.
    """

    n_links: int = 0
    mask_size: Ints = field(default_factory=lambda: _ints())
    tree_of: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    tree_begin: Ints = field(default_factory=lambda: _ints(0))
    hop_link: Ints = field(default_factory=lambda: _ints())
    hop_parent: Ints = field(default_factory=lambda: _ints())
    leaf_begin: Ints = field(default_factory=lambda: _ints(0))
    leaf_tile: Ints = field(default_factory=lambda: _ints())
    leaf_hop: Ints = field(default_factory=lambda: _ints())
    hop_turn: Ints = field(default_factory=lambda: _ints())
    leaf_turn: Ints = field(default_factory=lambda: _ints())
    engines: int = 1  # transfer engines of a tile
    link_rate: int = 1  # bytes per cycle
    hop_cycles: int = 0
    slow_links: int = 0  # so many links, the last ones but for ports, are between chips
    slow_rate: int = 1
    slow_cycles: int = 0  # of one such link
    ports: int = (
        0  # so many links, behind those, are ports through which tiles write what arrives; no time of their own
    )
    write_rate: int = 1
    #: by number of tiles: the columns that the kernel gets
    checked: dict[int, RouteColumns] = field(default_factory=dict, init=False, repr=False, compare=False)


NO_ROUTES = Routes()
NO_ARGS = np.zeros((1, 3), np.int64)  # where no kind of row needs any


@dataclass(frozen=True)
class EventInput:
    """Rows of one stretch of code. Row i of tile t is code row `code_begin[t] + i` and tile row `tile_begin[t] + i`.

    Code rows (shared by tiles with the same code): kind (n_code,) uint8; issue (n_code,) cycles; form (n_code,) int32, which
    of the forms the row has, None = every code row has its own.
    Forms (a program runs few of them many times): spm_read (n_forms, 4, 2), spm_write (n_forms, 2, 2) half-open byte ranges,
    (0, 0) = none; worker (n_forms,) uint8, None = all 0; arg (n_forms, 3), None = no row involves other tiles or single workers:
    send (bytes, tile set, monitor), recv (bytes, 0, monitor), barrier_sub (0, tile set, 0), handshake (peer, 0, 0),
    wait_worker (mask of workers, 0, 0), otherwise not used. Tile sets are indices into `routes`.
    ddr_read, ddr_write (n_forms, 2) half-open byte ranges, empty = none. They count from `ddr_at[code row]`, None = 0, and, of
    forms with a ddr_slot (n_forms,) that is not -1, from `ddr_base[tile, slot]` (n_tiles, n_slots) on; None = there are no slots.
    Tile rows: fixed (n,) cycles without the bandwidth part; ddr_bytes (n,) bytes of the bandwidth part,
    non-zero for rdma and wdma only.
    code_begin (n_tiles,), tile_begin (n_tiles + 1,). All int64 unless said otherwise. `chip_tiles` tiles after each other
    share a DDR and meet at barriers, 0 = all of them.
    """

    kind: npt.NDArray[np.uint8]
    issue: Ints
    spm_read: Ints
    spm_write: Ints
    code_begin: Ints
    tile_begin: Ints
    fixed: Ints
    ddr_bytes: Ints
    ddr_read: Ints
    ddr_write: Ints
    worker: npt.NDArray[np.uint8] | None = None
    arg: Ints | None = None
    routes: Routes = NO_ROUTES
    chip_tiles: int = 0
    form: npt.NDArray[np.int32] | None = None
    ddr_at: Ints | None = None
    ddr_slot: Ints | None = None
    ddr_base: Ints | None = None


@dataclass(frozen=True)
class EventResult:
    """Times in cycles from the beginning of the stretch.

    start, end (n,): per tile row (for kernel-core rows: when the wait is over, when the core goes on; where tiles
    meet: arrival, departure; for a send: when an engine takes it, last arrival). busy, blocked (n_tiles, 9) by
    unit: 0..4 the engines (blocked = at the head of the queue of a free engine, waiting for a conflicting row),
    5 kernel-core routines (blocked = core stalled by a full queue), 6 waits, barriers, receives (busy = their
    fixed cost, blocked = waiting), 7 issue, 8 transfers between tiles, engines added up (blocked = core stalled
    because no engine is free).
    tile_cycles (n_tiles,): when everything of the tile is over. cycles: the largest of them.
    link_bytes (n_links,): bytes that crossed each link. monitors (n_tiles, 4): bytes that nobody received.
    """

    start: Ints
    end: Ints
    busy: Ints
    blocked: Ints
    tile_cycles: Ints
    cycles: int
    link_bytes: Ints
    monitors: Ints


def simulate_events(
    rows: EventInput,
    depth: Sequence[int] | Ints,
    port_rate: float,
    total_rate: float,
    serial: bool = False,
) -> EventResult:
    """Run all tiles from cycle 0. `depth` (5,) queue depths; rates in bytes per cycle: one transfer moves at most
    `port_rate`, all transfers of a chip together at most `total_rate`, shared equally. `serial` = one queue, no overlap.

    Raises EventDeadlock if tiles wait for each other.
    """
    kind = np.ascontiguousarray(rows.kind, np.uint8)
    issue = int_array(KERNEL, "issue", rows.issue)
    spm_read = int_array(KERNEL, "spm_read", rows.spm_read, 3)
    spm_write = int_array(KERNEL, "spm_write", rows.spm_write, 3)
    code_begin = int_array(KERNEL, "code_begin", rows.code_begin)
    tile_begin = int_array(KERNEL, "tile_begin", rows.tile_begin)
    fixed = int_array(KERNEL, "fixed", rows.fixed)
    ddr_bytes = int_array(KERNEL, "ddr_bytes", rows.ddr_bytes)
    ddr_read = int_array(KERNEL, "ddr_read", rows.ddr_read, 2)
    ddr_write = int_array(KERNEL, "ddr_write", rows.ddr_write, 2)
    depth_ = _queue_depths(tuple(depth))
    n_code, n, n_tiles = len(kind), len(fixed), len(code_begin)
    form = np.arange(n_code, dtype=np.int32) if rows.form is None else np.ascontiguousarray(rows.form, np.int32)
    n_forms = n_code if rows.form is None else len(spm_read)
    require(KERNEL, kind.ndim == 1 and issue.shape == (n_code,) == form.shape, "kind, issue and form differ in shape")
    require(KERNEL, spm_read.shape == (n_forms, 4, 2), "spm_read is not (n_forms, 4, 2)")
    require(KERNEL, spm_write.shape == (n_forms, 2, 2), "spm_write is not (n_forms, 2, 2)")
    require(KERNEL, ddr_bytes.shape == (n,), "ddr_bytes and fixed differ in length")
    require(KERNEL, ddr_read.shape == (n_forms, 2) == ddr_write.shape, "ddr ranges are not (n_forms, 2)")
    ddr_at = np.zeros(n_code, np.int64) if rows.ddr_at is None else int_array(KERNEL, "ddr_at", rows.ddr_at)
    ddr_slot = np.full(n_forms, -1, np.int64) if rows.ddr_slot is None else int_array(KERNEL, "ddr_slot", rows.ddr_slot)
    ddr_base = (
        np.zeros((n_tiles, 0), np.int64) if rows.ddr_base is None else int_array(KERNEL, "ddr_base", rows.ddr_base, 2)
    )
    require(KERNEL, ddr_at.shape == (n_code,), "ddr_at and kind differ in shape")
    require(KERNEL, ddr_slot.shape == (n_forms,), "ddr_slot is not (n_forms,)")
    require(KERNEL, len(ddr_base) == n_tiles, "ddr_base is not (n_tiles, n_slots)")
    require(KERNEL, tile_begin.shape == (n_tiles + 1,), "tile_begin is not (n_tiles + 1,)")
    chip_tiles = rows.chip_tiles or max(1, n_tiles)
    require(KERNEL, chip_tiles > 0 and n_tiles % chip_tiles == 0, "chip_tiles does not divide the tiles")
    require(KERNEL, n_tiles <= MAX_TILES, f"more than {MAX_TILES} tiles")
    worker = np.zeros(n_forms, np.uint8) if rows.worker is None else np.ascontiguousarray(rows.worker, np.uint8)
    require(KERNEL, worker.shape == (n_forms,), "worker is not (n_forms,)")
    arg = NO_ARGS if rows.arg is None else int_array(KERNEL, "arg", rows.arg, 2)
    require(KERNEL, rows.arg is None or arg.shape == (n_forms, 3), "arg is not (n_forms, 3)")
    arg = arg if n_forms else NO_ARGS
    routes = _checked_routes(rows.routes, n_tiles)
    require(KERNEL, port_rate > 0 and total_rate > 0, "rates must be positive")
    start = np.full(n, -1, np.int64)
    end = np.full(n, -1, np.int64)
    busy = np.zeros((n_tiles, N_UNITS), np.int64)
    blocked = np.zeros((n_tiles, N_UNITS), np.int64)
    link_bytes = np.zeros(max(1, rows.routes.n_links), np.int64)
    monitors = np.zeros((n_tiles, N_MONITORS), np.int64)
    stuck = np.full(n_tiles, -1, np.int64)
    status = _events.simulate(
        kind,
        issue,
        form,
        ddr_at,
        worker,
        arg,
        rows.arg is not None,
        spm_read,
        spm_write,
        ddr_read,
        ddr_write,
        ddr_slot,
        ddr_base,
        code_begin,
        tile_begin,
        fixed,
        ddr_bytes,
        depth_,
        float(port_rate),
        float(total_rate),
        serial,
        *routes,
        chip_tiles,
        rows.routes.engines,
        rows.routes.link_rate,
        rows.routes.hop_cycles,
        rows.routes.slow_links,
        rows.routes.slow_rate,
        rows.routes.slow_cycles,
        rows.routes.ports,
        rows.routes.write_rate,
        start,
        end,
        busy,
        blocked,
        link_bytes,
        monitors,
        stuck,
    )
    require(KERNEL, status >= 0, UNSOUND[-min(status, 0)])
    if status == DEADLOCK:
        where = np.flatnonzero(stuck >= 0).tolist()
        raise EventDeadlock({t: int(stuck[t]) for t in where}, monitors)
    check_status(KERNEL, status)
    tile_cycles = np.zeros(n_tiles, np.int64)
    filled = np.flatnonzero(np.diff(tile_begin))
    if len(filled):
        tile_cycles[filled] = np.maximum.reduceat(end, tile_begin[filled])
    cycles = int(tile_cycles.max(initial=0))
    link_bytes = link_bytes[: rows.routes.n_links]
    return EventResult(start, end, busy, blocked, tile_cycles, cycles, link_bytes, monitors)


@lru_cache(maxsize=16)
def _queue_depths(depth: tuple[int, ...]) -> Ints:
    """Return the queue depths as the kernel gets them."""
    depths = int_array(KERNEL, "depth", depth)
    require(
        KERNEL,
        depths.shape == (N_ENGINES,) and 1 <= depths.min() and depths.max() <= MAX_DEPTH,
        f"queue depths must be {N_ENGINES} numbers in 1..{MAX_DEPTH}",
    )
    return depths


def _checked_routes(r: Routes, n_tiles: int) -> RouteColumns:
    """Return copies of the arrays of `r` in kernel order, none empty. They are checked once."""
    if n_tiles not in r.checked:
        r.checked[n_tiles] = _route_columns(r, n_tiles)
    return r.checked[n_tiles]


def _route_columns(r: Routes, n_tiles: int) -> RouteColumns:
    hops, leaves, trees = len(r.hop_link), len(r.leaf_tile), len(r.tree_begin) - 1
    require(
        KERNEL,
        1 <= r.engines <= MAX_ENGINES
        and r.link_rate >= 1
        and r.hop_cycles >= 0
        and 0 <= r.slow_links <= r.n_links - r.ports <= r.n_links
        and r.write_rate >= 1
        and r.slow_rate >= 1
        and r.slow_cycles >= 0,
        "bad link costs",
    )
    for begin, n in ((r.tree_begin, hops), (r.leaf_begin, leaves)):
        require(
            KERNEL,
            len(begin) == trees + 1 and begin[0] == 0 and begin[-1] == n and bool((np.diff(begin) >= 0).all()),
            "trees do not partition their links or destinations",
        )
    require(
        KERNEL,
        len(r.hop_parent) == hops == len(r.hop_turn) and len(r.leaf_hop) == leaves == len(r.leaf_turn),
        "tree columns differ in length",
    )
    require(KERNEL, not trees or r.tree_of.shape == (n_tiles, len(r.mask_size)), "tree_of is not (n_tiles, n_masks)")
    require(KERNEL, np.diff(r.tree_begin).max(initial=0) <= MAX_LINKS, "a tree with too many links")
    require(KERNEL, np.diff(r.leaf_begin).max(initial=0) <= n_tiles, "a tree with too many destinations")
    position = np.arange(hops) - np.repeat(r.tree_begin[:-1], np.diff(r.tree_begin))
    width = np.repeat(np.diff(r.tree_begin), np.diff(r.leaf_begin))
    for values, low, top, name in (
        (r.hop_link, 0, np.full(hops, r.n_links), "link"),
        (r.hop_parent, -1, position, "parent"),
        (r.leaf_tile, 0, np.full(leaves, n_tiles), "destination"),
        (r.leaf_hop, -1, width, "last link"),
        (r.hop_turn, 0, np.full(hops, n_tiles), "turn"),
        (r.leaf_turn, 0, np.full(leaves, n_tiles), "turn"),
    ):
        require(KERNEL, bool(((values >= low) & (values < top)).all()), f"{name} of a tree out of range")

    def column(name: str, ndim: int = 1) -> Ints:
        values = int_array(KERNEL, name, getattr(r, name), ndim)
        return values.copy() if values.size else np.zeros((1,) * ndim, np.int64)

    return (
        column("tree_of", 2),
        column("tree_begin"),
        column("hop_link"),
        column("hop_parent"),
        column("hop_turn"),
        column("leaf_begin"),
        column("leaf_tile"),
        column("leaf_hop"),
        column("leaf_turn"),
        column("mask_size"),
    )
