"""At which banks of the scratchpad the buffers of a nest begin, so that what one instruction streams does not meet in a bank.

May import: lower, isa, machine, tile, _kernels. Must not: place buffers, emit code that runs.

Every operand of an instruction is a stream of beats that walks through all banks in turn (TX8 hardware manual 3.1, 16.8). Streams
of one instruction move at the same pace, none further ahead of another than its buffer of beats is deep; so where they begin
decides for their whole length whether they keep asking one bank at once. A phase is a buffer's address modulo one turn through
the banks.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast._kernels import STEPS
from tx8fast.lower.base import ALIGN_BYTES, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.rounds import Stream
from tx8fast.machine import Machine
from tx8fast.tile.bank_losses import BEAT_BYTES, BankLosses, Streams, Together, bank_losses
from tx8fast.tile.emit import Addresses
from tx8fast.tile.nest import loop_steps
from tx8fast.tile.tiling import Tiling

#: parts of a beat per cycle from which on sums that are read and written wait for banks beside a left operand at the full rate, whose
#: right one moves at a quarter of it: 29 of 32 lose nothing at the best phases, 30 lose 10 % at the worst depth
BUSY = 30
ARBITRATED = 3  # the model of banks in which streams wait for each other
TOGETHER = 3  # buffers whose phases are tried in all combinations
SWEEPS = 2  # through the buffers of an instruction that has more
FREE = 0.99  # share of its rate at which an instruction counts as undisturbed

#: (buffer, address in it in bytes, STEPS parts of a beat per cycle) of every operand of an instruction
Form = tuple[tuple[int, int, int], ...]
#: a vector instruction and a product that run at the same time
Pair = tuple[Form, Form]
VECTOR, MATRIX = isa.UNITS.index("ct"), isa.UNITS.index("ne")  # in the order in which banks serve them
WORTH = 0.05  # of the cycles of pairs, what they lose before phases are looked for
PAIRS = 6  # that phases are chosen for, those with most cycles


def turn_bytes(machine: Machine) -> int:
    """Return the bytes of one turn through all banks."""
    return machine.tile.spm_banks * machine.tile.spm_bank_width


def slice_rows(tiling: Tiling, at: Addresses) -> np.ndarray:
    """Return the instructions of slices as most of the nest's are: of the first one a tile has with most work, at every place in a
    reduction."""
    low = tiling.low
    own = next(r for r in tiling.ranges if not r.idle)
    n_read = len(low.reads)
    step = loop_steps(tiling, low.fullest(own.lo, own.hi, tiling.plan.slices), own.hi, 1)[0]
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
    found = _all_forms(machine, rows, spans)
    return {form: cycles for form, cycles in found.items() if len({x[0] for x in form}) > 1}


def beside(machine: Machine, rows: np.ndarray, spans: Sequence[tuple[int, int]]) -> dict[Pair, int]:
    """Return the cycles that each vector instruction spends beside each product, if the engine with less work always works beside
    the other: slices follow each other, so any may meet any. Arguments as for `forms`."""
    units = isa.units(rows)
    vector, matrix = (_all_forms(machine, rows[units == u], spans) for u in (VECTOR, MATRIX))
    if not vector or not matrix:
        return {}
    most = max(sum(vector.values()), sum(matrix.values()))
    return {(v, m): a * b // most for v, a in vector.items() for m, b in matrix.items() if a * b >= most}


def _all_forms(machine: Machine, rows: np.ndarray, spans: Sequence[tuple[int, int]]) -> Counter[Form]:
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
    out: Counter[Form] = Counter()  # with streams in one buffer, too
    for who, where, rate, length in zip(owner.tolist(), offset.tolist(), step.tolist(), cycles.tolist(), strict=True):
        form = tuple([x for x in zip(who, where, rate, strict=True) if x[0] >= 0])
        if form:
            out[form] += length
    return out


def _sums_at_once(form: Form) -> bool:
    """True if a form reads and writes one buffer, the sums, at nearly the full rate."""
    busy = [k for k, _, rate in form if rate >= BUSY]
    return len(busy) > len(set(busy))


def lost_share(tiling: Tiling) -> float:
    """Return by what share of their cycles the products of a plan's slices wait for banks, at the worst of DEPTHS, when every buffer
    begins at its phase; 0 on a machine whose banks are not arbitrated."""
    if tiling.low.machine.tile.spm_model != ARBITRATED:
        return 0.0
    low, machine, apart = tiling.low, tiling.low.machine, tiling.low.machine.tile.spm_bytes
    spaces = itertools.count(1)
    at = lambda n: [next(spaces) * apart for _ in range(n)]  # noqa: E731
    zero = (0,) * len(low.sizes)
    access = [at(1) * n for n in tiling.copies]
    for k, taken in tiling.replaced.items():
        access[k] = access[taken]
    scratch, consts = at(len(low.scratch_bytes(zero, tiling.plan.slices))), at(len(low.const_bytes()))
    rows = slice_rows(tiling, Addresses(access, {}, scratch, consts, at(1)[0], {}))
    spans = [(n * apart, apart) for n in range(1, next(spaces))]
    found = forms(machine, rows[isa.units(rows) == MATRIX], spans)
    if not any(map(_sums_at_once, found)):
        return 0.0
    phase = dict(phases(machine, found))
    matter = [f for f in found if all(k in phase for k, _, _ in f)]
    keys = [(_streams(f, phase, turn_bytes(machine), machine.tile.spm_bank_width),) for f in matter]
    lost = bank_losses(machine).lost(keys, [found[f] for f in matter])
    return float(lost.max()) / max(1, sum(found.values()))


def phases(
    machine: Machine, found: Mapping[Form, int], pairs: Mapping[Pair, int] | None = None
) -> list[tuple[int, int]]:
    """Return (buffer, phase in bytes) of the buffers whose phase matters, those of the longest instructions first. pairs: what
    `beside` returns.

    Form by form, the buffers that have no phase yet get those at which all forms that are complete with them lose least at
    the worst of DEPTHS; the first of equals. A form has to be seen as a whole: streams that do not disturb each other may do so
    beside a third one."""
    losses = bank_losses(machine)
    alone = losses.of([(tuple([(0, rate) for _, _, rate in f]),) for f in found])
    kept = [f for f, lost in zip(found, alone, strict=True) if lost.max() > 1 / FREE - 1]
    kept.sort(key=lambda f: (-found[f], f))
    phase: dict[int, int] = {}
    for form in kept:
        new = list(dict.fromkeys([k for k, _, _ in form if k not in phase]))
        # too many for all combinations: some after the other, beside where the others are so far
        windows = [new[i : i + TOGETHER] for i in range(max(1, len(new) - TOGETHER + 1)) if new]
        phase |= dict.fromkeys(new, 0) if len(windows) > 1 else {}
        for window in windows * (SWEEPS if len(windows) > 1 else 1):
            phase |= _best(machine, losses, found, kept, phase, window)
    return list((phase | _apart(machine, losses, found, pairs or {}, phase)).items())


def _apart(
    machine: Machine, losses: BankLosses, found: Mapping[Form, int], pairs: Mapping[Pair, int], fixed: Mapping[int, int]
) -> dict[int, int]:
    """Return phases of the buffers that have none in `fixed`, at which instructions that run at the same time meet least: buffer by
    buffer, beside where the others are. {} if they hardly meet where all begin at a bank 0."""
    turn = turn_bytes(machine)
    pairs = {p: pairs[p] for p in sorted(pairs, key=lambda p: (-pairs[p], p))[:PAIRS]}
    new = list(dict.fromkeys([k for pair in pairs for f in pair for k, _, _ in f if k not in fixed]))
    phase = {**fixed, **dict.fromkeys(new, 0)}
    alone = [(f,) for f in found]
    known: dict[tuple, Together] = {}
    if not new or losses.lost(_placed(machine, pairs, phase, known), [*pairs.values()]).max() <= WORTH * sum(
        pairs.values()
    ):
        return {}
    for _ in range(SWEEPS):
        before = phase
        for k in new:
            seen: dict[Any, int] = {p: n for p, n in pairs.items() if any(x[0] == k for f in p for x in f)}
            seen |= {f: found[f[0]] for f in alone if any(x[0] == k for x in f[0]) and all(x[0] in phase for x in f[0])}
            tried = [{**phase, k: spot} for spot in range(0, turn, ALIGN_BYTES)]
            each = losses.of([s for t in tried for s in _placed(machine, seen, t, known)])
            phase = tried[losses.least(each.reshape(len(tried), len(seen), -1), [*seen.values()])]
        if phase == before:
            break
    return {k: phase[k] for k in new}


def _placed(
    machine: Machine, seen: Iterable[tuple[Form, ...]], phase: Mapping[int, int], known: dict[tuple, Together]
) -> list[Together]:
    """Return the streams of instructions that run at the same time, of each. known: streams at phases, by what runs together: as an
    object, since hashing it takes as long as making them."""
    turn, bank = turn_bytes(machine), machine.tile.spm_bank_width
    keys = []
    for together in seen:
        at = (id(together), *[phase[k] for f in together for k, _, _ in f])
        if at not in known:
            whole = iter(_streams(tuple([x for f in together for x in f]), phase, turn, bank))
            known[at] = tuple([tuple(itertools.islice(whole, len(f))) for f in together])
        keys.append(known[at])
    return keys


def _best(
    machine: Machine,
    losses: BankLosses,
    found: Mapping[Form, int],
    kept: Sequence[Form],
    phase: Mapping[int, int],
    new: Sequence[int],
) -> dict[int, int]:
    """Return the phases of the buffers `new` beside those of the others. kept: the forms that matter."""
    spots = range(0, turn_bytes(machine), ALIGN_BYTES)
    known = {*phase, *new}
    seen = [f for f in kept if {k for k, _, _ in f} & {*new} and {k for k, _, _ in f} <= known]
    tried = list(product(*([spots] * len(new)) if phase else [(0,), *([spots] * (len(new) - 1))]))
    number = {k: i for i, k in enumerate(new)}
    lost = [
        _lost(machine, losses, tried, [(number.get(k, -1), at + (0 if k in number else phase[k]), r) for k, at, r in f])
        for f in seen
    ]
    best = losses.least(np.stack(lost, axis=1), [found[f] for f in seen])
    return dict(zip(new, tried[best], strict=True))


def _lost(
    machine: Machine, losses: BankLosses, tried: Sequence[tuple[int, ...]], streams: Sequence[tuple[int, int, int]]
) -> np.ndarray:
    """Return the losses, (tried, depths), of the streams of a form at the phases that are tried. streams: of each the number of its buffer
    among these, -1: none, where it begins behind the buffer's phase, and its rate. What other nests have asked is known."""
    key = (tried[0], tried[-1], *streams)
    if key not in losses.tried:
        turn, bank_bytes = turn_bytes(machine), machine.tile.spm_bank_width
        phase = np.array([(*at, 0) for at in tried], np.int64)
        at = phase[:, [k for k, _, _ in streams]] + np.array([at for _, at, _ in streams], np.int64)
        at = (at - at[:, :1] // bank_bytes * bank_bytes) % turn
        rates = [rate for _, _, rate in streams]
        losses.tried[key] = losses.of([(tuple(zip(row, rates, strict=True)),) for row in at.tolist()])
    return losses.tried[key]


def stream_phases(low: Stream) -> None:
    """Move what a stream has in scratchpad to where its instructions meet least in the banks, as far as the bytes are there."""
    for part in low.in_turn:
        _stream_phases(part)


def _stream_phases(low: Stream) -> None:
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
