"""Deterministic figures of whole programs: they may change only with a change of the golden file.

pytest tests/test_golden_metrics.py --update-golden
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cnn_models import resnet50

import tx8fast

GOLDEN = Path(__file__).parent / "golden" / "metrics.json"
LLAMA_3_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
BERT_BASE = {
    "model_type": "bert", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "vocab_size": 30522, "max_position_embeddings": 512, "hidden_act": "gelu",
}  # fmt: skip
CASES = {
    "llama-3-8b prefill 2048": {"phase": "prefill", "seq": 2048},
    "llama-3-8b prefill 2048 single ops": {"phase": "prefill", "seq": 2048, "opt": 1},
    "llama-3-8b decode 2048": {"phase": "decode", "past": 2048},
    "bert-base 384 batch 16": {"phase": "prefill", "seq": 384, "batch": 16},
    "resnet-50 batch 16": {"dtype": "bf16"},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    models = {}
    for model, config in (("llama-3-8b", LLAMA_3_8B), ("bert-base", BERT_BASE)):
        models[model] = tmp_path_factory.mktemp(model)
        (models[model] / "config.json").write_text(json.dumps(config))
    models["resnet-50"] = resnet50(tmp_path_factory.mktemp("resnet") / "net.onnx", 16)
    found = {}
    for name, options in CASES.items():
        program = tx8fast.compile(models[name.split()[0]], **options)
        found[name] = (program, program.simulate())
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_figures(results, name, request):
    program, r = results[name]
    figures = {
        "cycles": r.cycles, "roofline_ratio": round(r.roofline_ratio, 4), "launches": len(program.program.launches),
        "segments": len(program.program.segments), "spm_peak_bytes": program.program.meta["spm_peak_bytes"],
        "useful_macs": program.program.meta["useful_macs"], "unique_ddr_bytes": program.program.meta["unique_ddr_bytes"],
    }  # fmt: skip
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if request.config.getoption("--update-golden"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps({**known, name: figures}, indent=2, sort_keys=True) + "\n")
        return
    assert figures == known[name]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow(but_every=3)
def test_simulation_respects_the_bounds(results, name):
    _, r = results[name]
    assert r.cycles >= r.bound_cycles > 0
    assert all(0 <= busy <= r.cycles * 16 for busy in r.busy.values())
    assert sum(r.busy.values()) <= r.cycles * 16 * len(r.busy)


def test_images_stay_in_scratchpad(results):
    """ResNet-50 is one stream: hardly more crosses the DDR than must, and the engines are busy most of the time."""
    program, r = results["resnet-50 batch 16"]
    assert r.ddr_bytes < 1.2 * program.program.meta["unique_ddr_bytes"]
    assert r.roofline_ratio > 0.75


def test_groups_and_sharing_pay(results):
    """Groups and shared operands together run the prefill in well under half the cycles of single ops."""
    grouped, single = (results[n][1].cycles for n in ("llama-3-8b prefill 2048", "llama-3-8b prefill 2048 single ops"))
    assert grouped * 1.15 < single
