"""Softmax of rows with special values, alone and behind a product, in every format at every level: NaN where the definition says NaN, and
nowhere else."""

from __future__ import annotations

from itertools import pairwise, product

import ml_dtypes
import numpy as np
import onnx
import pytest
from frontend.onnx.onnx_build import BOOL, info, model, node

import tx8fast

FORMATS = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp16": np.float16}
ROWS, WIDE, DEEP = 12, 70, 24
INF, LOWEST = np.inf, float(np.finfo(np.float32).min)


def rows() -> np.ndarray:
    """Rows of one special value, of several, and of plain numbers."""
    x = np.random.default_rng(0).standard_normal((ROWS, WIDE)).astype(np.float32)
    x[1], x[2], x[3], x[4] = -INF, np.nan, INF, LOWEST
    x[5, ::2], x[6, 3], x[7, 5] = -INF, np.nan, INF
    x[8, 4], x[8, 7], x[9, 1:] = INF, -INF, -INF
    x[10], x[11] = -LOWEST, 3.3962e38
    return x


def softmax(x: np.ndarray, log: bool) -> np.ndarray:
    with np.errstate(all="ignore"):
        z = x.astype(np.float64) - x.astype(np.float64).max(-1, keepdims=True)
        whole = np.exp(z).sum(-1, keepdims=True)
        return z - np.log(whole) if log else np.exp(z) / whole


def same(found: np.ndarray, wanted: np.ndarray, dtype: str) -> bool:
    found = found.astype(np.float64)
    size = {"fp32": 1e-5, "bf16": 2e-2, "fp16": 2e-3}[dtype]
    with np.errstate(invalid="ignore"):
        near = np.abs(found - wanted) <= size * np.maximum(1, np.abs(wanted))
    return bool((near | (found == wanted) | (np.isnan(found) & np.isnan(wanted))).all())


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.slow(but_every=5)
def test_special_rows(tmp_path, dtype, log, behind):
    x, kind = rows(), FORMATS[dtype]
    with np.errstate(over="ignore"):
        wanted = softmax(x.astype(kind), log)
    if behind:
        wanted[[4, 10, 11]] = softmax(np.zeros((1, WIDE)), log)  # what a model is given to hide with stays a number
    feeds = {"x": x}
    steps, name = [], "x"
    if behind:  # a product that the rows are added to: its numbers vanish beside those that matter, and are 0 elsewhere
        feeds["a"] = np.zeros((ROWS, DEEP), np.float32)
        steps, name = [node("MatMul", "a w", "p"), node("Add", "p x", "s")], "s"
    steps.append(node("LogSoftmax" if log else "Softmax", name, "y", axis=-1))
    weights = {"w": np.ones((DEEP, WIDE), np.float32)} if behind else {}
    path = tmp_path / "m.onnx"
    onnx.save(model(steps, [info(n, a.shape) for n, a in feeds.items()], [info("y", x.shape)], weights), path)
    for opt in (1, 2, 3):
        found = tx8fast.compile(path, opt=opt, dtype=dtype).run(feeds)["y"]
        assert same(found, wanted, dtype), (opt, [r for r in range(ROWS) if not same(found[r], wanted[r], dtype)])


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("way", "low"), [
    *product(["bias mask", "mask seen"], [LOWEST, -1e9, -INF]), *product(["computed"], [LOWEST, -1e9]),
])  # fmt: skip
@pytest.mark.slow(but_every=5)
def test_a_mask_hides_in_every_format(tmp_path, dtype, way, low):
    """A mask in f32 per item, given or computed: rows of which it hides everything have equal shares where the model says so, and the product behind the
    softmax has no NaN of theirs."""
    rng = np.random.default_rng(2)
    a, v = (rng.standard_normal((2, 3, ROWS, n)).astype(np.float32) for n in (DEEP, ROWS))
    keys, bias = (rng.standard_normal(n).astype(np.float32) for n in ((2, 3, DEEP, ROWS), (1, 3, ROWS, ROWS)))
    hidden = (
        np.triu(np.ones((ROWS, ROWS), bool), 1)[None, None] | (np.arange(ROWS) < np.array([[0], [5]]))[:, None, None]
    )
    seen = rng.random((2, 1, ROWS, ROWS)) < 0.8
    mask = np.where(hidden, low, 0).astype(np.float32)
    if way == "computed":  # (1 - attention_mask) * low, and the least of that and a triangle
        feeds = {"there": (np.arange(ROWS) >= np.array([[0], [5]])).astype(np.int64)[:, None, None]}
        steps = [
            node("Cast", "there", "f", to=1),
            node("Sub", "one f", "g"),
            node("Mul", "g low", "h"),
            node("Min", "h above", "m"),
        ]
    elif way == "mask seen":
        mask, feeds = np.full_like(mask, low), {"seen": seen & ~hidden}
        steps, hidden = [node("Where", "seen zero mask", "m")], hidden | ~seen
    else:
        feeds, steps = {}, [node("Identity", "mask", "m")]
    feeds |= (
        {"a": a, "keys": keys, "v": v}
        | ({"mask": mask} if way != "computed" else {})
        | ({"bias": bias} if "bias" in way else {})
    )
    steps += [
        node("MatMul", "a keys", "p"),
        node("Add", "p bias" if "bias" in way else "p zero", "s"),
        node("Add", "s m", "t"),
    ]
    steps += [node("Softmax", "t", "q", axis=-1), node("MatMul", "q v", "y")]
    score = a.astype(np.float64) @ keys + (bias if "bias" in way else 0)
    shares = softmax(np.where(hidden, -INF, score), False)
    if low > -INF:
        shares = np.where(hidden.all(-1, keepdims=True), 1 / ROWS, shares)
    wanted = shares @ v
    ins = [info(n, x.shape, {"b": BOOL, "i": 7}.get(x.dtype.kind, 1)) for n, x in feeds.items()]
    constants = {
        "zero": np.zeros(()),
        "one": np.ones(()),
        "low": np.array(low),
        "above": np.triu(np.full((ROWS, ROWS), low), 1),
    }
    used = {n: c.astype(np.float32) for n, c in constants.items() if any(n in s.input for s in steps)}
    path = tmp_path / "m.onnx"
    onnx.save(model(steps, ins, [info("y", wanted.shape)], used), path)
    for opt in (1, 2, 3):
        found = tx8fast.compile(path, opt=opt, dtype=dtype).run(feeds)["y"].astype(np.float64)
        size = {"fp32": 1e-4, "bf16": 0.15, "fp16": 0.02}[dtype]
        assert (np.isnan(found) == np.isnan(wanted)).all() and np.nanmax(np.abs(found - wanted)) < size


@pytest.mark.parametrize("low", [float(ml_dtypes.finfo(ml_dtypes.bfloat16).min), -1e9, -INF])
@pytest.mark.parametrize("meets", [False, True])
@pytest.mark.slow
def test_a_mask_in_bf16_hides_in_f16(tmp_path, meets, low):
    """bf16 has no number as large as f16's largest one: what hides must not become infinite on the way."""
    rng, kind = np.random.default_rng(4), FORMATS["bf16"]
    hidden = np.triu(np.ones((ROWS, ROWS), bool), 1) | (np.arange(ROWS) < 5)
    feeds = {"x": rng.standard_normal((ROWS, ROWS)).astype(kind), "mask": np.where(hidden, low, 0).astype(kind)}
    steps = [node("MatMul", "x x", "p")] if meets else []
    steps += [node("Add", ("p" if meets else "x") + " mask", "t"), node("Softmax", "t", "y", axis=-1)]
    ins = [info(n, a.shape, 16) for n, a in feeds.items()]
    onnx.save(model(steps, ins, [info("y", (ROWS, ROWS), 16)], {}), tmp_path / "m.onnx")
    x = feeds["x"].astype(np.float64)
    shares = softmax(np.where(hidden, -INF, x @ x if meets else x), False)
    wanted = np.where(hidden.all(-1, keepdims=True), 1 / ROWS if low > -INF else np.nan, shares)
    for opt in (1, 2, 3):
        compiled = tx8fast.compile(tmp_path / "m.onnx", opt=opt, dtype="fp16")
        assert not compiled.program.meta["kernel_core"]
        found = compiled.run(feeds)["y"].astype(np.float64)
        judged = ~hidden.all(-1) | (not meets)  # a softmax that adds a mask itself: docs/simulators.md
        assert (np.isnan(found) == np.isnan(wanted)).all() and np.nanmax(np.abs(found - wanted)[judged]) < 0.02
        report = tx8fast.api.prove(compiled.program, tmp_path / "m.onnx")
        assert report.proved, "\n".join(report.lines())


CHOICES = {
    "one choice": (["Where seen x low s"], 1),
    "two choices": (["Where seen x low t", "Where also t low s"], 2),
    "a choice, scaled": (["Where seen x low t", "Mul t half s"], 1),
    "least of both": (["Where seen high low t", "Min x t s"], 1),
    "given": (["Add given half s"], 0),
}


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.slow(but_every=4)
def test_a_guard_stays_where_a_row_may_see_nothing(tmp_path, dtype, choice):
    """where(isnan(p), 0, p) behind a softmax: rows that see nothing are 0, whatever hides them."""
    rng = np.random.default_rng(1)
    seen, also = (rng.random((ROWS, WIDE)) < 0.7 for _ in range(2))
    seen[3], also[5], seen[8, :-1] = False, False, False
    x = rng.standard_normal((ROWS, WIDE)).astype(np.float32)
    words, masks = CHOICES[choice]
    feeds = {"x": x, "seen": seen, "also": also, "given": np.where(seen & also, x, -INF).astype(np.float32)}
    hidden = {0: ~(seen & also), 1: ~seen, 2: ~(seen & also)}[masks]
    steps = [node(op, " ".join(ins), out) for op, *ins, out in (w.split() for w in words)]
    steps += [node("Softmax", "s", "p", axis=-1), node("IsNaN", "p", "n"), node("Where", "n zero p", "y")]
    used = {n for s in steps for n in s.input}
    feeds = {n: a for n, a in feeds.items() if n in used}
    weights = {"low": -INF, "half": 0.5, "zero": 0.0, "high": 1e30}
    ins = [info(n, a.shape, BOOL if a.dtype == bool else 1) for n, a in feeds.items()]
    constants = {n: np.array(v, np.float32) for n, v in weights.items() if n in used}
    path = tmp_path / "m.onnx"
    onnx.save(model(steps, ins, [info("y", x.shape)], constants), path)
    score = {"a choice, scaled": x * 0.5, "given": x + 0.5}.get(choice, x)
    wanted = np.nan_to_num(softmax(np.where(hidden, -INF, score), False))
    assert not wanted[3].any() and wanted[0].any()
    results = [tx8fast.compile(path, opt=opt, dtype=dtype).run(feeds)["y"] for opt in (1, 2, 3)]
    assert all(same(found, wanted, dtype) for found in results)
    assert all(same(a, b.astype(np.float64), dtype) for a, b in pairwise(results))
