"""Two programs, or two reports of them: what differs, and why."""

from __future__ import annotations

import json

import pytest

import tx8fast
from tests.support.cli_case import refused
from tx8fast.demo_model import SMALL, write_config


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    config = write_config(folder, SMALL | {"num_hidden_layers": 2, "hidden_size": 512, "intermediate_size": 1024})
    for name, options in (("a", {}), ("b", {"sharing": False}), ("c", {"opt": 1})):
        tx8fast.compile(config, seq=128, **options).save(folder / f"{name}.tx8")
    return folder


def diff(tx8, *args) -> dict:
    found = tx8("diff", *args, "--json")
    assert found.code == 0, found
    return json.loads(found.out)


@pytest.mark.slow
def test_what_changed_and_why(tx8, pair):
    found = diff(tx8, pair / "a.tx8", pair / "b.tx8")
    sims = [json.loads(tx8("sim", pair / f"{n}.tx8", "--json").out) for n in "ab"]
    assert found["options"] == {"sharing": [True, False]} and not found["machine"]
    assert found["totals"]["cycles"] == [s["cycles"] for s in sims]
    assert sum(r["more_cycles"] for r in found["groups"]) == sims[1]["cycles"] - sims[0]["cycles"]
    assert any(line.startswith("shared ") for r in found["groups"] for line in r["why"])
    sizes = [abs(r["more_cycles"]) for r in found["groups"]]
    assert sizes == sorted(sizes, reverse=True)
    text = tx8("diff", pair / "a.tx8", pair / "b.tx8").out
    assert "sharing" in text and "why:" in text


@pytest.mark.slow
def test_other_groups(tx8, pair):
    found = diff(tx8, pair / "a.tx8", pair / "c.tx8")
    others = [r["first"] for r in found["groups"] if r["status"] not in ("grouped anew", "changed")]
    # every op is in both; but at opt 1 the last norm has the code of the layers' norms, and labels name an equal code once
    assert others in ([], [["norm"]])
    whole = next(r for r in found["groups"] if any("down + mlp_residual" in label for label in r["first"]))
    assert whole["status"] == "grouped anew" and "layers 0-1: down" in whole["second"]
    parts = [", ".join(f"'{label}'" for label in whole[side]) for side in ("first", "second")]
    assert whole["why"][0] == " became ".join(parts)
    for side in ("first", "second"):
        sim = json.loads(tx8("sim", pair / ("c.tx8" if side == "second" else "a.tx8"), "--json").out)
        labels = [label for r in found["groups"] for label in r[side]]
        assert len(labels) == len(set(labels)) and set(labels) <= {g["label"] for g in sim["groups"]}
    assert sum(r["more_cycles"] for r in found["groups"]) == found["totals"]["cycles"][1] - found["totals"]["cycles"][0]


@pytest.mark.slow
def test_the_same_is_the_same_in_every_form(tx8, pair, tmp_path):
    assert tx8("diff", pair / "a.tx8", pair / "a.tx8").out.startswith("no difference")
    assert tx8("report", pair / "a.tx8", "-o", tmp_path / "a.html").code == 0
    assert diff(tx8, tmp_path / "a.html", tmp_path / "a.html")["equal"]
    (tmp_path / "b.json").write_text(tx8("sim", pair / "b.tx8", "--json").out)
    found = diff(tx8, tmp_path / "a.html", tmp_path / "b.json")
    whole = diff(tx8, pair / "a.tx8", pair / "b.tx8")
    assert found["totals"] == whole["totals"] and found["losses"] == whole["losses"]
    assert [r["label"] for r in found["groups"]] == [r["label"] for r in whole["groups"]]


def test_refusals(tx8, pair, tmp_path):
    a = tmp_path / "a.json"
    whole = tx8("sim", pair / "a.tx8", "--json").out
    a.write_text(whole)
    for name, text, says in (("x.html", "<html></html>", "no page of"), ("x.json", "{", "not what"), ("y.json", "[1]", "not what"),
                             ("z.json", '{"cycles": 1, "groups": [{}], "losses": {}}', "not what")):  # fmt: skip
        (tmp_path / name).write_text(text)
        refused(tx8, tmp_path, "diff", a, tmp_path / name, says=(says,))
    for damage in (
        {"losses": None},
        {"cycles": "many"},
        {"groups": [{"label": None}]},
        {"groups": [{"losses": {"startup": []}}]},
    ):
        found = json.loads(whole)
        found.update({k: [found[k][0] | v[0]] if k == "groups" else v for k, v in damage.items()})
        (tmp_path / "d.json").write_text(json.dumps(found))
        refused(tx8, tmp_path, "diff", a, tmp_path / "d.json", says=("not what this version",))
    refused(tx8, tmp_path, "diff", a, tmp_path / "none.json", says=("No such file",))
