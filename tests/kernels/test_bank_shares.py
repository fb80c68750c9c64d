"""The arbitration of banks: kernel against twin, and what its door refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tx8fast._kernels import STEPS, bank_shares
from tx8fast._kernels._facade_banks import JITTER, WARM, WINDOW
from tx8fast._kernels.reference.banks import shares
from tx8fast.errors import InternalError

STREAM = st.tuples(st.integers(0, 40), st.integers(1, 2 * STEPS))
SETS = st.lists(st.lists(st.lists(STREAM, max_size=6), min_size=3, max_size=3), min_size=1, max_size=4)


def ask(sets, lanes, banks, per_bank, fifo):
    return ask_all(sets, lanes, banks, per_bank, [fifo])[0]


def ask_all(sets, lanes, banks, per_bank, fifos):
    streams = [[(lane, *s) for lane, own in enumerate(asked) for s in own] for asked in sets]
    begin = np.cumsum([0, *map(len, streams)])
    lane, beat, step = np.array([s for own in streams for s in own], np.int64).reshape(-1, 3).T
    return bank_shares(begin, lane, beat, step, lanes, banks, per_bank, fifos)


@settings(max_examples=60, deadline=None)
@given(SETS, st.sampled_from([1, 2, 8]), st.integers(1, 3), st.integers(1, 40))
def test_kernel_and_twin_agree(sets, banks, per_bank, fifo):
    found = ask(sets, 3, banks, per_bank, fifo)
    expected = [shares(asked, banks, per_bank, fifo, STEPS, WARM, WINDOW, JITTER) for asked in sets]
    assert found.tolist() == expected


@settings(max_examples=30, deadline=None)
@given(SETS, st.lists(st.integers(1, 40), max_size=5))
def test_many_depths_are_each_alone(sets, fifos):
    """Deeper buffers are looked at from where on a shallower one was full."""
    found = ask_all(sets, 3, 8, 2, fifos)
    assert found.shape == (len(fifos), len(sets), 3)
    assert all((own == ask(sets, 3, 8, 2, fifo)).all() for own, fifo in zip(found, fifos, strict=True))


def test_depths_of_buffers_matter():
    """Four operands of a row in the same bank: how far they may drift apart decides whether they come apart."""
    sets = [[[(0, STEPS), (0, STEPS), (0, STEPS), (0, STEPS)]]]
    tight, loose = (ask(sets, 1, 8, 2, fifo)[0, 0] for fifo in (1, 24))
    assert tight < 0.6 and loose == 1.0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"lane": [1, 0]}, "not in order"),
        ({"lane": [0, 2]}, "lane out of range"),
        ({"step": [0, 1]}, "step out of range"),
        ({"beat": [-1, 0]}, "beat out of range"),
        ({"begin": [0, 1]}, "partition"),
        ({"beat": [0]}, "differ in length"),
        ({"fifo": 0}, "out of range"),
    ],
)
def test_bad_arguments_are_refused(change, text):
    given = {"begin": [0, 2], "lane": [0, 1], "beat": [0, 0], "step": [1, 1], "fifo": 16} | change
    begin, lane, beat, step = (np.array(given[k], np.int64) for k in ("begin", "lane", "beat", "step"))
    with pytest.raises(InternalError, match=text):
        bank_shares(begin, lane, beat, step, 2, 8, 2, [given["fifo"]])
