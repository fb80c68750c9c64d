"""What roundings decide and disturbances alone do not show: which numbers are the largest, how many differ, what is left of numbers
that cancel or leave the range of normal ones.

`NEAR` is an input of the disturbed model: how near is near, as a share of the largest number; negative: nothing is near.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from hunt.formats import F32
from onnx import NodeProto, helper

NEAR = "noise of equality"
#: the smallest normal number of f32 and bf16, and the distance of numbers below it in f32
NORMAL, STEP = 2.0**-126, 2.0**-149
SKIPS = "SkipLayerNormalization"  # normalises the sum of its operands
WINNERS = 3  # in disturbed runs, from which on any number of a row may be its largest
NORMS = frozenset(
    f"LayerNormalization InstanceNormalization GroupNormalization MeanVarianceNormalization {SKIPS}".split()
)


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


def nearly_chosen(node: NodeProto) -> list[NodeProto]:
    """One for where the largest or smallest of rounded numbers is: the first of all that a step of each may make equal in one run, that of
    the model in the next. Several equal ones hardly come of drawn steps."""
    x, y, least = node.input[0], node.output[0], node.op_type == "ArgMin"
    attrs = {a.name: a.i for a in node.attribute}
    make, best = helper.make_node, "ReduceMin" if least else "ReduceMax"
    chosen = make(node.op_type, [x], [y + "one"], **attrs)
    return [make("Abs", [x], [y + "|"]), make("ReduceMax", [y + "|"], [y + "m"], keepdims=0),
            make("Constant", [], [y + "part"], value_float=0.25), make("Mul", [NEAR, y + "part"], [y + "step"]),
            make("Mul", [y + "m", y + "step"], [y + "t"]), make("Constant", [], [y + "axis"], value_ints=[attrs.get("axis", 0)]),
            make(best, [x, y + "axis"], [y + "top"], keepdims=1), make("Add" if least else "Sub", [y + "top", y + "t"], [y + "low"]),
            make("LessOrEqual" if least else "GreaterOrEqual", [x, y + "low"], [y + "is"]), make("Cast", [y + "is"], [y + "many"], to=F32),
            make("ArgMax", [y + "many"], [y + "first"], **attrs), chosen, make("Sub", [NEAR, NEAR], [y + "0"]),
            make("Greater", [NEAR, y + "0"], [y + "near"]), make("Where", [y + "near", y + "first", y + "one"], [y])]  # fmt: skip


def choice(node: NodeProto, values: Mapping[str, np.ndarray]) -> list[NodeProto]:
    """Return what stands for an op that chooses among rounded numbers, nothing for another one. values: those that are known."""
    made = {"Hardmax": nearly_largest, "ArgMax": nearly_chosen, "ArgMin": nearly_chosen}.get(node.op_type)
    return made(node) if made and values[node.input[0]].dtype.kind == "f" else []


def exponent(node: NodeProto) -> float:
    """Return the power whose sum an op takes the root of."""
    return float(next((a.i for a in node.attribute if a.name == "p"), 2)) or 1.0


def nothing_in(node: NodeProto, values: Mapping[str, np.ndarray], operand: int | None, smallest: float) -> bool:
    """True for an op that must not be given nothing there, and is given a number that a format whose least one is `smallest` takes for it:
    no disturbance shows what is read as nothing at once. values: those that are known."""
    given = values.get(node.input[operand]) if operand is not None else None
    return (
        given is not None and given.dtype.kind == "f" and bool(((given != 0) & (np.abs(given) <= smallest / 2)).any())
    )


def scores_above(limit: float, node: NodeProto, values: Mapping[str, np.ndarray]) -> bool:
    """True for attention of which some score may be above a limit; values: those that are known."""
    if not node.op_type.endswith("Attention"):
        return False
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    given = [values[n].astype(np.float64) if n in values else None for n in [*node.input, "", ""][:3]]
    if node.op_type == "Attention" and node.domain:  # makes its queries and keys itself
        x, w, b = given
        if x is None or w is None:
            return False
        given = np.split(x @ w + (0 if b is None else b), 3, axis=-1)
    q, k = given[0], given[1] if given[1] is not None else given[0]
    if q is None or k is None or not q.size or not k.size:
        return False
    heads = attrs.get("num_heads", attrs.get("q_num_heads", 1))
    if q.ndim == 3 and k.ndim == 3 and q.shape[-1] % heads == 0 and k.shape[-1] % (q.shape[-1] // heads) == 0:
        depth = q.shape[-1] // heads
        q, k = (t.reshape(*t.shape[:2], -1, depth).transpose(0, 2, 1, 3) for t in (q, k))
    if q.ndim != 4 or k.ndim != 4 or q.shape[1] % k.shape[1]:
        return False
    scores = q @ np.repeat(k, q.shape[1] // k.shape[1], axis=1).swapaxes(2, 3)
    return bool(np.abs(scores).max() * (attrs.get("scale", 0) or q.shape[-1] ** -0.5) > limit)


def any_may_win(node: NodeProto, runs: Sequence[np.ndarray]) -> np.ndarray:
    """True for ones that may stand anywhere in their row, and for its zeros: of disturbed runs several have different winners there, so
    that more runs would have further ones. runs: the node's result in each."""
    axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
    alone = [
        (run > 0) & (run.sum(axis=axis, keepdims=True) == 1) for run in runs
    ]  # in others all that are near have won
    won = np.any(alone, axis=0).sum(axis=axis, keepdims=True)
    return np.broadcast_to(won >= WINNERS, runs[0].shape)


def ties_decide(values: np.ndarray, unit: float) -> bool:
    """True if rounding decides how many different numbers these are: some are apart by no more than a few units of the format."""
    known = np.unique(values.astype(np.float64))
    gaps, sizes = np.diff(known), np.abs(known[1:]) + np.abs(known[:-1])
    return bool((gaps <= 8 * unit * sizes).any())


def norm_of_single_numbers(node: NodeProto, values: Mapping[str, np.ndarray], unit: float) -> float:
    """What may be left of x - mean(x), times scale / sqrt(epsilon), where x is a single number: no disturbance of x shows it.
    values: those that are known."""
    x, named = _normed(node, values)
    if terms_of_norm(node, values) != 1.0 or x is None:
        return 0.0
    given = values.get(named[0])
    scale = 1.0 if given is None else float(np.abs(given).max(initial=0))
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    root = 1e-9 if node.op_type == "MeanVarianceNormalization" else _epsilon(node, attrs) ** 0.5
    return unit * float(np.abs(x).max(initial=0)) * scale / root


def terms_of_norm(node: NodeProto, values: Mapping[str, np.ndarray]) -> float:
    """Return how many numbers a norm takes the mean of; 0 of other ops, or where that is not known. values: those that are known."""
    x, _ = _normed(node, values)
    if x is None or node.op_type not in NORMS or x.ndim == 0:
        return 0.0
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    rows = {"LayerNormalization": np.prod(x.shape[: attrs.get("axis", -1) % x.ndim]), "InstanceNormalization": np.prod(x.shape[:2]),
            SKIPS: np.prod(x.shape[:-1]),
            "GroupNormalization": x.shape[0] * attrs.get("num_groups", 1),
            "MeanVarianceNormalization": np.prod([n for a, n in enumerate(x.shape) if a not in attrs.get("axes", (0, 2, 3))])}  # fmt: skip
    return x.size / max(1.0, float(rows[node.op_type]))


def sizes_in_norm(node: NodeProto, values: Mapping[str, np.ndarray]) -> float | np.ndarray:
    """Return the size of what a norm adds, scale * (|x| + |mean|) / deviation + |bias|, where disturbances do not show what roundings
    leave of it: those of many x cancel in their mean, and nothing disturbs an x of nothing. values: those that are known."""
    x, named = _normed(node, values)
    if x is None or node.op_type not in NORMS or x.ndim < 2:
        return 0.0
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    wide = x.astype(np.float64)
    along = {"LayerNormalization": range(attrs.get("axis", -1) % x.ndim, x.ndim), "InstanceNormalization": range(2, x.ndim),
             "MeanVarianceNormalization": attrs.get("axes", (0, 2, 3)), SKIPS: (x.ndim - 1,)}  # fmt: skip
    if node.op_type == "GroupNormalization":
        groups = wide.reshape(len(wide), attrs["num_groups"], -1)
        channels, shape = x.shape[1] // attrs["num_groups"], (*x.shape[:2], *[1] * (x.ndim - 2))
        mean, variance = (np.repeat(f(groups, axis=2), channels, axis=1).reshape(shape) for f in (np.mean, np.var))
    else:
        mean, variance = (f(wide, axis=tuple(along[node.op_type]), keepdims=True) for f in (np.mean, np.var))
    given = [np.abs(values[n]) if n in values else None for n in named]
    if node.op_type in ("InstanceNormalization", "GroupNormalization"):
        given = [a if a is None else np.repeat(a, x.shape[1] // len(a)).reshape(-1, *[1] * (x.ndim - 2)) for a in given]
    scale, bias = (default if a is None else a for a, default in zip(given, (1.0, 0.0), strict=True))
    return scale * (np.abs(wide) + np.abs(mean)) / np.sqrt(variance + _epsilon(node, attrs)) + bias


def _normed(node: NodeProto, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray | None, list[str]]:
    """Return what a norm normalises, None if it is not known, and the names of its scale and bias."""
    names = [*node.input, *[""] * 5]
    if node.op_type != SKIPS:
        return values.get(names[0]), names[1:3]
    parts = [values.get(n) for n in (names[0], names[1], names[4]) if n]
    known = [p for p in parts if p is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(parts) else None, names[2:4]


def _epsilon(node: NodeProto, attrs: Mapping[str, float]) -> float:
    return attrs.get("epsilon", 1e-12 if node.op_type == SKIPS else 1e-5)


def sizes_in_window(node: NodeProto, values: Mapping[str, np.ndarray]) -> float | np.ndarray:
    """Return what a local response normalisation changes by where its sum of squares is off by the largest square of all channels:
    the reference adds what comes into a window and takes off what leaves it. values: those that are known."""
    x = values.get(node.input[0])
    if node.op_type != "LRN" or x is None:
        return 0.0
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    squares = attrs.get("alpha", 1e-4) / attrs["size"] * np.square(x, dtype=np.float64)
    share = squares.max(axis=1, keepdims=True) / (attrs.get("bias", 1.0) + squares)
    return np.abs(values[node.output[0]]) * attrs.get("beta", 0.75) * share


def lost_of_products(node: NodeProto, values: Mapping[str, np.ndarray]) -> float | np.ndarray:
    """What products of many numbers may lose in some order of them: all where partial products leave the range above, and what numbers
    below the smallest normal one are rounded by times all factors above 1. values: those that are known."""
    x = values.get(node.input[0]) if node.op_type in ("ReduceProd", "CumProd") else None
    if x is None or x.dtype != np.float32:
        return 0.0
    out = values[node.output[0]]
    with np.errstate(all="ignore"):
        size = np.log2(np.abs(x.astype(np.float64)))
    least, most = (
        _of_factors(node, part, values).reshape(out.shape) for part in (np.minimum(size, 0), np.maximum(size, 0))
    )
    lost = np.where((least < np.log2(NORMAL)) & np.isfinite(least), np.exp2(np.log2(STEP) + np.minimum(most, 128)), 0)
    return np.where(most > 127, np.inf, lost)


def _of_factors(node: NodeProto, sizes: np.ndarray, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the sums of the factors' sizes for every product; one that excludes a factor is taken with it."""
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    named = values[node.input[1]].ravel().tolist() if len(node.input) > 1 and node.input[1] else attrs.get("axes", [])
    if node.op_type == "ReduceProd":
        whole = not named and not attrs.get("noop_with_empty_axes", 0)
        return sizes.sum(tuple(range(sizes.ndim)) if whole else tuple(a % sizes.ndim for a in named))
    turned = (lambda a: np.flip(a, int(named[0]))) if attrs.get("reverse", 0) else (lambda a: a)
    return turned(np.cumsum(turned(sizes), int(named[0])))
