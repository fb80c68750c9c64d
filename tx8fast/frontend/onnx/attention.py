"""Handlers of attention and rotary embedding.

May import: frontend.onnx.node, weights. Must not: touch protobufs beyond a node's attributes.

Masks become one additive operand of `softmax`. Masked positions hold a large negative finite number, so
that no infinity meets another; rows without any visible key are multiplied by 0 afterwards, as ONNX asks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.onnx.node import Handler, Node
from tx8fast.frontend.onnx.reader import DTYPES
from tx8fast.weights import MASK_VALUE, DerivedSource, Weight

#: causal masks above this many positions are computed when the program is packed, not at import
_DERIVED_MASK = 1 << 14


def split_heads(n: Node, t: Tensor, count: int | None, what: str) -> Tensor:
    """Return [B, H, S, D] from [B, S, H*D]; rank 4 passes through."""
    if t.rank == 4:
        return t
    if t.rank != 3 or not count or t.shape[2] % count:
        raise n.bad(f"{what} has shape {list(t.shape)}, which does not divide into {count} heads")
    b, s, width = t.shape
    return n.transpose(n.reshape(t, (b, s, count, width // count)), (0, 2, 1, 3))


class Mask:
    """What of the score matrix [B, Hq, S, T] is visible: known positions, positions decided at run time, a bias."""

    def __init__(self, n: Node, dtype: str, rows: int, columns: int) -> None:
        self.n = n
        self.dtype = dtype
        self.rows = rows
        self.columns = columns
        self.seen: Any = None  # [S, T], known at import
        self.causal: tuple[int, int] | None = None  # (offset, window) if `seen` is exactly that mask
        self.dynamic: Any = None  # pred
        self.bias: Any = None
        self.finite = False  # every row is known to see a key

    def allow(self, seen: np.ndarray, causal: tuple[int, int] | None) -> None:
        self.causal = causal if self.seen is None else None
        self.seen = seen if self.seen is None else self.seen & seen

    def allow_dynamic(self, seen: Tensor) -> None:
        self.dynamic = seen if self.dynamic is None else self.n.op("and", self.dynamic, seen)

    def additive(self) -> Tensor | None:
        """Return the mask to add to the scores, or None."""
        n, low = self.n, self.n.const(MASK_VALUE[self.dtype], self.dtype)
        total = self.bias
        if total is not None:
            total = n.op("max", total, low)
        if self.dynamic is not None:
            total = n.op("select", self._visible(), n.const(0.0, self.dtype) if total is None else total, low)
        elif self.seen is not None:
            part = self._known()
            total = part if total is None else n.op("max", n.op("add", total, part), low)
        return total

    def _known(self) -> Tensor:
        n = self.n
        if self.causal is None or self.seen.size <= _DERIVED_MASK:
            return n.const(np.where(self.seen, 0.0, MASK_VALUE[self.dtype]), self.dtype)
        offset, window = self.causal
        key = f"%const/causal_{self.rows}x{self.columns}_{offset}_{window}_{self.dtype}"
        weights = n.importer.emitter.weights
        if key not in weights:
            attrs = {"offset": offset, "window": window, "value": MASK_VALUE[self.dtype]}
            shape = (self.rows, self.columns)
            weights.add(Weight(key, shape, self.dtype, DerivedSource("causal_mask", attrs)))
        return Tensor((self.rows, self.columns), self.dtype, key=key)

    def row_guard(self) -> Tensor | None:
        """Return 1.0 for rows that see a key and 0.0 for others, or None if all rows do."""
        n = self.n
        if self.finite:
            return None
        if self.dynamic is None and self.bias is None:
            if self.seen is None or self.seen.any(axis=1).all():
                return None
            return n.const(self.seen.any(axis=1, keepdims=True).astype(np.float32), "f32")
        if self.dynamic is None and self.bias is not None and self.bias.force() is not None:
            finite = self.bias.force() > -np.inf
            if (finite if self.seen is None else finite & self.seen).any(axis=-1).all():
                return None
        seen: Any = None if self.dynamic is None else self._visible()
        if self.bias is not None:
            given = n.op("gt", self.bias, n.const(float("-inf"), self.dtype))
            if seen is None and self.seen is not None:
                given = n.op("and", given, n.const(self.seen))
            seen = given if seen is None else n.op("and", seen, given)
        return n.reduce(n.cast(seen, "f32"), "max", (seen.rank - 1,))

    def _visible(self) -> Tensor:
        """Return the positions that masks of truth values leave, decided at run time."""
        return self.dynamic if self.seen is None else self.n.op("and", self.dynamic, self.n.const(self.seen))


def _attention(n: Node):
    q = split_heads(n, n[0], n.attr("q_num_heads"), "Q")
    new_k = split_heads(n, n[1], n.attr("kv_num_heads"), "K")
    new_v = split_heads(n, n[2], n.attr("kv_num_heads"), "V")
    if n.has(4) != n.has(5):
        raise n.bad("past_key and past_value must be given together")
    if n.has(6) and n.has(4):
        raise n.bad("nonpad_kv_seqlen and past_key exclude each other")
    k = n.concat([n[4], new_k], 2) if n.has(4) else new_k
    v = n.concat([n[5], new_v], 2) if n.has(5) else new_v
    past = n[4].shape[2] if n.has(4) else 0
    batch, heads, rows, depth = q.shape
    kv_heads, columns = k.shape[1], k.shape[2]
    if kv_heads == 0 or heads % kv_heads:
        raise n.bad(f"{heads} query heads do not share {kv_heads} key heads evenly")
    mask = _mask(n, q.dtype, rows, columns, past)
    scale = float(n.attr("scale", 0.0) or 1.0 / math.sqrt(depth))
    y, scores = attend(n, q, k, v, mask, scale)
    if n[0].rank == 3:
        y = n.reshape(n.transpose(y, (0, 2, 1, 3)), (batch, rows, heads * v.shape[3]))
    wanted = [y, k if n.wants(1) else None, v if n.wants(2) else None, scores]
    return wanted[: max(len(n.outputs), 1)]


def _mask(n: Node, dtype: str, rows: int, columns: int, past: int) -> Mask:
    mask = Mask(n, dtype, rows, columns)
    left, right = n.attr("left_window_size", -1), n.attr("right_window_size", -1)
    causal = bool(n.attr("is_causal", 0))
    if n.has(6):
        _mask_by_length(n, mask, causal, left, right)
    elif causal or left >= 0 or right >= 0:
        gap = np.arange(rows)[:, None] + past - np.arange(columns)[None, :]
        seen = np.ones(gap.shape, bool)
        seen &= (gap >= 0) if causal else True
        seen &= (gap <= left) if left >= 0 else True
        seen &= (-gap <= right) if right >= 0 else True
        mask.allow(seen, (past, left + 1 if left >= 0 else 0) if causal else None)
    if not n.has(3):
        return mask
    given = n[3]
    if given.rank and given.shape[-1] < columns:  # missing columns are hidden
        lo, hi = (0,) * given.rank, (*[0] * (given.rank - 1), columns - given.shape[-1])
        given = n.op("pad", given, lo=lo, hi=hi, value=0.0 if given.dtype == "pred" else MASK_VALUE[dtype])
    if given.dtype == "pred":
        mask.allow_dynamic(given)
    else:
        mask.bias = n.cast(given, dtype)
    return mask


def _mask_by_length(n: Node, mask: Mask, causal: bool, left: int, right: int) -> None:
    """Every batch row has its own number of valid keys, known at run time only."""
    lengths = n.cast(n[6], "i64")
    lengths = n.reshape(lengths, (lengths.shape[0], 1, 1, 1))
    column = n.const(np.arange(mask.columns).reshape(1, 1, 1, -1))
    mask.allow_dynamic(n.op("lt", column, lengths))
    if causal or left >= 0 or right >= 0:
        row = n.const(np.arange(mask.rows).reshape(1, 1, -1, 1))
        place = n.op("add", row, n.op("sub", lengths, mask.rows))
        if causal:
            mask.allow_dynamic(n.op("le", column, place))
        if left >= 0:
            mask.allow_dynamic(n.op("le", n.op("sub", place, column), left))
        if right >= 0:
            mask.allow_dynamic(n.op("le", n.op("sub", column, place), right))


def attend(n: Node, q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float) -> tuple[Tensor, Tensor | None]:
    """Return (y [B, Hq, S, Dv], the scores asked for as fourth output or None)."""
    batch, heads, rows, depth = q.shape
    kv_heads, columns = k.shape[1], k.shape[2]
    group = heads // kv_heads
    additive, guard = mask.additive(), mask.row_guard()
    softcap, mode, keep = float(n.attr("softcap", 0.0)), n.attr("qk_matmul_output_mode", 0), n.wants(3)
    merged = group > 1 and rows == 1 and all(t is None or t.rank < 3 or t.shape[-3] == 1 for t in (additive, guard))
    if merged:  # one token: the heads of a group are the rows of one product
        q = n.reshape(q, (batch, kv_heads, group, depth))
    elif group > 1:
        q = n.reshape(q, (batch, kv_heads, group, rows, depth))
        k, v = (n.reshape(t, (batch, kv_heads, 1, columns, t.shape[3])) for t in (k, v))
        additive, guard = (_grouped(n, t, kv_heads, group) for t in (additive, guard))
    visible = int(mask.seen.sum()) if mask.seen is not None and mask.causal is not None else rows * columns
    macs = {} if visible == rows * columns else {"useful_macs": batch * heads * visible * depth}
    scores = n.op("gemm", q, k, trans_b=True, **macs)
    full = (batch, heads, rows, columns)
    found = n.op("mul", scores, scale) if keep and mode == 0 else None
    plain = softcap == 0 and not (keep and mode in (0, 1, 2))
    if not plain:
        scores = found if found is not None else n.op("mul", scores, scale)
    if softcap > 0:
        scores = n.op("mul", n.op("tanh", n.op("mul", scores, 1.0 / softcap)), softcap)
    if keep and mode == 1:
        found = scores
    if keep and mode == 2:
        scores = found = n.op("add", scores, additive) if additive is not None else scores
        additive = None
    precise = DTYPES.get(n.attr("softmax_precision", 0))
    wide = precise if precise not in (None, q.dtype) else q.dtype
    inner = n.cast(scores, wide)
    inner_mask = None if additive is None else n.cast(additive, wide)
    weights = n.op("softmax", inner, inner_mask, axis=-1, scale=scale if plain else 1.0)
    weights = n.cast(weights, q.dtype)
    if guard is not None:
        guard = n.cast(guard, q.dtype)
    if keep and mode == 3:
        found = weights if guard is None else n.op("mul", weights, guard)
    macs = {} if not macs else {"useful_macs": batch * heads * visible * v.shape[-1]}
    y = n.op("gemm", weights, v, **macs)
    if guard is not None:
        y = n.op("mul", y, guard)
    y = n.reshape(y, (batch, heads, rows, v.shape[-1]))
    if keep and found is not None and mode == 2 and mask.dynamic is None and mask.seen is not None:
        found = _infinite(n, n.reshape(found, full))
    return y, None if found is None else n.reshape(found, full)


def _infinite(n: Node, t: Tensor) -> Tensor:
    """Show hidden positions as minus infinity, as the operator's debugging output defines them."""
    low = n.const(MASK_VALUE[t.dtype] / 2, t.dtype)
    return n.op("select", n.op("lt", t, low), n.const(float("-inf"), t.dtype), t)


def _grouped(n: Node, t: Tensor | None, kv_heads: int, group: int) -> Tensor | None:
    """Give a mask over [B, Hq, S, T] the axis of query heads per key head."""
    if t is None or t.rank < 3:
        return t
    lead = t.shape[:-3]
    if t.shape[-3] == 1:
        return n.reshape(t, (*lead, 1, 1, *t.shape[-2:]))
    return n.reshape(t, (*lead, kv_heads, group, *t.shape[-2:]))


def _rotary(n: Node) -> Tensor:
    """Tables of half width [positions, R/2], picked by position ids, or [B, S, R/2]."""
    x, cos, sin = n[0], n[1], n[2]
    heads = n.attr("num_heads", 0) or (x.shape[1] if x.rank == 4 else 0)
    if n.has(3):
        cos, sin = (n.op("gather", t, n[3], axis=0) for t in (cos, sin))
    return rotary(n, x, cos, sin, heads, n.attr("rotary_embedding_dim", 0), bool(n.attr("interleaved", 0)))


def rotary(n: Node, x: Tensor, cos: Tensor, sin: Tensor, heads: int, width: int, interleaved: bool) -> Tensor:
    """Rotate x [B, H, S, D] or [B, S, H * D]: y = x * cos + partner(x) * sin; tables [S, R/2] or [B, S, R/2].

    `width` is R, 0 for all of D."""
    if x.rank == 3 and (not heads or x.shape[2] % heads):
        raise n.bad(f"shape {list(x.shape)} does not divide into {heads} heads")
    depth = x.shape[3] if x.rank == 4 else x.shape[2] // heads
    width = width or depth
    if cos.shape[-1] * 2 != width:
        raise n.bad(f"tables of width {cos.shape[-1]} for a rotary dimension of {width}")
    batch, rows = x.shape[0], x.shape[2] if x.rank == 4 else x.shape[1]
    if cos.rank == 2 or cos.shape[0] == 1 or batch == 1:  # one table for all rows of the batch
        cos, sin = (n.reshape(t, t.shape[-2:]) for t in (cos, sin))
        full_cos = _lanes(n, cos, cos, interleaved, depth, 1.0)
        full_sin = _lanes(n, n.op("neg", sin), sin, interleaved, depth, 0.0)
        style = "interleaved" if interleaved else "half"
        return n.op("rope", x, full_cos, full_sin, heads=1 if x.rank == 4 else heads, style=style, rotary_dim=width)
    wide = x if x.rank == 4 else n.transpose(n.reshape(x, (batch, rows, heads, depth)), (0, 2, 1, 3))
    y = rotate(n, wide, cos, sin, interleaved, width)
    return y if x.rank == 4 else n.reshape(n.transpose(y, (0, 2, 1, 3)), x.shape)


def _lanes(n: Node, first: Tensor, second: Tensor, interleaved: bool, depth: int, rest: float) -> Tensor:
    """Spread a half-width table [S, R/2] over all lanes [S, D]."""
    rows, half = first.shape
    if interleaved:
        pair = n.concat([n.reshape(first, (rows, half, 1)), n.reshape(second, (rows, half, 1))], 2)
        table = n.reshape(pair, (rows, 2 * half))
    else:
        table = n.concat([first, second], 1)
    if depth == 2 * half:
        return table
    return n.op("pad", table, lo=(0, 0), hi=(0, depth - 2 * half), value=rest)


def rotate(n: Node, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, rotary: int) -> Tensor:
    """Rotate [B, H, S, D] by per-row tables [B, S, R/2], spelt out."""
    batch, heads, rows, depth = x.shape
    half = rotary // 2
    cos, sin = (n.reshape(t, (batch, 1, rows, half)) for t in (cos, sin))
    turned, kept = n.slice(x, 3, 0, rotary), n.slice(x, 3, rotary, depth - rotary) if depth > rotary else None
    if interleaved:
        a, b = n.slice(turned, 3, 0, half, 2), n.slice(turned, 3, 1, half, 2)
    else:
        a, b = n.slice(turned, 3, 0, half), n.slice(turned, 3, half, half)
    real = n.op("sub", n.op("mul", a, cos), n.op("mul", b, sin))
    imaginary = n.op("add", n.op("mul", a, sin), n.op("mul", b, cos))
    if interleaved:
        parts = [n.reshape(t, (*t.shape, 1)) for t in (real, imaginary)]
        y = n.reshape(n.concat(parts, 4), turned.shape)
    else:
        y = n.concat([real, imaginary], 3)
    return y if kept is None else n.concat([y, kept], 3)


HANDLERS: tuple[Handler, ...] = (
    Handler("Attention", _attention, 23),
    Handler("RotaryEmbedding", _rotary, 23),
)
