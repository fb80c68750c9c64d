"""Programs of one graph against another that differs in one thing: each is refused, and none of the right ones is.

One seed each; with TX8FAST_PROVE=1 (`make test-proofs`) twenty.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from tests.support.family_checkpoints import make_family
from tx8fast import api
from tx8fast.errors import ProgramError
from tx8fast.proof import draw
from tx8fast.proof.field import Field

SEEDS = range(1, 21) if os.environ.get("TX8FAST_PROVE") == "1" else range(7, 8)
OPSETS = '<ir_version: 8, opset_import: ["" : 20]>'
ONE, TWO, ROWS = "float[6,24] x", "float[6,24] x, float[6,24] z", "float[1,6,24] x"

#: what differs -> inputs, result, nodes with {0} for what does, right, wrong. `w...` are weights, `k` (6, 6) is a mask
#: that hides what is behind a position, `j` one that hides the position, too
GRAPHS: dict[str, tuple[str, str, str, str, str]] = {
    "operands of a difference": (TWO, "float[6,24] y", "y = Sub ({0})", "x, z", "z, x"),
    "operands of a quotient": (TWO, "float[6,24] y", "y = Div ({0})", "x, z", "z, x"),
    "operands of a product": ("float[8,8] x, float[8,8] z", "float[8,8] y", "y = MatMul ({0})", "x, z", "z, x"),
    "a transposed operand": ("float[8,8] x, float[8,8] w", "float[8,8] y", "y = Gemm <transB = {0}> (x, w)", "0", "1"),
    "a layout": ("float[2,8,8] x", "float[2,8,8] y", "t = Transpose <perm = [{0}]> (x) y = Mul (t, x)", "0, 2, 1", "0, 1, 2"),
    "heads": (ROWS, "float[1,4,6,6] y", "s = Constant <value = int64[4] {{ {0} }}> () r = Reshape (x, s) "
              "q = Transpose <perm = [{1}]> (r) y = Relu (q)", "1, 6, 4, 6;0, 2, 1, 3", "1, 6, 6, 4;0, 3, 1, 2"),
    "a dropped mask": ("float[6,6] x, float[6,6] k", "float[6,6] y", "s = {0} y = Softmax (s)", "Add (x, k)", "Identity (x)"),
    "a mask one off": ("float[6,6] x, float[6,6] k, float[6,6] j", "float[6,6] y", "s = Add (x, {0}) y = Softmax (s)", "k", "j"),
    "an axis of a softmax": ("float[2,8,8] x", "float[2,8,8] y", "y = Softmax <axis = {0}> (x)", "2", "1"),
    "a scale": (TWO, "float[6,24] y", "c = Constant <value_float = {0}> () s = Mul (x, c) y = Add (s, z)", "0.25", "0.2501"),
    "an epsilon": ("float[6,24] x, float[24] w", "float[6,24] y", "y = LayerNormalization <epsilon = {0}> (x, w)", "1e-5", "1e-6"),
    "an axis of a sum": ("float[8,8] x", "float[8] y", "a = Constant <value = int64[1] {{ {0} }}> () "
                         "y = ReduceSum <keepdims = 0> (x, a)", "0", "1"),
    "a mean over one fewer": (ONE, "float[6,1] y", "a = Constant <value = int64[1] {{ 1 }}> () s = ReduceSum (x, a) "
                              "c = Constant <value_float = {0}> () y = Mul (s, c)", "0.0416666667", "0.0434782609"),
    "a missing bias": ("float[6,24] x, float[24,24] w, float[24] wb", "float[6,24] y", "p = MatMul (x, w) y = {0}",
                       "Add (p, wb)", "Relu (p)"),
    "a shifted row of a table": ("float[9,16] w, float[3,16] x", "float[3,16] y", "i = Constant <value = int64[3] {{ {0} }}> () "
                                 "r = Gather (w, i) y = Add (r, x)", "0, 4, 7", "1, 5, 8"),
    "a window one off": ("float[12,16] x, float[5,16] z", "float[5,16] y", "b = Constant <value = int64[1] {{ {0} }}> () "
                         "e = Constant <value = int64[1] {{ {1} }}> () a = Constant <value = int64[1] {{ 0 }}> () "
                         "s = Slice (x, b, e, a) y = Mul (s, z)", "3;8", "4;9"),
    "an order of parts": (TWO, "float[6,48] y", "y = Concat <axis = 1> ({0})", "x, z", "z, x"),
    "a stale row": ("float[5,16] x, float[1,16] z", "float[6,16] y", "b = Constant <value = int64[1] {{ 4 }}> () "
                    "b1 = Constant <value = int64[1] {{ 0 }}> () e = Constant <value = int64[1] {{ 5 }}> () o = Slice (x, b, e, b1) "
                    "y = Concat <axis = 0> (x, {0})", "z", "o"),
    "a half of a rope": ("float[6,16] x, float[6,16] z", "float[6,16] y", "h = Constant <value = int64[2] {{ 8, 8 }}> () "
                         "a, b = Split <axis = 1> (x, h) m = Neg ({0}) r = Concat <axis = 1> ({1}) y = Mul (r, z)",
                         "b;m, a", "a;b, m"),
    "a dilation": ("float[1,4,9,9] x, float[8,4,3,3] w", "float[1,8,9,9] y", "y = Conv <{0}> (x, w)",
                   "dilations = [1, 1], pads = [1, 1, 1, 1]", "dilations = [2, 2], pads = [2, 2, 2, 2]"),
    "a side of padding": ("float[1,4,8,8] x, float[8,4,2,2] w", "float[1,8,8,8] y", "y = Conv <pads = [{0}]> (x, w)",
                          "0, 0, 1, 1", "1, 1, 0, 0"),
    "a kind of pool": ("float[1,4,8,8] x", "float[1,4,4,4] y", "y = {0}Pool <kernel_shape = [2, 2], strides = [2, 2]> (x)",
                       "Max", "Average"),
    "what a pool counts": ("float[1,4,8,8] x", "float[1,4,8,8] y", "y = AveragePool <kernel_shape = [3, 3], "
                           "pads = [1, 1, 1, 1], count_include_pad = {0}> (x)", "1", "0"),
    "branches of a choice": (TWO, "float[6,24] y", "c = Greater (x, z) y = Where (c, {0})", "x, z", "z, x"),
    "a relation": (TWO, "bool[6,24] y", "y = {0} (x, z)", "Greater", "GreaterOrEqual"),
    "operands of a relation": ("float[1,1] x, float[1,1] z", "bool[1,1] y", "y = Less ({0})", "x, z", "z, x"),
    "a choice by another relation": (TWO, "float[6,24] y", "c = {0} (x, z) y = Where (c, x, z)", "Less", "LessOrEqual"),
    "a bound": (ONE, "float[6,24] y", "a = Constant <value_float = -1.0> () b = Constant <value_float = {0}> () "
                "y = Clip (x, a, b)", "2.0", "2.5"),
    "a slope": (ONE, "float[6,24] y", "y = LeakyRelu <alpha = {0}> (x)", "0.01", "0.02"),
    "a direction": (ONE, "float[6,24] y", "a = Constant <value = int64 {{1}}> () y = CumSum <reverse = {0}> (x, a)", "0", "1"),
    "a form of gelu": (ONE, "float[6,24] y", "y = Gelu <approximate = \"{0}\"> (x)", "none", "tanh"),
    "a power": (ONE, "float[6,24] y", "e = Constant <value_float = {0}> () y = Pow (x, e)", "2.0", "3.0"),
    "what is on top": ("float[6,24] x", "float[6,4] y", "k1 = Constant <value = int64[1] {{4}}> () "
                       "y, i = TopK <largest = {0}> (x, k1)", "1", "0"),
    "a place": ("float[6,24] x", "int64[6,1] y", "y = Arg{0} <axis = 1> (x)", "Max", "Min"),
    "which of equal ones": ("float[6,24] x", "int64[6,1] y", "y = ArgMax <axis = 1, select_last_index = {0}> (x)", "0", "1"),
    "a mode of padding": ("float[6,8] x", "float[6,10] y", "p = Constant <value = int64[4] {{0, 1, 0, 1}}> () "
                          "y = Pad <mode = \"{0}\"> (x, p)", "constant", "reflect"),
    "an order of channels": ("float[1,8,4,4] x", "float[1,2,8,8] y", "y = DepthToSpace <blocksize = 2, mode = \"{0}\"> (x)",
                             "DCR", "CRD"),
}  # fmt: skip


def model_of(path: Path, name: str, wrong: bool) -> Path:
    """Write the graph with what is right, or what is not."""
    inputs, result, nodes, *filled = GRAPHS[name]
    nodes = nodes.format(*filled[wrong].split(";"))
    model = parser.parse_model(f"{OPSETS} g ({inputs}) => ({result}) {{ {nodes} }}")
    rng = np.random.default_rng(0)
    for v in list(model.graph.input):
        shape = [d.dim_value for d in v.type.tensor_type.shape.dim]
        if v.name[0] in "wkj":
            values = rng.standard_normal(shape).astype(np.float32)
            if v.name in "kj":
                values = np.where(np.tri(*shape, -(v.name == "j")), 0, np.float32(-1e38)).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(values, v.name))
            model.graph.input.remove(v)
    onnx.save(model, str(path))
    return path


def proved(program, model: Path, seed: int, monkeypatch, options=None) -> bool:
    """Say whether a proof with one seed finds nothing wrong."""
    monkeypatch.setattr("tx8fast.proof.prove.Field", lambda _, thin=None: Field(seed, thin))
    try:
        report = api.prove(program, model, options, quick=True)
    except ProgramError:
        return False
    assert report.failures or not report.outside, report.lines()
    return report.proved


@pytest.mark.parametrize("name", ["a dropped mask", "operands of a product", "a missing bias"])
def test_one_thing_beside_weights_that_are_drawn_where_they_are_used(tmp_path, monkeypatch, name):
    """The mask, which one of the graphs does not have, is a parameter that a launch of the other one stores."""
    monkeypatch.setattr(draw, "LARGE", 1)
    test_one_thing_that_differs_is_refused(tmp_path, monkeypatch, name)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.slow(but_every=5)
def test_one_thing_that_differs_is_refused(tmp_path, monkeypatch, name):
    models = [model_of(tmp_path / f"{x}.onnx", name, wrong) for x, wrong in (("right", False), ("wrong", True))]
    programs = [api.compile(m).program for m in models]
    for seed in SEEDS:
        for i, program in enumerate(programs):
            assert proved(program, models[i], seed, monkeypatch), "the program's own graph"
            assert not proved(program, models[1 - i], seed, monkeypatch), "the other graph"


#: family, key of its configuration, another value
CONFIGS = [
    ("mistral", "sliding_window", 6), ("granite", "attention_multiplier", 0.3), ("granite", "residual_multiplier", 0.4),
    ("gemma2", "attn_logit_softcapping", 6.0), ("gpt_neox", "rotary_pct", 0.25), ("llama", "rms_norm_eps", 1e-6),
    ("llama", "rope_theta", 500.0), ("llama", "hidden_act", "gelu"), ("qwen3_moe", "num_experts_per_tok", 2),
    ("qwen3_moe", "norm_topk_prob", False), ("smollm3", "no_rope_layers", [0, 1]), ("deepseek_v3", "routed_scaling_factor", 1.6),
]  # fmt: skip
FEW = CONFIGS if len(SEEDS) > 1 else [CONFIGS[0], CONFIGS[1], CONFIGS[4]]


@pytest.mark.parametrize("family, key, value", FEW)
@pytest.mark.slow(but_every=4)
def test_one_key_of_a_configuration_that_differs_is_refused(tmp_path, monkeypatch, family, key, value):
    folder, options = tmp_path / family, api.CompileOptions(seq=9, dtype="bf16")
    make_family(folder, family)
    program = api.compile(folder, options).program
    config = json.loads((folder / "config.json").read_text())
    for seed in SEEDS:
        (folder / "config.json").write_text(json.dumps(config))
        assert seed > SEEDS[0] or proved(program, folder, seed, monkeypatch, options)
        (folder / "config.json").write_text(json.dumps({**config, key: value}))
        assert not proved(program, folder, seed, monkeypatch, options)
