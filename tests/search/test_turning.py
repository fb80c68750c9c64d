"""Layers that begin elsewhere: the same values, the same proof, and plans that are taken again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints import make_checkpoint, write_weights
from support.family_checkpoints import family_config, family_weights

import tx8fast
from tx8fast import api
from tx8fast.errors import ConfigError
from tx8fast.graph_table import FunctionTable, GraphTable, OpRecord, Step, TensorSpec
from tx8fast.lower import row_lead
from tx8fast.search import chained
from tx8fast.search.members import name_steps
from tx8fast.search.turning import turn
from tx8fast.tile.tiling import Plan, Planned, Stay, Tiling

LAYERS = 5
CONFIGS = Path(__file__).parents[1] / "data/configs"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    make_checkpoint(folder, layers=LAYERS, dtype="bfloat16")
    return folder


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer begins elsewhere that can."""
    monkeypatch.setattr(chained, "worth_turning", lambda *_: True)


def turned(compiled) -> list[str]:
    return [name for name, fn in compiled.searched.table.functions.items() if fn.turned]


def values(compiled) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    feed = {t.name: rng.integers(0, 30, t.shape) if t.dtype.startswith("i") else rng.standard_normal(t.shape, np.float32)
            for t in compiled.inputs}  # fmt: skip
    return {k: v.astype(np.float32) for k, v in compiled.run(feed, sanitize=True).items()}


def checked(model: Path, **options):
    """Compile, compare with the program whose layers begin where the model's do, prove, and return it."""
    compiled = tx8fast.compile(model, **options)
    assert turned(compiled)
    report = api.prove(compiled.program, model, quick=True)
    assert report.proved and not report.outside, "\n".join(report.lines())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chained, "worth_turning", lambda *_: False)
        plain = tx8fast.compile(model, **options)
    assert not turned(plain) and len(plain.program.launches) > 0
    found, want = values(compiled), values(plain)
    assert all(np.array_equal(found[k], want[k]) for k in want)
    return compiled


@pytest.mark.parametrize(
    "options", [{"seq": 16}, {"seq": 70, "batch": 2, "opt": 3}, {"seq": 33, "dtype": "fp32"}], ids=str
)
@pytest.mark.slow
def test_values_and_proof(llama: Path, wanted: None, options: dict) -> None:
    checked(llama, **options)


@pytest.mark.slow
def test_the_first_launch_is_a_part_of_a_group(tmp_path: Path, wanted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain takes the products of a norm's group and leaves the norm alone, which rows that arrive as a whole are better off with: no
    layer begins inside of what is one group."""
    monkeypatch.setattr(row_lead, "FEW", 100)
    config = json.loads((CONFIGS / "gemma-2-9b.json").read_text()) | {"num_hidden_layers": 4, "vocab_size": 256}
    (tmp_path / "config.json").write_text(json.dumps(config))
    compiled = tx8fast.compile(tmp_path / "config.json", seq=512, embed_limit_bytes=0)
    fn = compiled.searched.table.functions["layer"]
    assert not fn.turned and fn.steps[0].members == ["layers.0.attn_norm"]


@pytest.mark.parametrize("case", ["qwen3", "deepseek_v2", "vit"])
@pytest.mark.slow(but_every=5)
def test_families(tmp_path: Path, wanted: None, case: str) -> None:
    """Norms of heads, latent attention with experts, an encoder."""
    config = family_config(case) | {"num_hidden_layers": LAYERS}
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["ViTForImageClassification"]}))
    write_weights(tmp_path, family_weights(config))
    checked(tmp_path, dtype="fp32", **({} if case == "vit" else {"seq": 19}))


def test_fewer_launches_where_it_gains(llama: Path) -> None:
    """A layer's last nests and the first ones of the next are one launch; short launches gain by it."""
    compiled = tx8fast.compile(llama, seq=16)
    assert turned(compiled) == ["layer"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chained, "worth_turning", lambda *_: False)
        plain = tx8fast.compile(llama, seq=16)
    assert len(plain.program.launches) - len(compiled.program.launches) >= LAYERS - 1
    assert compiled.simulate().cycles < plain.simulate().cycles


def test_states_that_are_written_over_stay(llama: Path, wanted: None) -> None:
    assert not turned(tx8fast.compile(llama, phase="decode", past=20))


@pytest.mark.parametrize("opt", [2, 3])
@pytest.mark.slow
def test_saved_plans_say_where_layers_begin(tmp_path: Path, llama: Path, wanted: None, opt: int) -> None:
    compiled = tx8fast.compile(llama, seq=16, opt=opt)
    path = tmp_path / "plans.json"
    path.write_text(compiled.searched.text())
    again = tx8fast.compile(llama, seq=16, opt=opt, load_plans=str(path))
    assert turned(again) == ["layer"]
    a, b = ([bytes(c) for s in x.program.segments for c in s.codes] for x in (compiled, again))
    assert a == b and [x.args.tolist() for x in compiled.program.launches] == [
        x.args.tolist() for x in again.program.launches
    ]


@pytest.mark.parametrize(("names", "why"), [
    (["nobody"], "does not consist of steps"), (None, "does not consist of steps"), (["layers.0.mlp_norm"], "reads what is made behind it"),
])  # fmt: skip
@pytest.mark.slow(but_every=4)
def test_edited_plans_are_refused(tmp_path: Path, llama: Path, wanted: None, names: list[str] | None, why: str) -> None:
    compiled = tx8fast.compile(llama, seq=16)
    path = tmp_path / "plans.json"
    path.write_text(compiled.searched.text())
    data = json.loads(path.read_text())
    (row,) = [fn for fn in data["functions"] if fn["turned"]]
    every = [n for step in row["steps"] for nest in step["nests"] for n in nest]
    row["turned"] = every if names is None else names
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=why):
        tx8fast.compile(llama, seq=16, load_plans=str(path))


def _table(results: int = 1) -> GraphTable:
    """Three calls of a layer of two ops: y = g(f(x), c)."""
    spec = TensorSpec((4, 64), "bf16")
    op = lambda n: OpRecord("add", (), (spec,) * n, (spec,), None)  # noqa: E731
    layer = FunctionTable("layer", [spec] * 4, [0, 1], [3], steps=[
        Step("group", "f", (0,), (2,), op(1)), Step("group", "g", (2, 1), (3,), op(2)),
    ])  # fmt: skip
    calls = [Step("call", f"c{i}", (i + (i > 0), 1), (i + 2,), callee="layer") for i in range(3)]
    main = FunctionTable("main", [spec] * 5, [0, 1], [4], steps=calls)
    table = GraphTable({"main": main, "layer": layer})
    name_steps(table)
    return table


def test_what_goes_where() -> None:
    table = _table()
    assert turn(table, "layer", ["f"]) == ""
    main, layer = table.functions["main"], table.functions["layer"]
    assert [(s.kind, s.name) for s in main.steps] == [
        ("group", "c0/f"),
        ("call", "c0"),
        ("call", "c1"),
        ("group", "c2/g"),
    ]
    assert [s.name for s in layer.steps] == ["g", "f"] and layer.steps[1].inputs == layer.steps[0].outputs
    # y of the first two layers is read by nobody but the layer behind, and what the first op makes is an argument
    assert len(layer.args) == 2 and len(layer.results) == 1
    assert [s.layers for s in main.steps if s.kind == "call"] == [(2, 3), (3, 4)]
    made = layer.results[0]
    assert layer.path(made) == (2,) and layer.layer[made] == 1 and layer.layer[layer.steps[0].outputs[0]] == 0
    assert "cannot begin elsewhere" in turn(table, "layer", ["g"])


def test_results_that_somebody_else_reads_are_returned() -> None:
    table = _table()
    table.functions["main"].results = [2, 4]
    assert turn(table, "layer", ["f"]) == "" and len(table.functions["layer"].results) == 2


@pytest.mark.parametrize("change", [
    lambda t: setattr(t.functions["layer"], "donated", {0: 0}),
    lambda t: setattr(t.functions["layer"], "results", [0]),
    lambda t: t.functions["main"].steps.pop(),
    lambda t: t.functions["main"].steps.reverse(),
    lambda t: setattr(t.functions["layer"].steps[0], "fixed", True),
    lambda t: setattr(t.functions["main"].steps[2], "inputs", (2, 1)),
], ids=["donated", "argument as result", "two calls", "order", "fixed", "other layer"])  # fmt: skip
def test_functions_that_stay(change) -> None:
    table = _table()
    change(table)
    assert "cannot begin elsewhere" in turn(table, "layer", ["f"])


@pytest.mark.parametrize(
    ("bound", "stays", "least"),
    [("ddr", True, 1.0), ("load", False, 0.996), ("vector", True, 0.99), ("ne", False, 0.99)],
)
def test_what_a_layer_must_gain_to_begin_elsewhere(bound: str, stays: bool, least: float) -> None:
    """Estimates are told apart the less the less of a launch waits for transfers."""
    plan = Plan((), (), (), (), 1, 0, 0, bound)
    nest = Planned(Tiling(None, plan), "")  # type: ignore[arg-type]
    chain = Planned(nest.tiling, "", (nest, nest), stays=(Stay(0, 2, 2, 1),) * stays)
    assert chained.worth_turning(1e6, least * 1e6 - 1, [chain])
    assert not chained.worth_turning(1e6, least * 1e6 + 1, [chain])
    assert not chained.worth_turning(1e6, 1e6, [chain])
