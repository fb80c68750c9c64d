"""The second level of the cache: a graph that was searched before is not searched again, and makes the same program."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.batch.test_batch import run, tree
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
    (tmp_path / "small.json").write_text(json.dumps({**config, "num_hidden_layers": 2, "vocab_size": 1000}))
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
        patch.setattr(api, "plan_table", lambda *a: began.append(a[-1] is None) or real(*a))
        run(models / "one.toml", models / "first", models / "cache")
        count = sum(began)
        run(models / "two.toml", models / "alone")
    return count


@pytest.fixture
def cache(models: Path, searched: int, tmp_path: Path) -> Path:
    return Path(shutil.copytree(models / "cache", tmp_path / "cache"))


def test_the_same_graph_is_searched_once(models: Path, searched: int, cache: Path, tmp_path: Path, monkeypatch) -> None:
    assert searched == 3
    real = api.plan_table
    began = []
    monkeypatch.setattr(api, "plan_table", lambda *a: began.append(a[-1] is None) or real(*a))
    _, outcomes = run(models / "two.toml", tmp_path / "b", cache)
    assert began == [False] * 3
    assert [(o.from_cache, o.plans_from_cache) for o in outcomes] == [(False, True)] * 3
    assert tree(tmp_path / "b") == tree(models / "alone"), "plans that are taken make what the search makes"


def test_damaged_plans_are_told_and_made_anew(models: Path, cache: Path, tmp_path: Path) -> None:
    damages = (b"", b"{}", b"[" * 100_000)
    plans = sorted(cache.rglob("plans/??/*.json"))
    assert len(plans) >= len(damages)
    for k, path in enumerate(plans):
        path.write_bytes(damages[k % len(damages)])
    _, outcomes = run(models / "two.toml", tmp_path / "b", cache)
    assert all(not o.plans_from_cache and any("damaged" in line for line in o.log) for o in outcomes)
    assert tree(tmp_path / "b") == tree(models / "alone")


def test_plans_are_kept_within_the_limit(cache: Path) -> None:
    store = Cache(cache)
    assert len(store.plans()) == 3
    store.collect()
    assert len(store.plans()) == 3 and len(list(store.entries())) == 3
    store.collect(0)
    assert not store.plans() and not list(store.entries())
