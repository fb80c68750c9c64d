"""Evaluate an imported graph in float64, op by op, without the product's own routines."""

from __future__ import annotations

import math

import numpy as np


def evaluate(program, inputs: dict[str, np.ndarray], step=None) -> dict[str, np.ndarray]:
    """Run function `main` of an IR program; inputs and results by their names.

    `step(op, arrays) -> [array]` replaces the functions below; weights then keep their own format.
    """
    main = next(op for op in program.module.body if op.kind == "func" and op.attrs["sym_name"] == "main")
    env = {}
    for value, name in zip(main.body.args, main.attrs["arg_names"], strict=True):
        assert inputs[name].shape == value.shape, name
        env[value] = inputs[name]
    for op in main.body:
        args = [env[v] for v in op.operands if v in env]
        if op.kind == "return":
            return dict(zip(main.attrs["result_names"], args, strict=True))
        if op.kind == "get_param":
            result = program.weights.view(op.attrs["key"])
            if step is None and result.dtype.kind not in "iub":
                result = result.astype(np.float64)
        elif step is not None:
            (result,) = step(op, args)
        else:
            result = getattr(Ops, op.kind)(*args, **_attrs(op))
        assert result.shape == op.result.shape, (op, result.shape, op.result.shape)
        env[op.result] = result
    raise ValueError("main has no return")


def _attrs(op):
    return {k: v for k, v in op.attrs.items() if k not in ("layout_str", "mem_layout", "useful_macs")}


class Ops:
    """One function per op kind: operands, then attributes by name."""

    @staticmethod
    def embedding(table, ids):
        return table[ids]

    @staticmethod
    def gemm(a, b, bias=0.0, *, trans_a, trans_b, act):
        a = np.swapaxes(a, -1, -2) if trans_a else a
        return np.matmul(a, np.swapaxes(b, -1, -2) if trans_b else b) + bias

    @staticmethod
    def rmsnorm(x, gamma, *, axes, eps, heads):
        own = x.reshape(*x.shape[:-1], heads, -1) if heads > 1 else x
        return (own / np.sqrt(np.mean(np.square(own), axis=tuple(axes), keepdims=True) + eps) * gamma).reshape(x.shape)

    @staticmethod
    def reshape(x, *, shape):
        return x.reshape(shape)

    @staticmethod
    def rope(x, cos, sin, *, heads, style, rotary_dim):
        width = x.shape[-1] // heads
        y = x.reshape(*x.shape[:-1], heads, width)
        r = width if rotary_dim < 0 else rotary_dim
        partner = [(j + r // 2) % r if j < r else j for j in range(width)]
        return (y * cos[:, None, :] + y[..., partner] * sin[:, None, :]).reshape(x.shape)

    @staticmethod
    def contract(a, b, *, equation, sizes):
        size = dict(zip(sizes[0::2], sizes[1::2], strict=True))
        left, right = equation.split("->")
        specs = [_axes(s) for s in left.split(",")]
        arrays = []
        for array, spec in zip((a, b), specs, strict=True):
            for names, n in zip(spec, array.shape, strict=True):
                if len(names) == 1:
                    assert size.setdefault(names[0], n) == n
            arrays.append(array.reshape([size[n] for names in spec for n in names]))
        out = _axes(right)
        flat = ["".join(n for names in s for n in names) for s in (*specs, out)]
        result = np.einsum(f"{flat[0]},{flat[1]}->{flat[2]}", *arrays)
        return result.reshape([math.prod(size[n] for n in names) for names in out])

    @staticmethod
    def softmax(x, mask=0.0, *, axis, scale, log, visible=()):
        z = x * scale + mask
        e = np.exp(z - z.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    @staticmethod
    def add(a, b):
        return a + b

    @staticmethod
    def sub(a, b):
        return a - b

    @staticmethod
    def le(a, b):
        return a <= b

    @staticmethod
    def gt(a, b):
        return a > b

    and_ = staticmethod(np.logical_and)

    @staticmethod
    def select(pred, a, b):
        return np.where(pred, a, b)

    @staticmethod
    def swiglu(gate, up, *, act):
        if act == "silu":
            return gate / (1 + np.exp(-gate)) * up
        erf = np.vectorize(math.erf)(gate / math.sqrt(2))
        tanh = np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))
        return 0.5 * gate * (1 + {"gelu": erf, "gelu_tanh": tanh}[act]) * up

    @staticmethod
    def kv_update(cache, new, position, *, axis):
        result = cache.copy()
        index = [slice(None)] * cache.ndim
        index[axis] = slice(int(position[0]), int(position[0]) + new.shape[axis])
        result[tuple(index)] = new
        return result

    @staticmethod
    def slice(x, *, start, size, step):
        return x[tuple(slice(a, a + n * s, s) for a, n, s in zip(start, size, step, strict=True))]

    @staticmethod
    def convert(x, *, dtype):
        return x


setattr(Ops, "and", Ops.and_)


def _axes(text: str) -> list[list[str]]:
    """ "b s (h g d)" -> [["b"], ["s"], ["h", "g", "d"]]."""
    groups: list[list[str]] = []
    inside = False
    for token in text.replace("(", " ( ").replace(")", " ) ").split():
        if token in "()":
            inside = token == "("
            if inside:
                groups.append([])
        elif inside:
            groups[-1].append(token)
        else:
            groups.append([token])
    return groups
