"""Which attention the oracle of the hunt does not judge: scores that formats of the reference and the product hold differently."""

from __future__ import annotations

import numpy as np
import pytest
from hunt.draft import MICROSOFT, Draft
from hunt.formats import BF16, F16, F32
from hunt.nearly import scores_above
from hunt.oracle import Oracle
from hunt.reference import NoReference
from onnx import helper


@pytest.mark.parametrize("size, above", [(100.0, False), (400.0, True)])
def test_scores_beyond_half_precision_are_not_judged(size, above):
    """Of queries and keys that a model makes, and of those that it is given: two heads of four, scaled by a half."""
    x, w = np.full((1, 3, 1), size), np.ones((1, 24))
    own = helper.make_node("Attention", ["x", "w"], ["y"], domain=MICROSOFT, num_heads=2)
    given = helper.make_node("MultiHeadAttention", ["q", "q", "q"], ["y"], domain=MICROSOFT, num_heads=2)
    assert (
        scores_above(65504, own, {"x": x, "w": w})
        == scores_above(65504, given, {"q": np.full((1, 3, 8), size)})
        == above
    )


@pytest.mark.parametrize(
    ("dtype", "size", "judged"), [(BF16, 4, True), (BF16, 600, False), (F16, 600, True), (F32, 8000, True)]
)
def test_scores_whose_roundings_decide_are_not_judged(dtype, size, judged):
    """Of bf16, scores beyond 512 stand four apart: which share is the largest is a matter of their roundings."""
    d = Draft(np.random.default_rng(0), dtype)
    q, k, v = (
        d.input(a.astype(np.float32))
        for a in (np.full((1, 1, 2, 4), size), np.ones((1, 1, 3, 4)), np.ones((1, 1, 3, 4)))
    )
    d.op("Attention", q, k, v)
    oracle = Oracle(*d.model())
    if judged:
        assert oracle.expected()
    else:
        with pytest.raises(NoReference, match="has in f32"):
            oracle.expected()
