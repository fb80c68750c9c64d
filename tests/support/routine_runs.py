"""A drawn call of a kernel-core routine, executed by the C core and by its oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.routine_drawn import Drawn

from tx8fast import isa
from tx8fast.host.core import Calls, CoreTile
from tx8fast.machine import DDR_BASE
from tx8fast.numerics import layout
from tx8fast.numerics.formats import ITEM_BYTES, np_dtype
from tx8fast.numerics.routines import ROUTINES

ROOM = 256  # bytes between tensors


def descriptor(call: Drawn, blocked: bool = False) -> dict[str, Any]:
    """Return the call as a segment holds it: operand i in slot i, result j behind them, all dense, or blocked where that is possible."""

    def operand(slot: int, shape, dtype: str) -> dict[str, Any]:
        strides, step = [], ITEM_BYTES[dtype]
        for n in reversed(shape):
            strides.append(step)
            step *= n
        form = "blocked" if blocked and len(shape) > 1 and 0 not in shape else "dense"
        return {
            "slot": slot,
            "offset": 0,
            "shape": list(shape),
            "strides": strides[::-1],
            "dtype": dtype,
            "layout": form,
        }

    inputs = [None if x is None else operand(i, x.shape, call.dtype(i)) for i, x in enumerate(call.arrays)]
    outputs = [operand(len(inputs) + j, shape, dtype) for j, (shape, dtype) in enumerate(call.types)]
    attrs = {k: list(v) if isinstance(v, tuple) else v for k, v in call.attrs.items()}
    return {"routine": call.name, "attrs": attrs, "inputs": inputs, "outputs": outputs}


def bytes_of(d: dict[str, Any]) -> int:
    return layout.image_bytes(d["shape"], d["dtype"], d["layout"])


def by_core(call: Drawn, blocked: bool = False) -> tuple[list[np.ndarray], list[int]]:
    """Return the results of the C core and the work it counted."""
    desc = descriptor(call, blocked)
    operands = [*desc["inputs"], *desc["outputs"]]
    places, end = [], 0
    for d in operands:
        places.append(end)
        end += 0 if d is None else -(-bytes_of(d) // ROOM) * ROOM + ROOM
    ddr = np.full(max(end, 1), 0xEE, np.uint8)
    for d, at, x in zip(desc["inputs"], places, call.arrays):
        if d is None or x is None:
            continue
        if d["layout"] == "blocked":
            data = layout.pack(x.reshape(layout.npc(x.shape)), d["dtype"])
        else:
            data = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
        ddr[at : at + data.size] = data
    tile = CoreTile(np.zeros(64, np.uint8), ddr, len(ddr))
    tile.load(
        isa.rows([isa.make("kcore", routine=0)]), np.zeros(1, np.int64), np.array(places) + DDR_BASE, Calls([desc])
    )
    assert tile.run(0, 1) == 1
    found = []
    for d, at in zip(desc["outputs"], places[len(desc["inputs"]) :], strict=True):
        raw = ddr[at : at + bytes_of(d)]
        if d["layout"] == "blocked":
            y = layout.unpack(raw, *layout.npc(d["shape"]), d["dtype"])
        else:
            y = raw.view(np_dtype(d["dtype"]))
        found.append(y.reshape(d["shape"]).copy())
        assert (ddr[at + bytes_of(d) :][:ROOM] == 0xEE).all(), "written behind the result"
    return found, tile.work


def by_oracle(call: Drawn) -> list[np.ndarray]:
    """Return the results of the oracle, in their formats."""
    types = [(tuple(s), d) for s, d in call.types]
    made = ROUTINES[call.name](call.arrays, dict(descriptor(call)["attrs"]), types)
    return [
        np.ascontiguousarray(np.asarray(y).astype(np_dtype(d), copy=False)).reshape(s)
        for y, (s, d) in zip(made, types, strict=True)
    ]
