"""Long transfers in pieces: the same bytes, no longer than asked for, and programs with the same results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.one_op import MACHINES, Arg, Case, build, check, grouped, with_plan

from tests.simulator.planting import findings
from tx8fast.lower import lower
from tx8fast.lower.transfer import Descriptor, runs
from tx8fast.tile import sharing
from tx8fast.tile.tiling import Plan, Tiling
from tx8fast.tile.transfers import in_pieces

LOOPS = st.lists(st.tuples(st.integers(4096, 9000), st.integers(1, 9)), max_size=3)


@given(st.lists(st.tuples(st.integers(1, 600), LOOPS), min_size=1, max_size=3), st.integers(1, 5000))
def test_pieces_move_the_same_bytes(shapes: list[tuple[int, list[tuple[int, int]]]], most: int) -> None:
    found, at = [], 0
    for run, loops in shapes:
        found.append(Descriptor(0, 100 * at, at, run, tuple(loops)))
        at += found[-1].size_bytes
    made = in_pieces(found, most)
    assert runs(made) == runs(found)
    assert [d.spm for d in made] == sorted(d.spm for d in made)
    for d in made:  # of one run there are no pieces
        assert d.size_bytes <= most or d.size_bytes == d.run_bytes or all(n == 1 for _, n in d.loops)
    assert in_pieces(found, 0) == found


def product(columns: int = 512) -> Case:
    left, right, x = (
        Arg(shape, "bf16", "blocked", -0.2, 0.2) for shape in ((256, 2048), (2048, columns), (256, columns))
    )

    def body(b, left, right, x):
        op = lambda kind, *v: b.op(kind, *v, mem_layout="blocked").results[0]  # noqa: E731
        return [op("add", x, op("gemm", left, right))]

    return grouped(build((left, right, x), body, machine="test_2x2"))


def planned(case: Case, length: int) -> Tiling:
    low = lower(case.records[0], MACHINES["test_2x2"])[0]
    plan = Plan((2, 2, 1), (128, 256, 2048), (128, 256, length), (0, 1, 2), 1, 0, 0, "", shared=(2, 2, 1))
    made = Tiling(low, plan)
    return made.but(spm_bytes=made.demand_bytes())


def test_what_is_moved_in_pieces() -> None:
    """What is added and the result, where a sum has enough slices; nothing that products read, and nothing without parts."""
    made = planned(product(), 64)
    part = max(size for _, size, _ in made.staging)
    assert made.slice_bytes[2] / part == 4 == made.trips[2] / sharing.SPREAD / 2
    assert [sharing.piece_bytes(made, k) for k in range(4)] == [0, 0, part, part]
    for other in (planned(product(), 256), made.but(shared=())):
        assert not any(sharing.piece_bytes(other, k) for k in range(4))


def test_programs_with_pieces_have_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    case = product()
    made = planned(case, 128)
    inputs = [a.values(np.random.default_rng(3)) for a in case.args]
    want = check(with_plan(case, made.plan), inputs)
    plain = with_plan(case, made.plan)
    for size in (256, 1000, 16384):
        monkeypatch.setattr(sharing, "piece_bytes", lambda tiling, k, size=size: size if k >= 2 else 0)
        pieces = with_plan(case, made.plan)
        assert sum(map(len, pieces.segment.codes)) > sum(map(len, plain.segment.codes))
        assert not findings(pieces.program)
        for a, b in zip(check(pieces, inputs), want, strict=True):
            np.testing.assert_array_equal(a, b)
