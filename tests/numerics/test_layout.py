"""Layouts against the worked byte addresses of the TX8 hardware manual 7.4 and 7.5."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast.errors import ConfigError
from tx8fast.numerics import layout
from tx8fast.numerics.formats import ITEM_BYTES, np_dtype

CHANNELS = [1, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 96, 97, 129, 131, 160, 161, 192, 1000]
WIDE = "0,4 0,4 0,8 0,8 0,16 0,16 0,32 0,32 1,0 1,0 1,4 1,32 2,0 2,4 2,4 2,32 3,0 3,0 16,0"
BYTE = "0,4 0,4 0,8 0,8 0,16 0,16 0,32 0,32 0,64 0,64 1,0 1,0 1,0 1,4 1,4 1,32 1,64 1,64 8,0"


@pytest.mark.parametrize(("dtype", "text"), [("f16", WIDE), ("f32", WIDE), ("i8", BYTE), ("u8", BYTE)])
def test_block_counts(dtype, text):
    want = [tuple(int(v) for v in item.split(",")) for item in text.split()]
    assert [layout.blocked_params(c, dtype) for c in CHANNELS] == want


def test_example_a_sizes():
    assert layout.batch_used_bytes(2, 131, "f16") == 528
    assert layout.batch_stride_bytes(2, 131, "f16") == 768
    assert layout.blocked_bytes(2, 2, 131, "f16") == 1536
    assert layout.dense_bytes((2, 1, 2, 131), "f16") == 1048


@pytest.mark.parametrize(
    ("n", "p", "c", "blocked", "dense"),
    [
        (0, 0, 0, 0x000, 0x000),
        (0, 0, 63, 0x07E, 0x07E),
        (0, 1, 0, 0x080, 0x106),
        (0, 0, 64, 0x100, 0x080),
        (0, 1, 127, 0x1FE, 0x204),
        (0, 0, 128, 0x200, 0x100),
        (0, 0, 130, 0x204, 0x104),
        (0, 1, 128, 0x208, 0x206),
        (0, 1, 130, 0x20C, 0x20A),
        (1, 0, 0, 0x300, 0x20C),
        (1, 1, 130, 0x50C, 0x416),
    ],
)
def test_example_a_addresses(n, p, c, blocked, dense):
    assert layout.element_offset(n, p, c, 2, 131, "f16") == blocked
    assert layout.dense_offset(n, p, c, 2, 131, "f16") == dense


@pytest.mark.parametrize(
    ("channels", "dtype", "stride", "total"),
    [
        (30, "f16", 14336, 57344),
        (30, "f32", 28672, 114688),
        (129, "f16", 59136, 236544),
        (129, "f32", 118272, 473088),
    ],
)
def test_examples_b_and_c_sizes(channels, dtype, stride, total):
    assert layout.batch_stride_bytes(224, channels, dtype) == stride
    assert layout.blocked_bytes(4, 224, channels, dtype) == total


@pytest.mark.parametrize(
    ("channels", "n", "h", "w", "c", "offset"),
    [
        (30, 0, 0, 1, 0, 0x40),
        (30, 0, 1, 0, 0, 0x80),
        (30, 0, 111, 1, 29, 0x37FA),
        (30, 1, 0, 0, 0, 0x3800),
        (30, 3, 111, 1, 29, 0xDFFA),
        (129, 0, 0, 1, 0, 0x80),
        (129, 0, 111, 1, 63, 0x6FFE),
        (129, 0, 0, 0, 64, 0x7000),
        (129, 0, 0, 0, 128, 0xE000),
        (129, 0, 0, 1, 128, 0xE008),
        (129, 0, 111, 1, 128, 0xE6F8),
        (129, 1, 0, 0, 0, 0xE700),
        (129, 3, 111, 1, 128, 0x39BF8),
    ],
)
def test_examples_b_and_c_addresses(channels, n, h, w, c, offset):
    assert layout.element_offset(n, h * 2 + w, c, 224, channels, "f16") == offset


@pytest.mark.parametrize(
    ("shape", "total"),
    [
        ((2, 7, 9), 17408),
        ((2, 5, 7), 9728),
        ((2, 7, 10), 19456),
        ((2, 9, 11), 27136),
        ((2, 6, 54), 88576),
    ],
)
def test_example_d_measured_footprints(shape, total):
    assert layout.blocked_bytes(*layout.npc((*shape, 65)), "f16") == total


def test_how_shapes_are_seen():
    assert layout.npc(()) == (1, 1, 1)
    assert layout.npc((7,)) == (1, 1, 7)
    assert layout.npc((5, 7)) == (1, 5, 7)
    assert layout.npc((2, 5, 7)) == (2, 5, 7)
    assert layout.npc((2, 3, 4, 5)) == (2, 12, 5)


def test_padding_is_zero_and_errors_are_named():
    x = np.ones((1, 3, 65), np_dtype("bf16"))
    buf = layout.pack(x, "bf16")
    assert np.count_nonzero(buf.view(np.uint16)) == 3 * 65
    with pytest.raises(ConfigError, match="rank 2"):
        layout.pack(x[0], "bf16")
    with pytest.raises(ConfigError, match="required"):
        layout.unpack(buf[:-1], 1, 3, 65, "bf16")


def test_empty_tensors():
    x = np.zeros((0, 3, 5), np.float32)
    assert layout.pack(x, "f32").size == 0
    assert layout.unpack(np.zeros(0, np.uint8), 0, 3, 5, "f32").shape == (0, 3, 5)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 7),
    st.integers(1, 300),
    st.sampled_from(["i8", "u8", "pred", "i16", "f16", "bf16", "i32", "f32", "tf32", "i64"]),
)
def test_pack_places_every_element_and_unpack_returns_it(n, p, c, dtype):
    size = ITEM_BYTES[dtype]
    bits = np.random.default_rng(n * 1000 + p * 300 + c).integers(0, 2, (n, p, c * size), np.uint8)
    x = bits.view(np_dtype(dtype)).reshape(n, p, c)
    buf = layout.pack(x, dtype)
    assert buf.size == layout.blocked_bytes(n, p, c, dtype)
    raw = f"u{size}"
    assert (layout.unpack(buf, n, p, c, dtype).view(raw) == x.view(raw)).all()
    at = layout.element_offset(*np.ogrid[:n, :p, :c], p, c, dtype)
    stride, used = layout.batch_stride_bytes(p, c, dtype), layout.batch_used_bytes(p, c, dtype)
    first = np.arange(n)[:, None, None] * stride
    assert (at >= first).all() and (at + size <= first + used).all()
    assert np.unique(at).size == at.size
    assert (buf.view(raw)[at // size] == x.view(raw)).all()
