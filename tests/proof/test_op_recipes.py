"""Recipes are the functions that they stand for: on every number of the 16-bit formats, and on a grid of f32.

A recipe is a fixed expression of the field's operations; here the same expression runs over float64.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tests.support.float_field import FloatField
from tx8fast.proof import op_recipes

ERF = np.vectorize(math.erf)


def gelu(x):
    return 0.5 * x * (1 + ERF(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def every_number(dtype) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        x = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float64)
    return x[np.isfinite(x) & (np.abs(x) < 30)]


GRID = np.concatenate([np.linspace(-12, 12, 40001), np.geomspace(1e-30, 1, 2000), -np.geomspace(1e-30, 1, 2000)])
F = FloatField()


def test_erf_of_f32():
    assert np.abs(op_recipes.erf(F, GRID) - ERF(GRID)).max() < 2e-7


def test_gelu_of_f32():
    assert np.abs(op_recipes.gelu(F, GRID) - gelu(GRID)).max() < 1e-6
    assert np.abs(op_recipes.gelu_tanh(F, GRID) - gelu_tanh(GRID)).max() < 1e-6


@pytest.mark.parametrize("fmt, dtype", [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_gelu_of_every_number_of_16_bits(fmt, dtype):
    x = every_number(dtype)
    assert len(x) > 30000
    assert np.abs(op_recipes.gelu(F, x, fmt) - gelu(x)).max() < 7e-4
    assert np.abs(op_recipes.gelu_tanh(F, x, fmt) - gelu_tanh(x)).max() < {"bf16": 3.5e-4, "f16": 1.2e-5}[fmt]


def test_sign_and_elu():
    x = np.array([-3.0, -1e-20, 0.0, 2e-30, 7.0])
    np.testing.assert_array_equal(op_recipes.sign(F, x), np.sign(x))
    alpha = 0.7
    wanted = np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))
    np.testing.assert_allclose(op_recipes.elu(F, x, "f32", {"alpha": alpha}), wanted, atol=1e-15)
