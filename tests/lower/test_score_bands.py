"""What a band of visible keys hides of a slice of scores, against every score by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast.graph_table import Dim, TensorSpec
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.links import Folded, Link
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
    access = BandAccess(
        spec, [Dim(a + n, ((0, 1),)), Dim(c + size, ((1, 1),))], (offset, window), Link(0, a + n), 1, True
    )
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


@pytest.mark.parametrize("window", [700, 1000, 5000])
def test_masks_fit_wherever_their_slice_lies(window):
    """Far behind the window's end most columns of a slice are hidden from all its rows, and belong to the mask."""
    n = 2000
    spec = TensorSpec((n, n), "bf16", "blocked")
    access = BandAccess(spec, [Dim(n, ((0, 1),)), Dim(n, ((1, 1),))], (0, window), Link(0, n), 1, True)
    for row in range(0, n, 64):
        for key in range(0, n, 256):
            lo, hi = (row, key), (min(row + 64, n), min(key + 256, n))
            if access.hides(lo, hi) == "some":
                assert access.size_bytes(lo, hi) <= access.most_bytes((64, 256)), (lo, hi)


@given(st.integers(1, 300), st.data(), st.integers(0, 100), st.integers(1, 700))
def test_rows_from_either_end(half, data, offset, window):
    """Of rows in pairs an access says what it says of the same rows one after the other."""
    n, keys = 2 * half, 2 * half + offset
    a = data.draw(st.integers(0, half - 1))
    b, side, c = (
        data.draw(st.integers(a + 1, half)),
        data.draw(st.integers(0, 1)),
        data.draw(st.integers(0, (keys - 1) // 64)) * 64,
    )
    spec, column = TensorSpec((n, keys), "bf16", "blocked"), Dim(keys, ((2, 1),))
    folded = BandAccess(spec, [Dim(n, ((1, 1),)), column], (offset, window), Folded(1, n, side=0), 2, True)
    plain = BandAccess(spec, [Dim(n, ((1, 1),)), column], (offset, window), Link(1, n), 2, True)
    rows = (n - b, n - a) if side else (a, b)
    pair, one = ((side, a, c), (side + 1, b, keys)), ((0, rows[0], c), (1, rows[1], keys))
    assert folded.factors == {0, 1, 2}
    for say in (
        lambda x, at: x.hides(*at),
        lambda x, at: x.shown(*at),
        lambda x, at: x.columns(*at),
        lambda x, at: x.density(*at),
    ):
        assert say(folded, pair) == say(plain, one)
    if folded.hides(*pair) != "all":
        assert folded.box(*pair) == plain.box(*one)
    for step in (1, 7, half):
        both = folded.whole((0, 0, 0), (2, half, keys), (1, step, 64))
        pieces = [(x, min(x + step, half)) for x in range(0, half, step)]
        ends = [*pieces, *[(n - y, n - x) for x, y in pieces]]
        alone = [plain.whole((0, x, 0), (1, y, keys), (1, y - x, 64)).item() for x, y in ends]
        assert both.tolist() == alone
