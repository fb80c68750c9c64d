"""At which banks of the scratchpad the buffers of a nest begin, so that what one instruction streams does not meet in a bank.

May import: lower, isa, machine, tile, _kernels. Must not: place buffers, emit code that runs.

Every operand of an instruction is a stream of beats that walks through all banks in turn (TX8 hardware manual 3.1, 16.8). Streams
of one instruction move at the same pace, none further ahead of another than its buffer of beats is deep; so where they begin
decides for their whole length whether they keep asking one bank at once. A phase is a buffer's address modulo one turn through
the banks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from tx8fast import isa
from tx8fast._kernels import STEPS, bank_shares
from tx8fast.lower.base import ALIGN_BYTES, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.rounds import Stream
from tx8fast.machine import Machine
from tx8fast.tile.emit import Addresses
from tx8fast.tile.nest import loop_steps
from tx8fast.tile.tiling import Tiling

BEAT_BYTES = 128  # of one access, the width of an engine's port (pub2)
#: how deep the buffers of beats may be: nobody has measured it, so a phase must be good for all of these
DEPTHS = (*range(8, 19), 24)
TOGETHER = 3  # buffers whose phases are tried in all combinations
SWEEPS = 2  # through the buffers of an instruction that has more
FREE = 0.99  # share of its rate at which an instruction counts as undisturbed

#: (buffer, address in it in bytes, STEPS parts of a beat per cycle) of every operand of an instruction
Form = tuple[tuple[int, int, int], ...]
#: (bytes behind the bank where the first begins, rate) of every operand
Streams = tuple[tuple[int, int], ...]


def turn_bytes(machine: Machine) -> int:
    """Return the bytes of one turn through all banks."""
    return machine.tile.spm_banks * machine.tile.spm_bank_width


def slice_rows(tiling: Tiling, at: Addresses) -> np.ndarray:
    """Return the instructions of slices as most of the nest's are: of the first one a tile has, at every place in a reduction."""
    low = tiling.low
    own = next(r for r in tiling.ranges if not r.idle)
    n_read = len(low.reads)
    step = loop_steps(tiling, own.lo, own.hi, 1)[0]
    place = [copies[c] for copies, c in zip(at.access, step.copy, strict=True)]
    em = Emitter()
    for first, last in ((False, False), (False, True)) if tiling.sums else ((True, True),):
        low.emit(
            em, Slice(step.lo, step.hi, place[:n_read], place[n_read:], at.scratch, at.consts, at.acc, first, last)
        )
    return isa.rows(em.rows)


def forms(machine: Machine, rows: np.ndarray, spans: Sequence[tuple[int, int]]) -> dict[Form, int]:
    """Return the cycles of instructions by what they stream from and to which buffers. spans: address and bytes of the buffers
    that `rows` were emitted for; streams of one buffer alone cannot be moved apart."""
    turn = turn_bytes(machine)
    order = np.argsort([a for a, _ in spans], kind="stable")
    begin, size = np.array(spans, np.int64).reshape(-1, 2)[order].T
    read, write = isa.spm_ranges(rows)
    ranges = np.concatenate([read, write], axis=1)
    moved = ranges[..., 1] - ranges[..., 0]
    moved[:, : read.shape[1]] *= isa.rereads(machine, rows)
    cycles = np.maximum(isa.durations(machine, rows, np.zeros(len(rows), np.int64))[0], 1)
    step = np.minimum(-(-moved * STEPS // (BEAT_BYTES * cycles[:, None])), STEPS)
    at = np.searchsorted(begin, ranges[..., 0], "right") - 1
    known = (moved > 0) & (at >= 0) & (ranges[..., 0] < begin[at] + size[at])
    owner, offset = np.where(known, order[at], -1), (ranges[..., 0] - begin[at]) % turn
    out: Counter[Form] = Counter()
    for who, where, rate, length in zip(owner.tolist(), offset.tolist(), step.tolist(), cycles.tolist(), strict=True):
        form = tuple([x for x in zip(who, where, rate, strict=True) if x[0] >= 0])
        if len({x[0] for x in form}) > 1:
            out[form] += length
    return out


def phases(machine: Machine, found: Mapping[Form, int]) -> list[tuple[int, int]]:
    """Return (buffer, phase in bytes) of the buffers whose phase matters, those of the longest instructions first.

    Form by form, the buffers that have no phase yet get those at which all forms that are complete with them lose least at
    the worst of DEPTHS; the first of equals. A form has to be seen as a whole: streams that do not disturb each other may do so
    beside a third one."""
    tables: dict[Streams, np.ndarray] = _losses(machine)
    alone = [tuple([(0, rate) for _, _, rate in f]) for f in found]
    _learn(machine, tables, alone)
    kept = [f for f, a in zip(found, alone, strict=True) if tables[a].max() > 1 / FREE - 1]
    kept.sort(key=lambda f: (-found[f], f))
    phase: dict[int, int] = {}
    for form in kept:
        new = list(dict.fromkeys([k for k, _, _ in form if k not in phase]))
        # too many for all combinations: some after the other, beside where the others are so far
        windows = [new[i : i + TOGETHER] for i in range(max(1, len(new) - TOGETHER + 1)) if new]
        phase |= dict.fromkeys(new, 0) if len(windows) > 1 else {}
        for window in windows * (SWEEPS if len(windows) > 1 else 1):
            phase |= _best(machine, tables, found, kept, phase, window)
    return list(phase.items())


def _best(machine: Machine, tables: dict[Streams, np.ndarray], found: Mapping[Form, int], kept: Sequence[Form],
          phase: Mapping[int, int], new: Sequence[int]) -> dict[int, int]:  # fmt: skip
    """Return the phases of the buffers `new` beside those of the others. kept: the forms that matter."""
    turn, spots = turn_bytes(machine), range(0, turn_bytes(machine), ALIGN_BYTES)
    known = {*phase, *new}
    seen = [f for f in kept if {k for k, _, _ in f} & {*new} and {k for k, _, _ in f} <= known]
    tried = [dict(zip(new, at, strict=True)) for at in product(*([spots] * len(new)))] if phase else [
        dict(zip(new, (0, *at), strict=True)) for at in product(*([spots] * (len(new) - 1)))]  # fmt: skip
    keys = [[_streams(f, {**phase, **t}, turn, machine.tile.spm_bank_width) for f in seen] for t in tried]
    _learn(machine, tables, [key for own in keys for key in own])
    cycles = np.array([found[f] for f in seen])
    lost = [np.array([tables[key] for key in own]).T @ cycles for own in keys] if seen else [np.zeros(1)] * len(tried)
    return min(zip(lost, tried, strict=True), key=lambda x: (x[0].max(), x[0].sum()))[1]


def stream_phases(low: Stream) -> None:
    """Move what a stream has in scratchpad to where its instructions meet least in the banks, as far as the bytes are there."""
    names: dict[tuple, int] = {}
    found: Counter[Form] = Counter()
    for rows, present in low.beside():
        own = [names.setdefault(name, len(names)) for name in present]
        spans = [(low.at[name], low.held_bytes[name]) for name in present]
        for form, cycles in forms(low.machine, rows, spans).items():
            found[tuple([(own[k], at, rate) for k, at, rate in form])] += cycles
    name_of = list(names)
    chosen = phases(low.machine, found) if found else []
    for wanted in range(len(chosen), 0, -1):
        if low.move({name_of[k]: p for k, p in chosen[:wanted]}, turn_bytes(low.machine)):
            return


def _streams(form: Form, phase: Mapping[int, int], turn: int, bank_bytes: int) -> Streams:
    """Return the streams of a form, counted from the bank in which the first of them begins."""
    first = phase[form[0][0]] + form[0][1]
    bank = first - first % bank_bytes
    return tuple([((phase[k] + at - bank) % turn, rate) for k, at, rate in form])


@lru_cache(maxsize=2)
def _losses(machine: Machine) -> dict[Streams, np.ndarray]:
    """What is known of a machine: the share of its cycles that an instruction waits for banks, per depth."""
    return {}


def _learn(machine: Machine, tables: dict[Streams, np.ndarray], wanted: Iterable[Streams]) -> None:
    """Add to `tables` the streams that it lacks."""
    new = [s for s in dict.fromkeys(wanted) if s not in tables]
    if not new:
        return
    begin = np.cumsum([0, *[len(s) for s in new]])
    beat, step = np.array([x for s in new for x in s], np.int64).T
    per_bank = machine.tile.spm_bank_width // BEAT_BYTES or 1
    beat, lane = beat // BEAT_BYTES, np.zeros(len(step), np.int64)
    shares = [bank_shares(begin, lane, beat, step, 1, machine.tile.spm_banks, per_bank, d)[:, 0] for d in DEPTHS]
    tables.update(zip(new, 1 / np.array(shares).T - 1, strict=True))
