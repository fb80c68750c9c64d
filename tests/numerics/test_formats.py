"""Formats, rounding modes and conversions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast.errors import ConfigError
from tx8fast.numerics import formats
from tx8fast.numerics.formats import convert, float_to_int, np_dtype, round_f32

F = np.float32


def test_codes_and_sizes():
    names = [
        "i8",
        "i16",
        "f16",
        "bf16",
        "i32",
        "f32",
        "tf32",
        "pred",
        "u8",
        "u16",
        "u32",
        "i64",
        "u64",
    ]
    assert [formats.FORMAT_CODES[n] for n in names] == list(range(13))
    sizes = [formats.ITEM_BYTES[n] for n in names]
    assert sizes == [1, 2, 2, 2, 4, 4, 4, 1, 1, 2, 4, 8, 8]
    assert len(formats.CODE_TO_DTYPE) == len(formats.FORMAT_CODES)
    assert formats.dtype_name(np_dtype("bf16")) == "bf16" and formats.dtype_name(np.float32) == "f32"
    with pytest.raises(ConfigError, match="f12"):
        np_dtype("f12")
    with pytest.raises(ConfigError, match="complex"):
        formats.dtype_name(np.complex64)


def test_bit_tensors_are_low_bit_first():
    x = np.array([1, 0, 0, 0, 0, 0, 0, 1, 0, 1], bool)
    packed = formats.pack_bits(x)
    assert packed.tolist() == [0x81, 0x02]
    assert (formats.unpack_bits(packed, 10) == x).all()


def test_tf32_read_masks_low_mantissa_bits():
    x = np.array([0x3F801FFF], np.uint32).view(F)
    assert formats.mask_tf32(x).view(np.uint32)[0] == 0x3F800000


# 1 + 3/4 of the format's last place, for 7, 10 and 10 mantissa bits
@pytest.mark.parametrize(("dtype", "bits"), [("bf16", 7), ("f16", 10), ("tf32", 10)])
def test_rounding_modes(dtype, bits):
    ulp = 2.0**-bits
    x = np.array([1 + 0.75 * ulp, -1 - 0.75 * ulp, 1 + 0.5 * ulp, 1 + 1.5 * ulp], F)
    low, high = 1.0, 1.0 + ulp
    want = {
        0: [high, -high, low, 1 + 2 * ulp],  # ties go to the even neighbour
        1: [low, -low, low, high],
        2: [high, -low, high, 1 + 2 * ulp],
        3: [low, -high, low, high],
    }
    for mode, values in want.items():
        assert round_f32(x, dtype, mode).astype(np.float64).tolist() == values, mode


def test_overflow_follows_the_direction():
    x = np.array([1e6, -1e6], F)
    got = {m: round_f32(x, "f16", m).astype(float).tolist() for m in range(4)}
    inf, top = float("inf"), 65504.0
    assert got == {0: [inf, -inf], 1: [top, -top], 2: [inf, -top], 3: [top, -inf]}


def test_special_values_survive_every_mode():
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 2.0**-149], F)
    for dtype in ("bf16", "f16", "tf32"):
        for mode in range(5):
            y = round_f32(x, dtype, mode).astype(F)
            assert np.isnan(y[0]) and y[1] == np.inf and y[2] == -np.inf
            assert not np.signbit(y[3]) and np.signbit(y[4])
            assert (y[5] > 0) == (mode == 2)


def test_stochastic_is_fair_and_repeatable():
    x = np.full(20000, 1 + 0.25 * 2.0**-7, F)
    a, b = round_f32(x, "bf16", 4, seed=7), round_f32(x, "bf16", 4, seed=7)
    assert (a == b).all()
    share = (a.astype(F) > 1).mean()
    assert 0.23 < share < 0.27
    assert (round_f32(x, "bf16", 4, seed=8) != a).any()
    exact = np.array([1.5, -2.0, 0.0], F)
    assert (round_f32(exact, "bf16", 4).astype(F) == exact).all()


def test_unknown_mode():
    with pytest.raises(ConfigError, match="rounding mode 5"):
        round_f32(np.zeros(1, F), "bf16", 5)
    with pytest.raises(ConfigError, match="rounding mode -1"):
        float_to_int(np.zeros(1, F), "i8", -1)


def test_float_to_integer_rounds_then_saturates():
    x = np.array([2.5, -2.5, 3.5, 127.6, -129.0, np.nan, np.inf, -np.inf], F)
    assert float_to_int(x, "i8", 0).tolist() == [2, -2, 4, 127, -128, 0, 127, -128]
    assert float_to_int(x, "i8", 1).tolist()[:3] == [2, -2, 3]
    assert float_to_int(x, "i8", 2).tolist()[:3] == [3, -2, 4]
    assert float_to_int(x, "i8", 3).tolist()[:3] == [2, -3, 3]
    assert float_to_int(x, "u8").tolist()[4:] == [0, 0, 255, 0]
    big = np.array([1e30, -1e30, 2.0**62])
    assert float_to_int(big, "i64").tolist() == [2**63 - 1, -(2**63), 2**62]
    assert float_to_int(big, "u64").tolist() == [2**64 - 1, 0, 2**62]
    assert float_to_int(np.array([9.0, -9.0]), "i4").tolist() == [7, -8]


def test_conversions():
    assert convert(np.array([-128, 5], np.int8), "i8", "f32", zero_point=3).tolist() == [
        -131.0,
        2.0,
    ]
    odd = np.array([2**24 + 1], np.int32)  # halfway between two f32 numbers
    assert [int(convert(odd, "i32", "f32", m)[0]) for m in (0, 1, 2, 3)] == [
        2**24,
        2**24,
        2**24 + 2,
        2**24,
    ]
    big = np.array([1e30], np_dtype("bf16"))
    assert convert(big, "bf16", "f16")[0] == np.inf
    assert convert(np.array([0x3F801FFF], np.uint32).view(F), "tf32", "f32")[0] == 1.0
    assert convert(np.array([300, -1], np.int32), "i32", "u8").tolist() == [44, 255]
    assert convert(np.array([7, 8], np.int32), "i32", "i4").tolist() == [7, -8]
    assert convert(np.array([0.0, -2.0], F), "f32", "pred").tolist() == [False, True]
    assert convert(np.array([1 + 2.0**-40]), "f64", "f32", 2)[0] > 1
    assert convert(np.array([True]), "pred", "bf16")[0] == 1


@pytest.mark.parametrize("src", ["i8", "i16", "i32", "bf16", "f16", "f32", "tf32"])
def test_every_pair_of_the_conversion_table_keeps_small_integers(src):
    x = np.array([-3, 0, 1, 100]).astype(np_dtype(src))
    for dst in ("i8", "i16", "i32", "bf16", "f16", "f32", "tf32"):
        y = convert(x, src, dst)
        assert y.dtype == np_dtype(dst) and y.astype(F).tolist() == [-3.0, 0.0, 1.0, 100.0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=8))
def test_directed_modes_bracket_the_value(values):
    x = np.array(values, F)
    for dtype in ("bf16", "f16", "tf32"):
        down, up = round_f32(x, dtype, 3).astype(F), round_f32(x, dtype, 2).astype(F)
        zero, near = round_f32(x, dtype, 1).astype(F), round_f32(x, dtype, 0).astype(F)
        assert (down <= x).all() and (x <= up).all()
        assert (np.abs(zero) <= np.abs(x)).all()
        assert ((near == down) | (near == up)).all()
        assert (round_f32(up, dtype, 3).astype(F) == up).all()  # already representable
