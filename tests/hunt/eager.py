"""Programs whose tiles hand results to each other, or finish sums in bands, although the model is too small for it to pay.

Operands of a few KiB are loaded by every tile for itself, and what costs most to move decides what stays in scratchpad. A hunted model is
small, so that plans in which tiles share operands, and gather what a nest before has left in them, come of it only when they seem cheap;
and products of short sums do not wait for banks unless they seem to. Few keys arrive together unless chunks are short, and few channels of rows. Buffers that are not
needed at one time lie in one place only if there is no other. Layers begin elsewhere wherever they can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from tx8fast.alloc import Buffer
from tx8fast.api import CompiledProgram
from tx8fast.lower import base, row_lead, score_keys
from tx8fast.lower.base import Lowering
from tx8fast.passes import legalize_choices
from tx8fast.schedule import buffers, meeting
from tx8fast.search import bands, chained
from tx8fast.search.memory import Memory
from tx8fast.search.trial import PlanTimer
from tx8fast.tile import sharing
from tx8fast.tile.tiling import Plan, Tiling

#: bytes of an operand from which on tiles share it, and the divisor of the cycles of what gathers or is left to be gathered
SHARED_BYTES, CHEAPER = 256, 16
PIECE_BYTES = 2048  # in which results and what is added are moved
#: keys of a chunk, and how many chunks arrive one after the other: scores of any number of rows with 128 keys are whole multiples of 256
#: bytes, so that the batches of a product lie one behind the other
CHUNK, FEW = 128, 2


@contextmanager
def eager_plans() -> Iterator[None]:
    """Share small operands, and prefer plans that gather, rows from either end, sums in bands, short transfers and buffers in one place,
    in what is compiled meanwhile in this process."""
    cycles, longest, timed, placed = Memory.cycles, bands._longest, PlanTimer.all_cycles, buffers._placed

    def paired(self: PlanTimer, tilings: Sequence[Tiling], least: float = math.inf) -> list[int]:
        return [n // (CHEAPER if self.low.balanced else 1) for n in timed(self, tilings, least)]

    def cheap(self: Memory, how: Tiling, held: frozenset[int], closely: bool = False) -> int:
        left = any(k >= len(how.low.reads) for k in how.plan.kept)
        return cycles(self, how, held, closely) // (CHEAPER if how.plan.gathered or left else 1)

    def waits(tiling: Tiling) -> float:
        return 0.0 if tiling.low.variant else float(CHEAPER)

    def any_length(low: Lowering, plan: Plan, room_bytes: int) -> Tiling | None:
        same = Tiling(low, plan)
        return longest(low, plan, room_bytes) or (same if same.demand_bytes() <= room_bytes else None)

    def short(tiling: Tiling, k: int) -> int:
        shared = max(tiling.plan.shared, default=1) > 1
        return PIECE_BYTES if shared and (k >= len(tiling.low.reads) or k in tiling.low.late) else 0

    def stacked(ways: Sequence[Sequence[Buffer]], room: tuple[int, int]) -> list[int]:
        return placed(ways[::-1], room)

    plans = {
        sharing: {"SHARE_MIN_BYTES": SHARED_BYTES, "piece_bytes": short},
        Memory: {"cycles": cheap},
        PlanTimer: {"all_cycles": paired},
        bands: {"lost_share": waits, "_longest": any_length},
        chained: {"worth_turning": lambda *_: True},
        buffers: {"_placed": stacked},
        score_keys: {"CHUNK": CHUNK, "FEW": FEW},
        row_lead: {"CHUNK": row_lead.BLOCK, "FEW": FEW, "MEETING_BYTES": 1},
        base: {"MEETING_BYTES": 1},
        meeting: {"MEETING_BYTES": 1},
        legalize_choices: {"LEAST": 2 * legalize_choices.TILES, "LEAST_SORTED": FEW, "FEWER": 1},
    }
    with ExitStack() as until:
        for of, values in plans.items():
            until.enter_context(patch.multiple(of, **values))
        yield


def gathers(program: CompiledProgram) -> bool:
    """True if a nest of the program gathers what the one before it has left."""
    return any(nest.get("gathered") for s in program.program.segments for nest in s.info.get("nests", ()))
