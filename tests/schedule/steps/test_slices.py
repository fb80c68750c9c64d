"""Slices of a dimension and of a whole group: worked examples, and every slice covers what its readers need."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tx8fast.errors import InfeasibleError, InternalError
from tx8fast.schedule.steps.counts import Footprint, cut_height_and_width, first_counts, next_counts, pieces_to_fit
from tx8fast.schedule.steps.mining import FULL, SAME, Grain, GroupOp, Operand, Window, mine, slice_elements
from tx8fast.schedule.steps.slices import distribute, distribute_lanes, distribute_packed, hull, longest


@pytest.mark.feature("F-037")
def test_even_distribution() -> None:
    assert distribute(10, 3) == ((0, 4), (4, 3), (7, 3))
    assert distribute(3, 4) == ((0, 1), (1, 1), (2, 1))  # one slice fewer than asked for


@pytest.mark.feature("F-039")
def test_channels_are_cut_in_whole_lanes() -> None:
    assert distribute_lanes(200, 3, 32) == ((0, 96), (96, 64), (160, 40))
    assert distribute_lanes(70, 2, 32) == ((0, 64), (64, 6))
    with pytest.raises(InfeasibleError, match="64 lanes allow at most 1"):
        distribute_lanes(64, 2, 64)


@pytest.mark.feature("F-038")
def test_packed_elements_share_words() -> None:
    assert distribute_packed(10, 3, 8) == ((0, 4), (4, 4), (8, 2))
    assert distribute_packed(4, 3, 16) == ((0, 2), (2, 2))  # a third slice would be empty


@pytest.mark.feature("F-037", "F-038", "F-039")
@given(st.integers(1, 300), st.integers(1, 12), st.sampled_from([8, 16, 32]), st.sampled_from([1, 4, 64]))
def test_slices_tile_the_dimension(length: int, count: int, bits: int, lanes: int) -> None:
    for cut in (distribute(length, count), distribute_packed(length, count, bits),
                distribute_lanes(length, min(count, -(-length // lanes)), lanes)):  # fmt: skip
        assert [x for a, n in cut for x in range(a, a + n)] == list(range(length))
        assert len(cut) <= count and min(n for _, n in cut) > 0
    assert longest(distribute(length, count)) - min(n for _, n in distribute(length, count)) <= 1


@pytest.mark.feature("F-045")
def test_hulls_need_overlapping_slices() -> None:
    assert hull(((0, 5), (5, 5)), ((0, 6), (4, 6))) == ((0, 6), (4, 6))
    assert hull(((0, 2), (5, 2)), ((2, 3), (5, 2))) is None
    assert hull(((0, 2),), ((0, 1), (1, 1))) is None


TAPS = Window(1, 3, 1)  # three taps, padding of one
CONV = (SAME, FULL, SAME, TAPS, TAPS)


def conv(name: str, x: str, y: str, windows=CONV, **kw) -> GroupOp:
    return GroupOp(name, (y,), (Operand(x, windows), Operand("w" + name, (SAME,) * 5, uncut=True)), **kw)


def image(h: int, w: int = 8, c: int = 16):
    return (1, c, 1, h, w)


@pytest.mark.feature("F-040", "F-042", "F-043")
def test_halos_grow_backwards() -> None:
    shapes = {"x": image(10), "y": image(10), "z": image(10), "w1": (16, 16, 1, 3, 3), "w2": (16, 16, 1, 3, 3)}
    found = mine([conv("1", "x", "y"), conv("2", "y", "z")], shapes, {"z"}, (1, 1, 1, 2, 1))
    assert found.cuts["z"][3] == ((0, 5), (5, 5))
    assert found.cuts["y"][3] == ((0, 6), (4, 6))
    assert found.cuts["x"][3] == ((0, 7), (3, 7))
    assert found.cuts["x"][4] == ((0, 8),)  # not cut in width
    assert found.cuts["w1"] == (((0, 16),), ((0, 16),), ((0, 1),), ((0, 3),), ((0, 3),))


@pytest.mark.feature("F-044")
def test_what_is_equal_for_all_slices_is_held() -> None:
    shapes = {"x": image(10), "z": image(10), "w1": (16, 16, 1, 3, 3)}
    ops = [conv("1", "x", "z")]
    assert mine(ops, shapes, {"z"}, (1, 1, 1, 2, 1)).held == {"w1"}
    assert mine(ops, shapes, {"z"}, (1, 1, 1, 1, 1)).held == set()
    # the right side of a product is the same for every slice of rows; a bias of one row as well
    gemm = GroupOp("gemm", ("y",), (Operand("a", (SAME, SAME, SAME, FULL, SAME)), Operand("b", (FULL, FULL, SAME, SAME, SAME)),
                                    Operand("bias")))  # fmt: skip
    shapes = {"a": (1, 64, 1, 32, 1), "b": (1, 32, 1, 48, 1), "bias": (1, 1, 1, 48, 1), "y": (1, 64, 1, 48, 1)}
    found = mine([gemm], shapes, {"y"}, (1, 4, 1, 1, 1))
    assert found.held == {"b", "bias"}
    assert found.cuts["a"][1] == ((0, 16), (16, 16), (32, 16), (48, 16))
    assert found.cuts["b"][1] == ((0, 32),) * 4 and found.cuts["bias"][1] == ((0, 1),) * 4


def diamond(stored: bool, margins: bool = True):
    shapes = {"x": image(10), "y": image(10), "z": image(10), "o": image(10), "w1": (16, 16, 1, 3, 3)}
    ops = [GroupOp("relu", ("y",), (Operand("x"),)), conv("1", "y", "z"),
           GroupOp("add", ("o",), (Operand("z"), Operand("y")), margins)]  # fmt: skip
    return ops, shapes, {"o", "y"} if stored else {"o"}


@pytest.mark.feature("F-009", "F-042", "F-045")
def test_two_readers_share_a_slice_that_covers_both() -> None:
    ops, shapes, outputs = diamond(stored=False)
    found = mine(ops, shapes, outputs, (1, 1, 1, 2, 1))
    assert found.needs["y", "add"][3] == ((0, 5), (5, 5))
    assert found.needs["y", "1"][3] == ((0, 6), (4, 6)) == found.cuts["y"][3] == found.cuts["x"][3]


@pytest.mark.feature("F-045")
def test_stored_values_have_no_margins() -> None:
    with pytest.raises(InfeasibleError, match="'y' is stored, so it cannot have the margins that 1 needs"):
        mine(*diamond(stored=True), (1, 1, 1, 2, 1))
    assert mine(*diamond(stored=True), (1, 1, 1, 1, 1)).cuts["y"][3] == ((0, 10),)
    with pytest.raises(InfeasibleError, match="add cannot work on 'y' with the margins"):
        mine(*diamond(stored=False, margins=False), (1, 1, 1, 2, 1))


@pytest.mark.feature("F-043", "F-045")
def test_cuts_that_cannot_be_are_named_together() -> None:
    wide = (SAME, FULL, SAME, Window(1, 9, 4), SAME)
    shapes = {"x": image(4), "z": image(4), "w1": (16, 16, 1, 9, 1)}
    with pytest.raises(InfeasibleError, match="begin at 0 or end alike"):
        mine([conv("1", "x", "z", wide)], shapes, {"z"}, (1, 1, 1, 2, 1))
    padded = (SAME, FULL, SAME, Window(1, 1, 2), SAME)
    with pytest.raises(InfeasibleError, match="lies in the padding"):
        mine([conv("1", "x", "z", padded)], shapes | {"z": image(8)}, {"z"}, (1, 1, 1, 4, 1))
    with pytest.raises(InfeasibleError, match="fewer than .* pieces in h"):
        mine([conv("1", "x", "z", wide)], shapes, {"z"}, (1, 1, 1, 5, 1))
    with pytest.raises(InternalError, match="1 ops lead to no result"):
        mine([conv("1", "x", "z", wide)], shapes, set(), (1, 1, 1, 2, 1))


@pytest.mark.feature("F-043")
def test_results_of_one_op_are_cut_alike() -> None:
    split = GroupOp("split", ("p", "q"), (Operand("x"),))
    shapes = {"x": image(10), "p": image(10), "q": image(10), "z": image(10), "w1": (16, 16, 1, 3, 3)}
    with pytest.raises(InfeasibleError, match="'p', 'q' of split are needed in different slices"):
        mine([split, conv("1", "q", "z")], shapes, {"p", "z"}, (1, 1, 1, 2, 1))


@st.composite
def groups(draw):
    """Chains with branches of same-size windowed ops."""
    h, w = draw(st.integers(4, 24)), draw(st.integers(4, 24))
    shapes = {"v0": image(h, w)}
    ops = []
    for k in range(draw(st.integers(1, 5))):
        reads = draw(st.lists(st.sampled_from(sorted(shapes)), min_size=1, max_size=2, unique=True))
        pads = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
        windows = (SAME, SAME, SAME, *(Window(1, 2 * p + 1, p) for p in pads))
        ops.append(GroupOp(f"op{k}", (f"v{k + 1}",), tuple(Operand(v, windows) for v in reads)))
        shapes[f"v{k + 1}"] = image(h, w)
    read = {x.value for op in ops for x in op.operands}
    outputs = {op.results[0] for op in ops} - read
    return ops, shapes, outputs, (1, draw(st.integers(1, 4)), 1, draw(st.integers(1, 3)), draw(st.integers(1, 3)))


@pytest.mark.feature("F-040", "F-041", "F-042", "F-045")
@given(groups())
def test_every_slice_covers_what_its_readers_need(group) -> None:
    ops, shapes, outputs, counts = group
    try:
        found = mine(ops, shapes, outputs, counts, Grain(4))
    except InfeasibleError:
        return
    for v in outputs:
        for d, cut in enumerate(found.cuts[v]):
            assert [x for a, n in cut for x in range(a, a + n)] == list(range(shapes[v][d]))
    for op, x in ((op, x) for op in ops for x in op.operands):
        for d, count in enumerate(counts):
            for i in range(count):
                a, n = found.cuts[op.results[0]][d][i]
                window = x.windows[d]
                need = {p * window.stride - window.pad + k for p in range(a, a + n) for k in range(window.reach)}
                b, m = found.cuts[x.value][d][i if count > 1 else 0]
                assert need & set(range(shapes[x.value][d])) <= set(range(b, b + m))
    largest = mine(ops, shapes, outputs, counts, Grain(4), largest=True)
    for v in outputs:
        assert all(longest(a) >= longest(b) for a, b in zip(largest.cuts[v], found.cuts[v], strict=True))
        assert slice_elements(largest.cuts[v]) >= slice_elements(found.cuts[v])


# ---------------------------------------------------------------- how often

MOST = (2, 8, 1, 16, 4)


@pytest.mark.feature("F-046")
def test_first_counts_of_the_worked_example() -> None:
    ops = [Footprint("a", 1000), Footprint("b", 3000)]
    assert first_counts(ops, MOST, 256) == (2, 1, 1, 6, 1)
    assert first_counts(ops, MOST, 256, channels=True) == (2, 8, 1, 1, 1)


@pytest.mark.feature("F-047")
def test_first_counts_with_weights_that_stay() -> None:
    ops = [Footprint("a", 900, 100), Footprint("b", 2600, 200)]
    assert first_counts(ops, MOST, 256, weights_stay=True) == (2, 1, 1, 16, 2)
    with pytest.raises(InfeasibleError, match="c: weights of 256 bytes fill the 256"):
        first_counts([*ops, Footprint("c", 1, 256)], MOST, 256, weights_stay=True)


@pytest.mark.feature("F-046", "F-048")
def test_a_later_op_does_not_take_cuts_back() -> None:
    ops = [Footprint("a", 20 * 256), Footprint("b", 6 * 256)]
    assert first_counts(ops, (1, 1, 1, 4, 8), 256) == (1, 1, 1, 4, 5)
    with pytest.raises(InfeasibleError, match="a: 5,120 bytes need 5 cuts in width, 4 are possible"):
        first_counts(ops, (1, 1, 1, 4, 4), 256)


@pytest.mark.feature("F-050")
def test_seams_are_short() -> None:
    assert cut_height_and_width(4, 8, 8, 100, 100, 4) == (4, 1)  # 2 x 2 would be narrower than 256 bytes
    assert cut_height_and_width(12, 8, 8, 100, 100, 64) == (4, 3)  # five seams; (6, 2) has six
    assert cut_height_and_width(12, 8, 8, 400, 100, 64) == (6, 2)  # a seam in width is four times as long
    with pytest.raises(InfeasibleError, match="65 pieces needed"):
        cut_height_and_width(65, 8, 8, 100, 100)


@pytest.mark.feature("F-050")
@given(st.integers(1, 40), st.integers(1, 8), st.integers(1, 8), st.integers(1, 300), st.integers(1, 300))
def test_no_cheaper_pair_exists(total: int, most_h: int, most_w: int, size_h: int, size_w: int) -> None:
    try:
        h, w = cut_height_and_width(total, most_h, most_w, size_h, size_w, 256)
    except InfeasibleError:
        assert total > most_h * most_w or total < most_h
        return
    assert h <= most_h and w <= most_w and h * w >= total
    for a, b in itertools.product(range(1, most_h + 1), range(1, most_w + 1)):
        if a * b >= total and not (total < most_h and b > 1 and size_w // b == 0):
            assert (a - 1) + (b - 1) * (size_h // size_w) >= (h - 1) + (w - 1) * (size_h // size_w)


@pytest.mark.feature("F-053")
def test_counts_grow_in_order() -> None:
    assert next_counts((1, 1, 1, 1, 1), MOST) == (2, 1, 1, 1, 1)
    assert next_counts((2, 8, 1, 3, 1), MOST) == (2, 8, 1, 4, 1)
    assert next_counts(MOST, MOST) is None
    assert pieces_to_fit(Footprint("a", 1000, 56), MOST, 256) == 6
    with pytest.raises(InfeasibleError, match="cutting a"):
        pieces_to_fit(Footprint("a", 1000, 256), MOST, 256)
