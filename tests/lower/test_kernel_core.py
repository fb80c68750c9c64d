"""What no engine does runs on the kernel cores: in parts where the rule allows, whole otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from support.one_op import Arg, build, check, one_op

LAYOUTS = ("dense", "blocked")


@pytest.mark.parametrize("machine", ["tx8", "test_2x2"])
@pytest.mark.parametrize(("kind", "args", "attrs"), [
    ("embedding", [Arg((50, 33)), Arg((3, 7), "i64", lo=0, hi=49)], {}),
    ("embedding", [Arg((50, 33)), Arg((1,), "i64", lo=0, hi=49)], {}),
    ("add", [Arg((5, 7), "i32"), Arg((7,), "i32")], {}),
    ("pow", [Arg((5, 7), lo=0.1), Arg((5, 1))], {}),
    ("floor", [Arg((3, 129))], {}),
    ("and", [Arg((9, 5), "pred"), Arg((5,), "pred")], {}),
    ("eq", [Arg((9, 5), "i64"), Arg((9, 1), "i64")], {}),
    ("select", [Arg((9, 5), "pred"), Arg((9, 5), "i64"), Arg((1,), "i64")], {}),
    ("convert", [Arg((9, 5), "i64", lo=-9, hi=9)], {"dtype": "f32"}),
])  # fmt: skip
def test_routine_in_parts(kind: str, args: list[Arg], attrs: dict, machine: str) -> None:
    case = one_op(kind, *args, machine=machine, **attrs)
    assert case.segment.info["engine"] == "kernel core"
    assert int((case.segment.tile_code >= 0).sum()) > 1 or machine == "test_2x2" or case.args[0].shape == (1,)
    check(case)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("kind", "args", "attrs"), [
    ("cumsum", [Arg((6, 70))], {"axis": 1}),
    ("topk", [Arg((6, 70))], {"k": 5}),
    ("arg_reduce", [Arg((6, 70))], {"axis": 1}),
    ("gather", [Arg((6, 70)), Arg((4,), "i64", lo=-6, hi=5)], {"axis": 0}),
    ("scatter_nd", [Arg((6, 70)), Arg((2, 1), "i64", lo=0, hi=5), Arg((2, 70))], {}),
    ("reduce", [Arg((6, 5, 70))], {"op": "l2", "axes": (0, 2), "keepdims": False}),
    ("softmax", [Arg((6, 5, 70))], {"axis": 1}),
    ("layernorm", [Arg((6, 5, 70)), Arg((5, 70))], {"axes": (1, 2)}),
    ("max_pool", [Arg((2, 9, 8, 70))], {"kernel": (3, 2), "stride": (2, 1)}),
    ("conv", [Arg((2, 9, 8, 66)), Arg((3, 3, 66, 1))], {"groups": 66, "pad_lo": (1, 1)}),
    ("add", [Arg((4, 1, 70)), Arg((1, 5, 1))], {}),
    ("transpose", [Arg((6, 5, 70))], {"perm": (1, 0, 2)}),
])  # fmt: skip
def test_whole_routine_in_any_layout(kind: str, args: list[Arg], attrs: dict, layout: str) -> None:
    """Operands of rank 2 and more may lie blocked in DDR; the routine sees their logical values."""
    placed = [Arg(a.shape, a.dtype, layout if a.dtype == "f32" else "dense", a.lo, a.hi) for a in args]
    out = layout if kind not in ("topk", "arg_reduce") else "dense"
    check(one_op(kind, *placed, out=out, **attrs))


@pytest.mark.parametrize("axis", [-2, 1])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_cache_update(layout: str, axis: int) -> None:
    """New rows land at the position, along either axis of the cache, in any layout."""
    args = [Arg((2, 40, 66), "bf16", layout), Arg((2, 3, 66), "bf16", layout), Arg((1,), "i64", lo=5, hi=5)]
    check(one_op("kv_update", *args, out=layout, axis=axis))


@pytest.mark.parametrize("forms", ["dense dense", "blocked blocked", "dense blocked", "blocked dense"])
@pytest.mark.parametrize(("shape", "rows", "axis", "tiles"), [
    ((5, 9, 70), 2, 1, (5, 15)),
    ((17, 9, 70), 1, 1, (9, 15)),
    ((64, 9, 72), 1, 1, (16, 16)),
    ((3, 4, 9, 33), 2, 2, (3, 15)),
    ((3, 9, 4, 33), 2, 1, (3, 15)),
    ((6, 5, 129), 2, 0, (1, 15)),
    ((5, 9, 70), 8, 2, (5, 10)),
])  # fmt: skip
def test_cache_update_in_parts(shape, rows, axis, tiles, forms) -> None:
    """Tiles divide whatever dimension is not the one that rows are put along; of channel blocks the batches."""
    cache, new = forms.split()
    fresh = tuple(rows if d == axis else n for d, n in enumerate(shape))
    args = [Arg(shape, "bf16", cache), Arg(fresh, "bf16", new), Arg((1,), "i64", lo=0, hi=shape[axis] - rows)]
    case = one_op("kv_update", *args, out=cache, axis=axis)
    busy = len(case.segment.routines)
    assert busy == tiles[0] if "blocked" in forms else busy >= tiles[1]
    check(case)


@pytest.mark.parametrize("read_later", [False, True])
def test_cache_that_is_a_temporary_is_updated_in_place(read_later: bool) -> None:
    def body(b, cache, new, at):
        copy = b("add", cache, cache, mem_layout="dense")
        updated = b("kv_update", copy, new, at, mem_layout="dense", axis=-2)
        again = b("add", updated, copy if read_later else updated, mem_layout="dense")
        return [again]

    case = build([Arg((40, 66)), Arg((3, 66)), Arg((1,), "i64", lo=5, hi=5)], body)
    update = next(x for x in case.program.launches if x.name == "kv_update")
    assert (update.args[0] == update.args[-1]) == (not read_later)
    rng = np.random.default_rng(1)
    check(case, [a.values(rng) for a in case.args])


def test_estimate_of_a_routine_is_what_it_takes() -> None:
    from tx8fast.simulator.cycle import simulate

    case = one_op("floor", Arg((64, 129)))
    assert simulate(case.program).cycles == case.segment.estimate_cycles
