"""`tx8fast export`: a graph with its weights as files that are a model again; nothing is ever written over."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tx8fast
from tests.support.checkpoints import make_checkpoint
from tests.support.cli_case import Caller, refused, tree, write_mlp
from tx8fast.batch.fingerprint import fingerprint
from tx8fast.options import CompileOptions

SEQ = ("--seq", "4")


@pytest.fixture
def folder(tx8: Caller, tmp_path: Path, checkpoint: Path) -> Path:
    """An exported prefill, with a link to its weights."""
    made = tmp_path / "graph"
    assert tx8("export", checkpoint, *SEQ, "-o", made).code == 0
    (made / "model.safetensors").symlink_to(checkpoint / "model.safetensors")
    return made


def test_the_exported_graph_is_the_model(tx8: Caller, tmp_path: Path, checkpoint: Path, folder: Path) -> None:
    a = tx8fast.compile(checkpoint, seq=4, opt=1)
    b = tx8fast.compile(folder, opt=1)
    assert [s.name for s in a.program.segments] == [s.name for s in b.program.segments], "ops keep their names"
    for one, other in zip(a.program.segments, b.program.segments, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(one.codes, other.codes, strict=True))
    ids = {"input_ids": np.array([[3, 1, 4, 1]])}
    for x, y in zip(a.run(ids).values(), b.run(ids).values(), strict=True):
        np.testing.assert_array_equal(x, y)
    b.save(tmp_path / "p.tx8")
    for model in (folder, checkpoint):
        found = tx8("verify", tmp_path / "p.tx8", "--against", folder)
        assert found.code == 0 and found.err == "", (model, found)


def test_weights_stay_where_they_are_and_may_be_absent(tx8: Caller, tmp_path: Path, checkpoint: Path) -> None:
    made = tmp_path / "new" / "graph"
    told = tx8("export", checkpoint, *SEQ, "-o", made, "--json")
    assert told.code == 0 and told.err == ""
    facts = json.loads(told.out)
    assert facts["files"] == ["graph.mlir", "graph.json"] == sorted(os.listdir(made), reverse=True)
    assert facts["model_files"] == ["model.safetensors"] and facts["missing"] == []
    assert "put or link into it: model.safetensors" in tx8("export", checkpoint, *SEQ, "-o", tmp_path / "b").out
    assert tree(tmp_path / "b") == tree(made), "the same model gives the same bytes"
    assert tx8("check", made).code == 0
    program = tmp_path / "p.tx8"
    assert tx8("compile", made, "-o", program, "--opt", "1").code == 0
    np.savez(tmp_path / "in.npz", input_ids=np.array([[3, 1, 4, 1]]))
    refused(tx8, tmp_path, "run", program, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    bare = tx8("export", checkpoint / "config.json", *SEQ, "-o", tmp_path / "c").out
    assert "weights without bytes" in bare and "link" not in bare


def test_weights_of_the_graph_itself_are_written(tx8: Caller, tmp_path: Path) -> None:
    """Those of an ONNX file lie in it, what the model computes of constants in the graph."""
    model = write_mlp(tmp_path / "m.onnx")
    assert tx8("export", model, "-o", tmp_path / "g").code == 0
    x = {"x": np.linspace(-1, 1, 8 * 32, dtype=np.float32).reshape(8, 32)}
    if "m.onnx" in json.loads((tmp_path / "g" / "graph.json").read_text())["files"]:
        os.link(model, tmp_path / "g" / "m.onnx")
    wanted, found = (tx8fast.compile(m).run(x)["y"] for m in (model, tmp_path / "g"))
    np.testing.assert_array_equal(wanted, found)


def test_a_changed_graph_is_another_model(tmp_path: Path, folder: Path) -> None:
    text = (folder / "graph.mlir").read_text()
    assert 'act = "silu"' in text
    ids, known = {"input_ids": np.array([[3, 1, 4, 1]])}, fingerprint(folder, CompileOptions())
    before = tx8fast.compile(folder, opt=1).run(ids)["logits"]
    (folder / "graph.mlir").write_text(text.replace('act = "silu"', 'act = "gelu"'))
    assert not np.array_equal(tx8fast.compile(folder, opt=1).run(ids)["logits"], before)
    assert fingerprint(folder, CompileOptions()) != known, "a cache does not take the one for the other"


def test_nothing_is_written_over(tx8: Caller, tmp_path: Path, checkpoint: Path, mlp: Path) -> None:
    own = tmp_path / "own"
    make_checkpoint(own, layers=1)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for model, target, says in (
        (own, own, "has a file"), (mlp, tmp_path / "file", "Not a directory"), (mlp, tmp_path / "file" / "x", ""),
        (mlp, tmp_path / "link", "exporting to"), (mlp, tmp_path, "empty or not there yet"),
    ):  # fmt: skip
        refused(tx8, tmp_path, "export", model, "-o", target, *(SEQ if model == own else ()), says=(says,))
    assert tx8("export", own, *SEQ, "-o", own / "graph").code == 0, "a new folder of the model's is free"


def test_options(tx8: Caller, tmp_path: Path, checkpoint: Path) -> None:
    out = ("-o", tmp_path / "g")
    refused(tx8, tmp_path, "export", checkpoint, "--seq", "4,8", *out, says=("export one at a time",))
    refused(tx8, tmp_path, "export", tmp_path / "gone", *out, says=("no such file",))
    refused(
        tx8, tmp_path, "export", checkpoint, *SEQ, "--strict", "--dtype", "fp16", *out, says=("--dtype has no effect",)
    )
    refused(tx8, tmp_path, "export", checkpoint, "--seq", "4", "--tp", "2", *out, says=("every chip has a part",))
    assert tx8("export", checkpoint, *SEQ, *out).code == 0
    for more, says in ((("--seq", "8"), "seq has no effect"), (("--phase", "decode"), "phase has no effect")):
        found = tx8("check", tmp_path / "g", *more)
        assert found.code == 0 and says in found.err
    refused(tx8, tmp_path, "check", tmp_path / "g", "--tp", "7", says=("divides by 7",))


@pytest.mark.parametrize("way", ["full", "interrupted"])
def test_what_fails_leaves_nothing(tx8: Caller, tmp_path: Path, mlp: Path, monkeypatch, way: str) -> None:
    from tx8fast import files

    finish, count = files._Unfinished.finish, [0]

    def broken(self: Any) -> None:
        count[0] += 1
        if count[0] == 2:
            raise OSError(28, "No space left on device") if way == "full" else KeyboardInterrupt
        finish(self)

    monkeypatch.setattr(files._Unfinished, "finish", broken)
    found = tx8("export", mlp, "-o", tmp_path / "new" / "g")
    assert found.code == (2 if way == "full" else 130) and tree(tmp_path) == {}


WEIGHT = {"key": "k", "shape": [2], "dtype": "f32", "mutable": False}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": 2}, "schema 2 found, 1 required"),
        ({"weights": [{}]}, "there is no 'key'"),
        ({"weights": [{**WEIGHT, "kind": "magic"}]}, "kind 'magic'"),
        ({"weights": [{**WEIGHT, "kind": "data", "file": "../x"}]}, "leaves the directory"),
        ({"weights": [{**WEIGHT, "kind": "data", "file": "graph.mlir"}]}, "is 8 bytes, which graph.mlir has not"),
        ({"weights": [{**WEIGHT, "kind": "file", "file": "model.safetensors", "offset": 1 << 60, "nbytes": 8}]}, "lies elsewhere"),
        ({"weights": [{**WEIGHT, "kind": "derived", "expr": "arange", "attrs": {}, "inputs": ["k"]}]}, "computed from itself"),
        ({"weights": [{**WEIGHT, "shape": [-2], "kind": "missing"}]}, "no shape and format"),
        ({"weights": [{**WEIGHT, "dtype": "f99", "kind": "missing"}]}, "no shape and format"),
        ({"weights": []}, "embed_tokens"),
        ({"weights": {"a": 1}}, "is damaged"),
        ({"files": {"model.safetensors": 1 << 40}}, "when the graph was exported"),
        ({"phase": 3}, "are to be texts"),
    ],
)  # fmt: skip
def test_damaged_descriptions_are_refused(tx8: Caller, folder: Path, change: dict[str, Any], says: str) -> None:
    path = folder / "graph.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    refused(tx8, folder, "check", folder, says=(says,))


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"schema":' * 100000])
def test_what_is_no_description_is_refused(tx8: Caller, folder: Path, text: str) -> None:
    (folder / "graph.json").write_text(text)
    refused(tx8, folder, "check", folder, says=("graph.json is damaged",))


def test_the_graph_must_be_there(tx8: Caller, folder: Path) -> None:
    (folder / "graph.mlir").unlink()
    refused(tx8, folder, "check", folder, says=("graph.mlir", "No such file"))
