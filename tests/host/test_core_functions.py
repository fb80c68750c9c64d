"""The functions of the vector engine: every 16-bit pattern and many f32, near the host's doubles and pinned to the last bit."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pytest

from tx8fast import isa
from tx8fast.host import core
from tx8fast.numerics.formats import np_dtype


def _sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


REFERENCE = {
    "log2": np.log2, "ln": np.log, "pow2": np.exp2, "exp": np.exp, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "sigmoid": _sigmoid,
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp_lp": lambda x: np.exp2((x.astype(np.float32) * np.float32(1.442695)).astype(np.float64)),
}  # fmt: skip
#: of the results of all functions above, by format
PINNED = {
    "bf16": "fad02a7fc8465b704c12c0367e425795e986297024087cec172f3f9611e5e3ea",
    "f16": "ff89984708135caf7a5c23e3e075a6e1242870af08491c039e221342752de769",
    "f32": "a7f80a7400e8035e63ed715b37a9359f462048aced9653a6935d2b00e067bcee",
}


def patterns(fmt):
    """Every pattern of a 16-bit format; of f32 random ones, small and large numbers and the special ones."""
    if fmt != "f32":
        return np.arange(1 << 16).astype(np.uint16).view(np_dtype(fmt))
    rng = np.random.default_rng(5)
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38, 88.7, -103.9, 0.5, 1.0], np.float32
    )
    usual = (rng.standard_normal(1 << 15) * 2.0 ** rng.integers(-20, 8, 1 << 15)).astype(np.float32)
    return np.concatenate([special, usual, rng.integers(0, 1 << 32, 1 << 14).astype(np.uint32).view(np.float32)])


def results(name, x, fmt, level=core.LEVELS - 1):
    spm = np.zeros(1 << 20, np.uint8)
    spm[: x.nbytes] = x.view(np.uint8)
    tile = core.CoreTile(spm, np.zeros(0, np.uint8), 0)
    tile.load(isa.rows([isa.make(f"{name}_v", src0=0, dst=1 << 19, n=x.size, fmt=fmt)]), np.zeros(1, np.int64), ())
    core.use_level(level)
    try:
        tile.run(0, 1)
    finally:
        core.use_level(core.LEVELS - 1)
    return spm[1 << 19 :][: x.nbytes].view(x.dtype).copy()


@pytest.mark.parametrize("fmt", sorted(PINNED))
def test_functions_are_right_and_pinned(fmt):
    x = patterns(fmt)
    digest = sha256()
    for name, f in REFERENCE.items():
        got = results(name, x, fmt)
        digest.update(got.tobytes())
        with np.errstate(all="ignore"):
            want = f(x.astype(np.float64))
            single = want.astype(np.float32)
            rounded = single.astype(x.dtype)
        assert np.array_equal(np.isnan(got), np.isnan(want)), name
        finite = ~np.isnan(want)
        off = np.flatnonzero(got[finite] != rounded[finite])
        # where the host's double lies within a hair of the middle of two f32, either is right
        a, b = (v[finite][off].astype(np.float64) for v in (got, want))
        step = np.spacing(np.abs(single[finite][off])).astype(np.float64)
        assert fmt != "f32" and not len(off) or (np.abs(a - b) <= step * (0.5 + 1e-6)).all(), (name, x[finite][off][:4])
        assert len(off) <= 2, (name, len(off))
    assert digest.hexdigest() == PINNED[fmt]


@pytest.mark.parametrize("level", range(core.LEVELS - 1))
def test_narrow_vectors_give_the_same_bits(level):
    x = patterns("f32")
    for name in REFERENCE:
        assert np.array_equal(
            results(name, x, "f32", level).view(np.uint32), results(name, x, "f32").view(np.uint32)
        ), name


def test_the_core_writes_one_nan():
    for fmt, word in (("f32", 0x7FC00000), ("bf16", 0x7FC0), ("f16", 0x7E00)):
        x = patterns(fmt)
        nan = results("neg", x, fmt)[np.isnan(x)].view(f"u{x.itemsize}")
        assert len(nan) and (nan == word).all()
