"""A chain: the nests of several groups as one segment, one after the other on every tile.

May import: schedule.{ahead, buffers, nests, segment}, lower, tile.{deliveries, pins, tiling}, isa, machine, program.model. Must not: choose what
is chained.

Between two nests a tile waits for its own engines alone, unless they are ordered together (`tile.seams`):
`search.chains` makes sure that it reads nothing that another tile has written since. Where the next nest's operands are delivered
(`tile.deliveries`), all tiles end the nest before and meet first. A buffer that a later nest finds filled lies at one end of the
scratchpad in both nests and in those between (`tile.pins`), so everything else fits between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.graph_table import ChainRecord, GroupRecord, Step
from tx8fast.machine import Machine
from tx8fast.machine.topology import mask_tiles
from tx8fast.program.model import Segment
from tx8fast.schedule import ahead
from tx8fast.schedule.buffers import Buffers, buffer_table
from tx8fast.schedule.nests import ALONE, LaunchCode, NestTiles
from tx8fast.schedule.segment import idle_tiles_wait, nest_facts, terms
from tx8fast.tile import deliveries
from tx8fast.tile.pins import Pins, Span, pins
from tx8fast.tile.tiling import Planned, segment_cycles

NO_ROWS = isa.rows([])


def build_chain(p: Planned, machine: Machine, step: Step, meet: bool, order: str = "best") -> Segment:
    """Return the code of the whole chain. `meet` and `order` as in `build_segment`, for the first nest; before a later one other
    tiles may always be at work."""
    record = step.record
    assert isinstance(record, ChainRecord)
    places = pins([n.tiling for n in p.nests], p.holds, p.stays, machine)
    between = _between(p, places)
    nests: list[NestTiles] = []
    used: dict[int, list[Span]] = {}  # by the nest behind a border with deliveries, what those before it use
    begin = 0  # the first of the nests that are ordered together
    for i, (n, fixed) in enumerate(zip(p.nests, places, strict=True)):
        if i in between:
            used[i] = ahead.used_bytes([x.buffers.table for x in nests[begin:]], between[i])
            buffers, begin = Buffers(n.tiling, fixed, [used[i]], meet=True), i
        else:
            buffers = Buffers(n.tiling, fixed, nests[-1].tails() if i else ())
        # where nothing but a meeting stands before a nest, all tiles have met with empty queues
        nests.append(NestTiles(n.tiling, machine, meet if i == 0 else i not in p.meets, buffers))
    arguments, names = _arguments(record), _first_names(record, len(step.op_names))
    slot_args = [np.array(a, np.int32)[n.slots] for a, n in zip(arguments, nests, strict=True)]
    cuts = [0, *between, len(nests)]
    made, borders = [], []  # nests between which nothing is delivered are ordered together
    for a, b in zip(cuts, cuts[1:], strict=False):
        arg_of = np.concatenate(slot_args[a:b])
        same = _same(nests[a:b], arg_of)
        if a:
            borders.append(ahead.Border(between[a], used[a], arg_of < len(record.operands)))
        made.append(LaunchCode(nests[a:b], machine, order, same, isa.rows([isa.make("wait")]), names[a:b]))
    codes, tile_code = _in_turn(machine, made, borders, step.barrier)
    if step.barrier:
        codes, tile_code = idle_tiles_wait(codes, tile_code)
    cycles = segment_cycles(p.plan, machine, step.barrier) - sum([m.order.saved_cycles for m in made])
    facts = [nest_facts(n.tiling) | own for n, own in zip(p.nests, [f for m in made for f in m.facts()], strict=True)]
    info = {
        "op": record.kind,
        "engine": "chain",
        "bound": p.plan.bound,
        "parts": [],
        "slices": [],
        "order": [],
        "nests": facts,
        "runner_up_cycles": p.plan.runner_up_cycles,
        **terms(record),
    }
    return Segment(
        step.name,
        codes,
        tile_code,
        np.concatenate(slot_args),
        np.concatenate([m.offsets for m in made], axis=1),
        len(record.operands) + len(record.results),
        list(step.op_names),
        [],
        step.barrier,
        max(n.buffers.peak for n in nests),
        cycles,
        info,
        buffers=_table(nests, arguments),
    )


def _in_turn(
    machine: Machine, made: Sequence[LaunchCode], borders: Sequence[ahead.Border], barrier: bool
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the codes one behind the other, and which one each tile has. borders: before each but the first; barrier: whether all tiles
    meet at the end."""
    n_tiles = len(made[0].tile_code)
    everyone = sum(1 << t for t in range(n_tiles) if any(m.tile_code[t] >= 0 for m in made))
    slots = np.cumsum([0, *(m.offsets.shape[1] for m in made)]).tolist()
    end = [isa.rows([isa.make("barrier")])] if barrier else []
    codes: list[np.ndarray] = []
    known: dict[tuple[int, ...], int] = {}
    tile_code = np.full(n_tiles, -1, np.int16)
    for t in mask_tiles(everyone):
        own = tuple(int(m.tile_code[t]) for m in made)
        key = (*own, t) if borders else own  # every tile sends something else
        if key not in known:
            known[key] = len(codes)
            rows = [_shifted(m.codes[c], at) if c >= 0 else NO_ROWS for m, c, at in zip(made, own, slots, strict=False)]
            for i, border in enumerate(borders):
                rows[i], rows[i + 1] = ahead.across(machine, border, rows[i], rows[i + 1], slots[i + 1])
                rows[i] = np.concatenate([rows[i], isa.rows(deliveries.rows(border.sent, t, everyone))])
            codes.append(np.concatenate([*rows, *end]))
        tile_code[t] = known[key]
    return codes, tile_code


def _shifted(rows: np.ndarray, slots: int) -> np.ndarray:
    """Return the rows with DDR slots that count from `slots`."""
    rows = rows.copy()
    rows["slot"][rows["slot"] >= 0] += slots
    return rows


def _same(nests: Sequence[NestTiles], slot_arg: np.ndarray) -> np.ndarray:
    """Return `LaunchCode.same`: of what one nest stores and another one loads, or stores again."""
    moved = np.concatenate([n.moved for n in nests])
    stored = np.concatenate([n.stored for n in nests])
    return np.where(moved & np.isin(slot_arg, slot_arg[moved & stored]), slot_arg, ALONE)


def _table(nests: Sequence[NestTiles], arguments: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the buffers of all nests; their arguments are the chain's."""
    return buffer_table(
        (at, size, own[argument] if argument >= 0 else argument)
        for n, own in zip(nests, arguments, strict=True)
        for at, size, argument in n.buffers.table.tolist()
    )


def _between(p: Planned, places: Sequence[Pins]) -> dict[int, deliveries.Deliveries]:
    """Return by nest what tiles send each other before it begins, nothing where they only meet."""
    n_tiles = p.low.machine.n_tiles
    found: dict[int, deliveries.Deliveries] = {n: ((),) * n_tiles for n in p.meets}
    for i, pairs in enumerate(p.holds):
        a, b = p.nests[i].tiling, p.nests[i + 1].tiling
        ways = [(ka, kb, places[i].pinned[ka], places[i + 1].pinned[kb]) for ka, kb in pairs if kb in b.plan.delivered]
        if ways:
            made = deliveries.delivered(a, b, ways)
            assert made is not None, "the search has asked the same"
            found[i + 1] = made
    return dict(sorted(found.items()))


def _first_names(record: ChainRecord, n_names: int) -> list[int]:
    """Return the place of each part's first op among the names of the chain's ops."""
    sizes = [len(part.ops) if isinstance(part, GroupRecord) else 1 for part in record.parts]
    return [min(at, max(0, n_names - 1)) for at in np.cumsum([0, *sizes[:-1]]).tolist()]


def _arguments(record: ChainRecord) -> list[list[int]]:
    """Return per part the chain's argument of each of its arguments. What no row moves has argument 0."""
    n_in = len(record.operands)
    place = {n: n_in + j for j, n in enumerate(record.outputs)}
    out = []
    made = 0
    for part, wires in zip(record.parts, record.wires, strict=True):
        own = [0 if w is None else w[1] if w[0] == "in" else place.get(w[1], 0) for w in wires]
        n = len(part.results)
        out.append([*own, *(place.get(made + j, 0) for j in range(n))])
        made += n
    return out
