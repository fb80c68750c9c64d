"""Conversions to 16-bit floats: kernel = value by value, whatever the vectors, and refused arguments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast import _kernels
from tx8fast._kernels.reference import shorts as twin
from tx8fast.errors import InternalError
from tx8fast.numerics.formats import convert

WIDTHS = sorted({False, _kernels.WIDE})
#: what lies around every change of rule: zero, the least f16, the least normal one, the largest, infinity, NaNs
EDGES = [
    sign | e + d
    for sign in (0, 1 << 31)
    for e in (0x2, 0x33000000, 0x33800000, 0x38800000, 0x477FE000, 0x477FF000, 0x47800000, 0x7F800000, 0x7FFFFFFE)
    for d in (-2, -1, 0, 1)
]


@pytest.mark.parametrize("wide", WIDTHS)
@given(st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 2**32 - 1)), max_size=40))
def test_halves_are_those_of_each_value(wide, bits) -> None:
    found = _kernels.f16_of_f32(np.array(bits, np.uint32).view(np.float32), wide)
    assert found.view(np.uint16).tolist() == twin.halves(bits)


@pytest.mark.parametrize("wide", WIDTHS)
def test_every_half_and_what_lies_between_two(wide) -> None:
    """All patterns of f16 as f32, and half a unit above each with a bit more or less: every tie there is."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        x = patterns.view(np.float16).astype(np.float32).view(np.uint32)
    for more in (0, 0xFFF, 0x1000, 0x1001):
        bits = x + np.uint32(more)
        with np.errstate(all="ignore"):
            want = bits.view(np.float32).astype(np.float16)
        found = _kernels.f16_of_f32(bits.view(np.float32).reshape(256, 256), wide)
        assert np.array_equal(found.view(np.uint16).reshape(-1), want.view(np.uint16))


@given(st.integers(0, 2**32 - 1), st.integers(0, 50))
def test_what_is_looked_up(seed, n) -> None:
    rng = np.random.default_rng(seed)
    table, x = (rng.integers(0, 1 << 16, size).astype(np.uint16) for size in (1 << 16, n))
    assert _kernels.looked_up(x, table).tolist() == twin.looked_up(x.tolist(), table.tolist())


@pytest.mark.parametrize(("src", "dst"), [("f32", "f16"), ("bf16", "f16"), ("f16", "bf16")])
def test_large_arrays_are_converted_as_small_ones(src, dst) -> None:
    """The ways that large arrays take give the bits of the way that small ones do."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 3 << 16, dtype=np.uint64).astype(np.uint32)
    x = convert(bits.view(np.float32), "f32", src, mode=1).reshape(3, -1)
    parts = np.concatenate([convert(part, src, dst) for part in np.split(x.reshape(-1), 192)])
    for given_ in (x, np.asfortranarray(x)):  # also where a row does not lie in one piece
        assert np.array_equal(convert(given_, src, dst).view(np.uint16).reshape(-1), parts.view(np.uint16))


@pytest.mark.parametrize(
    "call",
    [lambda: _kernels.f16_of_f32(np.zeros(3)), lambda: _kernels.f16_of_f32(np.zeros((4, 4), "f4")[:, :2]),  # type: ignore[arg-type]
     lambda: _kernels.looked_up(np.zeros(3, "u2"), np.zeros(3, "u2")), lambda: _kernels.looked_up(np.zeros(3, "u4"), np.zeros(1 << 16, "u2"))],
)  # fmt: skip
def test_bad_arguments_are_refused(call) -> None:
    with pytest.raises(InternalError, match="shorts"):
        call()
