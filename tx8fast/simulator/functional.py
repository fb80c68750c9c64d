"""The functional simulator: executes a program's launches on all tiles and yields its tensors.

May import: numpy, program.model, isa, machine, numerics, errors. Must not: model time.
Tiles of a launch that exchange nothing run one after the other in one scratchpad; those of the others take
turns, each with its own. Launches run in order; no scratchpad content is passed from one to the next.
Addresses of a whole code array are checked before its first instruction runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.isa.base import BY_OPCODE
from tx8fast.machine import DDR_BASE, Machine
from tx8fast.numerics import layout
from tx8fast.numerics.formats import convert, dtype_name, np_dtype
from tx8fast.program.model import Launch, Program, Segment, Tensor
from tx8fast.simulator.blas import one_blas_thread, plain_product
from tx8fast.simulator.exchange import Exchange, Stream, stop_rows, takes_turns
from tx8fast.simulator.faults import routine_inputs, row_fault
from tx8fast.simulator.memory import POISON, Ddr, new_spm

MAX_REPORTED = 4


class TileState:
    """What instructions see: `spm` of the running tile, `ddr`, register results `wb`, and options."""

    def __init__(self, machine: Machine, ddr: Ddr, exact: bool = False) -> None:
        self.spm = new_spm(machine)
        self.chip = 0  # the own chip among those that exchange data
        self.ddr = ddr
        self.wb = (0, 0)
        self.logic_value_mode = "raw"
        self.float_postproc = True
        self.tile = 0
        self.position = 0
        self.routine: Callable[[int], None] | None = None
        self.slots: Sequence[int] = ()  # DDR addresses of the running segment's slots
        self.exchange: Exchange | None = None
        self.exact = exact
        self.status = 0  # the CT's sticky exception byte; exact runs set it

    def note(self, bits: int) -> None:
        """Add bits of the running row to the exception byte (`exact_values.STATUS`)."""
        self.status |= bits

    def product(self, a: np.ndarray, b: np.ndarray, fmt: int, acc: np.ndarray | None = None) -> np.ndarray:
        """Return acc + a @ b, (m, k) by (k, n), maybe in `acc`: exact runs add in the specified order."""
        if self.exact:
            from tx8fast.simulator.exact_tensor import ordered_product

            return ordered_product(a, b, fmt, acc)
        return plain_product(a, b, fmt, acc)

    def seed(self) -> int:
        """Return the seed of stochastic rounding: tile and instruction index, so that runs repeat."""
        return self.tile * 1_000_003 + self.position

    def run_routine(self, index: int) -> None:
        """Execute kernel-core routine `index` of the running segment."""
        if self.routine is None:
            raise SimulationError(f"calling kernel-core routine {index}: no segment is running")
        self.routine(index)

    def send(self, pieces: Sequence[tuple[int, np.ndarray]], dst: int, monitor: int, chip: int = 0) -> None:
        """Put bytes into the scratchpads of other tiles: (tile, bytes) pairs, all at address `dst`; `chip` as in rows."""
        if self.exchange is None:
            raise SimulationError("sending to other tiles: no launch is running, so there are none")
        self.exchange.send(pieces, dst, monitor, chip - 1 if chip else self.chip)


class _Code:
    """One code array made ready to run: loops written out, columns as lists, SPM ranges checked."""

    def __init__(self, code: np.ndarray, machine: Machine, segment: Segment, known: Sequence[Any]) -> None:
        isa.check_fields(code, len(segment.slot_arg), f"segment '{segment.name}'")
        self.rows = rows = isa.expand(code)
        problems = _spm_problems(rows, machine)
        if problems:
            raise SimulationError(f"segment '{segment.name}': " + "; ".join(problems))
        self.steps = list(
            zip(
                [known[op] for op in rows["opcode"].tolist()],
                rows["fmt"].tolist(),
                rows["rnd"].tolist(),
                rows["spm"].tolist(),
                rows["p"].tolist(),
            )
        )
        self.ranges = isa.ranges(rows, np.zeros(len(rows), np.int64))
        self.has_ddr = rows["slot"] >= 0
        self.stops = stop_rows(rows)
        self.takes_turns = takes_turns(rows, self.stops)


def _spm_problems(rows: np.ndarray, machine: Machine) -> list[str]:
    """Return one line per row (the first few) whose SPM operands leave the memory given to buffers."""
    found = isa.ranges(rows, np.zeros(len(rows), np.int64))
    lines = []
    for kind in ("spm_read", "spm_write"):
        lo, hi = found[kind][..., 0], found[kind][..., 1]
        bad = (hi > lo) & ((lo < machine.spm_base) | (hi > machine.spm_limit))
        for at, k in np.argwhere(bad)[:MAX_REPORTED].tolist():
            name = isa.class_of(int(rows["opcode"][at])).NAME
            lines.append(
                f"instruction {at} ({name}): {kind.replace('_', ' ')} of SPM bytes [{lo[at, k]:#x}, {hi[at, k]:#x}), "
                f"required within [{machine.spm_base:#x}, {machine.spm_limit:#x})"
            )
    return lines


class FunctionalSimulator:
    """Run a program on arrays.

    `debug=True` fills the scratchpad with NaN patterns before every launch, so that reads of bytes
    that the launch never wrote show up in the results. `observer` sees every row before it runs
    (`sanitizer.Sanitizer`); the tiles of all launches take turns then. `chip`: the one of the program's chips that
    this is (`chips.ChipsSimulator` runs all of them, with common `codes`).
    """

    def __init__(
        self,
        program: Program,
        *,
        debug: bool = False,
        observer: Any = None,
        exact: bool = False,
        chip: int = 0,
        codes: dict[tuple[int, int], _Code] | None = None,
    ) -> None:
        self.program = program
        self.chip = chip
        self.name = f"chip {chip}, " if program.n_chips > 1 else ""
        self.exact = exact
        self._meanings: Sequence[Any] = [cls.run if cls else None for cls in BY_OPCODE]
        if exact:
            from tx8fast.simulator.exact import meanings

            self._meanings = meanings()
        self.machine = Machine.from_dict(program.machine)
        self.ddr = Ddr(program.ddr_bytes)
        self.debug = debug
        self.observer = observer
        self.state = TileState(self.machine, self.ddr, exact)
        self._states: dict[int, TileState] = {}
        self.instructions_executed = 0
        self._codes: dict[tuple[int, int], _Code] = {} if codes is None else codes
        self._tensors = {t.name: t for t in (*program.inputs, *program.outputs, *program.params)}

    # --- tensors -------------------------------------------------------------------------------

    def load_params(self, provider: Callable[[str], Any] | Mapping[str, Any]) -> None:
        """Copy all parameters to DDR; `provider` gives packed bytes (as they lie in DDR) by name."""
        get = provider.__getitem__ if isinstance(provider, Mapping) else provider
        for tensor in self.program.params:
            packed = get(tensor.name)
            if packed is None:
                raise SimulationError(f"loading parameter '{tensor.name}': no bytes were provided")
            data = packed if isinstance(packed, np.ndarray) else np.frombuffer(packed, np.uint8)
            data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            if data.size > tensor.size_bytes:
                raise SimulationError(
                    f"loading parameter '{tensor.name}': found {data.size} bytes, required at most {tensor.size_bytes}"
                )
            self.store(tensor.address, data)

    def store(self, address: int, data: np.ndarray) -> None:
        """Put bytes into DDR, as the host does."""
        self.ddr.view(address, data.size)[...] = data
        if self.observer is not None:
            self.observer.host_wrote(address, data.size)

    def tensor(self, tensor: str | Tensor) -> Tensor:
        """Return the tensor of that name. Raises SimulationError naming the known ones."""
        if isinstance(tensor, Tensor):
            return tensor
        try:
            return self._tensors[tensor]
        except KeyError:
            known = ", ".join(t.name for t in (*self.program.inputs, *self.program.outputs))
            raise SimulationError(f"no tensor is called '{tensor}'; inputs and outputs are {known}") from None

    def write(self, tensor: str | Tensor, array: np.ndarray) -> None:
        """Convert `array` (logical shape) to the tensor's DDR format and layout and store it."""
        t = self.tensor(tensor)
        array = np.asarray(array)
        if tuple(array.shape) != tuple(t.shape):
            raise SimulationError(f"writing '{t.name}': found shape {tuple(array.shape)}, required {tuple(t.shape)}")
        stored = np_dtype(t.ddr_dtype)
        if array.dtype != stored:
            array = convert(array, dtype_name(array.dtype), t.ddr_dtype)
        array = np.ascontiguousarray(array.astype(stored, copy=False))
        if t.layout == "blocked":
            data = layout.pack(array.reshape(layout.npc(t.shape)), t.ddr_dtype)
        else:
            data = array.reshape(-1).view(np.uint8)
        self.store(t.address, data)

    def read(self, tensor: str | Tensor) -> np.ndarray:
        """Return the tensor as an array of its logical shape and dtype (a copy)."""
        t = self.tensor(tensor)
        if t.layout == "blocked":
            n, p, c = layout.npc(t.shape)
            raw = self.ddr.view(t.address, layout.blocked_bytes(n, p, c, t.ddr_dtype))
            array = layout.unpack(raw, n, p, c, t.ddr_dtype).reshape(t.shape)
        else:
            raw = self.ddr.view(t.address, layout.dense_bytes(t.shape, t.ddr_dtype))
            array = raw.view(np_dtype(t.ddr_dtype)).reshape(t.shape)
        if t.dtype != t.ddr_dtype:
            return convert(array, t.ddr_dtype, t.dtype)
        return array.copy()

    def status_names(self) -> list[str]:
        """Return which exception bits vector engines have set; only exact runs set any."""
        if not self.exact:
            return []
        from tx8fast.simulator.exact_values import STATUS

        bits = self.state.status
        for state in self._states.values():
            bits |= state.status
        return [name for k, name in enumerate(STATUS) if bits >> k & 1]

    # --- execution -----------------------------------------------------------------------------

    def run(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Execute all launches in order. Raises SimulationError at the first illegal one."""
        for i, launch in enumerate(self.program.launches, 1):
            self.run_launch(launch)
            if progress is not None:
                progress(i, len(self.program.launches))

    def run_launch(self, launch: Launch) -> None:
        """Execute one launch on every tile that has code in its segment.

        Raises SimulationError for an illegal row, and if tiles wait for each other without end.
        """
        segment = self.segment_of(launch)
        codes = self.codes_of(launch)
        with np.errstate(all="ignore"), one_blas_thread():
            if self.observer is not None or any(code.takes_turns for _, code in codes):
                self._run_together(launch, segment, codes)
                return
            for tile, code in codes:
                self._stream(launch, segment, tile, code, self.state).run(0, len(code.rows))

    def segment_of(self, launch: Launch) -> Segment:
        """Return a launch's segment. Raises SimulationError if its arguments do not fit."""
        segment = self.program.segments[launch.segment]
        if len(launch.args) != segment.n_args:
            raise SimulationError(
                f"launch '{launch.name}' of segment '{segment.name}': found {len(launch.args)} arguments, "
                f"required {segment.n_args}"
            )
        return segment

    def codes_of(self, launch: Launch) -> list[tuple[int, _Code]]:
        """Return (tile, code) of the tiles of this chip that have code."""
        own = np.asarray(self.program.segments[launch.segment].tile_code)
        if len(own) > self.machine.n_tiles:
            own = own[self.chip * self.machine.n_tiles :][: self.machine.n_tiles]
        return [(t, self._code(launch.segment, index)) for t, index in enumerate(own.tolist()) if index >= 0]

    def streams_of(self, launch: Launch, exchange: Exchange) -> list[Stream]:
        """Return the streams of this chip's tiles in a launch that several chips run together."""
        segment, first, out = self.segment_of(launch), self.chip * self.machine.n_tiles, []
        for tile, code in self.codes_of(launch):
            state = self.state_of(tile)
            state.exchange, state.chip = exchange, self.chip
            stream = self._stream(launch, segment, tile, code, state)
            stream.tile += first
            out.append(stream)
        return out

    def _run_together(self, launch: Launch, segment: Segment, codes: list[tuple[int, _Code]]) -> None:
        """Run the tiles in turns, each in its own scratchpad."""
        where = f"launch '{launch.name}', segment '{segment.name}'"
        exchange = Exchange(self.machine, lambda tile: self.state_of(tile).spm, where, self.observer)
        streams = []
        for tile, code in codes:
            state = self.state_of(tile)
            state.exchange, state.chip = exchange, 0
            streams.append(self._stream(launch, segment, tile, code, state))
        if self.observer is not None:
            self.observer.begin(launch, segment, [tile for tile, _ in codes])
        exchange.run(streams)
        if self.observer is not None:
            self.observer.end()

    def state_of(self, tile: int) -> TileState:
        """Return the state of a tile that exchanges data; its scratchpad is made when first needed."""
        found = self._states.get(tile)
        if found is None:
            found = self._states[tile] = TileState(self.machine, self.ddr, self.exact)
        return found

    def _code(self, segment_index: int, code_index: int) -> _Code:
        key = (segment_index, code_index)
        found = self._codes.get(key)
        if found is None:
            segment = self.program.segments[segment_index]
            found = self._codes[key] = _Code(segment.codes[code_index], self.machine, segment, self._meanings)
        return found

    def _stream(self, launch: Launch, segment: Segment, tile: int, code: _Code, state: TileState) -> Stream:
        """Prepare a tile for a launch; all its DDR addresses are checked here."""
        row = tile + (self.chip * self.machine.n_tiles if len(segment.tile_offset) > self.machine.n_tiles else 0)
        slots = np.asarray(launch.args, np.int64)[segment.slot_arg] + segment.tile_offset[row]
        addresses = self._addresses(code, slots, launch, segment, tile).tolist()
        state.tile = tile
        state.slots = slots.tolist()
        state.routine = lambda index: self._run_routine(segment.routines[index], slots)
        if self.debug:
            state.spm[...] = POISON

        watch = self.observer

        def execute(lo: int, hi: int) -> None:
            at = -1
            some = zip(code.steps[lo:hi], addresses[lo:hi])
            try:
                for at, ((run, fmt, rnd, spm, p), address) in enumerate(some, lo):
                    state.position = at
                    if watch is not None:
                        watch.row(tile, at, state, address)
                    run(state, fmt, rnd, spm, p, address)
            except (SimulationError, ValueError, IndexError, KeyError, TypeError) as error:
                where = f"{self.name}launch '{launch.name}', segment '{segment.name}', tile {tile}"
                raise SimulationError(row_fault(error, code.rows[at], where, at, self.program.inputs)) from error

        self.instructions_executed += len(addresses)
        return Stream(tile, code.rows, code.stops, segment.ops, execute)

    def _addresses(self, code: _Code, slots, launch, segment, tile) -> np.ndarray:
        """Return the absolute DDR address of every row, after checking all of them."""
        rows = code.rows
        if not len(slots):
            slots = np.zeros(1, np.int64)
        address = np.where(code.has_ddr, slots[rows["slot"]] + rows["ddr"], 0)
        hi = self.ddr.end
        span = code.ranges["ddr_read"][:, 1] + code.ranges["ddr_write"][:, 1]
        bad = np.flatnonzero((span > 0) & ((address < DDR_BASE) | (address + span > hi)))
        if len(bad):
            lines = [
                f"instruction {at} ({isa.class_of(int(rows['opcode'][at])).NAME}) accesses DDR bytes "
                f"[{address[at]:#x}, {address[at] + span[at]:#x})"
                for at in bad[:MAX_REPORTED].tolist()
            ]
            raise SimulationError(
                f"{self.name}launch '{launch.name}', segment '{segment.name}', tile {tile}: {'; '.join(lines)}; required within "
                f"[{DDR_BASE:#x}, {hi:#x})"
            )
        return address

    def _run_routine(self, descriptor: Mapping[str, Any], slots: np.ndarray) -> None:
        """Run a kernel-core routine on strided DDR views."""
        from tx8fast.numerics.routines import ROUTINES

        name = descriptor["routine"]
        if name not in ROUTINES:
            raise SimulationError(f"kernel-core routine '{name}' does not exist")

        def operand(d) -> Any:
            if d is None:
                return None
            address = int(slots[d["slot"]]) + d["offset"]
            if d.get("layout") == "blocked":
                return self._blocked(address, d)
            return self.ddr.strided(address, d["shape"], d["strides"], np_dtype(d["dtype"]))

        arrays = [operand(d) for d in descriptor["inputs"]]
        outs = [operand(d) for d in descriptor["outputs"]]
        types = [(tuple(d["shape"]), d["dtype"]) for d in descriptor["outputs"]]
        try:
            results = ROUTINES[name](arrays, dict(descriptor["attrs"]), types)
        except SimulationError as e:
            places = [0 if d is None else int(slots[d["slot"]]) + d["offset"] for d in descriptor["inputs"]]
            raise SimulationError(f"{e}{routine_inputs(zip(places, arrays), self.program.inputs)}") from e
        for d, out, result in zip(descriptor["outputs"], outs, results):
            if d.get("layout") == "blocked":
                image = layout.pack(np.asarray(result).reshape(layout.npc(d["shape"])), d["dtype"])
                self.ddr.view(int(slots[d["slot"]]) + d["offset"], image.size)[...] = image
            else:
                out[...] = result

    def _blocked(self, address: int, d: Mapping[str, Any]) -> np.ndarray:
        """Return a whole channel-blocked tensor as an array of its logical shape."""
        n, p, c = layout.npc(d["shape"])
        raw = self.ddr.view(address, layout.blocked_bytes(n, p, c, d["dtype"]))
        return layout.unpack(raw, n, p, c, d["dtype"]).reshape(d["shape"])
