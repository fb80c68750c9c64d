"""Handlers of the domain com.microsoft: fused norms, activations, products, block-quantised weights, embeddings.

May import: frontend.onnx.node, frontend.onnx.quant (block scales). Must not: touch protobufs beyond a node's attributes.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.onnx.node import Handler, Node, Result
from tx8fast.frontend.onnx.quant import spread

MICROSOFT = "com.microsoft"
QUICK_GELU_ALPHA = 1.702


# ---------------------------------------------------------------- norms


def _simplified_norm(n: Node) -> Result:
    x = n[0]
    axis = n.norm_axis(n.attr("axis", -1), x.rank)
    return [n.op("rmsnorm", x, n[1], axes=tuple(range(axis, x.rank)), eps=float(n.attr("epsilon", 1e-5)))]


def _layer_norm(n: Node) -> Result:
    x = n[0]
    axis = n.norm_axis(n.attr("axis", -1), x.rank)
    return [
        n.op(
            "layernorm",
            x,
            n[1],
            n[2],
            axes=tuple(range(axis, x.rank)),
            eps=float(n.attr("epsilon", 1e-5)),
        )
    ]


def _skip_norm(simplified: bool):
    def run(n: Node) -> Result:
        """Norm of input + skip (+ bias); its mean and inverse deviation (f32), and the sum, are further outputs."""
        bias = n[3] if simplified else n[4]
        total = n.op("add", n[0], n[1])
        if bias is not None:
            total = n.op("add", total, bias)
        eps = float(n.attr("epsilon", 1e-12))  # of both; without a skip it is 1e-5
        if simplified:
            y = n.op("rmsnorm", total, n[2], axes=(-1,), eps=eps)
        else:
            y = n.op("layernorm", total, n[2], n[3], axes=(-1,), eps=eps)
        mean = inverse = None
        if n.wants(1) or n.wants(2):
            wide = n.in_f32(total)
            mean = n.reduce(wide, "mean", (-1,))
            centred = wide if simplified else n.op("sub", wide, mean)
            inverse = n.op("rsqrt", n.op("add", n.reduce(n.op("square", centred), "mean", (-1,)), eps))
        return [y, mean, inverse, total][: max(len(n.outputs), 1)]

    return run


def _embed_norm(n: Node) -> Result:
    """Sum of word, position and segment embeddings, normalised; number of valid tokens per row."""
    ids, segments, words, positions, kinds, gamma, beta, mask, places = (n[i] for i in range(9))
    batch, rows = ids.shape
    total = n.op("gather", words, ids, axis=0)
    if places is not None:
        total = n.op("add", total, n.op("gather", positions, places, axis=0))
    else:
        total = n.op("add", total, n.slice(positions, 0, 0, rows))
    if segments is not None and kinds is not None:
        total = n.op("add", total, n.op("gather", kinds, segments, axis=0))
    y = n.op("layernorm", total, gamma, beta, axes=(-1,), eps=float(n.attr("epsilon", 1e-12)))
    if mask is None:
        count = n.const(np.zeros(batch, np.int32))
    else:
        count = n.cast(n.reduce(mask, "add", (1,), False), "i32")
    return [y, count, total][: max(len(n.outputs), 1)]


# ---------------------------------------------------------------- activations and products


def _bias_gelu(n: Node) -> Tensor:
    return n.op("gelu", n.op("add", n[0], n[1]))


def _fast_gelu(n: Node) -> Tensor:
    return n.op("gelu_tanh", n.op("add", n[0], n[1]) if n.has(1) else n[0])


def _quick_gelu(n: Node) -> Tensor:
    x = n[0]
    return n.op("mul", x, n.op("sigmoid", n.op("mul", x, float(n.attr("alpha", QUICK_GELU_ALPHA)))))


def _fused_matmul(n: Node) -> Tensor:
    """alpha * A B with either transposed, and batch and row dimensions swapped if asked for."""
    a, b = n[0], n[1]
    flags = {}
    sides = []
    for t, name, flag in ((a, "A", "trans_a"), (b, "B", "trans_b")):
        if n.attr(f"transBatch{name}", 0) and t.rank > 2:
            # [d0, batch.., d1] is meant as [batch.., d0, d1]
            t = n.transpose(t, (*range(1, t.rank - 1), 0, t.rank - 1))
        flags[flag] = bool(n.attr(f"trans{name}", 0)) and t.rank > 1
        sides.append(t)
    a, b = sides
    row, column = a.rank == 1, b.rank == 1
    a = n.reshape(a, (1, a.shape[0])) if row else a
    b = n.reshape(b, (b.shape[0], 1)) if column else b
    y = n.op("gemm", a, b, **flags)
    if row or column:
        shape = list(y.shape)
        if column:
            del shape[-1]
        if row:
            del shape[-1 if column else -2]
        y = n.reshape(y, shape)
    alpha = float(n.attr("alpha", 1.0))
    return y if alpha == 1.0 else n.op("mul", y, alpha)


# ---------------------------------------------------------------- weights quantised in blocks


def _unpacked(n: Node, t: Tensor, bits: int) -> Tensor:
    """Unpack bytes of 4- or 2-bit numbers along the last dimension, low bits first."""
    if bits == 8:
        return t
    if bits not in (2, 4):
        raise n.unsupported(f"{bits}-bit blocks are not supported, only 2, 4 and 8")
    mask = n.const(2**bits - 1, "u8")
    parts = []
    for shift in range(0, 8, bits):
        moved = n.op("shr", t, n.const(shift, "u8")) if shift else t
        parts.append(n.reshape(n.op("and", moved, mask), (*t.shape, 1)))
    return n.reshape(n.concat(parts, t.rank), (*t.shape[:-1], t.shape[-1] * (8 // bits)))


def _matmul_nbits(n: Node) -> Tensor:
    """A times the transpose of a matrix [N, K] stored as blocks of `block_size` numbers along K."""
    a, packed, scales, zeros, order, bias = (n[i] for i in range(6))
    k, cols, block, bits = n.required("K"), n.required("N"), n.required("block_size"), n.attr("bits", 4)
    if order is not None or n.attr("weight_prepacked", 0):
        raise n.unsupported("reordered groups (g_idx) and weights packed for one processor are not supported")
    blocks = -(-k // block)
    if math.prod(packed.shape) != cols * blocks * block * bits // 8:
        raise n.bad(
            f"B has shape {list(packed.shape)}, {cols} x {blocks} blocks of {block} {bits}-bit numbers are required"
        )
    w = n.reshape(
        _unpacked(n, n.reshape(packed, (cols, blocks, block * bits // 8)), bits),
        (cols, blocks, block),
    )
    if zeros is None:
        zero = n.const(float(2 ** (bits - 1)), a.dtype)
    else:
        if not zeros.is_float:
            per_row = -(-blocks * bits // 8)
            zeros = n.slice(_unpacked(n, n.reshape(zeros, (cols, per_row)), bits), 1, 0, blocks)
        zero = n.reshape(n.cast(zeros, a.dtype), (cols, blocks, 1))
    scale = n.reshape(n.cast(scales, a.dtype), (cols, blocks, 1))
    w = n.op("mul", n.op("sub", n.cast(w, a.dtype), zero), scale)
    w = n.slice(n.reshape(w, (cols, blocks * block)), 1, 0, k)
    y = n.op("gemm", a, w, trans_b=True)
    return y if bias is None else n.op("add", y, bias)


def _gather_quantized(n: Node) -> Tensor:
    """Rows of a block-quantised table."""
    data, indices, scales, zeros = (n[i] for i in range(4))
    bits, block = n.attr("bits", 4), n.attr("block_size", 128)
    if data.dtype == "u8":
        default = 2 ** (bits - 1)
        data = _unpacked(n, data, bits)
        zeros = None if zeros is None else _unpacked(n, zeros, bits)
    else:
        default = 0
    rank = data.rank
    gathered, axis = (
        n.norm_axis(n.attr("gather_axis", 0), rank),
        n.norm_axis(n.attr("quantize_axis", 1), rank),
    )
    if gathered == axis:
        raise n.unsupported("gathering along the quantised axis is not supported")
    if zeros is not None and zeros.shape != scales.shape:
        zeros = n.slice(zeros, rank - 1, 0, scales.shape[-1])

    def rows(t: Tensor) -> Tensor:
        return n.op(
            "gather",
            t,
            indices if indices.dtype == "i64" else n.cast(indices, "i64"),
            axis=gathered,
        )

    if data.dtype in ("i4", "u4"):
        data = n.cast(data, "i8")
        zeros = None if zeros is None else n.cast(zeros, "i8")
    x, scale = n.cast(rows(data), scales.dtype), rows(scales)
    at = axis if axis < gathered else axis + indices.rank - 1
    zero: Tensor | float = float(default)
    if zeros is not None:
        zero = spread(n, n.cast(rows(zeros), scales.dtype), x, at, block)
    return n.op("mul", n.op("sub", x, zero), spread(n, scale, x, at, block))


HANDLERS: tuple[Handler, ...] = (
    Handler("SimplifiedLayerNormalization", _simplified_norm),
    Handler("SimplifiedLayerNormalization", _simplified_norm, domain=MICROSOFT),
    Handler("LayerNormalization", _layer_norm, 1, 16),
    Handler("LayerNormalization", _layer_norm, domain=MICROSOFT),
    Handler("SkipSimplifiedLayerNormalization", _skip_norm(True), domain=MICROSOFT),
    Handler("SkipLayerNormalization", _skip_norm(False), domain=MICROSOFT),
    Handler("EmbedLayerNormalization", _embed_norm, domain=MICROSOFT),
    Handler("Gelu", lambda n: n.op("gelu", n[0]), domain=MICROSOFT),
    Handler("BiasGelu", _bias_gelu, domain=MICROSOFT),
    Handler("FastGelu", _fast_gelu, domain=MICROSOFT),
    Handler("QuickGelu", _quick_gelu, domain=MICROSOFT),
    Handler("FusedMatMul", _fused_matmul, domain=MICROSOFT),
    Handler("MatMulNBits", _matmul_nbits, domain=MICROSOFT),
    Handler("GatherBlockQuantized", _gather_quantized, domain=MICROSOFT),
)
