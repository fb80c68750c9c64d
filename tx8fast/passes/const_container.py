"""The parameters and constants of a program: ids, sizes, and the order in which they lie in DDR.

May import: ir.attrs, ir.program, numerics.layout, passes.layout_forms. Must not: read the bytes of a weight.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import field

from tx8fast.errors import InternalError
from tx8fast.ir.core import Op
from tx8fast.ir.program import IRProgram
from tx8fast.numerics.layout import blocked_bytes, dense_bytes, npc
from tx8fast.passes.layout_forms import BLOCKED, CONSTANTS, DENSE
from tx8fast.records import dataclass

#: one DDR bank row per tile; larger payloads come first
BANK_BYTES = 4096
ALL_CHIPS = -1


@dataclass(frozen=True)
class ParamInfo:
    """One payload. `source`: a weight key, a dense attribute, or any other hashable that stands for the bytes."""

    source: Hashable
    size_bytes: int
    chips: tuple[int, ...] = (ALL_CHIPS,)

    @property
    def per_chip(self) -> bool:
        """True if the data belongs to particular chips."""
        return self.chips != (ALL_CHIPS,)


@dataclass
class ConstContainer:
    """`data`: id -> payloads (one per distinct content). Registering equal content again gives the same id."""

    n_tiles: int = 16
    data: dict[int, list[ParamInfo]] = field(default_factory=dict)
    old_to_size: dict[int, dict[int, int]] = field(default_factory=dict)
    old_to_new: dict[int, int] = field(default_factory=dict)
    ids: dict[Hashable, int] = field(default_factory=dict)

    @property
    def threshold_bytes(self) -> int:
        return BANK_BYTES * self.n_tiles

    def add(self, source: Hashable, size_bytes: int) -> int:
        """Register a payload that all chips share; return its id."""
        found = self.ids.get(source)
        if found is None:
            found = self.ids[source] = len(self.data)
            self.data[found] = [ParamInfo(source, size_bytes)]
            self.old_to_size[found] = {ALL_CHIPS: size_bytes}
        return found

    def add_per_chip(self, sources: Mapping[int, tuple[Hashable, int]]) -> int:
        """Register one constant with data of its own per chip: chip -> (source, bytes). Equal data is kept once."""
        key = tuple(sorted((chip, s) for chip, (s, _) in sources.items()))
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = len(self.data)
            by_source: dict[tuple[Hashable, int], list[int]] = {}
            for chip in sorted(sources):
                by_source.setdefault(sources[chip], []).append(chip)
            self.data[found] = [ParamInfo(s, n, tuple(c)) for (s, n), c in by_source.items()]
            self.old_to_size[found] = {chip: n for chip, (_, n) in sorted(sources.items())}
        return found

    def renumber(self) -> dict[int, int]:
        """Number the payloads anew: those larger than the threshold first, else in the old order. Return old -> new."""
        large = [i for i in self.data if max(self.old_to_size[i].values()) > self.threshold_bytes]
        chosen = set(large)
        order = [*large, *(i for i in self.data if i not in chosen)]
        self.old_to_new = {old: new for new, old in enumerate(order)}
        return self.old_to_new

    def in_order(self) -> Iterator[tuple[int, list[ParamInfo]]]:
        """Yield (new id, payloads) in DDR order. Raises InternalError before `renumber`."""
        if len(self.old_to_new) != len(self.data):
            raise InternalError("constants were added after they were numbered")
        for old, new in self.old_to_new.items():
            yield new, self.data[old]


def form_bytes(shape: tuple[int, ...], dtype: str, form: str) -> int:
    """Return the bytes of a tensor in its form; rank 0 and 1 are stored dense."""
    if form == BLOCKED and len(shape) > 1:
        return blocked_bytes(*npc(shape), dtype)
    return dense_bytes(shape, dtype)


def source_of(op: Op) -> tuple[Hashable, int]:
    """Return what identifies the bytes of a get_param, constant or load_const (with its form), and their number."""
    r = op.results[0]
    form = op.attrs.get("mem_layout") or DENSE
    what = next((op.attrs[n] for n in ("key", "value", "rt_key", "rt_value") if op.attrs.get(n) is not None), None)
    if what is None:
        raise InternalError(f"{op.name} names no data")
    # a payload of another format or form is another payload
    kind = "key" if type(what) is str else "value"
    form = form if len(r.shape) > 1 else DENSE
    return (kind, what, r.dtype, form), form_bytes(r.shape, r.dtype, form)


def collect(program: IRProgram, n_tiles: int | None = None) -> ConstContainer:
    """Return the numbered container of all parameters and constants, in the order of their first appearance.

    The graph is not changed: `in_order()` is the order of parameters in DDR, with or without load_const ops.
    """
    module = program.module
    tiles = n_tiles or module.attrs["tile_dx"] * module.attrs["tile_dy"]
    container = ConstContainer(tiles)
    for op in module.walk():
        if op.kind in CONSTANTS and op.kind != "load_const" or "rt_key" in op.attrs or "rt_value" in op.attrs:
            source, size_bytes = source_of(op)
            entry = program.weights.get(source[1]) if source[0] == "key" and program.weights is not None else None  # type: ignore[index]
            if entry is None or entry.chips is None:
                container.add(source, size_bytes)
            else:  # equal bytes on several chips are one payload
                held = {entry.source_on(c): (source, c) for c in reversed(entry.chips)}
                by_chip: dict[int, tuple[Hashable, int]] = {
                    c: (held[entry.source_on(c)], size_bytes) for c in entry.chips
                }
                container.ids[source] = container.add_per_chip(by_chip)
    container.renumber()
    return container
