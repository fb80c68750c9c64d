"""The shadow memory's kernels against their twin: operands of every form, runs, random tensors, sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast._kernels import _facade_shadow as kernel
from tx8fast._kernels._facade_field import RANK, Thin, counters
from tx8fast._kernels.reference import field as states
from tx8fast._kernels.reference import shadow as twin
from tx8fast.errors import SimulationError
from tx8fast.proof import forms

P, Q = 8_269_043, 4_134_521
FORMATS = ("bf16", "f16", "f32")
SPECIAL = np.array([states.HIDDEN, states.UNDEFINED, states.LOWEST, states.FINITE, states.GAP], np.uint32)


def memory(seed: int, cells: int) -> np.ndarray:
    """Cells of all kinds, with zeros and continued elements among them."""
    rng = np.random.default_rng(seed)
    plane = (rng.integers(0, 7, cells) << 24 | rng.integers(0, P, cells)).astype(np.uint32)
    plane[rng.random(cells) < 0.1] = twin.ZERO
    pairs = np.flatnonzero(rng.random(cells - 1) < 0.4)
    plane[pairs] = 3 << 24 | plane[pairs] & states.RESIDUE
    plane[pairs + 1] = twin.CONTINUED << 24 | plane[pairs] & states.RESIDUE
    special = np.flatnonzero(rng.random(cells) < 0.1)
    plane[special] = plane[special] & 0x0F000000 | rng.choice(SPECIAL, len(special))
    return plane


def operands():
    sizes = st.tuples(st.integers(1, 2), st.integers(1, 4), st.sampled_from([1, 3, 4, 31, 33, 64, 65, 100, 130]))
    return st.tuples(sizes, st.sampled_from(FORMATS), st.booleans())


def form_of(case) -> kernel.Form:
    (n, pos, c), fmt, dense = case
    return forms.dense(n * pos * c, fmt) if dense else forms.blocked(n, pos, c, fmt)


@given(operands(), st.integers(0, 10**6))
@settings(max_examples=80, deadline=None)
def test_operands_are_read_and_written(case, seed):
    form = form_of(case)
    plane, at = memory(seed, form.cells + 9), 5
    made, bad = kernel.load(plane, at, form)
    expected, expected_bad = twin.load_p(plane, at, form.numbers, form.width, form.kind)
    assert (made == expected).all() and bad == expected_bad
    assert (kernel.load(plane, at, form, q=True)[0] == twin.load_q(plane, at, form.numbers, form.width)).all()
    values, none = kernel.centred(plane, at, form, P)
    expected_values, expected_none = twin.centred(plane, at, form.numbers, form.width, form.kind, P)
    good = made & (states.UNDEFINED | states.HIDDEN) == 0
    assert none == expected_none and (values.reshape(-1)[good] == expected_values[good]).all()
    words, left, right = memory(seed + 1, form.size) & np.uint32(0xF0FFFFFF), plane.copy(), plane.copy()
    kernel.store(left, at, form, words)
    twin.store_p(right, at, form.numbers, form.width, form.kind, words)
    assert (left == right).all()
    kernel.store(left, at, form, words, q=True)
    twin.store_q(right, at, form.numbers, form.width, words)
    assert (left == right).all()


@given(operands(), st.sampled_from(FORMATS), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_sums_are_stored_with_partial_sums(case, other, seed):
    form, partial = form_of((*case[:2], False)), form_of((case[0], other, False))
    rng = np.random.default_rng(seed)
    total = rng.integers(-(1 << 52), 1 << 52, form.size).astype(np.float64)
    plane = memory(seed, form.cells + partial.cells + 4)
    add_at = form.cells + 2
    before, _ = twin.load_p(plane, add_at, partial.numbers, partial.width, partial.kind)
    expected = plane.copy()
    twin.store_p(expected, 1, form.numbers, form.width, form.kind, twin.finish(total, before, P))
    wide = np.zeros((form.shape[0], form.shape[1], form.shape[2] + 3))  # sums may be a part of a larger product
    wide[:, :, 2:-1] = total.reshape(form.shape)
    kernel.finish(wide[:, :, 2:-1], plane, 1, form, (add_at, partial), P)
    assert (plane == expected).all()
    kernel.finish(total.reshape(form.shape), plane, 1, form, None, P)
    twin.store_p(expected, 1, form.numbers, form.width, form.kind, twin.residues(total, P))
    assert (plane == expected).all()
    sides = rng.choice([*rng.integers(0, Q, 4), states.ABSENT], len(plane)).astype(np.uint32)
    words = twin.finish_q(total, twin.load_q(sides, add_at, partial.numbers, partial.width), Q)
    expected = sides.copy()
    twin.store_q(expected, 1, form.numbers, form.width, words)
    kernel.finish(wide[:, :, 2:-1], sides, 1, form, (add_at, partial), Q, q=True)
    assert (sides == expected).all()


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_runs_are_moved_as_if_read_first(data):
    counts = data.draw(st.lists(st.integers(1, 3), min_size=3, max_size=3))
    other = data.draw(st.permutations(counts))
    size = data.draw(st.integers(1, 4))
    step = st.integers(0, 12)
    src = [x for n in counts for x in (data.draw(step), n)]
    # runs that are written lie apart, so that their order does not matter
    dst, room = [], size
    for n in other:
        dst += [room, n]
        room *= n
    plane = np.arange(400, dtype=np.uint32)
    expected = plane.copy()
    at, to = data.draw(st.integers(0, 30)), data.draw(st.integers(0, 30))
    twin.runs(expected, to, dst, expected, at, src, size)
    kernel.move(plane, to, dst, plane, at, src, size)
    assert (plane == expected).all()


@given(operands(), st.data())
@settings(max_examples=60, deadline=None)
def test_random_tensors_are_drawn_in_pieces(case, data):
    form, thin, words = form_of(case), None, None
    if data.draw(st.booleans()):
        rows = data.draw(st.sampled_from([n for n in range(1, form.size + 1) if form.size % n == 0]))
        shapes = (rows, RANK), (RANK, form.size // rows)
        one, two = (Thin(*(states.centre(counters(m, 0, x, m, m)[0], m) for x in shapes)) for m in (P, Q))
        thin, words = (lambda: (one, two)), [states.thin(*f, m).reshape(-1) for f, m in ((one, P), (two, Q))]
    stream = kernel.Stream(form, 99, thin)
    whole_p, whole_q = twin.drawn(form.numbers, form.width, form.kind, 99, P, Q, words)
    first = data.draw(st.integers(0, len(whole_p) - 1))
    size = data.draw(st.integers(1, min(200, len(whole_p) - first)))
    p, q = np.zeros(size + 2, np.uint32), np.zeros(size + 2, np.uint32)
    kernel.draw(p, q, 1, stream, first, (0, 1, 0, 1, 0, 1), size, P, Q)
    assert (p[1:-1] == whole_p[first : first + size]).all() and p[0] == p[-1] == 0
    assert (q[1:-1] == whole_q[first : first + size]).all()
    kernel.draw(p, None, 1, stream, first, (0, 1, 0, 1, 0, 1), size, P, Q)
    assert (p[1:-1] == whole_p[first : first + size]).all()


def test_sums_are_reduced():
    rng = np.random.default_rng(0)
    total, part = rng.integers(-P, P, 50).astype(float), rng.integers(-(1 << 53) + 1, 1 << 53, 50).astype(float)
    expected = [(int(a) + int(b)) % P for a, b in zip(total, part)]
    kernel.add_reduced(total, part, P)
    assert (np.abs(total) <= 2 * P).all() and kernel.residues(total, P).tolist() == expected


def test_addresses_outside_of_the_memory_are_errors():
    plane, form = np.zeros(10, np.uint32), forms.dense(8, "bf16")
    for at in (-1, 3):
        with pytest.raises(SimulationError, match="outside"):
            kernel.load(plane, at, form)
        with pytest.raises(SimulationError, match="outside"):
            kernel.move(plane, at, (0, 1, 0, 1, 0, 1), plane.copy(), 0, (0, 1, 0, 1, 0, 1), 8)
