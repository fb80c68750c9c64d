"""Whole models at every level: estimates never rise, results stay those of the reference, validators find nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.cnn_models import CnnBuilder, resnet50

import tx8fast
from tests.simulator.planting import findings
from tests.support.family_checkpoints import CONFIGS, ENCODERS, VOCAB, make_family
from tests.support.family_reference import FamilyReference
from tx8fast import api
from tx8fast.frontend import open_model
from tx8fast.graph_table import GraphTable
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.program.verify import verify
from tx8fast.search.exact import SearchReport, exact_table
from tx8fast.search.planning import Planner
from tx8fast.search.program import Plans, plan_table

DATA = Path(__file__).parent.parent / "data" / "onnx"
ONNX = sorted(f.stem for f in DATA.glob("*.onnx"))
QUICK = ("llama-prefill-op20", "bert-encode-op23", "gemma2", "small cnn")  # one of every kind


def small_cnn(path: Path) -> Path:
    """Two residual blocks, the second narrower in space, and a classifier."""
    b = CnnBuilder()
    x = b.node("Relu", b.conv("x", 3, 32, 3, 2))
    for cin, cout, stride in ((32, 32, 1), (32, 64, 2)):
        y = b.conv(b.node("Relu", b.conv(x, cin, cout, 3, stride)), cout, cout, 3)
        skip = x if cin == cout else b.conv(x, cin, cout, 1, stride)
        x = b.node("Relu", b.node("Add", y, skip))
    y = b.node("Flatten", b.node("GlobalAveragePool", x))
    y = b.node("Gemm", y, b.weight((10, 64), 0.1), b.weight((10,), 0.1), transB=1)
    return b.save(path, (1, 3, 32, 32), y, (1, 10))


def model(name: str, folder: Path) -> tuple[Path, dict]:
    """Return a model of the corpus by name, with the options that make it static."""
    if name in ONNX:
        return DATA / f"{name}.onnx", {}
    if name == "small cnn":
        return small_cnn(folder / "m.onnx"), {}
    if name == "resnet50":
        return resnet50(folder / "m.onnx", 1), {}
    make_family(folder, name)
    return folder, {} if name == "vit" else {"seq": 16} if name in ENCODERS else {"phase": "prefill", "seq": 16}


def total(table: GraphTable, plans: Plans) -> int:
    """Estimated cycles of one run of `table`."""

    def cycles(name: str) -> int:
        steps = table.functions[name].steps
        own = sum(plans[s.record].plan.estimate_cycles for s in steps if s.record is not None and not s.is_empty)
        return own + sum(cycles(s.callee) for s in steps if s.kind == "call")

    return cycles("main")


def graph(path: Path, fields: dict) -> GraphTable:
    options = CompileOptions(**fields)
    return api.lower_graph(open_model(path, **options.import_options()), options).table


@pytest.mark.parametrize("name", [*ONNX, *CONFIGS, "small cnn", "resnet50"])
@pytest.mark.slow
def test_no_level_is_worse_than_the_one_below(tmp_path: Path, name: str) -> None:
    if name not in QUICK and "TX8FAST_ALL_MODELS" not in os.environ:
        pytest.skip("set TX8FAST_ALL_MODELS=1 to run all models")
    path, fields = model(name, tmp_path)
    cycles = []
    report = SearchReport()
    for opt in (1, 2, 3):
        table = graph(path, fields)
        cycles.append(total(table, plan_table(table, load_machine("tx8"), opt=opt, report=report)))
    assert cycles == sorted(cycles, reverse=True)
    facts = report.to_json()
    assert facts["status"] == "optimal" and facts["mip_gap"] == 0.0


def test_equal_layers_are_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve equal layers: no more plans, tries, candidates and solves than two."""
    counts = []
    for layers in (2, 12):
        monkeypatch.setitem(CONFIGS["llama"], "num_hidden_layers", layers)
        make_family(tmp_path / str(layers), "llama")
        table = graph(tmp_path / str(layers), {"phase": "prefill", "seq": 16})
        planner, report = Planner(load_machine("tx8")), SearchReport()
        exact_table(table, planner, {}, report)
        rows = [f for f in report.functions if f.name != "main"]
        counts.append((len(planner.known), [(f.columns, f.cycles, f.nodes) for f in rows]))
    assert counts[0] == counts[1] and counts[0][1]


def close(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    for name, w in wanted.items():
        assert np.abs(np.asarray(found[name], np.float64) - w).max() <= 1e-4 * np.abs(w).max(), name


@pytest.mark.parametrize("case", ["qwen3"])
@pytest.mark.slow
def test_decoders_at_every_level(tmp_path: Path, case: str) -> None:
    config, weights = make_family(tmp_path, case)
    ids = np.random.default_rng(1).integers(0, VOCAB, (2, 12))
    wanted = FamilyReference(config, weights).prefill(ids)
    every_level(
        lambda opt: tx8fast.compile(tmp_path, phase="prefill", batch=2, seq=12, opt=opt), {"input_ids": ids}, wanted
    )


@pytest.mark.slow
def test_a_cnn_at_every_level(tmp_path: Path) -> None:
    import onnxruntime

    path = small_cnn(tmp_path / "m.onnx")
    x = np.random.default_rng(2).standard_normal((1, 3, 32, 32)).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    wanted = dict(zip(names, session.run(None, {"x": x}), strict=True))
    every_level(lambda opt: tx8fast.compile(path, opt=opt), {"x": x}, wanted)


def every_level(make: Callable[[int], api.CompiledProgram], feed: dict, wanted: dict) -> None:
    for opt in (1, 2, 3):
        compiled = make(opt)
        verify(compiled.program)
        close(compiled.run(feed), wanted)
        assert not findings(compiled.program)


def test_two_compiles_are_equal_byte_by_byte(tmp_path: Path) -> None:
    make_family(tmp_path, "gemma2")
    files = []
    for n in range(2):
        files.append(tmp_path / f"{n}.tx8")
        tx8fast.compile(tmp_path, phase="decode", past=24, opt=3).save(files[-1])
    assert files[0].read_bytes() == files[1].read_bytes()
