"""One checkpoint by two ways: the builder's graph and torch's export give the same numbers and the same layer bodies.

`tests/data/onnx/families` holds what torch 2.13 exports (dynamo, opset 20) for the checkpoints that `make_family` writes; with torch the
exports are made anew, for more families and operator sets. `-padded`: of three layers, two sequences and with `attention_mask`.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.exports import SAME_LAYERS
from tests.support.exports import STORED as STORED_FAMILIES
from tests.support.family_checkpoints import CONFIGS, VOCAB, make_family
from tests.support.run_graph import run_graph
from tx8fast.frontend import open_model
from tx8fast.ir.builder import Builder
from tx8fast.ir.clone import structural_key
from tx8fast.passes.pipeline import graph_passes, run_pipeline

STORED = Path(__file__).parents[1] / "data" / "onnx" / "families"
SEQ = 40
#: long enough for the tables, and enough layers for two periods
CHANGES = {
    "gpt2": {"n_positions": 64}, "opt": {"max_position_embeddings": 64},
    "gemma2": {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "gemma3_text": {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "smollm3": {"num_hidden_layers": 4, "no_rope_layers": [1, 0, 1, 0]},
    "qwen3_moe": {"mlp_only_layers": []},
}  # fmt: skip
#: the one form of experts that torch exports
MIXTURES = {case: {"experts_implementation": "batched_mm"} for case in ("mixtral", "qwen3_moe")}


def cleaned(path, **options):
    """Import a model, keep its first result (the caches have another form in an export), clean and outline it."""
    program = open_model(path, **options)
    main = program.main
    names = main.attrs["result_names"]
    kept = names.index("logits") if "logits" in names else 0
    last = main.body.last
    value = last.operands[kept]
    last.erase()
    Builder(program.ctx, main.body).op("return", value)
    main.attrs["result_names"] = ("y",)
    run_pipeline(program, graph_passes("keep"))
    return program


def compare(checkpoint: Path, exported: Path, options):
    built, found = cleaned(checkpoint, **options), cleaned(exported)
    rng = np.random.default_rng(0)
    feed = {}
    for name, arg in zip(built.main.attrs["arg_names"], built.main.body.args, strict=True):
        high = 2 if name in ("token_type_ids", "attention_mask") else VOCAB
        feed[name] = rng.integers(0, high, arg.shape) if arg.dtype == "i64" else rng.standard_normal(arg.shape)
    want, got = run_graph(built, feed)["y"], run_graph(found, feed)["y"]
    assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()
    keys = [[structural_key(f) for f in p.functions if f.kind == "subgraph"] for p in (built, found)]
    assert keys[0] and keys[0] == keys[1]


def checkpoint(directory, case, monkeypatch):
    monkeypatch.setitem(CONFIGS, case, {**CONFIGS[case], **CHANGES.get(case, {})})
    make_family(directory, case)
    return directory


@pytest.mark.parametrize("path", sorted(STORED.glob("*.onnx")), ids=lambda p: p.stem)
def test_stored_exports(path, tmp_path, monkeypatch):
    case, _, padded = path.stem.removesuffix("-op20").partition("-")
    options = {"seq": SEQ}
    if padded:  # the first layer makes the mask, too
        monkeypatch.setitem(CONFIGS, case, {**CONFIGS[case], "num_hidden_layers": 3})
        options |= {"batch": 2, "attention_mask": True}
    compare(checkpoint(tmp_path, case, monkeypatch), path, options)


def test_families_of_stored_exports():
    assert {p.stem.removesuffix("-op20").partition("-")[0] for p in STORED.glob("*.onnx")} == set(STORED_FAMILIES)


@pytest.mark.parametrize("case", SAME_LAYERS)
def test_fresh_exports(case, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("onnxscript")
    directory = checkpoint(tmp_path / "hf", case, monkeypatch)
    kind = json.loads((directory / "config.json").read_text())["model_type"]
    auto = transformers.AutoModelForImageClassification if kind == "vit" else transformers.AutoModelForCausalLM
    model = auto.from_pretrained(directory, dtype=torch.float32, **MIXTURES.get(case, {})).eval()

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x, **({} if kind == "vit" else {"use_cache": False})).logits

    x = torch.randn(1, 3, 16, 16) if kind == "vit" else torch.randint(3, VOCAB, (1, SEQ))
    name = "pixel_values" if kind == "vit" else "input_ids"
    with torch.no_grad():
        torch.onnx.export(Logits(), (x,), str(tmp_path / "m.onnx"), dynamo=True, opset_version=SAME_LAYERS[case],
                          external_data=False, verbose=False, input_names=[name], output_names=["y"])  # fmt: skip
    compare(directory, tmp_path / "m.onnx", {} if kind == "vit" else {"seq": SEQ})
