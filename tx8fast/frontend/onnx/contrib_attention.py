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
    """Query, key and value apart; key and value in one [B, T, H, 2, D]; or all three in one [B, S, H, 3, D]."""
    q, k, v, bias, padding, extra, past_k, past_v = (n[i] for i in range(8))
    heads = n.required("num_heads")
    if n.has(8) or n.has(9) or n.wants(3):
        raise n.unsupported("past_sequence_length, cache_indirection and an output of scores are not supported")
    if (past_k is None) != (past_v is None):
        raise n.bad("past_key and past_value must be given together")
    if k is None and v is None:
        q, k, v = _unpacked(n, q, heads, 3, "query")
    elif v is None and k is not None:
        k, v = _unpacked(n, k, heads, 2, "key")
    if k is None or v is None or q.rank != 3:
        raise n.bad(
            f"a query of rank {q.rank} without its key or value; give three inputs, or one of shape [B, S, H, 3, D]"
        )
    if bias is not None:
        widths = [q.shape[-1], q.shape[-1], bias.shape[0] - 2 * q.shape[-1]]
        starts = [0, widths[0], widths[0] + widths[1]]
        parts = [n.slice(bias, 0, a, w) for a, w in zip(starts, widths)]
        q = n.op("add", q, parts[0])
        if k.rank == 3:
            k, v = n.op("add", k, parts[1]), n.op("add", v, parts[2])
    q = split_heads(n, q, heads, "query")
    k, v = split_heads(n, k, heads, "key"), split_heads(n, v, heads, "value")
    y, k, v = _padded(n, q, k, v, (past_k, past_v), padding, extra)
    return [y, k if n.wants(1) else None, v if n.wants(2) else None][: max(len(n.outputs), 1)]


def _unpacked(n: Node, t: Tensor, heads: int, count: int, what: str) -> list[Tensor]:
    """[B, S, H, count, D] -> `count` times [B, S, H * D]."""
    if t.rank != 5 or t.shape[2:4] != (heads, count):
        raise n.bad(f"{what} of shape {list(t.shape)} stands alone; packed it must be [B, S, {heads}, {count}, D]")
    batch, rows, _, _, depth = t.shape
    return [n.reshape(n.slice(t, 3, i, 1), (batch, rows, heads * depth)) for i in range(count)]


def _packed_attention(n: Node) -> Result:
    """Query, key and value are one product of the input."""
    x, w, bias, padding, past, extra = (n[i] for i in range(6))
    heads = n.required("num_heads")
    if n.has(6) or n.attr("do_rotary", 0) or n.attr("past_present_share_buffer", 0):
        raise n.unsupported("rotation and caches of their final size are not supported, GroupQueryAttention has both")
    total = w.shape[-1]
    widths = list(n.attr("qkv_hidden_sizes", ()) or [total // 3] * 3)
    if len(widths) != 3 or sum(widths) != total or widths[0] != widths[1] or min(widths) < 1:
        raise n.bad(f"weights of {total} columns are no query, key and value of widths {widths}")
    y = n.op("gemm", x, w)
    y = y if bias is None else n.op("add", y, bias)
    starts = (0, widths[0], widths[0] + widths[1])
    q, k, v = (
        split_heads(n, n.slice(y, 2, a, size), heads, what)
        for a, size, what in zip(starts, widths, ("query", "key", "value"))
    )
    before = (None, None) if past is None else tuple(n.reshape(n.slice(past, 0, i, 1), past.shape[1:]) for i in (0, 1))
    y, k, v = _padded(n, q, k, v, before, padding, extra)
    if not n.wants(1):
        return [y]
    return [y, n.concat([n.reshape(t, (1, *t.shape)) for t in (k, v)], 0)]


def _padded(
    n: Node,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past: tuple[Tensor | None, ...],
    padding: Tensor | None,
    extra: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return [B, S, H * D] of heads [B, H, S, D], and the keys and values behind those of the past."""
    offset = 0
    if past[0] is not None and past[1] is not None:
        offset = past[0].shape[2]
        k, v = n.concat([past[0], k], 2), n.concat([past[1], v], 2)
    batch, _, rows, depth = q.shape
    columns = k.shape[2]
    mask = Mask(n, q.dtype, rows, columns)
    if n.attr("unidirectional", 0):
        gap = np.arange(rows)[:, None] + offset - np.arange(columns)[None, :]
        mask.allow(gap >= 0, (offset, 0))
    low = float(n.attr("mask_filter_value", -10000.0))
    total = extra
    if padding is not None:
        hidden = _hidden(n, padding, batch, rows, columns)
        part = n.op("select", hidden, n.const(low, q.dtype), n.const(0.0, q.dtype))
        total = part if total is None else n.op("add", total, part)
    mask.bias = total
    mask.finite = True
    y, _ = attend(n, q, k, v, mask, _scale(n, depth))
    return _merged(n, y), k, v


def _hidden(n: Node, padding: Tensor, batch: int, rows: int, columns: int) -> Tensor:
    """Positions that a padding mask hides, [B, 1, 1 or S, T]: lengths [B], or 0 where hidden [B, T] or [B, S, T]."""
    wide = n.cast(padding, "i64")
    if wide.shape == (batch,):
        column = n.const(np.arange(columns).reshape(1, 1, 1, columns))
        return n.op("ge", column, n.reshape(wide, (batch, 1, 1, 1)))
    if wide.shape == (batch, columns):
        return n.op("eq", n.reshape(wide, (batch, 1, 1, columns)), 0)
    if wide.shape == (batch, rows, columns):
        return n.op("eq", n.reshape(wide, (batch, 1, rows, columns)), 0)
    raise n.unsupported(
        f"a padding mask of shape {list(padding.shape)} is not supported, only [B], [B, T] and [B, S, T]"
    )


def _group_query(n: Node) -> Result:
    """Grouped attention over a cache; `seqlens_k` holds the number of valid keys of each row, less one."""
    q, k, v, past_k, past_v, lengths, _, cos, sin, places, extra = (n[i] for i in range(11))
    heads, kv_heads = n.required("num_heads"), n.required("kv_num_heads")
    _refuse_variants(n)
    batch, rows, width = q.shape
    if k is None:
        depth = width // (heads + 2 * kv_heads)
        k = n.slice(q, 2, heads * depth, kv_heads * depth)
        v = n.slice(q, 2, (heads + kv_heads) * depth, kv_heads * depth)
        q = n.slice(q, 2, 0, heads * depth)
    depth = q.shape[2] // heads
    kept = past_k.shape[2] if past_k is not None else 0
    total = int(n.number(6, "total_sequence_length"))
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


def _refuse_variants(n: Node) -> None:
    """Refuse what the operator learned after its first release, all of it at once."""
    asked = {
        "an output of scores": n.wants(3) or n.attr("qk_output", 0),
        "attention sinks": n.has(11),
        "smooth softmax": n.attr("smooth_softmax", -1) > 0,
        "quantised caches": n.has(12)
        or n.has(13)
        or n.attr("kv_cache_bit_width", 0)
        or {n.attr("k_quant_type", "NONE"), n.attr("v_quant_type", "NONE")} != {"NONE"},
        "norms of query and key": n.has(14) or n.has(15),
        "padded chunks (query_seqlens)": n.has(16),
        "attention to later positions (causal 0)": not n.attr("causal", 1),
        "caches as long as their window": n.attr("sliding_window_cache", 0),
    }
    if found := [what for what, wanted in asked.items() if wanted]:
        raise n.unsupported(f"{', '.join(found)} {'is' if len(found) == 1 else 'are'} not supported")


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
    Handler("Attention", _packed_attention, domain=MICROSOFT),
    Handler("GroupQueryAttention", _group_query, domain=MICROSOFT),
)
