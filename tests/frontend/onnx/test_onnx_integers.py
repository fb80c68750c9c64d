"""Integers that f32, or the format of an index, has no number for."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend.onnx.onnx_build import info, model, node
from frontend.onnx.test_onnx_places_and_factors import both
from onnx import TensorProto

import tx8fast

pytest.importorskip("onnxruntime")
CODES = {
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.uint8): TensorProto.UINT8,
}


def _of(steps, weights, x, out, tmp_path, want=None):
    """want: what onnxruntime does not compute, or computes in f32."""
    graph = model(steps, [info("x", x.shape, CODES[x.dtype])], [info("y", None, out)], weights)
    if want is None:
        want, got = both(graph, {"x": x}, tmp_path)
    else:
        onnx.save(graph, tmp_path / "net.onnx")
        got = next(iter(tx8fast.compile(tmp_path / "net.onnx").run({"x": x}).values()))
    assert got.dtype == want.dtype and np.array_equal(got, want)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("power", [[2.0], [2.0, 0.5, 2.0]])
def test_powers_of_integers(dtype, power, tmp_path):
    x = np.array([46340, 9, 3], dtype)
    _of([node("Pow", "x p", "y")], {"p": np.array(power, np.float32)}, x, CODES[x.dtype], tmp_path)


def test_more_classes_than_an_index_has_numbers(tmp_path):
    weights = {"depth": np.array(300), "values": np.array([0, 1], np.int32)}
    x = np.array([5, 255], np.uint8)
    want = (np.arange(300) == x[:, None]).astype(np.int32)
    _of([node("OneHot", "x depth values", "y")], weights, x, TensorProto.INT32, tmp_path, want)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_thresholds_of_large_integers(dtype, tmp_path):
    x = np.array([16777217, -16777219, 0, 1], dtype)
    want = np.array([16777216, -16777218, 0, 0], dtype)
    _of([node("Shrink", "x", "y", lambd=2.0, bias=1.0)], {}, x, CODES[x.dtype], tmp_path, want)


def test_padding_of_more_bits_than_a_float_has(tmp_path):
    weights = {"pads": np.array([1, 1]), "v": np.array(2**53 + 1)}
    _of([node("Pad", "x pads v", "y")], weights, np.array([7]), TensorProto.INT64, tmp_path)


def test_slopes_of_integers(tmp_path):
    x = np.array([[-3, 2**30, 4], [5, -6, -7]], np.int32)
    slope = np.array([2, 3, -4], np.int32)
    _of([node("PRelu", "x s", "y")], {"s": slope}, x, TensorProto.INT32, tmp_path, np.where(x < 0, x * slope, x))
