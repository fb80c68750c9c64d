"""Rows of distances as waves: their products, turned and summed, are the products with the row of every distance."""

import numpy as np
import pytest

from tx8fast.frontend.hf.disentangled import waves_of
from tx8fast.weights.derived import evaluate
from tx8fast.weights.distances import distance_rows

WIDTH, F32 = 6, np.dtype(np.float32)


def turned(x, cos, sin):
    """The rotation that pairs a lane with the one half of them away."""
    half = x.shape[-1] // 2
    return x * cos + np.concatenate([x[..., half:], x[..., :half]], -1) * sin


def at_keys(rows, seq, sign, attrs, inputs):
    """The products of a row of ones per place with what is learned of its distance to every other place [seq, seq]."""
    blocks, count = waves_of(seq)
    made = evaluate("wave_rows", {**attrs, "sign": sign, "length": seq}, inputs, (blocks, count, WIDTH), F32)
    cos, sin = (evaluate(f"wave_{f}", {}, (), (seq // blocks, count), F32) for f in ("cos", "sin"))
    waves = evaluate("waves", {"factor": 1.0}, (), (seq, count), F32)
    y = turned(np.einsum("iad,ifd->iaf", rows.reshape(blocks, seq // blocks, WIDTH), made), cos, sin)
    return y.reshape(seq, count) @ waves.T


@pytest.mark.parametrize("seq", [1, 2, 3, 7, 12, 64, 128, 200])
@pytest.mark.parametrize("buckets", [0, 16])
def test_waves_put_every_product_where_its_distance_is(seq, buckets):
    rng = np.random.default_rng(seq)
    attrs = {"buckets": buckets, "farthest": 20, "span": buckets or 20, "eps": 1e-7}
    table = rng.standard_normal((2 * attrs["span"], WIDTH))
    gain, shift, bias = rng.standard_normal((3, WIDTH))
    matrix = rng.standard_normal((WIDTH, WIDTH))
    normed = (table - table.mean(1, keepdims=True)) / np.sqrt(table.var(1, keepdims=True) + 1e-7) * gain + shift
    far = np.arange(seq)[:, None] - np.arange(seq)[None, :]
    wanted = distance_rows(normed, far, attrs) @ matrix.T + bias  # [query, key, width]
    x = rng.standard_normal((seq, WIDTH)).astype(np.float32)
    inputs = [a.astype(np.float32) for a in (table, gain, shift, matrix, bias)]
    for sign, equation in ((-1, "td,tsd->ts"), (1, "sd,tsd->st")):
        found = at_keys(x, seq, sign, attrs, inputs)
        assert np.abs(found - np.einsum(equation, x, wanted)).max() <= 2e-6 * np.abs(wanted).max() * WIDTH


def test_near_distances_have_rows_of_their_own_and_far_ones_share_them():
    """The buckets of the library: the first half one by one, the others by their logarithm, what is farther is the last one."""
    attrs = {"buckets": 8, "farthest": 16, "span": 8}
    found = distance_rows(np.arange(16), np.arange(-20, 21), attrs) - 8
    assert list(found[20:]) == [0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]
    assert list(-found[:21][::-1]) == [0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7, 8, 8, 8, 8, 8]
