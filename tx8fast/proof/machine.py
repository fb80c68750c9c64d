"""The field machine: runs the launches of a program over shadow memory, exactly as its code is placed.

May import: numpy, program, machine, proof. Must not: import isa's meanings, the simulators or the compiler.

Tiles take turns: each runs until a row stops it or it meets a matrix product, then the next one, from the first on or from the
last. Products of tiles that stand at one are computed together, but each tile has its turn with its own and runs ahead to the next
before those behind it. Results may not depend on it, but these two orders do not stand for all; those of the engines of one
tile are not tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from tx8fast.errors import InternalError, SimulationError
from tx8fast.machine import DDR_BASE
from tx8fast.machine import Machine as Description
from tx8fast.program.model import Program, Tensor
from tx8fast.proof import forms, routines, routines_index, rows_engine, rows_move, rows_tensor, rows_vector
from tx8fast.proof.cells import Elements
from tx8fast.proof.code import Code
from tx8fast.proof.compared import Comparisons
from tx8fast.proof.field import Field
from tx8fast.proof.forms import FLOATS
from tx8fast.proof.meaning import Row
from tx8fast.proof.memory import CELL_BYTES, ONE, Ddr, Memory, Stream, copy
from tx8fast.proof.stacks import Stacks
from tx8fast.proof.tile import Tile
from tx8fast.records import dataclass

__all__ = ["Machine", "View", "routines_index", "rows_engine", "rows_move", "rows_tensor", "rows_vector"]
N_MONITORS = 4
#: bytes of a message from which on it is not copied before something reads it
LONG = 1 << 12
#: what a row with fields that no operand can have may raise
ILLEGAL = (SimulationError, InternalError, ValueError, IndexError, OverflowError)


@dataclass(frozen=True)
class View:
    """A tensor in DDR: absolute byte address, logical shape, format and layout ("dense" | "blocked") there, and the chip."""

    address: int
    shape: tuple[int, ...]
    dtype: str
    layout: str
    chip: int = 0


class _Stream:
    """A tile's rows in one launch: where it stands and how often it has met others; ready: at a row that is computed together."""

    def __init__(self, tile: Tile, code: Code, addresses: list[int]) -> None:
        self.tile, self.code, self.addresses = tile, code, addresses
        self.stops = [*code.stops, len(code.rows)]
        self.at = self.passed = 0
        self.arrived = self.ready = False
        self.barriers = code.names.count("barrier")

    @property
    def done(self) -> bool:
        return self.at == len(self.code.rows)


class Machine:
    """One seed's run of a program.

    Parameters of float formats are random elements, drawn where they are read: element i (row-major) of tensor t is number i of
    the field's stream `stream_of(t)`; of several chips with bytes of their own, the chip's number is part of the name. What
    is written (`write`) takes their place. Inputs and everything else are undefined until written.

    backwards: the last tile has the first turn. After `launch`, `denominators` holds the operands of its reciprocals and divisions, `comparisons` what it compared,
    `misread` how many elements were
    read in another format than they were written in.
    """

    def __init__(self, program: Program, field: Field, backwards: bool = False) -> None:
        self.program, self.field, self.backwards = program, field, backwards
        self.description = Description.from_dict(program.machine)
        self.n_tiles = self.description.n_tiles
        self.denominators: list[Elements] = []
        self.comparisons = Comparisons()
        self.misread = 0
        self._codes: dict[tuple[int, int], Code] = {}
        self._spm: dict[int, Memory] = {}
        self._free: dict[tuple[int, ...], list[np.ndarray]] = {}
        drawn = [t for t in program.params if t.ddr_dtype in FLOATS]
        self.ddr = [
            Ddr(DDR_BASE, program.ddr_bytes, [self._stream(t, chip) for t in drawn], field.p, field.q)
            for chip in range(program.n_chips)
        ]

    # --- tensors -------------------------------------------------------------------------------------------------

    def stream_of(self, tensor: Tensor, chip: int = 0) -> str:
        """Return the name of the stream that a parameter's elements are drawn from (`Field.random`)."""
        return f"{tensor.name} of chip {chip}" if tensor.per_chip else tensor.name

    def _stream(self, tensor: Tensor, chip: int) -> tuple[int, int, Stream]:
        form, name = self._form(self.view(tensor)), self.stream_of(tensor, chip)
        thin = partial(self.field.factors, name) if self.field.is_thin(name) else None
        return tensor.address, tensor.size_bytes, Stream(form, self.field.key(name), thin)

    def view(self, tensor: Tensor, chip: int = 0) -> View:
        """Return where a tensor of the program lies."""
        return View(tensor.address, tuple(tensor.shape), tensor.ddr_dtype, tensor.layout, chip)

    def _form(self, view: View):
        if view.layout == "dense":
            return forms.dense(prod(view.shape), view.dtype)
        return forms.blocked(*forms.batches(view.shape), view.dtype)

    def _where(self, view: View) -> np.ndarray:
        """Return the byte addresses of a tensor's elements, of its shape."""
        if view.layout == "dense":
            offsets = np.arange(prod(view.shape)) * forms.bytes_of(view.dtype)
        else:
            offsets = forms.offsets(*forms.batches(view.shape), view.dtype)
        return view.address + offsets.reshape(view.shape)

    def write(self, tensor: Tensor | View, value: Elements | np.ndarray) -> None:
        """Put a tensor of its logical shape into DDR: elements for float formats, concrete integers for the others.

        A tensor of the program goes to all chips. Padding becomes zero, as the host writes it.
        """
        views = [self.view(tensor, c) for c in range(self.program.n_chips)] if isinstance(tensor, Tensor) else [tensor]
        for view in views:
            memory = self.ddr[view.chip].stored(view.address)
            if isinstance(value, Elements) != (view.dtype in FLOATS):
                raise SimulationError(f"writing a tensor of format {view.dtype}: found {type(value).__name__}")
            if tuple(value.shape) != view.shape:
                raise SimulationError(f"writing a tensor of shape {view.shape}: found {tuple(value.shape)}")
            size = forms.footprint(view.shape, view.dtype, view.layout)
            if isinstance(value, Elements):
                memory.put(view.address, self._form(view), value)
            else:
                if view.layout == "blocked":
                    memory.put_bytes(view.address + np.arange(size), np.zeros(size, np.uint8))
                memory.put_numbers(self._where(view), value, view.dtype)

    replace = write

    def clear(self) -> None:
        """Forget everything that was written or stored in DDR."""
        for ddr in self.ddr:
            ddr.clear()

    def read(self, tensor: Tensor | View, sides: str = "pq") -> Elements | np.ndarray:
        """Return a tensor of its logical shape: elements, or concrete integers. Raises SimulationError for unknown integers.

        `sides` "p" leaves the q side out."""
        view = self.view(tensor) if isinstance(tensor, Tensor) else tensor
        memory = self.ddr[view.chip].memory(view.address)
        if view.dtype in FLOATS:
            return memory.elements(view.address, self._form(view), sides).reshape(*view.shape)
        values, good = memory.numbers(self._where(view), view.dtype)
        if not good.all():
            raise SimulationError(f"reading {view}: {int((~good).sum())} of {good.size} integers are not known")
        return values

    # --- launches ------------------------------------------------------------------------------------------------

    def launch(self, number: int, q: bool | None = None) -> None:
        """Run one launch on all tiles of all chips. Raises SimulationError, naming tile and row, for what is illegal or
        has no meaning; of its kinds, `routines.WithoutMeaning` for a kernel-core routine that the proof does not know.

        `q`: whether words modulo q are computed. Left out, they are if the launch has an exponential or a comparison; results of other launches
        have none then, until they are sealed.
        """
        launch = self.program.launches[number]
        segment = self.program.segments[launch.segment]
        where = f"launch '{launch.name}', segment '{segment.name}'"
        if len(launch.args) != segment.n_args:
            raise SimulationError(f"{where}: found {len(launch.args)} arguments, required {segment.n_args}")
        streams = []
        for tile in range(self.n_tiles * self.program.n_chips):
            chip, local = divmod(tile, self.n_tiles)
            wide = len(segment.tile_code) > self.n_tiles
            index = int(segment.tile_code[tile if wide else local])
            if index >= 0:
                code = self._code(launch.segment, index, where)
                row = tile if len(segment.tile_offset) > self.n_tiles else local
                slots = np.asarray(launch.args, np.int64)[segment.slot_arg] + segment.tile_offset[row]
                streams.append(self._start(tile, chip, code, slots, segment))
        with_q = any(s.code.two_sided for s in streams) if q is None else q
        for s in streams:
            s.tile.spm.clear(with_q)
        self._run(streams[::-1] if self.backwards else streams, where)
        self.denominators = [x for s in streams for x in s.tile.denominators]
        self.comparisons = Comparisons()
        for s in streams:
            self.comparisons.take(s.tile.comparisons)
        self.misread = sum(s.tile.spm.misread for s in streams)
        self._free.clear()

    def _code(self, segment: int, index: int, where: str) -> Code:
        found = self._codes.get((segment, index))
        if found is None:
            found = self._codes[segment, index] = Code(self.program.segments[segment].codes[index], where)
        return found

    def _start(self, number: int, chip: int, code: Code, slots: np.ndarray, segment) -> _Stream:
        spm = self._spm.get(number)
        if spm is None:
            spm = self._spm[number] = Memory(self.description.tile.spm_bytes)
        spm.misread = 0
        tile = Tile(self.field, number, spm, self.ddr[chip], self._free)
        tile.slots = slots.tolist()
        tile.routine = lambda index: routines.run(tile, segment.routines[index])
        slot, offset = code.addresses
        base = np.concatenate([slots, [0]])
        bad = np.flatnonzero((slot < -1) | (slot >= len(slots)))
        if len(bad):
            raise SimulationError(f"segment '{segment.name}', row {bad[0]}: slot {slot[bad[0]]} does not exist")
        return _Stream(tile, code, (base[slot] + np.where(slot >= 0, offset, 0)).tolist())

    def _run(self, streams: list[_Stream], where: str) -> None:
        met: Counter[tuple] = Counter()
        monitors = {s.tile.number: [0] * N_MONITORS for s in streams}
        by_number = {s.tile.number: s for s in streams}

        def send(tile: Tile, parts, dst: int, monitor: int, chip: int) -> None:
            home = (chip - 1 if chip else tile.number // self.n_tiles) * self.n_tiles
            if not 0 <= monitor < N_MONITORS or not parts:
                raise SimulationError(
                    f"sending to monitor {monitor} of {len(parts)} tiles: required is one below {N_MONITORS}, and a tile"
                )
            message = None
            for number, src, levels, size, total in parts:
                other = by_number.get(home + number)
                if number >= self.n_tiles or other is None:
                    raise SimulationError(f"sending to tile {number}: it does not run in this launch")
                if levels == ONE and not (src | dst | size) & 1 and size >= LONG and len({x[1] for x in parts}) == 1:
                    cell = src // CELL_BYTES
                    message = message or tile.spm.message(cell, cell + size // CELL_BYTES)
                    other.tile.spm.expect(dst // CELL_BYTES, message)
                else:
                    to = size, levels[1], size * levels[1], levels[3], size * levels[1] * levels[3], levels[5]
                    copy(other.tile.spm, dst, to, tile.spm, src, levels, size)
                other.tile.wrote(dst, total)
                monitors[other.tile.number][monitor] += total

        def advance(s: _Stream) -> bool:
            return self._advance(s, streams, met, monitors, where)

        for s in streams:
            s.tile.send = send
        waiting, stacks = streams, Stacks()
        while waiting:
            moved = [advance(s) for s in waiting if not s.ready]
            if not any(moved):
                ready = [s for s in waiting if s.ready]
                if not ready:
                    lines = [f"tile {s.tile.number} at row {s.at} ({s.code.names[s.at]})" for s in waiting]
                    raise SimulationError(f"{where}: no tile can go on: {'; '.join(lines)}")
                self._together(ready, stacks, advance, where)
            waiting = [s for s in waiting if not s.done]
        left = [f"tile {t} monitor {m}: {x} bytes" for t, own in monitors.items() for m, x in enumerate(own) if x]
        if left:
            raise SimulationError(f"{where}: messages are left over: {'; '.join(left)}")

    def _advance(self, s: _Stream, streams, met, monitors, where: str) -> bool:
        """Run a stream until it is stopped; say whether anything happened."""
        moved = False
        while not s.done:
            stop = s.stops[s.passed]
            if s.at < stop:
                self._execute(s, stop, where)
                moved = True
                continue
            if s.at in s.code.together:
                s.ready = True
                return moved
            name, p, me = s.code.names[s.at], s.code.steps[s.at][3], s.tile.number
            home = me - me % self.n_tiles
            if not s.arrived:
                s.arrived = moved = True
                if name == "barrier_sub" and not p[0] >> me - home & 1:
                    raise SimulationError(
                        f"{where}: tile {me} arrives at a barrier of the tiles of mask {p[0]:#x}, which it is not one of"
                    )
                met[self._meeting(name, p, me)] += 1
            if name == "recv":
                free = 0 <= p[0] < N_MONITORS and monitors[me][p[0]] >= p[1]
                if free:
                    monitors[me][p[0]] -= p[1]
            elif name == "barrier":
                mine = met["barrier", me]
                same = [o for o in streams if o.tile.number // self.n_tiles == me // self.n_tiles]
                free = all(o.barriers < mine or met["barrier", o.tile.number] >= mine for o in same)
            elif name == "barrier_sub":
                mine = met["sub", p[0], me]
                free = all(met["sub", p[0], home + t] >= mine for t in range(p[0].bit_length()) if p[0] >> t & 1)
            else:
                peer = self._peer(p, me)
                free = met["hand", me, peer] <= met["hand", peer, me]
            if not free:
                return moved
            s.arrived, moved = False, True
            s.at, s.passed = s.at + 1, s.passed + 1
        return moved

    def _peer(self, p: list[int], me: int) -> int:
        return (p[1] - 1 if p[1] else me // self.n_tiles) * self.n_tiles + p[0]

    def _meeting(self, name: str, p: list[int], me: int) -> tuple:
        if name == "barrier_sub":
            return "sub", p[0], me
        return ("hand", me, self._peer(p, me)) if name == "handshake" else (name, me)

    def _execute(self, s: _Stream, stop: int, where: str) -> None:
        at, tile = s.at, s.tile
        try:
            for at in range(s.at, stop):
                meaning, fmt, spm, p = s.code.steps[at]
                if meaning is not None:
                    meaning(tile, Row(fmt, spm, p, s.addresses[at]))
        except ILLEGAL as error:
            raise _at(where, s, at, error) from error
        s.at = stop

    def _together(self, ready: list[_Stream], stacks: Stacks, advance: Callable[[_Stream], bool], where: str) -> None:
        """Execute the rows that tiles have reached and that are made ready for all of them at once; each tile then runs ahead
        before it is the turn of the next, as if it alone had been fast."""
        by_kind: dict[Any, list[_Stream]] = {}
        for s in ready:
            by_kind.setdefault(s.code.together[s.at], []).append(s)
        turns: dict[int, Callable[[], None]] = {}
        for prepare, some in by_kind.items():
            try:
                made = prepare(stacks, [(s.tile, Row(*s.code.steps[s.at][1:], s.addresses[s.at])) for s in some])
            except ILLEGAL:  # alone they tell which it is
                made = [partial(self._alone, s) for s in some]
            turns.update({id(s): f for s, f in zip(some, made, strict=True)})
        for s in ready:
            try:
                turns[id(s)]()
            except ILLEGAL as error:
                raise _at(where, s, s.at, error) from error
            s.ready, s.at, s.passed = False, s.at + 1, s.passed + 1
            advance(s)

    def _alone(self, s: _Stream) -> None:
        """Execute the row that a tile stands at."""
        meaning, fmt, spm, p = s.code.steps[s.at]
        if meaning is not None:
            meaning(s.tile, Row(fmt, spm, p, s.addresses[s.at]))


def _at(where: str, s: _Stream, at: int, error: Exception) -> SimulationError:
    """Return an error of a row. Counts and sizes that no operand can have are found where they are used."""
    kind = routines.WithoutMeaning if isinstance(error, routines.WithoutMeaning) else SimulationError
    return kind(f"{where}, tile {s.tile.number}, row {at} ({s.code.names[at]}): {error}")
