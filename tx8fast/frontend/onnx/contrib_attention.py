"""Handlers of attention in the domain com.microsoft.

May import: frontend.onnx.node, frontend.onnx.attention, frontend.onnx.index (cache writes). Must not: touch protobufs
beyond a node's attributes.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.onnx.attention import Mask, attend, rotary, split_heads
from tx8fast.frontend.onnx.contrib import MICROSOFT
from tx8fast.frontend.onnx.index import write_run
from tx8fast.frontend.onnx.node import Handler, Node, Result


def _merged(n: Node, y: Tensor) -> Tensor:
    """[B, H, S, D] -> [B, S, H * D]."""
    batch, heads, rows, depth = y.shape
    return n.reshape(n.transpose(y, (0, 2, 1, 3)), (batch, rows, heads * depth))


def _scale(n: Node, depth: int) -> float:
    return float(n.attr("scale", 0.0) or 1.0 / math.sqrt(depth))


def _positions(n: Node, given: Tensor | None, first: Tensor | None, batch: int, rows: int) -> Tensor:
    """Positions [B, S] (or [S] if they are the same for all rows): given, or counted from `first` [B]."""
    steps = n.const(np.arange(rows, dtype=np.int64))
    if given is not None and math.prod(given.shape) == batch * rows > 1:
        return n.cast(given, "i64")
    start = given if given is not None else first
    if start is None:
        return steps
    start = n.cast(start, "i64")
    return n.op("add", n.reshape(start, (math.prod(start.shape), 1)), n.reshape(steps, (1, rows)))


def _rotary_embedding(n: Node) -> Tensor:
    x, places, cos, sin = n[0], n[1], n[2], n[3]
    if n.attr("is_packed_batching", 0):
        raise n.unsupported("packed batching is not supported")
    rows = x.shape[2] if x.rank == 4 else x.shape[1]
    width = n.attr("rotary_embedding_dim", 0)
    heads = n.attr("num_heads", 0)
    if x.rank == 3 and not heads:
        heads = x.shape[2] // (width or 2 * cos.shape[-1])
    at = _positions(n, places, None, x.shape[0], rows)
    cos, sin = (n.op("gather", t, at, axis=0) for t in (cos, sin))
    y = rotary(n, x, cos, sin, heads, width, bool(n.attr("interleaved", 0)))
    scale = float(n.attr("scale", 1.0))
    return y if scale == 1.0 else n.op("mul", y, scale)


def _multi_head(n: Node) -> Result:
    q, k, v, bias, padding, extra, past_k, past_v = (n[i] for i in range(8))
    heads = n.required("num_heads")
    if k is None or q.rank != 3:
        raise n.unsupported("packed query, key and value are not supported; give them as three inputs")
    if (past_k is None) != (past_v is None):
        raise n.bad("past_key and past_value must be given together")
    if n.has(8) or n.has(9):
        raise n.unsupported("past_sequence_length and cache_indirection are not supported")
    if bias is not None:
        widths = [q.shape[-1], q.shape[-1], bias.shape[0] - 2 * q.shape[-1]]
        starts = [0, widths[0], widths[0] + widths[1]]
        parts = [n.slice(bias, 0, a, w) for a, w in zip(starts, widths)]
        q = n.op("add", q, parts[0])
        if k.rank == 3 and v is not None:
            k, v = n.op("add", k, parts[1]), n.op("add", v, parts[2])
    q = split_heads(n, q, heads, "query")
    k, v = split_heads(n, k, heads, "key"), split_heads(n, v, heads, "value")
    past = 0
    if past_k is not None:
        past = past_k.shape[2]
        k, v = n.concat([past_k, k], 2), n.concat([past_v, v], 2)
    batch, _, rows, depth = q.shape
    columns = k.shape[2]
    mask = Mask(n, q.dtype, rows, columns)
    if n.attr("unidirectional", 0):
        gap = np.arange(rows)[:, None] + past - np.arange(columns)[None, :]
        mask.allow(gap >= 0, (past, 0))
    low = float(n.attr("mask_filter_value", -10000.0))
    total = extra
    if padding is not None:
        hidden = _hidden(n, padding, batch, columns)
        part = n.op("select", hidden, n.const(low, q.dtype), n.const(0.0, q.dtype))
        total = part if total is None else n.op("add", total, part)
    mask.bias = total
    mask.finite = True
    y, _ = attend(n, q, k, v, mask, _scale(n, depth))
    return [_merged(n, y), k if n.wants(1) else None, v if n.wants(2) else None][: max(len(n.outputs), 1)]


def _hidden(n: Node, padding: Tensor, batch: int, columns: int) -> Tensor:
    """Positions that a key padding mask hides, [B, 1, 1, T]: lengths [B], or 0 where hidden [B, T]."""
    wide = n.cast(padding, "i64")
    if wide.shape == (batch,):
        column = n.const(np.arange(columns).reshape(1, 1, 1, columns))
        return n.op("ge", column, n.reshape(wide, (batch, 1, 1, 1)))
    if wide.shape == (batch, columns):
        return n.op("eq", n.reshape(wide, (batch, 1, 1, columns)), 0)
    raise n.unsupported(f"a key padding mask of shape {list(padding.shape)} is not supported, only [B] and [B, T]")


def _group_query(n: Node) -> Result:
    """Grouped attention over a cache; `seqlens_k` holds the number of valid keys of each row, less one."""
    q, k, v, past_k, past_v, lengths, _, cos, sin, places, extra = (n[i] for i in range(11))
    heads, kv_heads = n.required("num_heads"), n.required("kv_num_heads")
    if n.wants(3) or n.has(11) or n.attr("smooth_softmax", 0) > 0 or n.attr("k_quant_type", "NONE") != "NONE":
        raise n.unsupported("score output, attention sinks, smooth softmax and quantised caches are not supported")
    batch, rows, width = q.shape
    if k is None:
        depth = width // (heads + 2 * kv_heads)
        k = n.slice(q, 2, heads * depth, kv_heads * depth)
        v = n.slice(q, 2, (heads + kv_heads) * depth, kv_heads * depth)
        q = n.slice(q, 2, 0, heads * depth)
    depth = q.shape[2] // heads
    kept = past_k.shape[2] if past_k is not None else 0
    total = int(n.static(6, "total_sequence_length").reshape(-1)[0])
    if total < rows:
        raise n.bad(f"total_sequence_length {total} is below the {rows} new positions")
    first = None
    if kept and total > rows or kept >= total:  # first new position of every row
        lengths = n.reshape(n.cast(lengths, "i64"), (batch,))
        first = n.op("sub", lengths, rows - 1) if rows != 1 else lengths
    if n.attr("do_rotary", 0):
        at = _positions(n, places, first, batch, rows)
        cos, sin = (n.op("gather", t, at, axis=0) for t in (cos, sin))
        style = bool(n.attr("rotary_interleaved", 0))
        turned = 2 * cos.shape[-1]
        q = rotary(n, q, cos, sin, heads, turned, style)
        k = rotary(n, k, cos, sin, kv_heads, turned, style)
    q = split_heads(n, q, heads, "query")
    k, v = split_heads(n, k, kv_heads, "key"), split_heads(n, v, kv_heads, "value")
    if kept >= total and first is not None:  # the cache is a buffer of its final size
        k, v = write_run(n, past_k, k, first, 2), write_run(n, past_v, v, first, 2)
    elif kept:
        if kept + rows != total:
            raise n.bad(f"a past of {kept} and {rows} new positions do not make total_sequence_length {total}")
        k, v = n.concat([past_k, k], 2), n.concat([past_v, v], 2)
        first = None
    mask = _causal(n, q, k.shape[2], first, kept if kept < total else 0)
    mask.bias = extra
    y, _ = attend(n, q, k, v, mask, _scale(n, depth))
    return [_merged(n, y), k, v][: max(len(n.outputs), 1)]


def _causal(n: Node, q: Tensor, columns: int, first: Tensor | None, offset: int) -> Mask:
    """Keys up to the query's own position, at most `local_window_size` of them; `first` counts from run-time positions."""
    batch, _, rows, _ = q.shape
    window = n.attr("local_window_size", -1)
    mask = Mask(n, q.dtype, rows, columns)
    if first is None:
        gap = np.arange(rows)[:, None] + offset - np.arange(columns)[None, :]
        seen = gap >= 0 if window < 0 else (gap >= 0) & (gap < window)
        mask.allow(seen, (offset, max(window, 0)))
        return mask
    column = n.const(np.arange(columns).reshape(1, 1, 1, columns))
    step = n.const(np.arange(rows).reshape(1, 1, rows, 1))
    place = n.op("add", n.reshape(first, (batch, 1, 1, 1)), step)
    mask.allow_dynamic(n.op("le", column, place))
    if window >= 0:
        mask.allow_dynamic(n.op("lt", n.op("sub", place, column), window))
    mask.finite = True  # every position sees itself
    return mask


HANDLERS: tuple[Handler, ...] = (
    Handler("RotaryEmbedding", _rotary_embedding, domain=MICROSOFT),
    Handler("MultiHeadAttention", _multi_head, domain=MICROSOFT),
    Handler("GroupQueryAttention", _group_query, domain=MICROSOFT),
)
