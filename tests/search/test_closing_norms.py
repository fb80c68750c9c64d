"""A norm behind a product has whole rows; the product alone may be cut by columns, too, and gather its operand within a chain."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend.onnx.onnx_build import info, model, node

from tx8fast import api

ROWS, WIDTH, HIDDEN = 512, 1024, 2048


def gated(path, norm: str):
    """Two branches, a product over both, a residual, and a norm of the sum or nothing."""
    weights = {
        n: np.full(s, 0.01, np.float32)
        for n, s in (("g", (WIDTH, HIDDEN)), ("u", (WIDTH, HIDDEN)), ("d", (HIDDEN, WIDTH)))
    }
    steps = [node("MatMul", "x g", "a"), node("MatMul", "x u", "b"), node("Gelu", "a", "c", approximate="tanh")]
    steps += [node("Mul", "c b", "h"), node("MatMul", "h d", "e"), node("Add", "e x", "r" if norm else "y")]
    if norm:
        weights["w"] = np.ones(WIDTH, np.float32)
        steps.append(node(norm, "r w", "y", axis=-1))
    onnx.save(model(steps, [info("x", (ROWS, WIDTH))], [info("y", (ROWS, WIDTH))], weights, opset=23), path)
    return path


@pytest.mark.parametrize("norm", ["LayerNormalization", "RMSNormalization"])
def test_a_norm_at_the_end_keeps_no_product_from_its_chain(tmp_path, norm) -> None:
    """The hidden values do not go through DDR for the sake of the norm, which adds what its rows take there and back."""
    without, whole = (api.compile(gated(tmp_path / f"{n}.onnx", n), dtype="bf16", io_dtype="bf16") for n in ("", norm))
    rows_bytes = ROWS * WIDTH * 2
    moved = [c.simulate().ddr_bytes for c in (without, whole)]
    assert moved[1] - moved[0] <= 3.1 * rows_bytes
    assert whole.simulate().cycles < 1.2 * without.simulate().cycles
