"""What a band of visible keys hides of a slice of scores, against every score by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tx8fast.graph_table import Dim, TensorSpec
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.score_bands import Band, BandAccess
from tx8fast.lower.transfer import Local
from tx8fast.machine import load_machine
from tx8fast.numerics.formats import ITEM_BYTES

MACHINE = load_machine("tx8")
FORMATS = st.sampled_from(["bf16", "f32"])


def elements(ranges: list[tuple[int, int]], n: int) -> np.ndarray:
    """How often each of n elements is in the ranges."""
    found = np.zeros(n, int)
    for a, b in ranges:
        assert 0 <= a < b <= n
        found[a:b] += 1
    return found


@given(st.tuples(st.integers(0, 300), st.integers(1, 150)), st.tuples(st.integers(0, 4), st.integers(1, 200)), st.integers(-40, 100),
       st.integers(1, 300), st.integers(1, 3), FORMATS)  # fmt: skip
def test_every_score(rows, keys, offset, window, heads, fmt):
    (a, n), (c, size) = rows, keys
    c *= 64
    local, seen = Local(heads * n, size, fmt, True), Local(n, size, fmt, True)
    band = Band.of((a, a + n), (c, c + size), (offset, window), local, seen)
    hidden, shown = elements(band.hidden, local.elems), elements(band.shown, local.elems)
    assert (hidden + shown == 1).all()
    masked = {}
    for under, count, places in band.masked:
        assert len(places) == heads
        for at in places:
            masked.update({at + k: under + k for k in range(count)})
    for head in range(heads):
        for r in range(n):
            for k in range(size):
                at = local.offset(head * n + r, k) // ITEM_BYTES[fmt]
                sees = a + r + offset - window < c + k <= a + r + offset
                assert not (sees and hidden[at]) and (sees or hidden[at] or at in masked)
                assert at not in masked or masked[at] == seen.offset(r, k) // ITEM_BYTES[fmt]


def test_instructions_on_parts_take_less_of_the_vector_engine():
    """Where there are many of them and little is hidden, the whole mask is added instead."""
    local, seen = Local(512, 256, "bf16", True), Local(256, 256, "bf16", True)
    band = Band.of((256, 512), (256, 512), (0, 4096), local, seen)
    assert band.pays(MACHINE)
    assert sum(b - a for a, b in band.hidden) == 2 * 64 * 64 * (1 + 2 + 3)
    em = Emitter()
    band.mask(em, 0, 1 << 20)
    band.fill(em, 0, 0.0, (0, local.elems))
    assert len(em.rows) == 4 + 8 + 2 * len(band.hidden)
    few = Local(32, 256, "bf16", True)
    assert not Band.of((500, 502), (256, 512), (0, 4096), few, Local(2, 256, "bf16", True)).pays(MACHINE)


@given(st.tuples(st.integers(0, 700), st.integers(1, 300)), st.tuples(st.integers(0, 8), st.integers(1, 500)), st.integers(-40, 100),
       st.sampled_from([1, 40, 64, 300, 5000]))  # fmt: skip
def test_columns_of_a_mask(rows, keys, offset, window):
    """A slice looks at all keys that its rows see, and its mask has every column of these that some row does not see."""
    (a, n), (c, size) = rows, keys
    c *= 64
    spec = TensorSpec((a + n, c + size), "bf16", "blocked")
    access = BandAccess(spec, [Dim(a + n, ((0, 1),)), Dim(c + size, ((1, 1),))], (offset, window), 0, 1, True)
    lo, hi = (a, c), (a + n, c + size)
    i, j = np.arange(a, a + n)[:, None], np.arange(c, c + size)[None, :]
    sees = (j > i + offset - window) & (j <= i + offset)
    assert (access.hides(lo, hi) == "all") == (not sees.any()) and (access.hides(lo, hi) == "none") == sees.all()
    if not sees.any():
        return
    shown, (begin, end) = access.shown(lo, hi), access.columns(lo, hi)
    assert not sees[:, shown:].any() and (shown == size or shown % 64 == 0)
    if not sees.all():
        some = np.flatnonzero(~sees[:, :shown].all(axis=0))
        assert not len(some) or begin <= some[0] and some[-1] < end <= shown
        assert begin % 64 == 0 and (end == shown or end % 64 == 0)
        assert access.box(lo, hi) == ((a, a + n), (c + begin, c + end))
    assert access.size_bytes(lo, hi) <= access.most_bytes((n, size))
