"""Routines of the kernel core: the C core gives the bytes of the oracle, and counts the work that the closed forms say."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import pytest
from support.routine_calls import draw
from support.routine_drawn import Drawn
from support.routine_runs import by_core, by_oracle, descriptor

from tx8fast.errors import SimulationError
from tx8fast.host.core import Calls
from tx8fast.isa.routines import CALLS_VERSION, ROUTINES, Work, words_of, work_of
from tx8fast.numerics.routines import ROUTINES as ORACLES

CALLS = int(os.environ.get("TX8FAST_ROUTINE_CALLS", "8"))
#: whose work depends on the data: the closed form is the most it can be
AT_MOST = {"topk", "roi_align", "max_roi_pool", "recurrent"}
#: f64 results of own series; the oracle's functions are within a few units of the last place too
F64_TOLERANCE = 1e-12


def same(got: np.ndarray, want: np.ndarray) -> bool:
    if got.tobytes() == want.tobytes():
        return True
    return got.dtype == np.float64 and np.allclose(got, want, rtol=F64_TOLERANCE, atol=1e-16, equal_nan=True)


def test_words_of_calls_are_those_of_their_version():
    """Files for hosts hold calls as words: whoever changes a routine's number or what it reads, raises CALLS_VERSION."""
    found = hashlib.sha256()
    for name, declared in ROUTINES.items():
        call = draw(name, np.random.default_rng([1, declared.code]))
        found.update(repr([name, *words_of(descriptor(call))]).encode())
    assert (CALLS_VERSION, found.hexdigest()[:16]) == (1, "36c4246025df5c22"), "new draws alone: pin them anew"


def test_every_oracle_is_a_declared_routine():
    assert set(ROUTINES) == set(ORACLES)


@pytest.mark.parametrize("name", list(ROUTINES))
def test_the_core_gives_the_bytes_of_the_oracle(name):
    for seed in range(CALLS):
        call = draw(name, np.random.default_rng([seed, ROUTINES[name].code]))
        blocked = seed % 3 == 2
        got, work = by_core(call, blocked)
        for g, w in zip(got, by_oracle(call), strict=True):
            assert same(g, w), f"seed {seed}: {call}"
        told = work_of(descriptor(call, blocked)).values()
        anywhere = name in AT_MOST or (name == "kv_update" and blocked)
        least = all(a <= b for a, b in zip(work, told, strict=True)) if anywhere else tuple(work) == told
        assert least, f"seed {seed}: {call}: counted {work}, told {told}"


def lstm(steps: int) -> Drawn:
    t, b, i, h = steps, 2, 8, 6
    z = lambda *shape: np.ones(shape, np.float32)  # noqa: E731
    arrays = [
        z(t, b, i),
        z(1, 4 * h, i),
        z(1, 4 * h, h),
        z(1, 8 * h),
        np.full(b, t),
        z(1, b, h),
        z(1, b, h),
        z(1, 3 * h),
    ]
    attrs = {"net": "lstm", "activations": ("Sigmoid", "Tanh", "Tanh"), "clip": 0.0}
    return Drawn("recurrent", arrays, [((t, 1, b, h), "f32"), ((1, b, h), "f32"), ((1, b, h), "f32")], attrs)


def test_sequences_of_full_length_are_counted_to_the_last_product():
    for steps in (1, 4, 9):
        assert tuple(by_core(lstm(steps))[1]) == work_of(descriptor(lstm(steps))).values()
    short, long = (work_of(descriptor(lstm(n))) for n in (4, 100))
    assert 24 < long.functions / short.functions < 26 and 24 < long.ops / short.ops < 26


def test_the_most_of_topk_is_nearly_reached_by_rows_that_get_better():
    """Its work grows with k, in the closed form and in the C code."""
    counted = []
    for k in (1, 4, 16, 64):
        x = np.arange(400, dtype=np.float32).reshape(1, 400)
        call = Drawn("topk", [x], [((1, k), "f32"), ((1, k), "i64")], {"axis": 1, "k": k})
        ops, told = Work(*by_core(call)[1]).ops, work_of(descriptor(call)).ops
        assert 0.6 * told <= ops <= told
        counted.append(ops)
    assert counted == sorted(counted) and counted[-1] > 3 * counted[0]


def test_regions_that_are_the_image_are_counted_to_the_last_element():
    x = np.ones((1, 2, 6, 8), np.float32)
    call = Drawn("roi_align", [x, np.array([[0, 0, 8, 6]], np.float32), np.zeros(1, np.int64)], [((1, 2, 2, 2), "f32")],
                 {"out": (2, 2), "ratio": 0, "mode": "avg", "half_pixel": True, "scale": 1.0})  # fmt: skip
    assert tuple(by_core(call)[1]) == work_of(descriptor(call)).values()


@pytest.mark.parametrize(
    "name", ["add", "exp", "transpose", "concat", "reduce", "softmax", "gather", "gemm", "cumsum", "topk"]
)
def test_tensors_without_elements(name):
    empty = np.zeros((0, 3), np.float32)
    given = {
        "add": ([empty, np.ones(3, np.float32)], [((0, 3), "f32")], {}),
        "exp": ([empty], [((0, 3), "f32")], {}),
        "transpose": ([empty], [((3, 0), "f32")], {"perm": (1, 0)}),
        "concat": ([empty, np.ones((2, 3), np.float32)], [((2, 3), "f32")], {"axis": 0}),
        "reduce": ([empty], [((3,), "f32")], {"op": "add", "axes": (0,), "keepdims": False}),
        "softmax": ([empty], [((0, 3), "f32")], {"axis": 1}),
        "gather": ([np.ones((4, 3), np.float32), np.zeros(0, np.int64)], [((0, 3), "f32")], {"axis": 0}),
        "gemm": ([np.zeros((2, 0), np.float32), empty], [((2, 3), "f32")], {}),
        "cumsum": ([empty], [((0, 3), "f32")], {"axis": 0}),
        "topk": ([empty], [((0, 2), "f32"), ((0, 2), "i64")], {"axis": 1, "k": 2}),
    }[name]
    call = Drawn(name, *given)
    got, work = by_core(call)
    assert all(same(g, w) for g, w in zip(got, by_oracle(call), strict=True))
    assert tuple(work) == work_of(descriptor(call)).values()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (Drawn("gather", [np.ones((4, 3), np.float32), np.array([9, 1])], [((2, 3), "f32")], {"axis": 0}),
         r"gather: 1 indices out of range, first 9, required \[-4, 4\)"),
        (Drawn("kv_update", [np.ones((2, 4), np.float32), np.ones((2, 2), np.float32), np.array([3])], [((2, 4), "f32")], {"axis": 1}),
         r"kv_update: writes \[3, 5\), required within \[0, 4\)"),
        (Drawn("arg_reduce", [np.ones((2, 0), np.float32)], [((2,), "i64")], {"axis": 1, "keepdims": False}),
         "arg_reduce: axis 1 has no elements to choose from"),
        (Drawn("add", [np.ones((2, 3), np.float32), np.ones(2, np.float32)], [((2, 3), "f32")]), "add: operands of"),
        (Drawn("add", [np.ones((2, 3), np.float32), None], [((2, 3), "f32")]), "add: operand 1 is missing"),
        (Drawn("transpose", [np.ones((2, 3), np.float32)], [((3, 2), "f32")], {"perm": (1, 1)}), "transpose: an attribute has 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_says_why(call, text):
    with pytest.raises(SimulationError, match=text):
        by_core(call)


def test_a_damaged_call_is_refused_and_reads_nothing_outside():
    """Every word of a call replaced by strange ones: a refusal or a result, never a crash."""
    from tx8fast import isa
    from tx8fast.host.core import CoreTile
    from tx8fast.machine import DDR_BASE

    rng = np.random.default_rng(0)
    for name in list(ROUTINES)[::4]:
        desc = descriptor(draw(name, rng))
        calls, right = Calls([desc]), words_of(desc)
        for at in rng.integers(0, len(right), 30).tolist():
            calls.words = np.array(right, np.int64)
            calls.words[at] = rng.choice([-1, 0, 3, 99, 1 << 20, 1 << 40, -(1 << 62)])
            slots = np.arange(len(desc["inputs"]) + 3) * 16384 + DDR_BASE
            tile = CoreTile(np.zeros(64, np.uint8), np.zeros(1 << 18, np.uint8), 1 << 18)
            tile.load(isa.rows([isa.make("kcore", routine=0)]), np.zeros(1, np.int64), slots, calls)
            try:
                assert tile.run(0, 1) == 1
            except (SimulationError, MemoryError):
                pass
