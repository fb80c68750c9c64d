"""What ops send over the network, as lists of transfers between the devices of an axis.

May import: ir.core, ir.types, collectives, errors. Must not: know the mesh; devices of an axis are numbered 0 to P - 1, and a
transfer between neighbours of the ring is the scheduler's to route.
"""

from __future__ import annotations

from tx8fast.collectives import KINDS, Transfer, transfers
from tx8fast.errors import VerifyError
from tx8fast.ir.core import Op
from tx8fast.ir.types import TensorType


def stream_config(op: Op, ctx: int) -> list[Transfer]:
    """Return the transfers of a collective among `ctx` devices, in order of steps.

    A tensor is cut into as many chunks as there are devices (bytes rounded up); `all_gather`, `permute` and `broadcast_dev`
    move whole operands. Raises VerifyError for a kind that sends nothing, or without devices.
    """
    if ctx < 1:
        raise VerifyError(f"{op.name} '{op.loc or ''}': found {ctx} devices, required at least 1")
    operand = next((v.type for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)), None)
    whole = operand.size_bytes if operand is not None and operand.is_static else 0
    if op.kind == "send":
        return [Transfer(0, -1, op.attrs["peer"], 0, whole)]
    if op.kind == "recv":
        return [Transfer(0, op.attrs["peer"], -1, 0, whole)]
    if op.kind not in KINDS:
        raise VerifyError(f"{op.name} '{op.loc or ''}': this kind sends nothing over the network")
    cut = op.kind in ("all_reduce", "reduce_scatter", "all_to_all")
    nbytes = -(-whole // ctx) if cut else whole
    return transfers(op.kind, ctx, nbytes, op.attrs.get("root", 0), op.attrs.get("pairs", ()))
