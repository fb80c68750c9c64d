"""Attention of any grouping of heads as a case of one group, and the masks it is tried with."""

from __future__ import annotations

import math

import numpy as np
from support.one_op import Arg, Case, build, grouped

from tx8fast.lower import lower
from tx8fast.lower.attention import Attention
from tx8fast.lower.sequences import BINARY

LOOSE = {"bf16": 3e-2, "f16": 5e-3, "f32": 2e-5}
HIDDEN = {"bf16": -3e38, "f16": -65504.0, "f32": -3e38}


def attention(dtype: str, batch: int, kv: int, group: int, rows: int, keys: int, depth: int, mask: str = "",
              visible: tuple[int, ...] = (), machine: str = "tx8", between: tuple[str, ...] = (), scale: float = 0.0
              ) -> Case:  # fmt: skip
    """Grouped attention; mask: "" none, "row" one per batch, "full" one per row; between: ops on the scores, with single elements where
    they take two operands; scale: of the softmax, 0: by depth."""
    args = [Arg((batch, rows, kv * group * depth), dtype, "blocked"), Arg((batch, keys, kv * depth), dtype, "blocked"),
            Arg((batch, keys, kv * depth), dtype, "blocked")]  # fmt: skip
    if mask:
        args.append(Arg((batch, 1, 1, keys) if mask == "row" else (rows, keys), dtype, "blocked"))
    sizes = ("h", kv, "g", group, "d", depth)
    args += [Arg((), dtype) for kind in between if kind in BINARY]

    def body(b, q, k, v, *more):
        m, single = more[: bool(mask)], iter(more[bool(mask) :])
        op = lambda kind, *x, **a: b.op(kind, *x, mem_layout="blocked", **a).result  # noqa: E731
        s = op("contract", q, k, equation="b s (h g d), b t (h d) -> b (h g) s t", sizes=sizes)
        for kind in between:
            s = op(kind, s, next(single)) if kind in BINARY else op(kind, s)
        p = op("softmax", s, *m, axis=-1, scale=scale or 1 / math.sqrt(depth), visible=visible)
        return op("contract", p, v, equation="b (h g) s t, b t (h d) -> b s (h g d)", sizes=sizes)

    return build(args, body, machine)


def band(rows: int, keys: int, offset: int, window: int, dtype: str) -> np.ndarray:
    i, j = np.arange(rows)[:, None] + offset, np.arange(keys)[None, :]
    seen = (j <= i) & (j > i - window) if window else j <= i
    return np.where(seen, 0.0, HIDDEN[dtype]).astype(np.float32)


def inputs_of(case: Case, rng: np.random.Generator, mask: np.ndarray | None) -> list[np.ndarray]:
    out = [a.values(rng) if a.shape else np.full((), 0.375, a.values(rng).dtype) for a in case.args]
    if mask is not None:
        out[3] = np.broadcast_to(mask, out[3].shape).astype(out[3].dtype)
    return out


def lowering(case: Case) -> Attention:
    low = lower(grouped(case).records[0], case.machine)[0]
    assert isinstance(low, Attention)
    return low
