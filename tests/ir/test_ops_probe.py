"""Factor rules against numeric dependence: what lies outside the predicted operand boxes must not matter."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from op_cases import Case, build, data, make_case, spoil

from tx8fast.ir import new_context, reference
from tx8fast.ir.ops import extra
from tx8fast.ir.sharding import factor_box

CTX = new_context()
KINDS = [
    info.decl.name for info in CTX.infos.values()
    if info.decl.rule_of is not None and info.decl.routine and info.decl not in extra.OPS
]  # fmt: skip


def _piece(dims, rng):
    """A random non-empty box of a result."""
    box = []
    for d in dims:
        a, b = sorted(int(v) for v in rng.integers(0, d.size + 1, 2)) if d.size > 1 else (0, d.size)
        box.append((a, b) if b > a else (0, d.size))
    return box


def _rng(kind):
    return np.random.default_rng(zlib.crc32(kind.encode()))


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_dependence(kind):
    """IR notes 3.10: the result piece does not change when everything outside its operand boxes does."""
    rng = _rng(kind)
    probes = 0
    for _ in range(20):
        case = make_case(kind, rng)
        assert case is not None, f"no random case for {kind}"
        op = build(CTX, case)
        rule = op.info.decl.rule(op)
        assert rule is not None
        assert [tuple(d.size for d in dims) for dims in rule.outs] == [r.shape for r in op.results]
        for dims, v in zip(rule.ins, op.operands):
            assert dims is None or tuple(d.size for d in dims) == v.shape
        arrays = data(case, rng)
        with np.errstate(all="ignore"):
            whole = reference(op, [a.copy() for a in arrays])
            assert [r.shape for r in whole] == [r.shape for r in op.results]
            for result in range(len(whole)):
                for _ in range(3):
                    box = _piece(rule.outs[result], rng)
                    lo, hi = factor_box(rule, rule.outs[result], box)
                    # the factor box may be larger than the piece (whole factors); compare what was asked for
                    damaged = [
                        spoil(a, [d.box(lo, hi) for d in dims], o, rng)
                        for a, dims, o in zip(arrays, rule.ins, case.operands)
                    ]  # fmt: skip
                    again = reference(op, damaged)[result]
                    at = tuple(slice(a, b) for a, b in box)
                    np.testing.assert_allclose(
                        again[at].astype(np.float64),
                        whole[result][at].astype(np.float64),
                        rtol=2e-5,
                    )
                    probes += 1
    assert probes >= 60


def _hurts(case: Case, trim) -> bool:
    """True if giving the op less than the rule asks for changes the first rows of its result."""
    rng = np.random.default_rng(3)
    op = build(CTX, case)
    rule = op.info.decl.rule(op)
    arrays = data(case, rng)
    box = [(0, max(1, d.size // 2)) for d in rule.outs[0]]
    lo, hi = factor_box(rule, rule.outs[0], box)
    boxes = [[d.box(lo, hi) for d in dims] for dims in rule.ins]
    damaged = [
        spoil(a, trim(b) if i == 0 else b, o, rng) for i, (a, b, o) in enumerate(zip(arrays, boxes, case.operands))
    ]
    at = tuple(slice(a, b) for a, b in box)
    return not np.allclose(reference(op, damaged)[0][at], reference(op, arrays)[0][at])


@pytest.mark.parametrize("kind", ["gemm", "conv", "softmax", "reduce", "concat", "relu", "max_pool", "cumsum"])
def test_boxes_are_tight(kind):
    """Taking the last plane of a predicted box away is noticed in most cases: the probe can fail."""
    rng = _rng(kind)
    seen = [_hurts(make_case(kind, rng), lambda b: [(x, max(x, y - 1)) if i == 0 else (x, y) for i, (x, y) in enumerate(b)])
            for _ in range(10)]  # fmt: skip
    assert sum(seen) >= 5
