"""What collectives send over the network: ring algorithms as lists of transfers.

May import: ir.core, ir.types, errors. Must not: know the mesh; devices of an axis are numbered 0 to P - 1, and a
transfer between neighbours of the ring is the scheduler's to route.
"""

from __future__ import annotations

from dataclasses import dataclass

from tx8fast.errors import VerifyError
from tx8fast.ir.core import Op
from tx8fast.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Transfer:
    """`nbytes` of `chunk` go from device to device; transfers of one step run together. `combine`: added up on arrival."""

    step: int
    source: int
    target: int
    chunk: int
    nbytes: int
    combine: bool = False


def stream_config(op: Op, ctx: int) -> list[Transfer]:
    """Return the transfers of a collective among `ctx` devices, in order of steps.

    A tensor is cut into as many chunks as there are devices (bytes rounded up); `all_gather` and `permute` move whole
    operands. Raises VerifyError for a kind that sends nothing, or without devices.
    """
    if ctx < 1:
        raise VerifyError(f"{op.name} '{op.loc or ''}': found {ctx} devices, required at least 1")
    operand = next((v.type for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)), None)
    whole = operand.size_bytes if operand is not None and operand.is_static else 0
    piece = -(-whole // ctx)
    kind = op.kind
    if kind == "all_reduce":
        return _ring(ctx, piece, 0, 0, True) + _ring(ctx, piece, ctx - 1, 1, False)
    if kind == "reduce_scatter":
        return _ring(ctx, piece, 0, 0, True)
    if kind == "all_gather":
        return _ring(ctx, whole, 0, 0, False)
    if kind == "all_to_all":
        return [Transfer(s - 1, i, (i + s) % ctx, (i + s) % ctx, piece) for s in range(1, ctx) for i in range(ctx)]
    if kind == "permute":
        pairs = op.attrs["pairs"]
        return [Transfer(0, s, t, 0, whole) for s, t in zip(pairs[::2], pairs[1::2]) if s != t]
    if kind == "broadcast_dev":
        root = op.attrs["root"]
        return [Transfer(s, (root + s) % ctx, (root + s + 1) % ctx, 0, whole) for s in range(ctx - 1)]
    if kind in ("send", "recv"):
        return [
            Transfer(0, -1, op.attrs["peer"], 0, whole)
            if kind == "send"
            else Transfer(0, op.attrs["peer"], -1, 0, whole)
        ]
    raise VerifyError(f"{op.name} '{op.loc or ''}': this kind sends nothing over the network")


def _ring(n: int, nbytes: int, first_step: int, offset: int, combine: bool) -> list[Transfer]:
    """n - 1 steps in which device i hands chunk (i + offset - step) on to its neighbour."""
    return [
        Transfer(first_step + s, i, (i + 1) % n, (i + offset - s) % n, nbytes, combine)
        for s in range(n - 1)
        for i in range(n)
    ]
