"""Config files as they lie on hubs: spellings of several versions of the library, keys left out, nulls, nested sections.

Each is a small base and the edits that make it; what is read is what the library (transformers 5, or 4 where 5 refuses) makes of the same file.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tx8fast.errors import ImportModelError, UnsupportedError
from tx8fast.frontend.hf import HfOptions, import_hf
from tx8fast.frontend.hf.config import parse_config
from tx8fast.weights.rope import rope_frequencies

Raw = dict[str, Any]
GONE = object()
BASE: Raw = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 96, "max_position_embeddings": 4096, "model_type": "llama",
    "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-5,
    "rope_scaling": None, "rope_theta": 500000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "transformers_version": "4.40.0", "use_cache": True, "vocab_size": 100,
}  # fmt: skip
NEWER: Raw = {"torch_dtype": GONE, "dtype": "bfloat16", "rope_theta": GONE, "rope_scaling": GONE, "transformers_version": "5.0.0",
              "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}}  # fmt: skip
LLAMA3: Raw = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}
FACTORS: Raw = {"short_factor": [1.0 + i / 8 for i in range(8)], "long_factor": [4.0 + i for i in range(8)]}
MISSING = ("rope_theta", "rms_norm_eps", "num_key_value_heads", "hidden_act", "tie_word_embeddings", "torch_dtype", "rope_scaling",
           "attention_bias", "max_position_embeddings")  # fmt: skip
#: edits, and what is read: field of the record -> value. "rope": theta, scaling as it is kept
ACCEPTED: dict[str, tuple[Raw, Raw]] = {
    "4.x": ({}, {"dtype": "bf16", "kv_heads": 2, "head_dim": 16, "norm_eps": 1e-5, "rope": (5e5, {"rope_type": "default"})}),
    "5.x": (NEWER, {"dtype": "bf16", "rope": (5e5, {"rope_type": "default"})}),
    "keys left out": (dict.fromkeys(MISSING, GONE), {"dtype": None, "kv_heads": 4, "norm_eps": 1e-6, "activation": "silu", "tied": False,
                                                     "qkv_bias": False, "rope": (1e4, {"rope_type": "default"})}),
    "nulls": ({"num_key_value_heads": None, "head_dim": None, "pad_token_id": None, "torch_dtype": None, "quantization_config": None,
               "sliding_window": None}, {"kv_heads": 4, "head_dim": 16, "dtype": None, "quantization": None}),
    "several ends": ({"eos_token_id": [2, 7, 9], "pad_token_id": 0}, {}),
    "an end in words": ({"eos_token_id": "</s>", "bos_token_id": "<s>"}, {}),
    "both names of the format": ({"torch_dtype": "float32", "dtype": "bfloat16"}, {"dtype": "bf16"}),
    "a head of its own width": ({"head_dim": 32}, {"head_dim": 32, "attention_scale": 32**-0.5}),
    "base as a whole number": ({"rope_theta": 1000000}, {"rope": (1e6, {"rope_type": "default"})}),
    "linear, 4.x": ({"rope_scaling": {"type": "linear", "factor": 4.0}}, {"rope": (5e5, {"rope_type": "linear", "factor": 4.0})}),
    "linear, 5.x": (NEWER | {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
                    {"rope": (1e4, {"rope_type": "linear", "factor": 4.0})}),
    "dynamic, 4.x": ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, {"rope": (5e5, {"rope_type": "dynamic", "trained": 4096})}),
    "dynamic, 5.x": (NEWER | {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 5e5}},
                     {"rope": (5e5, {"rope_type": "dynamic", "trained": 4096})}),
    "yarn, 4.x": ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}},
                  {"gain": 0.1 * math.log(4) + 1}),
    "yarn, 5.x": (NEWER | {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 5e5, "beta_fast": 16.0, "beta_slow": 2.0,
                                               "attention_factor": 1.5, "original_max_position_embeddings": 1024, "truncate": False}},
                  {"gain": 1.5}),
    "yarn without the trained length": ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, {}),
    "yarn with two temperatures": ({"rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 0.5, "beta_fast": 32,
                                                     "beta_slow": 1, "original_max_position_embeddings": 1024}}, {"gain": 1.15572199}),
    "llama3, 4.x": ({"rope_scaling": {"rope_type": "llama3", **LLAMA3}}, {"rope": (5e5, {"rope_type": "llama3", **LLAMA3})}),
    "llama3, both names": ({"rope_scaling": {"type": "llama3", "rope_type": "llama3", **LLAMA3}},
                           {"rope": (5e5, {"rope_type": "llama3", **LLAMA3})}),
    "llama3, 5.x": (NEWER | {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}},
                    {"rope": (5e5, {"rope_type": "llama3", **LLAMA3})}),
    "trained length of the file": ({"rope_scaling": {"rope_type": "llama3", **LLAMA3}, "original_max_position_embeddings": 2048},
                                   {"rope": (5e5, {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 2048})}),
    "old and new section": (NEWER | {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2.0}},
                            {"rope": (1e4, {"rope_type": "linear", "factor": 2.0})}),
    "longrope, 4.x": ({"model_type": "phi3", "rope_scaling": {"type": "longrope", **FACTORS}, "original_max_position_embeddings": 1024},
                      {"gain": math.sqrt(1 + math.log(4) / math.log(1024))}),
    "longrope by its first name": ({"model_type": "phi3", "rope_scaling": {"type": "su", **FACTORS}, "original_max_position_embeddings": 1024},
                                   {"gain": math.sqrt(1 + math.log(4) / math.log(1024))}),
    # the library's default of the file's key, 4096, counts before that of the section
    "longrope, 5.x": (NEWER | {"model_type": "phi3", "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, **FACTORS, "factor": 16.0,
                                                                        "original_max_position_embeddings": 1024}},
                      {"gain": math.sqrt(1 + math.log(16) / math.log(4096))}),
    "a part of each head": (NEWER | {"model_type": "stablelm", "layer_norm_eps": 1e-5, "rope_parameters":
                                     {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}, {}),
    "window switched off": ({"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 16, "max_window_layers": 1},
                            {"windows": (0, 0)}),
    "layers by name": ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 16,
                        "layer_types": ["full_attention", "sliding_attention"]}, {"windows": (0, 16)}),
    "gptq": ({"quantization_config": {"bits": 4, "group_size": 128, "quant_method": "gptq", "desc_act": False, "sym": True}}, {}),
    "fp8 in blocks": ({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}, {}),
}  # fmt: skip
REFUSED: dict[str, tuple[Raw, type[Exception], str]] = {
    "a number in words": ({"vocab_size": "100"}, ImportModelError, "'vocab_size' is '100', required: a whole number"),
    "layers as a float": ({"num_hidden_layers": 2.0}, ImportModelError, "'num_hidden_layers' is 2.0"),
    "unknown rotation": ({"rope_scaling": {"rope_type": "ntk2", "factor": 2.0}}, ImportModelError, "rope_type 'ntk2' is not one of"),
    "llama3 without its keys": ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, ImportModelError, "low_freq_factor"),
    "longrope of another head": ({"model_type": "phi3", "head_dim": 32, "rope_scaling": {"type": "longrope", **FACTORS}},
                                 ImportModelError, "short_factor has 8 entries"),
    "yarn without a factor": ({"rope_scaling": {"type": "yarn"}}, ImportModelError, "'factor' is None, required for yarn"),
    "unknown packing": ({"quantization_config": {"quant_method": "hqq", "bits": 4}}, ImportModelError, "hqq"),
    "unknown format": ({"torch_dtype": "float8_e4m3fn"}, ImportModelError, "'torch_dtype' is 'float8_e4m3fn'"),
    "unknown activation": ({"hidden_act": "mish"}, ImportModelError, "'hidden_act' is 'mish'"),
    "another name of a family": ({"model_type": "mymodel"}, UnsupportedError, "--as llama"),
}  # fmt: skip
#: a text half in its section: outer keys, what the section leaves out
TEXT = {
    k: v for k, v in BASE.items() if k not in ("architectures", "torch_dtype", "transformers_version", "rope_scaling")
}


def edited(edits: Raw) -> Raw:
    return {k: v for k, v in (BASE | edits).items() if v is not GONE}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_file_is_read_as_the_library_reads_it(tmp_path, name) -> None:
    edits, wanted = ACCEPTED[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(edited(edits)))
    config = parse_config(json.loads(path.read_text()), name)
    for key, value in wanted.items():
        if key == "rope":
            assert (config.ropes[0].theta, config.ropes[0].scaling) == value
        elif key == "gain":
            assert config.ropes[0].gain == pytest.approx(value)
        else:
            assert getattr(config, key) == value, key
    for options in (HfOptions(seq=8), HfOptions(phase="decode", past=8)):
        if config.quantization is None:  # what is packed is read with its tensors
            import_hf(path, options).verify()


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_the_reason(name) -> None:
    edits, kind, says = REFUSED[name]
    with pytest.raises(kind, match=r"reading model config c: ") as told:
        parse_config(edited(edits), "c")
    assert says in str(told.value)


@pytest.mark.parametrize("outer", ["mistral3", "llava", "qwen2_5_vl"])
@pytest.mark.parametrize("dtype", [{"torch_dtype": "bfloat16"}, {"dtype": "bfloat16"}], ids=["4.x", "5.x"])
def test_the_text_half_in_its_section(outer, dtype) -> None:
    """The format stands outside; the section may leave out what the library knows, and its own kind."""
    inner = {**TEXT, "model_type": {"mistral3": "mistral", "llava": "llama", "qwen2_5_vl": "qwen2_5_vl_text"}[outer]}
    inner |= {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}} if outer == "qwen2_5_vl" else {}
    found = parse_config(
        {"model_type": outer, "text_config": inner, "vision_config": {}, "image_token_index": 10, **dtype},
        "c",
        part="text",
    )
    assert (found.hidden, found.layers, found.dtype, found.ropes[0].theta) == (64, 2, "bf16", 5e5)


#: frequencies, as transformers 5.23 computed them in f32 from the same files
RECORDED = {
    "yarn, 4.x": [1.0, 0.1575622, 0.02350377, 0.003190541, 0.0003535534, 6.856205e-05, 1.329574e-05, 2.578346e-06],
    "yarn, 5.x": [1.0, 0.1939228, 0.02459069, 0.001823166, 0.0003535534, 6.856205e-05, 1.329574e-05, 2.578346e-06],
    "yarn without the trained length": [1.0, 0.1939228, 0.02820452, 0.003646332, 0.0003535534, 6.856205e-05, 1.329574e-05, 2.578346e-06],
    "yarn with two temperatures": [1.0, 0.1466541, 0.01927309, 0.001959904, 3.535534e-05, 6.856204e-06, 1.329574e-06, 2.578346e-07],
    "llama3, 5.x": [1.0, 0.1939228, 0.03760603, 0.001312569, 0.0001767767, 3.428102e-05, 6.64787e-06, 1.289173e-06],
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_frequencies_are_the_library_s(name) -> None:
    rope = parse_config(edited(ACCEPTED[name][0]), name).ropes[0]
    assert rope_frequencies(rope.theta, rope.rotary_dim, rope.scaling) == pytest.approx(RECORDED[name], rel=1e-6)
