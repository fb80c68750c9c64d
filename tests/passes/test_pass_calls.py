"""Whole pipelines: Llama-class configurations and exported models keep their numbers and convert little."""

import json

import numpy as np
import pytest
from support.checkpoints import make_checkpoint, model_config
from support.run_graph import run_graph
from support.small_graph import ops_of

from tx8fast.frontend.hf import HfOptions, import_hf
from tx8fast.passes.pipeline import backend_passes, graph_passes, run_pipeline, standard_pipeline

LAYERS = 4


def config_only(tmp_path, phase):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**model_config("llama"), "num_hidden_layers": LAYERS}))
    return import_hf(path, HfOptions(phase=phase, past=16) if phase == "decode" else HfOptions(seq=16))


@pytest.mark.parametrize("method", ["greedy", "mincut"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_no_conversion_inside_a_llama_layer(tmp_path, phase, method):
    p = config_only(tmp_path, phase)
    run_pipeline(p, standard_pipeline("bf16", layout_method=method))
    (body,) = [f for f in p.functions if f.kind == "subgraph"]
    calls = ops_of(p, "call")
    assert len(calls) == LAYERS
    assert not any(op.kind == "channel_norm" for op in body.walk())
    norms = [op for op in p.main.walk() if op.kind == "channel_norm"]
    if phase == "decode":  # embedding and two rotation rows; caches stay blocked from run to run
        assert len(norms) == 3
        assert p.main.attrs["arg_layouts"][2:] == ("blocked",) * 2 * LAYERS
    else:  # the embedding; results leave as they were made
        assert len(norms) == 1
    assert set(p.main.attrs["result_layouts"]) == {"blocked"}
    assert all(op.attrs["mem_layout"] for op in ops_of(p, "get_param"))


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_what_leaves_for_the_back_end(tmp_path, phase):
    p = config_only(tmp_path, phase)
    run_pipeline(p, standard_pipeline())
    outside = {op.kind for f in p.functions for op in f.body}
    assert outside <= {"get_param", "constant", "group", "call", "reshape", "return", "subgraph_return"}
    for group in ops_of(p, "group"):
        inner = [op for op in group.body if op.kind not in ("load_var", "store_var", "none", "group_return")]
        assert len(inner) == 1 and group.attrs["dev_region"].dx == 4
        assert inner[0].attrs["mem_layout"] in ("dense", "blocked")
        moves = [op.kind for op in group.body if op.kind in ("load_var", "store_var")]
        assert (group.attrs["group_tag"] == 2) == (not moves)
        assert (inner[0].kind in ("embedding", "kv_update", "le")) == (not moves)


@pytest.mark.parametrize("dtype, tolerance", [("keep", 1e-5), ("f32", 1e-5), ("bf16", 0.05), ("f16", 0.01)])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_llama_keeps_its_numbers(tmp_path, phase, dtype, tolerance):
    make_checkpoint(tmp_path, "llama")
    options = HfOptions(phase="decode", past=8) if phase == "decode" else HfOptions(seq=6)
    program = import_hf(tmp_path, options)
    rng = np.random.default_rng(3)
    inputs = {}
    for name, v in zip(program.main.attrs["arg_names"], program.main.body.args):
        inputs[name] = rng.standard_normal(v.shape) if v.dtype[0] in "bf" else np.full(v.shape, 5)
    wanted = run_graph(program, inputs)
    run_pipeline(program, standard_pipeline(dtype))
    found = run_graph(program, inputs)
    for name, w in wanted.items():
        w = np.asarray(w, np.float64)
        assert found[name].dtype == wanted[name].dtype
        assert np.abs(np.asarray(found[name], np.float64) - w).max() <= tolerance * np.abs(w).max(), name


@pytest.mark.parametrize("model", ["bert-encode-op23", "llama-decode-op20", "qwen3-prefill-op20", "vit-encode-op20"])
def test_exported_models_keep_their_numbers(data_dir, model):
    from tx8fast.frontend.onnx import import_onnx

    path = data_dir / "onnx" / f"{model}.onnx"
    program = import_onnx(str(path))
    rng = np.random.default_rng(3)
    inputs = {}
    for name, v in zip(program.main.attrs["arg_names"], program.main.body.args):
        inputs[name] = rng.standard_normal(v.shape) if v.dtype[0] in "bf" else np.ones(v.shape)
    wanted = run_graph(program, inputs)
    for dtype, tolerance in (("keep", 1e-5), ("bf16", 0.05)):
        compiled = program.clone()
        run_pipeline(compiled, standard_pipeline(dtype))
        found = run_graph(compiled, inputs)
        for name, w in wanted.items():
            assert np.abs(np.asarray(found[name], np.float64) - w).max() <= tolerance * np.abs(w).max(), name


def test_the_pipeline_is_deterministic(tmp_path):
    texts = []
    for _ in range(2):
        p = config_only(tmp_path, "decode")
        run_pipeline(p, [*graph_passes("f32"), *backend_passes("greedy")])
        texts.append(p.text(locations=True))
    assert texts[0] == texts[1]
