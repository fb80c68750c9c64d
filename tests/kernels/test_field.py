"""The field's element-wise kernels against their twin, on words of every state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast._kernels import _facade_field as kernel
from tx8fast._kernels.reference import field as twin
from tx8fast.proof.primes import primes_of

P, Q, OMEGA = primes_of(7)
STATES = np.array([0, twin.HIDDEN, twin.UNDEFINED, twin.MAXIMUM, twin.MINIMUM], np.uint32)


def words(seed: int, shape: tuple[int, ...], plain: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Words of both sides: residues with the ends among them, and a few special ones."""
    rng = np.random.default_rng(seed)
    p = rng.choice([0, 1, P - 1, P // 2, P // 2 + 1, *rng.integers(0, P, 5)], shape).astype(np.uint32)
    q = rng.choice([0, 1, Q - 1, *rng.integers(0, Q, 5), *([] if plain else [twin.ABSENT])], shape).astype(np.uint32)
    if not plain:
        state = rng.choice(STATES, shape, p=(0.6, 0.1, 0.1, 0.1, 0.1))
        p = np.where(state & (twin.HIDDEN | twin.UNDEFINED), state, p | state).astype(np.uint32)
    return p, q


SHAPES = st.sampled_from([((3, 4), (3, 4)), ((3, 4), (1, 1)), ((3, 4), ()), ((3, 4), (4,)), ((2, 3, 4), (2, 1, 1)), ((2, 3, 4), (2, 1, 4)),
                          ((2, 1, 4), (2, 3, 4)), ((5,), (1,)), ((0, 4), (4,)), ((2, 3, 4), (3, 1))])  # fmt: skip


@given(st.integers(0, 10**6), SHAPES, st.sampled_from(["add", "sub", "mul", "join"]))
@settings(max_examples=150, deadline=None)
def test_two_operands(seed, shapes, name):
    (ap, aq), (bp, bq) = words(seed, shapes[0]), words(seed + 1, shapes[1])
    full = np.broadcast_shapes(*shapes)
    expected = getattr(twin, f"{name}_p")(np.broadcast_to(ap, full), np.broadcast_to(bp, full), P)
    assert (kernel.binary(f"{name}_p", ap, bp, P) == expected).all()
    if name != "join":
        expected = getattr(twin, f"{name}_q")(np.broadcast_to(aq, full), np.broadcast_to(bq, full), Q)
        assert (kernel.binary(f"{name}_q", aq, bq, Q) == expected).all()


@given(st.integers(0, 10**6), st.integers(0, 40))
@settings(max_examples=100, deadline=None)
def test_one_operand(seed, n):
    p, q = words(seed, (n,))
    assert (kernel.negate(p, P) == twin.neg_p(p, P)).all()
    assert (kernel.negate(q, Q, True) == twin.neg_q(q, Q)).all()
    assert (kernel.invert(p, P) == twin.inv_p(p, P)).all()
    assert (kernel.invert(q, Q, True) == twin.inv_q(q, Q)).all()
    assert (kernel.exponential(p, q, P, OMEGA) == twin.exp_p(p, q, P, OMEGA)).all()
    for made, expected in zip(kernel.hashes(p, seed, P, Q), twin.hash_pq(p, seed, P, Q)):
        assert (made == expected).all()
    for made, expected in zip(kernel.hashes(p, seed, P, Q, q), twin.share_pq(p, q, seed, P, Q)):
        assert (made == expected).all()


@pytest.mark.parametrize("first", [0, 5, 1 << 40])
def test_counters(first):
    key = 0xFEDC_BA98_7654_3210
    made = kernel.counters(key, first, (3, 7), P, Q)
    for got, expected in zip(made, twin.counters(key, first, 21, P, Q)):
        assert got is not None and (got.reshape(-1) == expected).all()
    assert kernel.counters(key, first, (2,), P, Q, "p")[1] is None
    assert (made[0].reshape(-1)[2:] == kernel.counters(key, first + 2, (19,), P, Q)[0]).all()
