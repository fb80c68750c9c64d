"""Why an op has no plan: which resource, how much is asked and there, what takes most of it, what would help.

May import: lower, tile.tiling, errors. Must not: look for plans.
"""

from __future__ import annotations

from tx8fast.errors import InfeasibleError
from tx8fast.lower.base import Lowering
from tx8fast.tile.tiling import MAX_SLICES, Tiling

SHOWN = 3  # buffers that are named


def too_long(low: Lowering, slices: int, name: str) -> InfeasibleError:
    """Return the error for an op of which every plan that was looked at has too many slices, `slices` at least."""
    return InfeasibleError(
        f"{name + ': ' if name else ''}{low.record.kind} of {' x '.join(f'{n:,}' for n in low.sizes)} points is too long for one "
        f"launch: {slices:,} slices per tile, at most {MAX_SLICES:,} are emitted; a smaller batch or sequence, or the op in "
        "several parts, would help"
    )


def no_plan(tiling: Tiling, capacity: int, name: str) -> InfeasibleError:
    """Return the error for an op of which even `tiling`, the one with the smallest demand, cannot be used."""
    low, plan = tiling.low, tiling.plan
    what = f"{name}: " if name else ""
    items = sorted(tiling.items(), key=lambda item: -item[1])
    used = sum(size for _, size in items)
    if used <= capacity:
        return InfeasibleError(
            f"{what}no slice of {low.record.kind} fits the fields of its instructions: the smallest is {list(plan.slices)} "
            f"of {list(low.sizes)} points, and its buffers of {used:,} bytes fit; smaller dimensions would help"
        )
    largest = ", ".join(f"{label} {size:,}" for label, size in items[:SHOWN])
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    whole = [i for i, ok in enumerate(low.split) if not ok and low.sizes[i] > 1]
    why = f"; dimensions of {', '.join(f'{low.sizes[i]:,}' for i in whole)} points cannot be cut" if whole else ""
    return InfeasibleError(
        f"{what}no split fits the scratchpad: the smallest plan of {low.record.kind} (slices {list(plan.slices)} of "
        f"{list(low.sizes)}) needs {used:,} bytes, {capacity:,} bytes are available per tile; bytes of its largest buffers: "
        f"{largest}{more}{why}; a smaller batch or sequence, a narrower dtype or a larger tile.spm_bytes would help"
    )
