"""First fit: kernel = twin on random problems, invariances, refused arguments."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast import _kernels
from tx8fast._kernels.reference import fit as twin
from tx8fast.errors import InternalError


@st.composite
def problems(draw):
    lives = draw(st.lists(st.lists(st.tuples(st.integers(-40, 40), st.integers(1, 30)), max_size=3), max_size=25))
    n = len(lives)
    ptr = np.concatenate(([0], np.cumsum([len(x) for x in lives], dtype=np.int64))).tolist()
    start = [a for x in lives for a, _ in x]
    end = [a + d for x in lives for a, d in x]
    each = {"min_size": n, "max_size": n}
    size = draw(st.lists(st.integers(0, 9000), **each))
    align = draw(st.lists(st.sampled_from([1, 64, 256, 4096]), **each))
    order = draw(st.permutations(range(n)))
    fixed = draw(st.lists(st.sampled_from([-1, -1, -1, 0, 4096]), **each))
    bank = draw(st.sampled_from([0, 4096]))
    return ptr, start, end, size, align, list(order), fixed, bank


@given(problems())
def test_kernel_equals_twin(problem) -> None:
    offsets, peak = _kernels.first_fit(*problem)
    assert (offsets.tolist(), peak) == twin.first_fit(*problem)


def test_kernel_equals_twin_on_two_thousand_drawn_problems() -> None:
    """Drawn without a shrinker, which is what makes so many affordable."""
    rng = np.random.default_rng(5)
    for _ in range(2000):
        n = int(rng.integers(0, 16))
        lives = rng.integers(0, 3, n)
        start = rng.integers(-40, 40, lives.sum())
        given_ = (
            np.concatenate([[0], np.cumsum(lives)]), start, start + rng.integers(1, 30, len(start)), rng.integers(0, 9000, n),
            rng.choice([1, 64, 256, 4096], n), rng.permutation(n), rng.choice([-1, -1, -1, 0, 4096], n),
        )  # fmt: skip
        bank = int(rng.choice([0, 4096]))
        offsets, peak = _kernels.first_fit(*given_, bank)
        assert (offsets.tolist(), peak) == twin.first_fit(*[c.tolist() for c in given_], bank), given_


@given(problems(), st.integers(1, 5), st.integers(-1000, 1000))
def test_time_may_be_stretched_and_moved(problem, stretch: int, shift: int) -> None:
    ptr, start, end, *rest = problem
    moved = [[t * stretch + shift for t in times] for times in (start, end)]
    offsets, peak = _kernels.first_fit(ptr, start, end, *rest)
    again, peak_again = _kernels.first_fit(ptr, *moved, *rest)
    assert offsets.tolist() == again.tolist() and peak == peak_again


def test_fifty_thousand_local_buffers_agree_with_a_sweep() -> None:
    n = 50_000
    start = np.arange(n)
    size = (np.arange(n) * 7919 % 100 + 1) * 256
    offsets, peak = _kernels.first_fit(np.arange(n + 1), start, start + 9, size, np.full(n, 256), np.arange(n))
    for d in range(1, 9):  # only neighbours up to 8 steps away can collide
        a, b = offsets[:-d], offsets[d:]
        assert ((a + size[:-d] <= b) | (b + size[d:] <= a)).all()
    assert peak == (offsets + size).max()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"ptr": [0, 2]}, "ptr has 2 entries"),
        ({"ptr": [0, 2, 1]}, "partition"),
        ({"end": [0, 2]}, "empty or reversed"),
        ({"order": [0, 0]}, "not a permutation"),
        ({"order": [0, 2]}, "not a permutation"),
        ({"align_bytes": [1, 0]}, "align < 1"),
        ({"size_bytes": [1, -1]}, "negative size"),
        ({"size_bytes": [2**61, 2**61]}, "more than 2"),
        ({"start": [0.5, 1.5]}, "integers required"),
        ({"start": [[0, 1]]}, "1 required"),
    ],
)
def test_bad_arguments_are_refused(change: dict, text: str) -> None:
    good = {
        "ptr": [0, 1, 2], "start": [0, 1], "end": [2, 3], "size_bytes": [8, 8], "align_bytes": [1, 1],
        "order": [0, 1],
    }  # fmt: skip
    assert _kernels.first_fit(**good)[1] == 16
    with pytest.raises(InternalError, match=text):
        _kernels.first_fit(**(good | change))


def test_every_status_code_has_an_exception(repo_root) -> None:
    text = (repo_root / "tx8fast/_kernels/_status.pxd").read_text()
    codes = {int(code) for code in re.findall(r"^    [A-Z_]+ = (\d+)", text, re.MULTILINE)}
    assert codes - {0} == set(_kernels.STATUS_ERRORS)
    _kernels.check_status("any", 0)
    for code, (kind, _) in _kernels.STATUS_ERRORS.items():
        with pytest.raises(kind):
            _kernels.check_status("any", code)
    with pytest.raises(InternalError, match="unknown status 99"):
        _kernels.check_status("any", 99)
