"""Results of a search as a file: the same program comes out, groups can be searched again, edits are checked."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.one_op import MACHINES, Arg, tables

import tx8fast
from tests.support.cnn_models import CnnBuilder
from tests.support.family_checkpoints import make_family
from tx8fast.api import CompiledProgram, search_graph
from tx8fast.errors import ConfigError
from tx8fast.options import CompileOptions
from tx8fast.program.verify import verify
from tx8fast.search.members import record_key
from tx8fast.search.nests import MAX_STEPS
from tx8fast.search.records import Records

DATA = Path(__file__).parent.parent / "data" / "onnx"
LLAMA = DATA / "llama-prefill-op20.onnx"
VIT = DATA / "vit-encode-op20.onnx"


@cache
def searched(model: Path, opt: int) -> CompiledProgram:
    return tx8fast.compile(model, opt=opt)


def plans_of(compiled: CompiledProgram) -> dict[str, Any]:
    assert compiled.searched is not None
    return json.loads(compiled.searched.text())


def loaded(model: Path, data: Any, tmp_path: Path, **more: Any) -> CompiledProgram:
    path = tmp_path / "plans.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return tx8fast.compile(model, load_plans=str(path), **more)


def image(compiled: CompiledProgram, tmp_path: Path) -> bytes:
    compiled.save(tmp_path / "image.tx8")
    return (tmp_path / "image.tx8").read_bytes()


def groups(compiled: CompiledProgram) -> list[tuple[str, list[list[str]]]]:
    return [(f["name"], s["nests"]) for f in plans_of(compiled)["functions"] for s in f["steps"]]


def streams(path: Path, images: int = 16) -> Path:
    """Write three convolutions that go through scratchpad as whole images."""
    b = CnnBuilder()
    x = "x"
    for _ in range(3):
        x = b.node("Relu", b.node("Conv", x, b.weight((32, 32, 3, 3), 0.1), pads=[1, 1, 1, 1]))
    return b.save(path, (images, 32, 14, 14), x, (images, 32, 14, 14))


@pytest.mark.parametrize("model", ["streams", "rows"])
@pytest.mark.parametrize("opt", [1, 2, 3])
@pytest.mark.slow(but_every=3)
def test_other_kinds_of_models_come_back(model: str, opt: int, tmp_path: Path) -> None:
    """Streams of weights, and a convolution per op; the corpus of language models is in test_validators_corpus."""
    path = streams(tmp_path / "m.onnx") if model == "streams" else DATA / "vit-encode-op20.onnx"
    first = tx8fast.compile(path, opt=opt)
    again = loaded(path, plans_of(first), tmp_path)
    assert image(again, tmp_path) == image(first, tmp_path)
    assert plans_of(again) == plans_of(first)


def test_a_file_names_ops_plans_and_cuts() -> None:
    compiled = searched(LLAMA, 2)
    assert compiled.searched is not None
    data = plans_of(compiled)
    for fn in compiled.searched.table.functions.values():
        (rows,) = [f for f in data["functions"] if f["name"] == fn.name]
        assert sorted(m for s in rows["steps"] for n in s["nests"] for m in n) == sorted(fn.base)
        for step, row in zip(fn.steps, rows["steps"], strict=True):
            if step.record is not None:
                plan = data["plans"][row["plan"]]
                assert row["plan"] == record_key(step.record)
                assert plan["estimate_cycles"] == compiled.searched.plans[step.record].plan.estimate_cycles
    # every pair of groups with a value between them is there, and no merge that the search knew was cheaper
    (layer,) = [f for f in data["functions"] if f["name"] == "layer"]
    cuts = {(c["first"], c["second"]): c for c in layer["cuts"]}
    heads = [s["nests"][0][0] for s in layer["steps"]]
    assert all((a, b) in cuts for a, b in zip(heads, heads[1:], strict=False))
    for c in cuts.values():
        assert c["why"] and c["bytes"] > 0 and c["apart_cycles"] > 0
        assert c["merged_cycles"] is None or c["merged_cycles"] >= c["apart_cycles"] or "at most" in c["why"]


def test_a_cut_tells_what_one_group_costs(tmp_path: Path) -> None:
    """Keep apart what the search would join: the cut has the cycles of the joined plan, which is cheaper."""
    joined = searched(LLAMA, 2)
    assert joined.searched is not None
    data = plans_of(joined)
    (layer,) = [f for f in data["functions"] if f["name"] == "layer"]
    at, step = next((i, s) for i, s in enumerate(layer["steps"]) if len(s["nests"][0]) == 2)
    first, second = step["nests"][0]
    layer["steps"][at : at + 1] = [{"kind": "group", "nests": [[m]], "plan": None} for m in (first, second)]
    apart = plans_of(loaded(LLAMA, data, tmp_path))
    (cut,) = [c for f in apart["functions"] for c in f["cuts"] if (c["first"], c["second"]) == (first, second)]
    assert cut["merged_cycles"] == data["plans"][step["plan"]]["estimate_cycles"] < cut["apart_cycles"]
    assert "it was no candidate" not in cut["why"] or "one group takes" in cut["why"]


@pytest.mark.parametrize("opt", [2, 3])
@pytest.mark.slow
def test_everything_may_be_searched_again(opt: int, tmp_path: Path) -> None:
    first = searched(LLAMA, opt)
    again = loaded(LLAMA, plans_of(first), tmp_path, only=("*",))
    assert image(again, tmp_path) == image(first, tmp_path)


def test_a_group_without_a_plan_is_planned(tmp_path: Path) -> None:
    first = searched(LLAMA, 2)
    data = plans_of(first)
    alone = [step for fn in data["functions"] for step in fn["steps"] if len(step["nests"]) == 1]
    for step in alone:  # a chain says how its nests hand over what they make
        data["plans"].pop(step["plan"], None)
        step["plan"] = None
    assert any(len(step["nests"][0]) > 1 for step in alone)
    assert image(loaded(LLAMA, data, tmp_path), tmp_path) == image(first, tmp_path)


@pytest.mark.parametrize("opt", [2, 3])
def test_only_the_named_ops_are_grouped(opt: int, tmp_path: Path) -> None:
    few = tx8fast.compile(LLAMA, opt=opt, only=("layer/node_linear_[456]", "*node_mul_1[12]", "*node_add_8"))
    named = {"node_linear_4", "node_linear_5", "node_linear_6", "node_mul_11", "node_mul_12", "node_add_8"}
    made = [set(nest) for _, nests in groups(few) for nest in nests if len(nest) > 1]
    assert made and all(nest <= named for nest in made)
    assert all(len(nests) == 1 or {m for n in nests for m in n} <= named for _, nests in groups(few))
    verify(few.program)


def test_only_the_named_groups_are_searched_again(tmp_path: Path) -> None:
    data = plans_of(searched(LLAMA, 1))
    data["opt"] = 2
    again = loaded(LLAMA, data, tmp_path, only=("*linear_3", "*add_6"))
    made = [nests for _, nests in groups(again) if len(nests[0]) > 1]
    assert made == [[["node_linear_3", "node_add_6"]]]


def test_patterns_without_an_op_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"2 problems(.|\n)*'nothing'; there are main/node_embedding, (.|\n)*'nor this'"
    ):
        tx8fast.compile(LLAMA, only=("nothing", "*linear_3", "nor this"))


def edited(model: Path, opt: int, change: Callable[[dict[str, Any]], None]) -> str:
    data = plans_of(searched(model, opt))
    change(data)
    return json.dumps(data)


def nest_of(data: dict[str, Any], op: str) -> dict[str, Any]:
    return next(p["nests"][0] for p in data["plans"].values() if p["op"] == op)


def test_a_legal_edit_is_taken_and_computes_the_same(tmp_path: Path) -> None:
    first = searched(VIT, 2)

    def other(data: dict[str, Any]) -> None:
        for n, plan in enumerate(data["plans"].values()):
            for nest in plan["nests"]:  # each tile loads for itself: said in either way
                nest["shared"] = [1] * len(nest["shared"]) if n % 2 else []
        nest_of(data, "layernorm")["slices"] = [1, 1, nest_of(data, "layernorm")["sizes"][2]]

    changed = loaded(VIT, edited(VIT, 2, other), tmp_path)
    verify(changed.program)
    assert image(changed, tmp_path) != image(first, tmp_path)
    x = {t.name: np.random.default_rng(1).standard_normal(t.shape).astype(np.float32) for t in first.inputs}
    want, got = first.run(x), changed.run(x, sanitize=True)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-5)


ILLEGAL: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("tiles", lambda n: n.update(parts=[1, 16, 16, 1]), "need 256 tiles, the chip has 16"),
    ("slices", lambda n: n.update(slices=[1, 8, 7, 64]), "required a multiple of"),
    ("zero", lambda n: n.update(slices=[0, 8, 64, 64]), "slices of 0 points"),
    ("beyond", lambda n: n.update(slices=[1, 9999, 64, 64]), "slices of 9999 points"),
    ("none", lambda n: n.update(parts=[0, 1, 1, 1]), "parts from 1 on"),
    ("short", lambda n: n.update(order=[0, 1]), "required 4 of each"),
    ("order", lambda n: n.update(order=[0, 0, 1, 2]), "each of 0 to 3 once"),
    ("sums", lambda n: n.update(order=[3, 0, 1, 2]), "reductions last"),
    ("copies", lambda n: n.update(bufs=99), "99 copies of a buffer"),
    ("share", lambda n: n.update(shared=[16, 16]), "operands shared by"),
    ("kept", lambda n: n.update(kept=[0]), "cannot be kept"),
    ("variant", lambda n: n.update(variant=7), "lowering 7 of gemm"),
    ("bound", lambda n: n.update(bound="magic"), "bound 'magic'"),
    ("cut sum", lambda n: n.update(parts=[1, 1, 1, 16]), "factor 3 is cut into 16 parts and cannot be"),
]


@pytest.mark.parametrize(("change", "word"), [x[1:] for x in ILLEGAL], ids=[x[0] for x in ILLEGAL])
def test_plans_that_are_not_legal(change: Callable, word: str, tmp_path: Path) -> None:
    text = edited(LLAMA, 1, lambda data: change(nest_of(data, "gemm")))
    with pytest.raises(ConfigError, match="using plans") as err:
        loaded(LLAMA, text, tmp_path)
    assert word in str(err.value) and "function '" in str(err.value)


def test_a_plan_that_does_not_fit(tmp_path: Path) -> None:
    """A machine with little scratchpad refuses a plan of a large one, if its digest is claimed to be right."""
    small = tmp_path / "small.toml"
    text = (Path(tx8fast.__file__).parent / "machine/configs/tx8.toml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("spm_bytes")]
    lines.insert(lines.index("[tile]") + 1, "spm_bytes = 196608")
    small.write_text("\n".join(lines))
    data = plans_of(searched(LLAMA, 2))
    with pytest.raises(ConfigError, match="made for a machine with digest"):
        loaded(LLAMA, data, tmp_path, machine=str(small))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data["machine_digest"] = tx8fast.compile(LLAMA, machine=str(small), opt=1).program.meta["machine_digest"]
    with pytest.raises(
        ConfigError, match=r"its buffers need [\d,]+ bytes of scratchpad, [\d,]+ are available per tile"
    ):
        loaded(LLAMA, data, tmp_path, machine=str(small))


def chain_of(data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    step = next(s for f in data["functions"] for s in f["steps"] if len(s["nests"]) > 1)
    return step, data["plans"][step["plan"]]


CHAINS: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("hold", lambda d: chain_of(d)[1].update(holds=[[[0, 0]]] * len(chain_of(d)[1]["holds"])), "are no chain"),
    ("odd hold", lambda d: chain_of(d)[1].update(holds=[[[9, 9, 9]]] * len(chain_of(d)[1]["holds"])), "are no chain"),
    ("no holds", lambda d: chain_of(d)[1].update(holds=[]), "are no chain"),
    ("fewer", lambda d: chain_of(d)[1]["nests"].pop(), "nests, and a plan for"),
    ("order", lambda d: chain_of(d)[0]["nests"].reverse(), "whose result it needs"),
    ("held", lambda d: chain_of(d)[1]["nests"][0].update(held=[99]), "other accesses stay in scratchpad"),
    ("no plan", lambda d: chain_of(d)[0].update(plan=None), "a chain of groups needs its plan"),
]


@pytest.mark.parametrize(("change", "word"), [x[1:] for x in CHAINS], ids=[x[0] for x in CHAINS])
@pytest.mark.slow(but_every=5)
def test_chains_that_are_none(change: Callable, word: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="using plans") as err:
        loaded(LLAMA, edited(LLAMA, 3, change), tmp_path)
    assert word in str(err.value)


def group_of(data: dict[str, Any], size: int = 2) -> tuple[list[Any], int]:
    layers = (f["steps"] for f in data["functions"] if f["name"] != "main")
    return next((steps, i) for steps in layers for i, s in enumerate(steps) if len(s["nests"][0]) >= size)


def join_two(data: dict[str, Any]) -> None:
    """Two groups that no loop nest can hold become one."""
    steps, i = group_of(data, 3)
    steps[i] |= {"nests": [steps[i]["nests"][0] + steps[i + 1]["nests"][0]], "plan": None}
    del steps[i + 1]


def shift(data: dict[str, Any]) -> None:
    """The last step of a function runs first."""
    steps, _ = group_of(data)
    steps.insert(0, steps.pop())


GROUPS: list[tuple[str, Callable[[dict[str, Any]], Any], tuple[str, ...]]] = [
    ("unknown op", lambda d: group_of(d)[0][0].update(nests=[["ghost"]]), ("op 'ghost' is not in function", "is in no group")),
    ("missing group", lambda d: group_of(d)[0].pop(0), ("is in no group", "another graph or edited")),
    ("overlap", lambda d: group_of(d)[0].append(group_of(d)[0][0]), ("is in two groups",)),
    ("empty", lambda d: group_of(d)[0][0].update(nests=[]), ("has a nest without ops",)),
    ("function", lambda d: d["functions"].pop(), ("function 'layer' of the graph is not in the file",)),
    ("new function", lambda d: d["functions"].append({"name": "f", "turned": [], "steps": [], "cuts": []}), ("function 'f' is not in",)),
    ("function twice", lambda d: d["functions"].append(d["functions"][0]), ("function 'main' stands in it twice",)),
    ("joined", join_two, ("a stream has one result, the last",)),
    ("order", shift, ("stands before an op whose result it needs",)),
    ("kind", lambda d: group_of(d)[0][0].update(kind="alias"), ("it is a group, not a alias",)),
    ("other plan", lambda d: group_of(d)[0][0].update(plan=group_of(d)[0][1]["plan"]), ("is of other ops, shapes",)),
    ("level", lambda d: d.update(opt=1), ("opt is 1",)),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), [x[1:] for x in GROUPS], ids=[x[0] for x in GROUPS])
def test_groups_that_are_not_those_of_the_graph(change: Callable, words: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as err:
        loaded(LLAMA, edited(LLAMA, 2, change), tmp_path)
    assert all(word in str(err.value) for word in words), err.value


def test_plans_of_another_graph(tmp_path: Path) -> None:
    data = plans_of(searched(LLAMA, 2))
    with pytest.raises(ConfigError, match=r"which are of another graph or edited"):
        loaded(VIT, data, tmp_path)
    with pytest.raises(ConfigError, match=r"of other ops, shapes, formats or attributes"):
        loaded(streams(tmp_path / "b.onnx", 32), plans_of(tx8fast.compile(streams(tmp_path / "a.onnx"))), tmp_path)


def test_a_plan_of_a_shared_nest_keeps_its_time(tmp_path: Path) -> None:
    """The one that was chosen was timed with more of its trips than the others; from a file it is timed so, too."""
    args = [Arg((2048, 8192), "bf16", "blocked"), Arg((8192, 4096), "bf16", "blocked")]

    def text(**options: Any) -> str:
        table, _, _ = tables(args, lambda b, x, w: b.op("gemm", x, w, mem_layout="blocked").result)
        return search_graph(table, MACHINES["tx8"], CompileOptions(**options)).text()

    first = text()
    (plan,) = json.loads(first)["plans"].values()
    assert max(plan["nests"][0]["shared"]) > 1 and 8192 > MAX_STEPS * plan["nests"][0]["slices"][-1]
    path = tmp_path / "plans.json"
    path.write_text(first)
    assert text(load_plans=str(path)) == first


def test_candidates_of_a_model_on_several_chips(tmp_path: Path) -> None:
    """What the chips do together leaves nothing to choose, and has none."""
    make_family(tmp_path / "llama", "llama")
    found = tx8fast.compile(tmp_path / "llama", seq=5, tp=2, dtype="fp32").searched
    assert found is not None
    rows = Records(found.table, found.plans, found.machine, found.sharing).of("candidates")
    sums = [
        s.name for fn in found.table.functions.values() for s in fn.steps if s.record and s.record.kind == "all_reduce"
    ]
    assert sums and rows
