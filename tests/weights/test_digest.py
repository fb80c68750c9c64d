"""Content digests of weights."""

import numpy as np

from tx8fast.weights import WeightTable


def test_digest_follows_content_shape_and_dtype():
    table = WeightTable()
    x = np.arange(12, dtype=np.float32)
    table.add_array("a", x.reshape(3, 4))
    table.add_array("b", x.reshape(3, 4).copy())
    table.add_array("c", x.reshape(4, 3))
    table.add_array("d", x.astype(np.int32).reshape(3, 4))
    changed = x.reshape(3, 4).copy()
    changed[2, 3] += 1
    table.add_array("e", changed)
    assert table.digest("a") == table.digest("b")
    assert len({table.digest(k) for k in "acde"}) == 4
