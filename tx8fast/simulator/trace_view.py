"""Which part of a simulation a trace shows, and how finely: chosen so that a viewer can open it.

May import: numpy, isa, errors, program.model, program.labels, and cycle, detail beside it. Must not: know file formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tx8fast import isa
from tx8fast.errors import ConfigError
from tx8fast.program.labels import Layers, ranges_text
from tx8fast.program.model import Program
from tx8fast.records import dataclass
from tx8fast.simulator.cycle import StretchTrace, traces
from tx8fast.simulator.detail import Run, join_runs, runs

DETAILS = ("auto", "instructions", "ops", "launches")
#: slices and counter values of a trace unless every instruction is asked for; one takes up to about 220 bytes
LIMIT = 80_000
#: merging begins with this part of the time that is shown
FINEST = 1 << 16
END = 1 << 62


@dataclass(frozen=True)
class TraceView:
    """window: cycles [from, to); layers: numbers, empty for all; detail: one of DETAILS."""

    window: tuple[int, int] = (0, END)
    layers: frozenset[int] = frozenset()
    detail: str = "auto"
    limit: int = LIMIT

    def takes(self, program: Program, layers: Layers, stretch: StretchTrace) -> bool:
        """Return whether a stretch is shown at all. layers: of the program."""
        if not (stretch.start < self.window[1] and stretch.start + stretch.cycles > self.window[0]):
            return False
        found = (layers.of(program.launches[i].name) for i in stretch.launches)
        return not self.layers or any(f is not None and f[1] in self.layers for f in found)


@dataclass(frozen=True)
class Chosen:
    """What is drawn. resolution: runs closer than this many cycles are one slice, 0: every instruction is one; first_only: tiles are drawn for the
    first of equal stretches; tiles: whether they are drawn at all. n: slices and counter values."""

    stretches: tuple[StretchTrace, ...]
    resolution: int
    tiles: bool = True
    first_only: bool = False
    n: int = 0

    def text(self) -> str:
        """Return what a user should know about it."""
        if not self.tiles:
            return "launches without tiles"
        first = ", tiles only for the first of equal groups" if self.first_only else ""
        return (
            f"every instruction{first}"
            if not self.resolution
            else f"work within {self.resolution:,} cycles joined{first}"
        )


def choose(program: Program, view: TraceView, serial: bool | None = None) -> Chosen:
    """Simulate and return what is shown. Raises ConfigError if that is nothing, and as `cycle.simulate`."""
    layers = Layers(launch.name for launch in program.launches)
    shown = tuple(s for s in traces(program, serial) if view.takes(program, layers, s))
    if not shown:
        numbers = {f[1] for launch in program.launches if (f := layers.of(launch.name)) is not None}
        have = f"layers {ranges_text(numbers)}" if numbers else "no layers"
        raise ConfigError(
            f"choosing what to trace: nothing runs there; the program has {have} (--trace-layers, --trace-window)"
        )
    if view.detail == "launches":
        return Chosen(shown, 0, tiles=False, n=len(shown))
    often: dict[int, int] = {}
    for s in shown:
        often[s.group] = often.get(s.group, 0) + 1
    first = {s.group: s for s in reversed(shown)}
    rows = sum(often[g] * sum(int((t.end > t.start).sum()) for t in s.tiles) for g, s in first.items())
    counted = sum(often[g] * 2 * _n_transfers(s) for g, s in first.items())
    if view.detail == "instructions" or view.detail == "auto" and rows + counted <= view.limit:
        return Chosen(shown, 0, n=rows + counted)
    total = shown[-1].start + shown[-1].cycles - shown[0].start
    resolution = max(1, total // FINEST)
    found = {
        g: [lane for t in range(len(s.tiles)) for lane in lanes(s, t, program, resolution).values()]
        for g, s in first.items()
    }
    while True:
        n = sum(often[g] * (sum(map(len, found[g])) + 2 * bins(s, resolution)) for g, s in first.items())
        if n <= view.limit:
            return Chosen(shown, resolution, n=n)
        if resolution >= max(s.cycles for s in first.values()):
            break
        resolution *= 2
        found = {g: [join_runs(lane, resolution) for lane in some] for g, some in found.items()}
    return Chosen(shown, resolution, first_only=True, n=len(shown) + sum(sum(map(len, f)) for f in found.values()))


def bins(stretch: StretchTrace, resolution: int) -> int:
    """Return how many values a counter has in a stretch."""
    return -(-stretch.cycles // resolution)


def _n_transfers(s: StretchTrace) -> int:
    return sum(int((moved > 0).sum()) for moved in s.ddr_bytes)


def lanes(stretch: StretchTrace, tile: int, program: Program, resolution: int) -> dict[int, list[Run]]:
    """Return the joined runs of a tile by unit (index into isa.UNITS); a run's names are (launch of the stretch, op)."""
    t = stretch.tiles[tile]
    part = np.repeat(np.arange(len(stretch.launches)), stretch.counts[tile])
    units = isa.units(t.rows)
    out = {}
    for unit in np.unique(units[t.end > t.start]).tolist():
        some = np.flatnonzero((units == unit) & (t.end > t.start))
        some = some[np.argsort(t.start[some], kind="stable")]
        names = list(zip(part[some].tolist(), t.rows["op"][some].tolist(), strict=True))
        out[unit] = runs(names, t.start[some].tolist(), t.end[some].tolist(), resolution)
    return out


def drawn(chosen: Chosen) -> Iterator[tuple[StretchTrace, bool]]:
    """Yield every stretch, and whether its tiles are drawn."""
    seen: set[int] = set()
    for s in chosen.stretches:
        yield s, chosen.tiles and not (chosen.first_only and s.group in seen)
        seen.add(s.group)


def clip(window: tuple[int, int]) -> Callable[[int, int], tuple[int, int] | None]:
    """Return what cuts a slice to the window, None if nothing of it is left."""

    def cut(start: int, end: int) -> tuple[int, int] | None:
        start, end = max(start, window[0]), min(end, window[1])
        return (start, end) if end > start else None

    return cut
