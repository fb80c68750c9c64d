"""DDR: the bank rule with its documented offsets, and reuse of space by lifetime."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast.alloc import Buffer, Problem, allocate_ddr, find_violations, pack_banks
from tx8fast.errors import AllocationError


def test_documented_offsets_in_given_order() -> None:
    sizes = [100, 5000, 4096, 300, 8192]
    assert pack_banks(sizes, align_bytes=1) == ([0, 4096, 12288, 16384, 20480], 28672)


def test_documented_offsets_large_first() -> None:
    sizes = [100, 5000, 4096, 300, 8192]
    offsets, end = pack_banks(sizes, align_bytes=1, large_first=True)
    assert offsets == [20480, 0, 8192, 20580, 12288]
    assert end == 20880


@given(st.lists(st.integers(0, 20000), max_size=40), st.booleans())
def test_bank_rule_holds(sizes: list[int], large_first: bool) -> None:
    offsets, end = pack_banks(sizes, large_first=large_first)
    alive = Problem(tuple(Buffer(str(i), ((0, 1),), s, 64) for i, s in enumerate(sizes)))
    assert find_violations(alive, offsets, bank_bytes=4096) == []
    assert end == max((o + s for o, s in zip(offsets, sizes)), default=0)


def test_space_is_used_again_once_a_variable_is_dead() -> None:
    chain = [Buffer(f"t{i}", ((i, i + 2),), 10_000) for i in range(20)]
    placement = allocate_ddr(chain, capacity_bytes=1 << 20)
    assert set(placement.offsets) == {0, 12288}
    assert find_violations(Problem(tuple(chain)), placement.offsets, bank_bytes=4096) == []


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(0, 20000)), max_size=30))
def test_reuse_is_legal(rows) -> None:
    buffers = tuple(Buffer(str(i), ((lo, lo + d),), s) for i, (lo, d, s) in enumerate(rows))
    placement = allocate_ddr(buffers, capacity_bytes=1 << 30)
    assert find_violations(Problem(buffers, 1 << 30), placement.offsets, bank_bytes=4096) == []
    assert all(offset % 64 == 0 for offset in placement.offsets)


def test_too_small_memory_and_odd_units_are_refused() -> None:
    with pytest.raises(AllocationError, match="10,000 bytes needed, 4,096 bytes available"):
        allocate_ddr([Buffer("kv", ((0, 1),), 10_000)], capacity_bytes=4096)
    with pytest.raises(AllocationError, match="must divide one another"):
        pack_banks([1], align_bytes=96)
    with pytest.raises(AllocationError, match="must divide one another"):
        allocate_ddr([Buffer("odd", ((0, 1),), 8, 96)], capacity_bytes=4096)
