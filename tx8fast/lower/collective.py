"""Collectives between chips: which bytes every tile loads, sends, adds up and stores.

May import: graph_table, collectives, isa, machine, numerics, lower.base, lower.emitter. Must not: know programs.

Every chunk of the tensor is cut over the tiles; tile t of a chip exchanges its part with tile t of other chips only, so a
ring of chips is as many rings as a chip has tiles, which share the links between the chips. Rings of odd tiles go the other
way round, so that both directions of a link are used. What does not fit the scratchpad goes in rounds. A round begins with
handshakes: a message may only be sent where the tile has arrived at the same round. Sums are formed in the tensor's format by
the vector engine, one chip after the other in the order of the ring.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tx8fast import isa
from tx8fast.collectives import Transfer, transfers
from tx8fast.graph_table import OpRecord, TensorSpec
from tx8fast.lower.base import ALIGN_BYTES, FLOATS, Lowering, NotLowerable, round_up
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.transfer import spec_bytes
from tx8fast.machine import ChipGrid, Machine, topology
from tx8fast.numerics.formats import FORMAT_CODES, ITEM_BYTES
from tx8fast.numerics.layout import batch_used_bytes, npc
from tx8fast.records import cached_property, dataclass

ADDERS = {"add": "add", "mul": "mul", "max": "max", "min": "min"}
UNIT = 64  # parts of tiles are multiples of so many elements
MAX_ELEMS = 1 << 20  # of one vector instruction


@dataclass(frozen=True)
class Chunk:
    """`nbytes` in DDR in runs of `run` bytes, `stride` apart, the first at `base`, behind the first `begin` bytes of these."""

    base: int
    nbytes: int
    run: int
    stride: int
    begin: int = 0

    def moves(self, lo: int, hi: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (DDR offset, offset behind lo, run bytes, runs) for bytes [lo, hi) of the chunk: a cut run, whole ones, a cut run."""
        at, end = self.begin + lo, self.begin + hi
        while at < end:
            row, inside = divmod(at, self.run)
            size = min(self.run - inside, end - at)
            runs = (end - at) // self.run if size == self.run else 1
            yield self.base + row * self.stride + inside, at - self.begin - lo, size, runs
            at += size * runs


@dataclass(frozen=True)
class Group:
    """Chips in the order of their ring; `place[i]`: which of the group's parts ring device i has."""

    ring: tuple[int, ...]
    place: tuple[int, ...]
    transfers: tuple[Transfer, ...]

    @cached_property
    def handshakes(self) -> list[dict[int, int]]:
        """Return device -> device of those that exchange anything, in turns in which every device meets at most one other."""
        turns: list[dict[int, int]] = []
        for a, b in sorted({(min(t.source, t.target), max(t.source, t.target)) for t in self.transfers}):
            free = next((turn for turn in turns if a not in turn and b not in turn), None)
            if free is None:
                turns.append(free := {})
            free[a], free[b] = b, a
        return turns

    @cached_property
    def of_device(self) -> list[list[Transfer]]:
        """The transfers of every device; in a step it sends before it waits for what arrives."""
        out: list[list[Transfer]] = [[] for _ in self.ring]
        for t in self.transfers:
            out[t.source].append(t)
            out[t.target].append(t)
        return [sorted(mine, key=lambda t: (t.step, t.source != i)) for i, mine in enumerate(out)]


class Collective(Lowering):
    """One collective over all chips of a grid (attribute `grid`, from the module). Code differs by chip and tile."""

    kind = "dte"
    exchanges = True

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        (x,), (y,) = record.operands, record.results
        assert x is not None
        self.source, self.result = x, y
        self.item = ITEM_BYTES[x.dtype]
        self.combine = ADDERS.get(record.attr("combine"), "") if record.kind in ("all_reduce", "reduce_scatter") else ""
        if record.kind in ("all_reduce", "reduce_scatter") and (x.dtype not in FLOATS or not self.combine):
            raise NotLowerable(
                f"{record.kind} by {record.attr('combine')} of {x.dtype}: the vector engine combines {', '.join(FLOATS)} "
                f"by {', '.join(ADDERS)}"
            )
        across, down = record.attr("grid")
        self.grid = ChipGrid(across, down, topology(machine.chip.tiles_x, machine.chip.tiles_y))

    @cached_property
    def groups(self) -> tuple[list[Group], list[Group]]:
        """The groups as even tiles see them, and as odd ones do."""
        return self._groups(1), self._groups(-1)

    def _groups(self, direction: int) -> list[Group]:
        record = self.record
        if record.kind == "permute":
            everyone = tuple(range(self.grid.n_chips))
            return [Group(everyone, everyone, tuple(transfers("permute", len(everyone), pairs=record.attr("pairs"))))]
        flat = record.attr("groups") or tuple(range(self.grid.n_chips))
        n = record.attr("parts") if record.attr("groups") else self.grid.n_chips
        found = []
        for i in range(0, len(flat), n):
            members = [c for c in flat[i : i + n] if c >= 0]
            ring = self.grid.ring(members)[::direction]
            root = ring.index(members[record.attr("root")]) if record.kind == "broadcast_dev" else 0
            sent = transfers(record.kind, len(ring), root=root)
            found.append(Group(ring, tuple(members.index(c) for c in ring), tuple(sent)))
        return found

    # ---- where chunks lie

    def operand(self, group: Group, chunk: int) -> Chunk:
        """Return where a chip of `group` reads `chunk` of its operand."""
        kind, n = self.record.kind, len(group.ring)
        if kind == "all_reduce":
            return _flat(self.source, chunk, n, self.item)
        if kind == "reduce_scatter":  # chunk k is whole behind device k - 1
            return _part(self.source, self.record.attr("dim"), group.place[(chunk - 1) % n], n, self.item)
        if kind == "all_to_all":
            return _part(self.source, self.record.attr("split_dim"), group.place[chunk], n, self.item)
        return _flat(self.source, 0, 1, self.item)

    def target(self, group: Group, chunk: int) -> Chunk:
        """Return where a chip of `group` writes `chunk` of its result; of all_to_all: what came from device `chunk`."""
        kind, n = self.record.kind, len(group.ring)
        if kind == "all_reduce":
            return _flat(self.result, chunk, n, self.item)
        if kind == "all_gather":
            return _part(self.result, self.record.attr("dim"), group.place[chunk], n, self.item)
        if kind == "all_to_all":
            return _part(self.result, self.record.attr("concat_dim"), group.place[chunk], n, self.item)
        return _flat(self.result, 0, 1, self.item)

    def cells(self, group: Group) -> int:
        """Return how many parts of chunks a tile holds at once."""
        n, kind = len(group.ring), self.record.kind
        return {"all_reduce": 2 * n, "reduce_scatter": 2 * n, "all_gather": n, "all_to_all": 2 * n}.get(kind, 2)

    def landing(self, group: Group, t: Transfer) -> int:
        """Return the cell at the target in which a transfer arrives."""
        n = len(group.ring)
        if t.combine:
            return n + t.step
        if self.record.kind == "all_to_all":
            return n + t.source
        return 1 if self.record.kind == "permute" else t.chunk

    # ---- parts of tiles

    @cached_property
    def part_bytes(self) -> tuple[int, int]:
        """Return (bytes of a chunk that a tile has in one round, rounds)."""
        machine, unit = self.machine, UNIT * self.item
        largest = max(self.operand(g, c).nbytes for g in self.groups[0] for c in self._chunks(g))
        cells = max(self.cells(g) for g in self.groups[0])
        room = (machine.spm_limit - machine.spm_base) // cells // ALIGN_BYTES * ALIGN_BYTES // unit * unit
        if room < unit:
            raise NotLowerable(
                f"{self.record.kind} among so many chips: {cells} parts of {unit} bytes exceed the scratchpad"
            )
        part = round_up(-(-largest // machine.n_tiles), unit)
        rounds = -(-part // room)
        return round_up(-(-part // rounds), unit), rounds

    @property
    def spm_bytes(self) -> int:
        return max(self.cells(g) for g in self.groups[0]) * round_up(self.part_bytes[0], ALIGN_BYTES)

    def places(self) -> list[tuple[int, int]]:
        """Return offset and bytes of every cell that a tile may hold."""
        size = self.part_bytes[0]
        n = max(self.cells(g) for g in self.groups[0])
        return [(k * round_up(size, ALIGN_BYTES), size) for k in range(n)]

    def _chunks(self, group: Group) -> range:
        return range(len(group.ring) if self.record.kind in ("all_reduce", "reduce_scatter", "all_to_all") else 1)

    def rows(self, chip: int, tile: int) -> list[tuple]:
        """Return the instructions of one tile of one chip, up to the end of its work; slot 0 is the operand, 1 the result."""
        group = next((g for g in self.groups[tile % 2] if chip in g.ring), None)
        em = Emitter()
        part, rounds = self.part_bytes
        for r in range(rounds if group is not None else 0):
            lo = (tile * rounds + r) * part
            if group is not None and any(self.operand(group, c).nbytes > lo for c in self._chunks(group)):
                _Round(self, em, group, group.ring.index(chip), tile, lo, lo + part).emit(first=r == 0)
        return em.rows

    # ---- what it takes

    def estimate_cycles(self) -> int:
        """Return the cycles by closed formulas: every step as long as its fullest link and the software around it."""
        machine, (part, rounds), both = self.machine, self.part_bytes, self.groups
        fixed = machine.dte.setup_sw + machine.dte.setup_hw + machine.kcore.wait_cycles
        cycles = max(len(g.handshakes) for g in both[0]) * (machine.sync.handshake + machine.c2c.latency)
        for step in sorted({t.step for g in both[0] for t in g.transfers}):
            carried: dict[int, int] = {}  # link -> messages
            far = 0
            for direction, groups in enumerate(both):
                for a, b in (
                    (g.ring[t.source], g.ring[t.target]) for g in groups for t in g.transfers if t.step == step
                ):
                    a, b = a * machine.n_tiles, b * machine.n_tiles
                    far = max(far, self.grid.crossings(a, b))
                    for link in {self.grid.link_numbers[s] for s in self.grid.links(a, b)}:
                        carried[link] = carried.get(link, 0) + (machine.n_tiles + 1 - direction) // 2
            messages = max(carried.values(), default=0)
            cycles += fixed + far * machine.c2c.latency + -(-messages * part // machine.c2c.link_bytes)
        group = max(both[0], key=lambda g: len(g.ring))
        stored = len(group.ring) if self.record.kind in ("all_reduce", "all_gather", "all_to_all") else 1
        moved = (len(self._chunks(group)) + stored) * part * machine.n_tiles
        cycles += int(moved / machine.ddr_bytes_per_cycle) + machine.rdma.startup + machine.wdma.startup
        barrier = isa.rows([isa.make("wait"), isa.make("barrier")])
        ends, _ = isa.durations(machine, barrier, np.zeros(2, np.int64))
        return cycles * rounds + int(ends.sum())


class _Round:
    """Emits one round of one tile: bytes [lo, hi) of every chunk."""

    def __init__(self, low: Collective, em: Emitter, group: Group, me: int, tile: int, lo: int, hi: int) -> None:
        self.low, self.em, self.group, self.me, self.tile, self.lo, self.hi = low, em, group, me, tile, lo, hi
        self.cell_bytes = round_up(hi - lo, ALIGN_BYTES)
        self.busy = False  # engines may be at work on what is to be sent

    def at(self, cell: int) -> int:
        return self.low.machine.spm_base + cell * self.cell_bytes

    def size(self, chunk: Chunk) -> int:
        return max(0, min(self.hi, chunk.nbytes) - self.lo)

    def emit(self, first: bool) -> None:
        low, group, me = self.low, self.group, self.me
        kind, n = low.record.kind, len(group.ring)
        if not first:
            self.em.add("wait")
        pairs: tuple[int, ...] = low.record.attr("pairs") if kind == "permute" else ()
        mine = group.of_device[me]
        sends = any(t.source == me for t in mine)
        stays = kind == "permute" and (me, me) in zip(pairs[::2], pairs[1::2])
        root = kind == "broadcast_dev" and not any(t.target == me for t in mine)
        if kind in ("all_reduce", "reduce_scatter", "all_to_all"):
            for c in range(n):
                self.move("rdma", low.operand(group, c), c)
        elif kind == "all_gather":
            self.move("rdma", low.operand(group, me), me)
        elif (kind == "permute" and (sends or stays)) or root:
            self.move("rdma", low.operand(group, 0), 0)
        for turn in group.handshakes:
            if me in turn:
                self.em.add("handshake", peer=self.tile, chip=group.ring[turn[me]] + 1)
        for t in mine:
            (self.send if t.source == me else self.receive)(t)
        self.store(stays)
        if sends:
            self.em.add("send_wait")

    def move(self, engine: str, chunk: Chunk, cell: int) -> None:
        """Load a chunk's part into a cell, or store it."""
        side, slot = ("dst", 0) if engine == "rdma" else ("src", 1)
        for ddr, spm, run, runs in chunk.moves(self.lo, self.lo + self.size(chunk)):
            self.em.add(
                engine,
                **{side: self.at(cell) + spm},
                run_bytes=run,
                slot=slot,
                ddr=ddr,
                s0=chunk.stride if runs > 1 else 0,
                n0=runs,
            )
            self.busy = True

    def part(self, t: Transfer) -> int:
        """Return the bytes of a transfer in this round."""
        return self.size(self.low.operand(self.group, t.chunk if self.low._chunks(self.group).stop > 1 else 0))

    def send(self, t: Transfer) -> None:
        size = self.part(t)
        if not size:
            return
        if self.busy:
            self.em.add("wait")
            self.busy = False
        self.em.add(
            "send",
            src=self.at(t.chunk),
            dst=self.at(self.low.landing(self.group, t)),
            bytes=size,
            mask=1 << self.tile,
            chip=self.group.ring[t.target] + 1,
        )

    def receive(self, t: Transfer) -> None:
        size, low = self.part(t), self.low
        if not size:
            return
        self.em.add("recv", monitor=0, bytes=size)
        if not t.combine:
            return
        arrived, own = self.at(low.landing(self.group, t)), self.at(t.chunk)
        for at in range(0, size // low.item, MAX_ELEMS):
            n = min(MAX_ELEMS, size // low.item - at)
            shift = at * low.item
            self.em.vv(low.combine, arrived + shift, own + shift, own + shift, n, low.source.dtype)
        self.busy = True

    def store(self, stays: bool) -> None:
        low, group, me = self.low, self.group, self.me
        kind, n = low.record.kind, len(group.ring)
        if kind in ("all_reduce", "all_gather"):
            for c in range(n):
                self.move("wdma", low.target(group, c), c)
        elif kind == "reduce_scatter":
            self.move("wdma", low.target(group, 0), (me + 1) % n)
        elif kind == "all_to_all":
            for d in range(n):
                self.move("wdma", low.target(group, d), me if d == me else n + d)
        elif kind == "permute":
            whole = low.target(group, 0)
            if not stays and not any(t.target == me for t in group.of_device[me]):
                fmt = FORMAT_CODES["i8"]
                self.em.add(
                    "memset", dst=self.at(1), value=0, n=self.size(whole), s0=0, n0=1, s1=0, n1=1, s2=0, n2=1, fmt=fmt
                )
            self.move("wdma", whole, 0 if stays else 1)
        else:
            self.move("wdma", low.target(group, 0), 0)


def _flat(spec: TensorSpec, chunk: int, n: int, item: int) -> Chunk:
    """Return chunk `chunk` of the bytes as they lie, cut in n; the last ones may be shorter, or empty. What fills up a batch of a
    channel-blocked tensor behind its last position stays out: nobody has written it."""
    batches, stride = 1, spec_bytes(spec)
    run = stride
    if spec.layout == "blocked":
        batches, positions, channels = npc(spec.shape)
        run, stride = batch_used_bytes(positions, channels, spec.dtype), stride // max(1, batches)
    if run == stride:
        batches, run, stride = 1, batches * run, batches * stride
    whole = batches * run
    size = round_up(-(-whole // n), UNIT * item) if n > 1 else whole
    lo, hi = min(whole, chunk * size), min(whole, (chunk + 1) * size)
    return Chunk(0, hi - lo, max(1, run), max(1, stride), lo)


def _part(spec: TensorSpec, dim: int, index: int, n: int, item: int) -> Chunk:
    """Return part `index` of n along a dimension of a dense tensor."""
    dim %= len(spec.shape)
    rows, after = math.prod(spec.shape[:dim]), math.prod(spec.shape[dim + 1 :]) * item
    run, stride = spec.shape[dim] // n * after, spec.shape[dim] * after
    if run == stride:
        run = stride = rows * run
        rows = 1
    return Chunk(index * run, rows * run, max(1, run), stride)
