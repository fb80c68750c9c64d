"""`check`, `compile` and `sim` say the same of what a model needs, and it is what its weights and interfaces say."""

from __future__ import annotations

import json

import pytest

from tests.support.corpus import DATA, MODELS
from tests.support.family_checkpoints import CONFIGS, make_family
from tests.support.thorough import THOROUGH
from tx8fast import api
from tx8fast.options import CompileOptions

SAME = ("useful_macs", "unique_ddr_bytes", "compute_dtype", "bound_cycles", "bound")
#: every family in one of these ways, in turn
WAYS = (
    ("--seq", "6", "--tp", "2"),
    ("--phase", "decode", "--past", "8"),
    ("--seq", "6"),
    ("--phase", "decode", "--past", "8", "--tp", "2"),
)
ALONE = {"olmo2": WAYS[1], "bert": WAYS[0], "vit": WAYS[2]}  # cannot be cut, or have no decode step
FAMILIES = [(name, ALONE.get(name, WAYS[k % 4])) for k, name in enumerate(CONFIGS)]
#: two of three stand for all: each way is among them with several families
FAMILIES = [case for k, case in enumerate(FAMILIES) if THOROUGH or k % 3 < 2 or case[0] in ALONE]


def three(tx8, path, way, tmp_path):
    """What the three commands say of a model."""
    program = tmp_path / "p.tx8"
    calls = ("check", path, *way), ("compile", path, "-o", program, "--opt", "1", *way), ("sim", program)
    said = []
    for call in calls:
        found = tx8(*call, "--json")
        assert found.code == 0, found.err
        facts = json.loads(found.out)
        said.append({k: facts[k] for k in SAME})
    return said


@pytest.mark.parametrize("name, way", FAMILIES, ids=[name for name, _ in FAMILIES])
@pytest.mark.slow(but_every=5)
def test_families(tx8, tmp_path, name, way):
    make_family(tmp_path / name, name)
    check, compiled, simulated = three(tx8, tmp_path / name, way, tmp_path)
    assert check == compiled == simulated
    assert check["bound_cycles"] > 0


@pytest.mark.parametrize("name", MODELS[::3])
@pytest.mark.slow
def test_exported_models(tx8, tmp_path, name):
    check, compiled, simulated = three(tx8, DATA / "onnx" / f"{name}.onnx", (), tmp_path)
    assert check == compiled == simulated


@pytest.mark.parametrize("tp", [1, 2])
def test_bytes_are_those_of_weights_caches_and_results(tmp_path, tp):
    """A decode step reads every weight but the embedding, of which it takes a row, the cache, and writes new rows."""
    config, weights = make_family(tmp_path / "llama", "llama")
    compiled = api.compile(tmp_path / "llama", CompileOptions(phase="decode", past=8, tp=tp if tp > 1 else None, opt=1))
    shared = sum(w.nbytes for name, w in weights.items() if "norm" in name)
    embedding = next(w for name, w in weights.items() if "embed_tokens" in name)
    cut = sum(w.nbytes for name, w in weights.items()) - shared - embedding.nbytes
    biases = sum(w.nbytes for name, w in weights.items() if name.endswith(("o_proj.bias", "down_proj.bias")))
    inputs = sum(t.size_bytes for t in compiled.inputs)
    logits = config["vocab_size"] * 4
    rows = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * 4 // tp
    row = embedding.nbytes // config["vocab_size"]
    least = shared + biases + (cut - biases) // tp + row + rows + logits // tp + inputs
    found = compiled.program.meta["unique_ddr_bytes"]
    assert least * 0.97 <= found <= least * 1.03, (found, least)
