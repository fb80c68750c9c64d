"""The functional simulator: executes a program's launches on all tiles and yields its tensors.

May import: numpy, program.model, isa, machine, numerics, errors, and modules beside it. Must not: model time.
The tiles of a launch go on together, each in its own scratchpad. Launches run in order; no scratchpad content is passed from one
to the next. Addresses of a whole code array are checked before its first instruction runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.host.core import NO_CALLS, Calls
from tx8fast.machine import Machine
from tx8fast.numerics import layout
from tx8fast.numerics.formats import convert, dtype_name, np_dtype
from tx8fast.program.model import Launch, Program, Segment, Tensor
from tx8fast.simulator.code import Code
from tx8fast.simulator.exchange import Exchange, Stream
from tx8fast.simulator.execution import execution
from tx8fast.simulator.faults import routine_inputs
from tx8fast.simulator.memory import POISON, Ddr
from tx8fast.simulator.state import TileState


class FunctionalSimulator:
    """Run a program on arrays.

    `debug=True` fills the scratchpads with NaN patterns before every launch, so that reads of bytes
    that the launch never wrote show up in the results. `observer` sees every row before it runs
    (`sanitizer.Sanitizer`). `exact` interprets element by element instead of asking the core. `chip`: the one of the program's
    chips that this is (`chips.ChipsSimulator` runs all of them, with common `codes`). `threads`: at most so many execute
    tiles, None: as many as there are processors; it shows in no result.
    """

    def __init__(
        self,
        program: Program,
        *,
        debug: bool = False,
        observer: Any = None,
        exact: bool = False,
        chip: int = 0,
        codes: dict[tuple[int, int], Code] | None = None,
        threads: int | None = None,
    ) -> None:
        self.program = program
        self.chip = chip
        self.name = f"chip {chip}, " if program.n_chips > 1 else ""
        self.exact = exact
        self.execute = execution(program.inputs, exact, observer, threads)
        self.machine = Machine.from_dict(program.machine)
        self.ddr = Ddr(program.ddr_bytes)
        self.debug = debug
        self.observer = observer
        self.states: dict[int, TileState] = {}
        self.instructions_executed = 0
        self._calls: dict[int, Calls] = {}
        self._codes: dict[tuple[int, int], Code] = {} if codes is None else codes
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

    def room(self, tensor: Tensor) -> np.ndarray | None:
        """Return the bytes of DDR that a parameter takes; zeros before the first launch."""
        return self.ddr.view(tensor.address, tensor.size_bytes)

    def store(self, address: int, data: np.ndarray) -> None:
        """Put bytes into DDR, as the host does; they may have been made there."""
        place = self.ddr.view(address, data.size)
        if not np.may_share_memory(place, data):
            place[...] = data
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

        bits = 0
        for state in self.states.values():
            bits |= state.status
        return [name for k, name in enumerate(STATUS) if bits >> k & 1]

    def release(self) -> None:
        """Forget the last launch, whose tiles know this simulator: its memory is free as soon as nobody holds it."""
        for state in self.states.values():
            state.leave()

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
        where = f"launch '{launch.name}', segment '{segment.name}'"
        streams = self.streams_of(launch)
        exchange = Exchange(self.machine, self.state_of, self.execute, where, self.observer)
        if self.observer is not None:
            self.observer.begin(launch, segment, [s.tile for s in streams])
        exchange.run(streams)
        if self.observer is not None:
            self.observer.end()

    def segment_of(self, launch: Launch) -> Segment:
        """Return a launch's segment. Raises SimulationError if its arguments do not fit."""
        segment = self.program.segments[launch.segment]
        if len(launch.args) != segment.n_args:
            raise SimulationError(
                f"launch '{launch.name}' of segment '{segment.name}': found {len(launch.args)} arguments, "
                f"required {segment.n_args}"
            )
        return segment

    def codes_of(self, launch: Launch) -> list[tuple[int, Code]]:
        """Return (tile, code) of the tiles of this chip that have code."""
        own = np.asarray(self.program.segments[launch.segment].tile_code)
        if len(own) > self.machine.n_tiles:
            own = own[self.chip * self.machine.n_tiles :][: self.machine.n_tiles]
        return [(t, self._code(launch.segment, index)) for t, index in enumerate(own.tolist()) if index >= 0]

    def streams_of(self, launch: Launch, among: int | None = None) -> list[Stream]:
        """Return the streams of this chip's tiles in a launch; `among`: which of the chips that run it together this is."""
        segment, first = self.segment_of(launch), (among or 0) * self.machine.n_tiles
        out = []
        for tile, code in self.codes_of(launch):
            where = f"{self.name}launch '{launch.name}', segment '{segment.name}', tile {tile}"
            row = tile + (self.chip * self.machine.n_tiles if len(segment.tile_offset) > self.machine.n_tiles else 0)
            slots = np.asarray(launch.args, np.int64)[segment.slot_arg] + segment.tile_offset[row]
            addresses = code.addresses(slots, self.ddr.end, where)
            state = self.state_of(tile)
            state.place(among or 0)
            state.slots = slots.tolist()
            if segment.routines:
                state.calls = self._calls_of(launch.segment)
                state.remark = partial(self._remark, segment, slots)
                state.routine = partial(self._run_routine, segment, slots)
            else:
                state.calls = NO_CALLS
            state.core.load(code.rows, addresses, slots, state.calls)
            if self.debug:
                state.spm[...] = POISON
            self.instructions_executed += len(addresses)
            out.append(Stream(first + tile, code, addresses, segment.ops, state, where))
        return out

    def state_of(self, tile: int) -> TileState:
        """Return the state of a tile; its scratchpad is made when first needed."""
        found = self.states.get(tile)
        if found is None:
            found = self.states[tile] = TileState(self.machine, self.ddr, tile)
        return found

    def _code(self, segment_index: int, code_index: int) -> Code:
        key = (segment_index, code_index)
        found = self._codes.get(key)
        if found is None:
            segment = self.program.segments[segment_index]
            found = self._codes[key] = Code(segment.codes[code_index], self.machine, segment)
        return found

    def _calls_of(self, segment_index: int) -> Calls:
        found = self._calls.get(segment_index)
        if found is None:
            found = self._calls[segment_index] = Calls(self.program.segments[segment_index].routines)
        return found

    def _remark(self, segment: Segment, slots: np.ndarray, index: int) -> str:
        """Return what the integer inputs of the program hold among what routine `index` of a segment was given."""
        given = [d for d in segment.routines[index]["inputs"] if d is not None]
        places = [int(slots[d["slot"]]) + d["offset"] for d in given]
        return routine_inputs(
            [(at, self._operand(slots, d)) for at, d in zip(places, given, strict=True)], self.program.inputs
        )

    def _operand(self, slots: np.ndarray, d: Mapping[str, Any] | None) -> Any:
        """Return an operand or result of a routine as an array; None where there is none."""
        if d is None:
            return None
        address = int(slots[d["slot"]]) + d["offset"]
        if d.get("layout") == "blocked":
            return self._blocked(address, d)
        return self.ddr.strided(address, d["shape"], d["strides"], np_dtype(d["dtype"]))

    def _run_routine(self, segment: Segment, slots: np.ndarray, index: int) -> None:
        """Run kernel-core routine `index` of a segment on strided DDR views, as the oracle of the C core does."""
        from tx8fast.numerics.routines import ROUTINES

        descriptor: Mapping[str, Any] = segment.routines[index]
        name = descriptor["routine"]
        if name not in ROUTINES:
            raise SimulationError(f"kernel-core routine '{name}' does not exist")

        arrays = [self._operand(slots, d) for d in descriptor["inputs"]]
        outs = [self._operand(slots, d) for d in descriptor["outputs"]]
        types = [(tuple(d["shape"]), d["dtype"]) for d in descriptor["outputs"]]
        results = ROUTINES[name](arrays, dict(descriptor["attrs"]), types)
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
