"""The field's element-wise kernels against their twin, on words of every state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast._kernels import _facade_field as kernel
from tx8fast._kernels.reference import field as twin
from tx8fast.errors import InternalError
from tx8fast.proof.primes import primes_of

P, Q, OMEGA = primes_of(7)
STATES = np.array(
    [0, twin.HIDDEN, twin.UNDEFINED, twin.MAXIMUM, twin.MINIMUM, twin.LOWEST, twin.HIGHEST, twin.FINITE, twin.GAP],
    np.uint32,
)


def words(seed: int, shape: tuple[int, ...], plain: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Words of both sides: residues with the ends among them, and a few special ones."""
    rng = np.random.default_rng(seed)
    p = rng.choice([0, 1, P - 1, P // 2, P // 2 + 1, *rng.integers(0, P, 5)], shape).astype(np.uint32)
    q = rng.choice([0, 1, Q - 1, *rng.integers(0, Q, 5), *([] if plain else [twin.ABSENT])], shape).astype(np.uint32)
    if not plain:
        state = rng.choice(STATES, shape, p=(0.2, *[0.1] * 8))
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


@given(st.integers(0, 10**6), st.integers(0, 5), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_products_with_vectors(seed, n, k):
    a, (v, _) = words(seed, (n, k))[0], words(seed + 1, (k,), plain=True)
    made, states = kernel.dots(a, v, P)
    assert (made == twin.dots(a, v, P)).all()
    assert states == int(np.bitwise_or.reduce(a.reshape(-1), initial=0)) & 0xFF000000
    drawn, (u, _) = kernel.counters(seed, 11, (n, k), P, Q)[0], words(seed + 2, (n,), plain=True)
    assert (kernel.drawn_dots(seed, 11, n, v, P) == twin.dots(drawn, v, P)).all()
    assert (kernel.drawn_sums(seed, 11, u, k, P) == twin.dots(drawn.T, u, P)).all()


def test_long_sums_do_not_run_over():
    a = np.full((1, 1 << 18), P - 1, np.uint32)
    assert kernel.dots(a, a[0], P)[0] == a.size % P


@given(st.integers(0, 10**6), st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_centred_residues(seed, n):
    a, _ = words(seed, (n,))
    assert (kernel.centre(a, P) == twin.centre(a, P)).all()
    for side, modulus in enumerate((P, Q)):
        out = np.empty(n)
        kernel.drawn_centred(seed, 3, out, modulus, not side)
        drawn = kernel.counters(seed, 3, (n,), P, Q)[side]
        assert drawn is not None and (out == twin.centre(drawn, modulus)).all()


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_thin_matrices(seed, rows, columns, data):
    """Elements of a matrix of low rank, and whether a matrix is one."""
    shapes = (rows, kernel.RANK), (kernel.RANK, columns)
    thin = kernel.Thin(*(twin.centre(words(seed + i, shape, plain=True)[0], P) for i, shape in enumerate(shapes)))
    whole = twin.thin(*thin, P)
    first = data.draw(st.integers(0, whole.size - 1))
    count = data.draw(st.integers(0, whole.size - first))
    assert (kernel.thin_words(thin, first, (count,), P) == whole.reshape(-1)[first : first + count]).all()
    a = twin.centre(whole, P)
    assert kernel.spanned(a, thin, P)
    a.reshape(-1)[first] += 1 - P if a.reshape(-1)[first] == P // 2 else 1
    assert not kernel.spanned(a, thin, P)
    with pytest.raises(InternalError, match="outside"):
        kernel.thin_words(thin, first, (whole.size - first + 1,), P)
