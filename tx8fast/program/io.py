"""Saving and loading programs as `.tx8` files.

May import: numpy, errors, program.model, container, rows, sources. Must not: read weights or
trust a number of the file before it is checked.

Sections: row_words, rows, code (program.rows), tile_code, slot_arg, tile_offset, buffers, launch_segment, launch_args,
launch_values (raw integers, one array after the other), data (embedded parameter bytes). Everything else is JSON. A section calls is for
hosts without Python: words of calls, which this reader makes of the routines' descriptors. launch_values
numbers the names in "values", one for every launch argument; a launch without names has -1 for each. Sources of tensors are numbers of the
table "sources" (program.sources).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any

import numpy as np

from tx8fast.errors import ProgramError
from tx8fast.program.container import ALIGN, Chunks, Container, write
from tx8fast.program.model import FORMAT_VERSION, MAX_CHIPS, ROLES, Argument, Launch, Program, Segment, Tensor
from tx8fast.program.rows import pack_rows, unpack_rows
from tx8fast.program.sources import SourceTable, read_sources
from tx8fast.records import dataclass

EAGER_DATA_BYTES = 64 << 20  # embedded data up to this size is checked when a file is loaded
MAX_SLOTS = 1 << 20


@dataclass
class FileProgram(Program):
    """A program that lives in a file. `check_data()` reads the data section once and checks it."""

    container: Container | None = field(default=None, repr=False, compare=False)
    data_checked: bool = field(default=False, repr=False, compare=False)

    def check_data(self) -> None:
        """Raise ProgramError if the embedded bytes are not those that were saved."""
        if self.container is not None and not self.data_checked:
            self.container.section("data", check=True)
            self.data_checked = True


def check_data(program: Program) -> None:
    """Check the embedded bytes of a loaded program once; programs that never were in a file are fine."""
    if isinstance(program, FileProgram):
        program.check_data()


def save(program: Program, path: str | os.PathLike[str], data: Chunks | None = None, calls: bool = False) -> None:
    """Write `program` to `path`, atomically and with the same bytes for the same program.

    `data`: chunks to store instead of `program.data`, so that weights of any size can be streamed. `calls`: also store calls of
    routines in the form that the C core reads. Raises ProgramError.
    """
    if data is None:
        check_data(program)
        data = [memoryview(program.data)]
    entries, more = calls_of(program) if calls else ({}, [])
    write(path, FORMAT_VERSION, {**body_of(program), **entries}, [*arrays_of(program), *more, ("data", data)])


def body_of(program: Program) -> dict[str, Any]:
    """The JSON part of a program."""
    segments, sources = [], SourceTable()
    tensors = {
        role: [_tensor_body(t, sources) for t in found]
        for role, found in (("inputs", program.inputs), ("outputs", program.outputs), ("params", program.params))
    }
    for s in program.segments:
        segments.append(
            {
                "name": s.name,
                "codes": [len(c) for c in s.codes],
                "tiles": len(s.tile_code),
                "slots": len(s.slot_arg),
                "n_args": s.n_args,
                "ops": s.ops,
                "routines": s.routines,
                "barrier": s.barrier,
                "spm_peak_bytes": s.spm_peak_bytes,
                "estimate_cycles": s.estimate_cycles,
                "info": s.info,
                "buffers": len(s.buffers),
                "arguments": [
                    None if a is None else [a.role, list(a.shape), a.dtype, a.layout, a.replaces] for a in s.arguments
                ],
            }
        )
    return {
        **({} if program.chips == (1, 1) else {"chips": list(program.chips)}),
        "machine": program.machine,
        "segments": segments,
        "launches": [[launch.name, len(launch.args)] for launch in program.launches],
        "values": list(_value_numbers(program)),
        **tensors,
        "sources": sources.entries,
        "ddr_bytes": program.ddr_bytes,
        "meta": program.meta,
    }


def calls_of(program: Program) -> tuple[dict[str, Any], list[tuple[str, Chunks]]]:
    """The calls of routines as the words that the C core reads, for hosts without Python: entries of the body, and a section."""
    from tx8fast.isa.routines import CALLS_VERSION, words_of

    words = [[words_of(d) for d in s.routines] for s in program.segments]
    flat = np.array([w for own in words for call in own for w in call], "<i8")
    sizes = [[len(call) for call in own] for own in words]
    return {"calls": {"version": CALLS_VERSION, "words": sizes}}, [("calls", [flat.view(np.uint8).data])]


def _tensor_body(t: Tensor, sources: SourceTable) -> dict[str, Any]:
    return {
        "name": t.name,
        "shape": [int(n) for n in t.shape],
        "dtype": t.dtype,
        "ddr_dtype": t.ddr_dtype,
        "layout": t.layout,
        "address": int(t.address),
        "size_bytes": int(t.size_bytes),
        "source": sources.number(t.source),
        "embedded": int(t.embedded),
        **({"per_chip": True} if t.per_chip else {}),
    }


def _value_numbers(program: Program) -> dict[str, int]:
    """Return the number of every value name of the launches, by first occurrence."""
    names = dict.fromkeys(name for launch in program.launches for name in launch.values)
    return {name: i for i, name in enumerate(names)}


def arrays_of(program: Program) -> list[tuple[str, Chunks]]:
    """The sections of a program but its data."""

    def raw(arrays: Iterable[Any], dtype: Any) -> Iterator[memoryview]:
        for array in arrays:
            flat = np.ascontiguousarray(array, dtype).reshape(-1)
            if flat.size:
                yield flat.view(np.uint8).data

    segments, launches = program.segments, program.launches
    number = _value_numbers(program)
    named = ([number[v] for v in x.values] or [-1] * len(x.args) for x in launches)
    words, rows, code = pack_rows([c for s in segments for c in s.codes])
    return [
        ("row_words", raw([words], "<i4")),
        ("rows", raw([rows], "<u4")),
        ("code", raw([code], "<u4")),
        ("tile_code", raw((s.tile_code for s in segments), "<i4")),
        ("slot_arg", raw((s.slot_arg for s in segments), "<i4")),
        ("tile_offset", raw((s.tile_offset for s in segments), "<i8")),
        ("buffers", raw((s.buffers for s in segments), "<i4")),
        ("launch_segment", raw([[launch.segment for launch in launches]], "<i4")),
        ("launch_args", raw((launch.args for launch in launches), "<i8")),
        ("launch_values", raw(named, "<i4")),
    ]


def load(path: str | os.PathLike[str], verify_data: bool | None = None) -> FileProgram:
    """Return the program of a `.tx8` file; embedded data stay in the file (memory map) until they are used.

    `verify_data`: check the embedded bytes now (True), when the program is run (False), or now unless
    they are large (None). Raises ProgramError for a file that is missing, damaged, or of another version.
    """
    container = Container(path, FORMAT_VERSION)
    return read(container, container.body, verify_data=verify_data)


def read(container: Container, body: Any, prefix: str = "", verify_data: bool | None = None) -> FileProgram:
    """Return the program with this `body` in an open file; the names of its sections begin with `prefix`."""
    path = container.path
    if isinstance(body, dict) and "bundle" in body:
        raise ProgramError(f"reading program file {path}: it holds programs for several lengths; open it as such")
    try:
        program = _Reader(container, body, prefix).program()
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        OverflowError,
        RecursionError,
    ) as e:
        if isinstance(e, ProgramError):
            raise
        raise ProgramError(f"reading program file {path}: malformed content ({type(e).__name__}: {e})") from e
    program.data = container.section("data", check=False)
    for tensor in program.params:
        end = tensor.embedded + tensor.size_bytes * (program.n_chips if tensor.per_chip else 1)
        if tensor.embedded >= 0 and end > len(program.data):
            raise ProgramError(
                f"reading program file {path}: parameter '{tensor.name}' ends at byte {end} of a data section of "
                f"{len(program.data)} bytes"
            )
    if verify_data or (verify_data is None and len(program.data) <= EAGER_DATA_BYTES):
        program.check_data()
    return program


class _Reader:
    """Takes the body apart; every count is checked against the bytes that are really there."""

    def __init__(self, container: Container, body: Any, prefix: str) -> None:
        self.container = container
        self.body = self.need(body, dict, "body")
        self.at: dict[str, int] = {}
        self.sources: list[dict[str, Any]] = []
        self.arrays = {
            name: np.frombuffer(self._section(prefix + name, np.dtype(dtype)), dtype)
            for name, dtype in (
                ("row_words", "<i4"),
                ("rows", "<u4"),
                ("code", "<u4"),
                ("tile_code", "<i4"),
                ("slot_arg", "<i4"),
                ("tile_offset", "<i8"),
                ("buffers", "<i4"),
                ("launch_segment", "<i4"),
                ("launch_args", "<i8"),
                ("launch_values", "<i4"),
            )
        }

    def _section(self, name: str, dtype: np.dtype) -> memoryview:
        view = self.container.section(name)
        if len(view) % dtype.itemsize:
            raise self.fail(f"section '{name}' has {len(view)} bytes, not a multiple of {dtype.itemsize}")
        return view

    def fail(self, text: str) -> ProgramError:
        return ProgramError(f"reading program file {self.container.path}: {text}")

    def need(self, value: Any, kind: type, what: str) -> Any:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.fail(f"{what} is {type(value).__name__}, required {kind.__name__}")
        return value

    def count(self, value: Any, what: str, most: int = 1 << 62, least: int = 0) -> int:
        if not least <= self.need(value, int, what) <= most:
            raise self.fail(f"{what} is {value}, required {least} to {most}")
        return value

    def items(self, tree: Any, key: str, kind: type, what: str) -> list:
        values = self.need(tree[key], list, f"{what} '{key}'")
        return [self.need(v, kind, f"an entry of {what} '{key}'") for v in values]

    def take(self, name: str, n: int, what: str) -> np.ndarray:
        begin = self.at.get(name, 0)
        if n > len(self.arrays[name]) - begin:
            raise self.fail(f"{what} needs {n} entries of section '{name}', {len(self.arrays[name]) - begin} are left")
        self.at[name] = begin + n
        return self.arrays[name][begin : begin + n]

    def program(self) -> FileProgram:
        body = self.body
        stored = (self.arrays.pop("row_words"), self.arrays.pop("rows"), self.arrays["code"])
        self.arrays["code"] = unpack_rows(*stored)
        self.sources = read_sources(self.need(body["sources"], list, "'sources'"))
        segments = [self.segment(s) for s in self.items(body, "segments", dict, "program")]
        program = FileProgram(
            machine=self.need(body["machine"], dict, "machine"),
            segments=segments,
            launches=self.launches(segments),
            inputs=[self.tensor(t) for t in self.items(body, "inputs", dict, "program")],
            outputs=[self.tensor(t) for t in self.items(body, "outputs", dict, "program")],
            params=[self.tensor(t) for t in self.items(body, "params", dict, "program")],
            ddr_bytes=self.count(body["ddr_bytes"], "ddr_bytes"),
            meta=self.need(body["meta"], dict, "meta"),
            container=self.container,
            chips=self.chips(),
        )
        for name, array in self.arrays.items():
            if self.at.get(name, 0) != len(array):
                raise self.fail(f"section '{name}' has {len(array) - self.at.get(name, 0)} entries too many")
        return program

    def chips(self) -> tuple[int, int]:
        found = self.items(self.body, "chips", int, "program") if "chips" in self.body else [1, 1]
        if len(found) != 2:
            raise self.fail(f"'chips' has {len(found)} entries, required 2")
        x, y = (self.count(n, "a side of the chip grid", MAX_CHIPS, 1) for n in found)
        self.count(x * y, "the number of chips", MAX_CHIPS)
        return x, y

    def segment(self, tree: dict[str, Any]) -> Segment:
        name = self.need(tree["name"], str, "a segment's name")
        what = f"segment '{name}'"
        counts = [self.count(n, f"{what} code length") for n in self.items(tree, "codes", int, what)]
        tiles = self.count(tree["tiles"], f"{what} tiles", MAX_SLOTS)
        slots = self.count(tree["slots"], f"{what} slots", MAX_SLOTS)
        segment = Segment(
            name=name,
            codes=[self.take("code", n, what) for n in counts],
            tile_code=self.take("tile_code", tiles, what),
            slot_arg=self.take("slot_arg", slots, what),
            tile_offset=self.take("tile_offset", tiles * slots, what).reshape(tiles, slots),
            n_args=self.count(tree["n_args"], f"{what} n_args", MAX_SLOTS),
            ops=self.items(tree, "ops", str, what),
            routines=self.items(tree, "routines", dict, what),
            barrier=self.need(tree["barrier"], bool, f"{what} barrier"),
            spm_peak_bytes=self.count(tree["spm_peak_bytes"], f"{what} spm_peak_bytes"),
            estimate_cycles=self.count(tree["estimate_cycles"], f"{what} estimate_cycles"),
            info=self.need(tree["info"], dict, f"{what} info"),
            arguments=[self.argument(a, what) for a in self.need(tree["arguments"], list, f"{what} 'arguments'")],
            buffers=self.take("buffers", 3 * self.count(tree["buffers"], f"{what} buffers", MAX_SLOTS), what).reshape(
                -1, 3
            ),
        )
        if len(segment.arguments) != segment.n_args:
            raise self.fail(f"{what} declares {len(segment.arguments)} of its {segment.n_args} arguments")
        for array, top, label in (
            (segment.tile_code, len(counts), "tile_code"),
            (segment.slot_arg, segment.n_args, "slot_arg"),
        ):
            low = -1 if label == "tile_code" else 0
            if array.size and (array.min() < low or array.max() >= top):
                raise self.fail(f"{what} {label} has values outside [{low}, {top})")
        return segment

    def argument(self, tree: Any, segment: str) -> Argument | None:
        if tree is None:
            return None
        what = f"an argument of {segment}"
        role, shape, dtype, layout, replaces = self.need(tree, list, what)
        if role not in ROLES:
            raise self.fail(f"{what} has role {role!r}, required one of {ROLES}")
        return Argument(
            role=role,
            shape=tuple(self.count(n, f"shape of {what}") for n in self.need(shape, list, f"shape of {what}")),
            dtype=self.need(dtype, str, f"dtype of {what}"),
            layout=self.need(layout, str, f"layout of {what}"),
            replaces=self.count(replaces, f"{what}: the one that it replaces", MAX_SLOTS, -1),
        )

    def launches(self, segments: list[Segment]) -> list[Launch]:
        entries = self.items(self.body, "launches", list, "program")
        names = self.items(self.body, "values", str, "program")
        index = self.take("launch_segment", len(entries), "the launch list")
        out = []
        for (name, n_args), which in zip(entries, index.tolist()):
            if not 0 <= which < len(segments):
                raise self.fail(f"launch '{name}' runs segment {which} of {len(segments)}")
            self.need(name, str, "a launch's name")
            args = self.take("launch_args", self.count(n_args, f"launch '{name}' arguments"), f"launch '{name}'")
            if len(args) != segments[which].n_args:
                raise self.fail(f"launch '{name}' has {len(args)} arguments, its segment {segments[which].n_args}")
            out.append(Launch(which, args, name, self.values(names, len(args), name)))
        return out

    def values(self, names: list[str], n: int, launch: str) -> tuple[str, ...]:
        """Return the value names of the next launch's `n` arguments; none if it has none."""
        numbers = self.take("launch_values", n, f"launch '{launch}'")
        if n and (numbers < 0).all():
            return ()
        if n and not (0 <= numbers.min() and numbers.max() < len(names)):
            raise self.fail(f"launch '{launch}' names values outside [0, {len(names)})")
        return tuple([names[i] for i in numbers])

    def tensor(self, tree: dict[str, Any]) -> Tensor:
        text: Callable[[str], str] = lambda key: self.need(tree[key], str, f"a tensor's {key}")  # noqa: E731
        name = text("name")
        return Tensor(
            name=name,
            shape=tuple(self.count(n, f"shape of '{name}'") for n in self.items(tree, "shape", int, f"'{name}'")),
            dtype=text("dtype"),
            ddr_dtype=text("ddr_dtype"),
            layout=text("layout"),
            address=self.count(tree["address"], f"address of '{name}'"),
            size_bytes=self.count(tree["size_bytes"], f"size of '{name}'"),
            source=dict(self.sources[self.count(tree["source"], f"source of '{name}'", len(self.sources) - 1)]),
            embedded=self.count(tree["embedded"], f"embedded offset of '{name}'", least=-1),
            per_chip=self.need(tree.get("per_chip", False), bool, f"per_chip of '{name}'"),
        )


__all__ = ["ALIGN", "FileProgram", "arrays_of", "body_of", "check_data", "load", "read", "save"]
