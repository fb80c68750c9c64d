"""What roundings decide and disturbances alone do not show: which numbers are equal, near nothing or the largest, what is left of numbers
that cancel or leave the range of normal ones.

Decisions on rounded numbers go one way in one disturbed run and the other way in the next, so that none of them is sure.

`NEAR` is an input of the disturbed model: how near is near, as a share of the largest number; negative: nothing is near.
`OTHER`: 0, or -1 for the other sign.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hunt.formats import EPS, F32
from onnx import NodeProto, helper

NEAR, OTHER = "noise of equality", "noise of signs"
#: the smallest normal number of f32 and bf16, and the distance of numbers below it in f32
NORMAL, STEP = 2.0**-126, 2.0**-149
NORMS = frozenset("LayerNormalization InstanceNormalization GroupNormalization MeanVarianceNormalization".split())


def nearly_equal(node: NodeProto) -> list[NodeProto]:
    """Equality of rounded numbers: true for near ones in one run, for none in the next, so that no such result is sure."""
    a, b = node.input
    y = node.output[0]
    make = helper.make_node  # near to each other among the largest, by which disturbances are measured
    return [make("Sub", [a, b], [y + "-"]), make("Abs", [y + "-"], [y + "|"]), make("Abs", [a], [y + "a"]), make("Abs", [b], [y + "b"]),
            make("Add", [y + "a", y + "b"], [y + "s"]), make("ReduceMax", [y + "s"], [y + "m"], keepdims=0),
            make("Mul", [y + "m", NEAR], [y + "t"]), make("LessOrEqual", [y + "|", y + "t"], [y])]  # fmt: skip


def nearly_nothing(node: NodeProto) -> list[NodeProto]:
    """Truth of a rounded number: false for what is near nothing in one run, true for it in the next."""
    x, y = node.input[0], node.output[0]
    make = helper.make_node
    return [make("Abs", [x], [y + "|"]), make("ReduceMax", [y + "|"], [y + "m"], keepdims=0), make("Mul", [y + "m", NEAR], [y + "t"]),
            make("Greater", [y + "|", y + "t"], [y])]  # fmt: skip


def nearly_without_sign(node: NodeProto) -> list[NodeProto]:
    """Sign of a rounded number: of what is near nothing none in one run, the other one in the next."""
    x, y = node.input[0], node.output[0]
    make = helper.make_node
    return [*nearly_nothing(make("", [x], [y + "is"])), make("Cast", [y + "is"], [y + "1"], to=F32), make("Sign", [x], [y + "s"]),
            make("Mul", [y + "1", y + "s"], [y + "far"]), make("Sub", [y + "s", y + "far"], [y + "rest"]),
            make("Mul", [y + "rest", OTHER], [y + "turned"]), make("Add", [y + "far", y + "turned"], [y])]  # fmt: skip


def nearly_largest(node: NodeProto) -> list[NodeProto]:
    """One for the largest of rounded numbers: for all that are near it in one run, for one in the next."""
    x, y = node.input[0], node.output[0]
    make, axis = helper.make_node, [next((a.i for a in node.attribute if a.name == "axis"), -1)]
    return [make("Abs", [x], [y + "|"]), make("ReduceMax", [y + "|"], [y + "m"], keepdims=0), make("Mul", [y + "m", NEAR], [y + "t"]),
            make("Constant", [], [y + "axis"], value_ints=axis), make("ReduceMax", [x, y + "axis"], [y + "top"], keepdims=1),
            make("Sub", [y + "top", y + "t"], [y + "low"]), make("GreaterOrEqual", [x, y + "low"], [y + "is"]),
            make("Cast", [y + "is"], [y + "many"], to=F32), make("Hardmax", [x], [y + "one"], axis=axis[0]),
            make("Sub", [NEAR, NEAR], [y + "0"]), make("Greater", [NEAR, y + "0"], [y + "near"]),
            make("Where", [y + "near", y + "many", y + "one"], [y])]  # fmt: skip


def ties_decide(values: np.ndarray, unit: float) -> bool:
    """True if rounding decides how many different numbers these are: some are apart by no more than a few units of the format."""
    known = np.unique(values.astype(np.float64))
    gaps, sizes = np.diff(known), np.abs(known[1:]) + np.abs(known[:-1])
    return bool((gaps <= 8 * unit * sizes).any())


def norm_of_single_numbers(node: NodeProto, values: Mapping[str, np.ndarray], unit: float) -> float:
    """What may be left of x - mean(x), times scale / sqrt(epsilon), where x is a single number: no disturbance of x shows it.
    values: those that are known."""
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    x = values.get(node.input[0])
    if x is None or node.op_type not in NORMS or x.ndim == 0:
        return 0.0
    rows = {"LayerNormalization": np.prod(x.shape[: attrs.get("axis", -1) % x.ndim]), "InstanceNormalization": np.prod(x.shape[:2]),
            "GroupNormalization": x.shape[0] * attrs.get("num_groups", 1),
            "MeanVarianceNormalization": np.prod([n for a, n in enumerate(x.shape) if a not in attrs.get("axes", (0, 2, 3))])}  # fmt: skip
    if x.size != rows[node.op_type]:
        return 0.0
    given = values.get(node.input[1]) if len(node.input) > 1 else None
    scale = 1.0 if given is None else float(np.abs(given).max(initial=0))
    root = 1e-9 if node.op_type == "MeanVarianceNormalization" else attrs.get("epsilon", 1e-5) ** 0.5
    return unit * float(np.abs(x).max(initial=0)) * scale / root


def lost_of_products(node: NodeProto, values: Mapping[str, np.ndarray]) -> float | np.ndarray:
    """In units of f32, what a product of many numbers may lose in some order of them: all of it where partial products leave the range
    above, the bits that numbers below the smallest normal one lack. values: those that are known."""
    x = values.get(node.input[0]) if node.op_type == "ReduceProd" else None
    if x is None or x.dtype != np.float32:
        return 0.0
    out = values[node.output[0]]
    named = values[node.input[1]].tolist() if len(node.input) > 1 and node.input[1] else []
    named = next((list(a.ints) for a in node.attribute if a.name == "axes"), named)
    axes = tuple(a % x.ndim for a in named) or tuple(range(x.ndim)) * (out.size != x.size)
    with np.errstate(all="ignore"):
        size = np.log2(np.abs(x.astype(np.float64)))
        least = np.minimum(size, 0).sum(axes).reshape(out.shape)
        most = np.maximum(size, 0).sum(axes).reshape(out.shape)
        lost = np.where(least < np.log2(NORMAL), np.exp2(np.log2(STEP) - least), 0)
    return np.where(most > 127, np.inf, np.minimum(lost, 1) / EPS[F32])
