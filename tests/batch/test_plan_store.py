"""The second level of the cache: a graph that was searched before is not searched again, one that shares groups with it
takes their plans, and both make the same programs as without a cache."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests.batch.test_batch import run, tree
from tests.support.cli_case import Caller
from tests.support.cnn_models import CnnBuilder
from tx8fast import api
from tx8fast.batch.cache import Cache
from tx8fast.zoo import write_zoo


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """A network and a language model, in two manifests that differ in what is stored in the programs."""
    tmp_path = tmp_path_factory.mktemp("models")
    b = CnnBuilder()
    out = b.node("Relu", b.conv(b.conv("x", 3, 8, 3), 8, 16, 3))
    b.save(tmp_path / "net.onnx", (1, 3, 8, 8), out, (1, 16, 8, 8))
    write_zoo(tmp_path / "zoo")
    config = json.loads((tmp_path / "zoo/qwen2.5-0.5b.json").read_text())
    for name, n_layers in (("small", 2), ("deeper", 3)):
        (tmp_path / f"{name}.json").write_text(
            json.dumps({**config, "num_hidden_layers": n_layers, "vocab_size": 1000})
        )
    rows = 'schema = 1\n[[model]]\nsource = "deeper.json"\nseq = 32\n'
    (tmp_path / "deeper.toml").write_text(rows)
    for name, limit in (("one", 64), ("two", 0)):
        rows = ["schema = 1", "[defaults]", f"embed_limit_mib = {limit}"]
        rows += ["[[model]]", 'source = "net.onnx"', "[[model]]", 'source = "small.json"', "seq = 32"]
        rows += ["[[model]]", 'id = "cut"', 'source = "small.json"', "seq = 32", "tp = 2"]  # with collectives
        (tmp_path / f"{name}.toml").write_text("\n".join(rows))
    return tmp_path


@pytest.fixture(scope="module")
def searched(models: Path) -> int:
    """Run the one manifest with a cache (`models/cache`) and the other without (`models/alone`); return how many searches the first began."""
    began = []
    with pytest.MonkeyPatch.context() as patch:
        real = api.plan_table
        patch.setattr(api, "plan_table", lambda *a: began.append(a[-2] is None) or real(*a))
        run(models / "one.toml", models / "first", models / "cache")
        count = sum(began)
        run(models / "two.toml", models / "alone")
    return count


@pytest.fixture
def cache(models: Path, searched: int, tmp_path: Path) -> Path:
    return Path(shutil.copytree(models / "cache", tmp_path / "cache"))


@pytest.mark.slow
def test_the_same_graph_is_searched_once(models: Path, searched: int, cache: Path, tmp_path: Path, monkeypatch) -> None:
    assert searched == 3
    real = api.plan_table
    began = []
    monkeypatch.setattr(api, "plan_table", lambda *a: began.append(a[-2] is None) or real(*a))
    _, outcomes = run(models / "two.toml", tmp_path / "b", cache)
    assert began == [False] * 3
    assert [(o.from_cache, o.plans_from_cache) for o in outcomes] == [(False, True)] * 3
    assert tree(tmp_path / "b") == tree(models / "alone"), "plans that are taken make what the search makes"


@pytest.mark.slow
def test_damaged_plans_are_told_and_made_anew(models: Path, cache: Path, tmp_path: Path) -> None:
    damages = (b"", b"{}", b"[" * 100_000)
    plans = sorted(cache.rglob("plans/??/*.json"))
    assert len(plans) >= len(damages)
    for k, path in enumerate(plans):
        path.write_bytes(damages[k % len(damages)])
    _, outcomes = run(models / "two.toml", tmp_path / "b", cache)
    assert all(not o.plans_from_cache and any("damaged" in line for line in o.log) for o in outcomes)
    assert tree(tmp_path / "b") == tree(models / "alone")


@pytest.mark.slow
def test_groups_are_planned_once_for_all_models(models: Path, cache: Path, tmp_path: Path) -> None:
    """A model with one more layer has the groups of the other one: all that is asked of them is in the cache."""
    run(models / "deeper.toml", tmp_path / "alone")
    _, (outcome,) = run(models / "deeper.toml", tmp_path / "b", cache)
    kept, asked = outcome.groups_from_cache
    assert not outcome.plans_from_cache and kept == asked > 5
    assert tree(tmp_path / "b") == tree(tmp_path / "alone")


@pytest.mark.slow
def test_why_tells_of_every_group(models: Path, cache: Path, capsys) -> None:
    tx8, where, files = Caller(capsys), ("--cache-dir", cache), sorted(cache.rglob("*"))
    told = tx8("cache", "why", models / "deeper.json", "--seq", "32", *where).out
    assert "plans of 9 of 9 are kept" in told and "  hit" in told
    facts = json.loads(tx8("cache", "why", models / "deeper.json", "--seq", "48", "--json", *where).out)
    assert not facts["plans_hit"] and facts["known"] < facts["looked_at"]
    rows = {row["name"]: row for row in facts["groups"]}
    (changed,) = (r for n, r in rows.items() if n.endswith("down + mlp_residual"))
    assert not changed["hit"] and {(d["field"], d["kept"], d["asked"]) for d in changed["differs"]} > {
        ("gemm 1 operand 1", "bf16 [1, 32, 4864] blocked", "bf16 [1, 48, 4864] blocked")}  # fmt: skip
    same = json.loads(tx8("cache", "why", models / "small.json", "--seq", "32", "--opt", "2", "--json", *where).out)
    assert same["hit"] or same["plans_hit"]
    assert sorted(cache.rglob("*")) == files, "whoever asks why keeps nothing"


@pytest.mark.slow
def test_damaged_groups_are_told_and_planned_anew(models: Path, cache: Path, tmp_path: Path) -> None:
    """Bytes that are not those of the name, other groups' bytes under a right name, and answers that cannot be."""
    run(models / "deeper.toml", tmp_path / "alone")
    paths = sorted(cache.rglob("groups/??/*.json"))
    other = paths[0].read_bytes()
    for k, path in enumerate(paths):
        tree_ = json.loads(path.read_bytes())
        tree_["answers"] = dict.fromkeys(tree_["answers"], {"cycles": "many", "nest": {}})
        data = (b"", path.read_bytes()[:-9], b"[" * 100_000, other, json.dumps(tree_).encode())[k % 5]
        if k % 5 >= 2:
            path.unlink()
            path = path.with_name(f"{path.name.partition('-')[0]}-{hashlib.sha256(data).hexdigest()}.json")
        path.write_bytes(data)
    _, (outcome,) = run(models / "deeper.toml", tmp_path / "b", cache)
    assert outcome.groups_from_cache[0] <= 1 and all("damaged" in line for line in outcome.log) and len(outcome.log) > 5
    assert tree(tmp_path / "b") == tree(tmp_path / "alone")
    shutil.rmtree(tmp_path / "b")
    shutil.rmtree(cache / "v1/entry")
    shutil.rmtree(cache / "v1/plans")
    _, (outcome,) = run(models / "deeper.toml", tmp_path / "b", cache)
    assert outcome.groups_from_cache[0] == outcome.groups_from_cache[1] and not outcome.log, "all is made good"


def test_plans_are_kept_within_the_limit(cache: Path) -> None:
    store = Cache(cache)
    assert len(store.plan_sizes()) == 3 and len(store.group_sizes()) > 20
    store.collect()
    assert len(store.plan_sizes()) == 3 and len(store.group_sizes()) > 20 and len(list(store.entries())) == 3
    store.collect(0)
    assert not store.plan_sizes() and not store.group_sizes() and not list(store.entries())
