"""Handlers of matrix products and normalisations.

May import: frontend.onnx.node. Must not: touch protobufs beyond a node's attributes.
"""

from __future__ import annotations

import math

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.onnx.node import Handler, Node


def matmul(n: Node, a: Tensor, b: Tensor) -> Tensor:
    """numpy's matmul: vectors gain a dimension of 1 that the result loses."""
    row, column = a.rank == 1, b.rank == 1
    if row:
        a = n.reshape(a, (1, a.shape[0]))
    if column:
        b = n.reshape(b, (b.shape[0], 1))
    y = n.op("gemm", a, b)
    shape = list(y.shape)
    if column:
        del shape[-1]
    if row:
        del shape[-1 if column else -2]
    return n.reshape(y, shape)


def _matmul(n: Node) -> Tensor:
    return matmul(n, n[0], n[1])


def _gemm(n: Node) -> Tensor:
    a, b, c = n[0], n[1], n[2]
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    if a.rank != 2 or b.rank != 2:
        raise n.bad(f"operands of rank {a.rank} and {b.rank}, required 2 and 2")
    flags = {"trans_a": bool(n.attr("transA", 0)), "trans_b": bool(n.attr("transB", 0))}
    if c is not None and beta == 0.0:
        c = None
    if c is not None and beta != 1.0:
        c = n.op("mul", c, beta if c.is_float else int(beta))
    if alpha == 1.0:
        width = b.shape[0] if flags["trans_b"] else b.shape[1]
        if c is not None and c.shape in ((width,), (1, width)):
            return n.op("gemm", a, b, n.reshape(c, (width,)), **flags)
        y = n.op("gemm", a, b, **flags)
    else:
        y = n.op("gemm", a, b, **flags)
        y = n.op("mul", y, alpha if y.is_float else int(alpha))
    return y if c is None else n.op("add", y, c)


def _layer_norm(n: Node):
    x, gamma, beta = n[0], n[1], n[2]
    axis, eps = n.axis(-1), float(n.attr("epsilon", 1e-5))
    axes = tuple(range(axis, x.rank))
    if n.wants(1) or n.wants(2):
        return _layer_norm_parts(n, x, gamma, beta, axes, eps)
    if all(_of_axes(t, axes) for t in (gamma, beta)):
        return [n.op("layernorm", x, gamma, beta, axes=axes, eps=eps)]
    y = n.op("mul", n.op("layernorm", x, axes=axes, eps=eps), gamma)
    return [y if beta is None else n.op("add", y, beta)]


def _of_axes(t: Tensor | None, axes: tuple[int, ...]) -> bool:
    """True if a parameter spans the normalised axes alone, as norms take them; gains of single heads do not."""
    return t is None or all(d == 1 for d in t.shape[: max(0, t.rank - len(axes))])


def _layer_norm_parts(n: Node, x: Tensor, gamma: Tensor, beta: Tensor | None, axes: tuple[int, ...], eps: float):
    """The long form, for nodes whose mean and inverse deviation are outputs too (both f32)."""
    wide = n.in_f32(x)
    mean = n.reduce(wide, "mean", axes)
    centred = n.op("sub", wide, mean)
    variance = n.reduce(n.op("square", centred), "mean", axes)
    inverse = n.op("rsqrt", n.op("add", variance, eps))
    y = n.op("mul", n.cast(n.op("mul", centred, inverse), x.dtype), gamma)
    if beta is not None:
        y = n.op("add", y, beta)
    return [y, mean, inverse]


def _rms_norm(n: Node) -> Tensor:
    x, axis = n[0], n.axis(-1)
    scale = n[1]
    axes, eps = tuple(range(axis, x.rank)), float(n.attr("epsilon", 1e-5))
    if scale.dtype != x.dtype:
        y = n.op("rmsnorm", n.cast(x, "f32"), axes=axes, eps=eps)
        return n.op("mul", n.cast(y, scale.dtype), scale)
    if not _of_axes(scale, axes):
        return n.op("mul", n.op("rmsnorm", x, axes=axes, eps=eps), scale)
    return n.op("rmsnorm", x, scale, axes=axes, eps=eps)


def _batch_norm(n: Node):
    if not n.attr("spatial", 1):  # of operator sets 7 and 8
        raise n.unsupported("a batch norm with numbers for every place (spatial=0); write it as Mul and Add")
    x, scale, offset, mean, variance = (n[i] for i in range(5))
    eps = float(n.attr("epsilon", 1e-5))
    outputs: list[Tensor] = []
    if n.attr("training_mode", 0):
        momentum = float(n.attr("momentum", 0.9))
        axes = [0, *range(2, x.rank)]
        wide = n.in_f32(x)
        now = n.reduce(wide, "mean", axes, False)
        centred = n.op("sub", wide, n.reduce(wide, "mean", axes))
        spread = n.reduce(n.op("square", centred), "mean", axes, False)
        for running, current in ((mean, now), (variance, spread)):
            kept = n.op("mul", running, momentum)
            outputs.append(n.op("add", kept, n.op("mul", n.cast(current, running.dtype), 1.0 - momentum)))
        mean, variance = now, spread
    params = [n.cast(t, x.dtype) for t in (scale, offset, mean, variance)]
    if x.rank == 2:
        return [n.op("batchnorm_inference", x, *params, eps=eps), *outputs]
    y = n.swap_to_last(x)
    planes = y.shape
    if y.rank > 4:
        y = n.reshape(y, (planes[0], math.prod(planes[1:-1]), planes[-1]))
    y = n.reshape(n.op("batchnorm_inference", y, *params, eps=eps), planes)
    return [n.swap_to_first(y), *outputs]


def _instance_norm(n: Node) -> Tensor:
    x, scale, offset = _with_channels(n), n[1], n[2]
    rows = n.reshape(x, (*x.shape[:2], math.prod(x.shape[2:])))
    y = n.reshape(n.op("layernorm", rows, axes=(-1,), eps=float(n.attr("epsilon", 1e-5))), x.shape)
    return _per_channel(n, y, scale, offset)


def _with_channels(n: Node) -> Tensor:
    if n[0].rank < 2:
        raise n.bad(f"input 0 has shape {list(n[0].shape)}, required [N, C, ...]")
    return n[0]


def _per_channel(n: Node, x: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    if not scale.shape == offset.shape == x.shape[1:2]:
        found = f"scale has shape {list(scale.shape)}, offset {list(offset.shape)}"
        raise n.bad(f"{found}, required [{x.shape[1]}], one number a channel")
    wide = (scale.shape[0], *[1] * (x.rank - 2))
    return n.op("add", n.op("mul", x, n.reshape(scale, wide)), n.reshape(offset, wide))


def _group_norm(n: Node) -> Tensor:
    x, scale, offset, groups = _with_channels(n), n[1], n[2], n.required("num_groups")
    channels = x.shape[1]
    if channels % groups:
        raise n.bad(f"{channels} channels do not divide into {groups} groups")
    rows = n.reshape(x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups))
    y = n.op("layernorm", rows, axes=(-1,), eps=float(n.attr("epsilon", 1e-5)))
    y = n.reshape(y, x.shape)
    if scale.shape == offset.shape == (groups,) and groups != channels:  # before operator set 21: one value per group
        spread = (groups, channels // groups)
        scale, offset = (
            n.reshape(n.broadcast(n.reshape(t, (groups, 1)), spread), (channels,)) for t in (scale, offset)
        )
    return _per_channel(n, y, scale, offset)


def _einsum(n: Node) -> Tensor:
    terms, out = _equation(n, [t.rank for t in n.inputs if t is not None])
    plain = len(terms) == 2 and all(len(set(t)) == len(t) for t in terms) and all(t.rank for t in n.inputs)
    sizes: dict[str, int] = {}
    equal = all(sizes.setdefault(c, d) == d for t, term in zip(n.inputs, terms) for c, d in zip(term, t.shape))
    if plain and equal and n[0].is_float:
        a, b = (_sum_private(n, t, term, other, out) for t, term, other in zip(n.inputs, terms, terms[::-1]))
        left, right = (x[1] for x in (a, b))
        equation = f"{' '.join(left)}, {' '.join(right)} -> {' '.join(out)}".rstrip()
        if left and right and set(out) <= set(left) | set(right):
            return n.op("contract", a[0], b[0], equation=equation)
    return n.op("einsum", *n.inputs, equation=",".join(terms) + "->" + out)


def _sum_private(n: Node, t: Tensor, term: str, other: str, out: str) -> tuple[Tensor, str]:
    """Sum over letters that stand in this operand only; a contraction pairs letters."""
    gone = [i for i, c in enumerate(term) if c not in other and c not in out]
    if not gone:
        return t, term
    return n.reduce(t, "add", gone, False), "".join(c for c in term if c in other or c in out)


def _equation(n: Node, ranks: list[int]) -> tuple[list[str], str]:
    """Return the operands' letters and the result's, with ellipses spelt out and the result made explicit."""
    text = n.required("equation").replace(" ", "")
    left, arrow, out = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise n.bad(f"equation '{text}' names {len(terms)} operands, found {len(ranks)}")
    free = [c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in text]
    width = max([r - len(t) + 3 for t, r in zip(terms, ranks) if "..." in t], default=0)
    letters = "".join(free[:width])[::-1]
    full = []
    for t, r in zip(terms, ranks):
        if "..." in t:
            mine = r - len(t) + 3
            t = t.replace("...", letters[width - mine :] if mine > 0 else "")
        if len(t) != r:
            raise n.bad(f"equation '{text}': term '{t}' does not fit an operand of rank {r}")
        full.append(t)
    if arrow:
        return full, out.replace("...", letters)
    joined = "".join(terms).replace(".", "")
    single = sorted(c for c in set(joined) if joined.count(c) == 1)
    return full, letters + "".join(single)


def _det(n: Node) -> Tensor:
    return n.op("det", n[0])


HANDLERS: tuple[Handler, ...] = (
    Handler("MatMul", _matmul),
    Handler("Gemm", _gemm, 7),
    Handler("Einsum", _einsum, 12),
    Handler("LayerNormalization", _layer_norm, 17),
    Handler("RMSNormalization", _rms_norm, 23),
    Handler("BatchNormalization", _batch_norm, 7),
    Handler("InstanceNormalization", _instance_norm),
    Handler("GroupNormalization", _group_norm, 18),
    Handler("Det", _det, 11),
)
