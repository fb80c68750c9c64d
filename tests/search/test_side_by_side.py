"""Launches that leave tiles idle run beside others: what an epoch takes, where launches go, and that values stay the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend.onnx.onnx_build import info, model, node
from hunt.execute import digest

import tx8fast
from tx8fast import api
from tx8fast.graph_table import epochs
from tx8fast.schedule import assemble
from tx8fast.search import program as search
from tx8fast.search.side_by_side import Load, epoch_cycles

ROWS = 3


def load(*cycles: float, ddr: float = 0.0, apart: bool = True) -> Load:
    return Load(np.array(cycles, float), ddr, apart)


def test_an_epoch_takes_as_long_as_its_busiest_tile_and_no_less_than_the_ddr():
    assert epoch_cycles([]) == 0
    assert epoch_cycles([load(5, 5, 0, 0), load(0, 0, 7, 0)]) == 7
    assert epoch_cycles([load(5, 5, 0, 0), load(0, 7, 7, 0)]) == 12
    assert epoch_cycles([load(5, 5, 0, 0, ddr=4), load(0, 0, 7, 0, ddr=5)]) == 9


def test_tiles_that_exchange_wait_for_each_other():
    assert epoch_cycles([load(5, 0), load(7, 7, apart=False)]) == 12
    assert epoch_cycles([load(5, 0), load(0, 7), load(1, 1)]) == 8


def test_all_places_are_asked_at_once():
    turns = Load(np.array([[3.0, 0, 0], [0, 3, 0], [0, 0, 3]]), 0.0, apart=True)
    assert epoch_cycles([load(5, 1, 0), turns]).tolist() == [8, 5, 5]
    assert epoch_cycles([turns, load(1, 1, 0, apart=False)]).tolist() == [4, 4, 3]


def model_of(columns: dict[str, int], tail: str, width: int = 1024) -> onnx.ModelProto:
    """Rows times one matrix per name, and the result named `tail` through two more ops."""
    rng = np.random.default_rng(1)
    weights = {f"w_{n}": rng.standard_normal((width, c)).astype(np.float32) / 32 for n, c in columns.items()}
    steps = [node("MatMul", f"x w_{n}", n) for n in columns]
    steps += [node("Softmax", tail, "t"), node("CumSum", "t axis", "z")]
    outs = [info(n, (ROWS, c)) for n, c in {**columns, "z": columns[tail]}.items()]
    return model(steps, [info("x", (ROWS, width))], outs, {**weights, "axis": np.array(0)})


def compiled_both(proto: onnx.ModelProto, path, monkeypatch: pytest.MonkeyPatch, **options):
    onnx.save(proto, path)
    beside = tx8fast.compile(path, **options)
    with monkeypatch.context() as until:
        until.setattr(search, "run_side_by_side", lambda *_: None)
        apart = tx8fast.compile(path, **options)
    return beside, apart


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("tail", ["a", "b", "c"])
@pytest.mark.slow
def test_products_of_few_columns_run_beside_others(tail, dtype, tmp_path, monkeypatch):
    proto = model_of({"a": 128, "b": 640, "c": 192}, tail)
    # launches that are joined have fewer barriers between them
    monkeypatch.setattr(assemble, "joined_launches", lambda table, plans, _: (table, plans))
    beside, apart = compiled_both(proto, tmp_path / "m.onnx", monkeypatch, dtype=dtype)
    assert beside.simulate().cycles < 0.95 * apart.simulate().cycles
    assert sum(s.barrier for s in beside.program.segments) <= sum(s.barrier for s in apart.program.segments)
    x = np.random.default_rng(2).standard_normal((ROWS, 1024)).astype(np.float32)
    one, other = (c.run({"x": x}, sanitize=True) for c in (beside, apart))
    assert all(np.array_equal(one[k], other[k]) for k in other)
    report = api.prove(beside.program, tmp_path / "m.onnx")
    assert report.proved, "\n".join(report.lines())


def test_nothing_moves_where_all_tiles_have_work(tmp_path, monkeypatch):
    proto = model_of({"a": 4096, "b": 4096}, "a", 256)
    beside, apart = compiled_both(proto, tmp_path / "m.onnx", monkeypatch)
    assert not any(s.first_tile for fn in beside.searched.table.functions.values() for s in fn.steps)
    assert digest(beside) == digest(apart)


def test_the_first_level_leaves_steps_where_they_are(tmp_path, monkeypatch):
    beside, apart = compiled_both(model_of({"a": 128, "b": 192}, "a"), tmp_path / "m.onnx", monkeypatch, opt=1)
    assert digest(beside) == digest(apart)


def test_every_epoch_ends_with_one_barrier(tmp_path, monkeypatch):
    beside, _ = compiled_both(model_of({"a": 128, "b": 640, "c": 192}, "b"), tmp_path / "m.onnx", monkeypatch)
    steps = beside.searched.table.functions["main"].steps
    at = epochs(steps)
    for n in set(at):
        ends = [s.barrier for s, m in zip(steps, at, strict=True) if m == n and s.kind == "group"]
        assert ends[-1:] == [True] and not any(ends[:-1])
