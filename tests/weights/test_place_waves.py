"""Positions as waves: hand-worked values of both ways in which the library spreads their lengths."""

import math

import numpy as np
import pytest

from tx8fast.weights.maps import place_waves


@pytest.mark.parametrize("over", [3, 4])  # of four waves: M2M-100 and XGLM, Marian and Pegasus
@pytest.mark.parametrize("first", [0, 2])
def test_sines_then_cosines_of_ever_longer_waves(over: int, first: int):
    table = place_waves((), {"first": first, "over": over}, (5, 8))
    for row in range(5):
        for wave in range(4):
            angle = (first + row) / 10000 ** (wave / over)
            assert math.isclose(table[row, wave], math.sin(angle), abs_tol=1e-15)
            assert math.isclose(table[row, 4 + wave], math.cos(angle), abs_tol=1e-15)
    assert table.dtype == np.float64


def test_the_last_wave_is_ten_thousand_times_as_long_where_it_counts():
    (row,) = place_waves((), {"first": 1, "over": 3}, (1, 8))
    assert math.isclose(row[3], math.sin(1e-4), rel_tol=1e-12)
