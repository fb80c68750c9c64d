"""Config files and options: what is accepted, and that every problem is named at once."""

import contextlib
import json
import random
from pathlib import Path

import pytest

from tests.support.checkpoints import LLAMA3_SCALING, model_config
from tx8fast.errors import ConfigError, ImportModelError, Tx8Error, UnsupportedError
from tx8fast.frontend.hf.config import parse_config
from tx8fast.frontend.hf.importer import read_config
from tx8fast.frontend.hf.options import HfOptions


def parse(model_type="llama", **extra):
    return parse_config(model_config(model_type, **extra), "config.json")


def test_defaults_of_the_families():
    raw = {
        k: 8
        for k in (
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "vocab_size",
        )
    }
    raw["num_attention_heads"] = 4
    c = parse_config({"model_type": "llama", **raw}, "c")
    assert (c.kv_heads, c.head_dim, c.norm_eps, c.ropes[0].theta, c.activation) == (
        4,
        2,
        1e-6,
        10000.0,
        "silu",
    )
    assert c.dtype is None and not c.tied and not c.qkv_bias and c.windows == (0,) * 8
    raw["num_key_value_heads"] = 4
    assert parse_config({"model_type": "qwen2", **raw}, "c").qkv_bias
    q3 = parse_config({"model_type": "qwen3", **raw}, "c")
    assert q3.qk_norm == "head" and q3.head_dim == 128 and not q3.qkv_bias


def test_switches():
    c = parse(
        attention_bias=True,
        mlp_bias=True,
        tied=True,
        hidden_act="gelu_pytorch_tanh",
        dtype="bfloat16",
    )
    assert c.qkv_bias and c.out_bias and c.mlp_bias and c.tied
    assert (c.activation, c.dtype) == ("gelu_tanh", "bf16")
    assert not parse("mistral", attention_bias=True).qkv_bias


def test_rope_spellings():
    assert parse(rope_scaling=LLAMA3_SCALING).ropes[0].scaling == LLAMA3_SCALING
    assert parse(rope_scaling={"type": "linear", "factor": 2}).ropes[0].scaling == {
        "rope_type": "linear",
        "factor": 2,
    }
    new = parse(rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    assert (new.ropes[0].theta, new.ropes[0].scaling) == (5e5, {"rope_type": "default"})
    assert parse("glm", head_dim=16, partial_rotary_factor=0.25).ropes[0].rotary_dim == 4
    assert parse("seed_oss", head_dim=None).head_dim == parse().head_dim  # not what is missing, 128


def test_windows():
    assert parse("mistral", sliding_window=7).windows == (7, 7)
    assert parse("mistral").windows == (4096, 4096)  # the library's default
    assert parse_config({**model_config("mistral"), "sliding_window": None}, "c").windows == (0, 0)
    assert parse("qwen2", sliding_window=7).windows == (0, 0)
    assert parse("qwen2", sliding_window=7, use_sliding_window=True, max_window_layers=1).windows == (0, 7)
    types = ["sliding_attention", "full_attention"]
    assert parse("qwen3", sliding_window=7, use_sliding_window=True, layer_types=types).windows == (
        7,
        0,
    )


def test_all_bad_keys_in_one_error():
    with pytest.raises(ImportModelError) as e:
        parse(hidden_size=None, num_hidden_layers="2", vocab_size=True, rms_norm_eps=0,
              hidden_act="cubic", tie_word_embeddings="no", torch_dtype="int3", num_attention_heads=6,
              num_key_value_heads=4, rope_scaling={"rope_type": "llama3", "factor": 8, "low_freq_factor": "1"})  # fmt: skip
    text = str(e.value)
    for part in (
        "config.json: 10 problems", "'hidden_size' is missing", "'num_hidden_layers' is '2', required: a whole number",
        "'vocab_size' is True", "'rms_norm_eps' is 0", "'hidden_act' is 'cubic'", "'tie_word_embeddings' is 'no'",
        "'torch_dtype' is 'int3'", "num_attention_heads 6 is not a multiple of num_key_value_heads 4",
        "'low_freq_factor' is '1'", "'high_freq_factor' is None",
    ):  # fmt: skip
        assert part in text, part


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"head_dim": None, "hidden": 66, "hidden_size": 66}, "hidden_size 66 is not a multiple"),
        ({"head_dim": 15}, "rotary width 15"),
        (
            {"rope_scaling": {"rope_type": "ntk"}},
            "'ntk' is not one of default, linear, llama3, yarn",
        ),
        ({"rope_scaling": [1]}, "'rope_scaling' is"),
        (
            {"rope_scaling": {**LLAMA3_SCALING, "low_freq_factor": 4.0}},
            "is not below high_freq_factor",
        ),
        ({"partial_rotary_factor": 2}, "partial_rotary_factor"),
        ({"rope_theta": float("inf")}, "'rope_theta' is inf"),
    ],
)
def test_bad_values(extra, message):
    raw = model_config()
    raw = {k: v for k, v in {**raw, **extra}.items() if v is not None and k != "hidden"}
    with pytest.raises(ImportModelError) as e:
        parse_config(raw, "config.json")
    assert message in str(e.value)


@pytest.mark.parametrize(
    ("layers", "count", "message"),
    [
        (2, 2**31 - 1, "'num_local_experts' is 2147483647"),
        (9_000, 16_000, "16000 in 9000 layers are more than 262,144"),
    ],
)
def test_more_experts_than_a_model_can_have(layers, count, message):
    with pytest.raises(ImportModelError, match=message):
        parse("mixtral", num_hidden_layers=layers, num_local_experts=count, num_experts_per_tok=2)


def test_bad_layer_types():
    with pytest.raises(ImportModelError, match="'layer_types' is not a list of 2 entries"):
        parse("qwen3", sliding_window=7, use_sliding_window=True, layer_types=["full_attention"])


def test_other_families_are_unsupported():
    with pytest.raises(UnsupportedError, match="model_type 'hyena'.*supported are llama, mistral, qwen2, qwen3"):
        parse("hyena", state_size=16, conv_kernel=4)
    with pytest.raises(ImportModelError, match="quantization_config: key 'bits' is 3, supported: 2, 4, 8"):
        parse(quantization_config={"quant_method": "gptq", "bits": 3})
    for raw, message in (
        ([], "found list"),
        ({}, "'model_type' is None"),
        ({"model_type": ["llama"]}, "model_type"),
    ):
        with pytest.raises(ImportModelError, match=message):
            parse_config(raw, "c")


def test_configs_with_the_keys_of_a_family():
    """An unknown model_type is told what it looks like, and taken for it on demand."""
    named = {"use_cache": True, "attention_dropout": 0.0, "architectures": ["LlamaForCausalLM"]}
    with pytest.raises(
        UnsupportedError, match="model_type 'yi' is not known, but its keys are those of llama: give --as llama"
    ):
        parse("yi", **named)
    # the same keys may be those of a gemma, and a class of that name another's code
    for unsure in ({}, {**named, "auto_map": {"AutoModelForCausalLM": "modeling.LlamaForCausalLM"}}):
        with pytest.raises(
            UnsupportedError, match="'yi' is not known, and its keys are those of families .*: .*--as llama, .* more"
        ):
            parse("yi", **unsure)
    with pytest.raises(UnsupportedError, match="are those of stablelm"):
        parse(
            "other",
            layer_norm_eps=1e-5,
            use_qkv_bias=True,
            partial_rotary_factor=0.25,
            use_parallel_residual=False,
            rms_norm_eps=None,
        )
    assert parse_config(model_config("yi"), "c", "llama").model_type == "llama"
    with pytest.raises(UnsupportedError, match="--as yi is no family, supported are llama, mistral"):
        parse_config(model_config("llama"), "c", "yi")


def test_text_halves_of_image_text_models():
    def text(kind, inner, **outer):
        return parse_config({"model_type": kind, "text_config": inner, "vision_config": {}, **outer}, "c")

    inner = {**model_config("mistral"), "torch_dtype": None}
    c = text("mistral3", inner, torch_dtype="bfloat16", tie_word_embeddings=False)
    assert (c.model_type, c.dtype, c.hidden) == ("mistral", "bf16", 64)
    bare = text(
        "llava", {"model_type": "llama", "vocab_size": 32064}
    )  # sizes that are the library's defaults are left out
    assert (bare.hidden, bare.layers, bare.intermediate, bare.vocab) == (4096, 32, 11008, 32064)


def test_sizes_in_nested_sections():
    raw = {"model_type": "dbrx", "d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 9, "max_seq_len": 64,
           "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 500000},
           "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2}}  # fmt: skip
    c = parse_config(raw, "c")
    assert (c.kv_heads, c.qkv_clip, c.ropes[0].theta, c.experts and c.experts.top_k) == (2, 8, 500000, 2)


def test_unreadable_files(tmp_path):
    with pytest.raises(ImportModelError, match="a model directory holds a 'config.json'"):
        read_config(tmp_path / "config.json")
    for text in ("{", "", "[" * 100000):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ImportModelError, match="not valid JSON"):
            read_config(tmp_path / "config.json")
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ImportModelError, match="not valid JSON"):
        read_config(tmp_path / "config.json")
    (tmp_path / "config.json").write_text(json.dumps(model_config()))
    assert read_config(tmp_path / "config.json").layers == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seq": 4, "past": 8}, "past is given but phase is prefill"),
        ({}, "give --seq"),
        ({"phase": "decode"}, "give --past"),
        ({"phase": "decode", "past": 4, "seq": 2}, "one token per step"),
        ({"phase": "train", "seq": 1}, "phase 'train' is not one of"),
        ({"seq": 0}, "seq is 0"),
        ({"seq": 4, "batch": 1.5}, "batch is 1.5"),
        ({"seq": 4, "dtype": "int3"}, "dtype 'int3'"),
        ({"seq": 4, "logits": "some"}, "logits 'some'"),
        ({"seq": 4, "input": "pixels"}, "input 'pixels'"),
    ],
)
def test_option_contradictions(options, message):
    with pytest.raises(ConfigError) as e:
        HfOptions(**options).check()
    assert message in str(e.value)


def test_all_option_problems_in_one_error():
    with pytest.raises(ConfigError, match="3 problems"):
        HfOptions(batch=-1, past=3).check()


def test_damaged_values_of_the_families_own_keys_are_told():
    """Whatever stands at any key of a published config, the config is read or its problems are listed."""
    rng = random.Random(1)
    bad = [None, 0, -1, 1, 3, True, "x", [], [1], {}, 1.5, 10**12, ["a", "b"], float("inf"), {"full_attention": 3}]
    names = ("jamba-v0.1", "mamba-2.8b", "recurrentgemma-2b", "rwkv-4-3b", "minimax-text-01", "kimi-linear-48b-a3b",
             "deberta-v3-large", "gemma-3n-e4b", "gemma-4-e2b", "zamba2-2.7b", "zamba-7b")  # fmt: skip
    read = 0
    for name in names * 30:
        config = json.loads((Path(__file__).parents[2] / "data" / "configs" / f"{name}.json").read_text())
        inner = config.get("text_config", config)
        for key in rng.sample(sorted(inner.keys() - {"model_type"}), 2):
            inner[key] = rng.choice(bad)
        with contextlib.suppress(Tx8Error):
            parse_config(config, "config.json")
            read += 1
    assert 0 < read < 30 * len(names)


def test_damaged_values_of_an_eye_are_told():
    rng = random.Random(1)
    bad = [
        None,
        0,
        -1,
        1,
        3,
        True,
        "x",
        [],
        [1],
        [5, -2],
        {},
        1.5,
        10**12,
        {"rope_theta": "x"},
        {"rope_type": "yarn"},
        float("inf"),
    ]
    read = 0
    for name in ("qwen2-vl-7b", "qwen2.5-vl-7b", "qwen3-vl-8b") * 60:
        config = json.loads((Path(__file__).parents[2] / "data" / "configs" / f"{name}.json").read_text())
        seen = config["vision_config"]
        for key in rng.sample([*sorted(seen.keys() - {"model_type"}), "image_size", "rope_parameters"], 2):
            seen[key] = rng.choice(bad)
        with contextlib.suppress(Tx8Error):
            parse_config(config, "config.json", part="vision")
            read += 1
    assert 0 < read < 180


def test_what_no_block_computes_is_refused_by_name():
    configs = Path(__file__).parents[2] / "data" / "configs"
    deberta = json.loads((configs / "deberta-v3-large.json").read_text())
    for more in (
        {"embedding_size": 128},
        {"conv_kernel_size": 4},
        {"relative_attention": False},
        {"pos_att_type": "p2p"},
    ):
        with pytest.raises(ImportModelError, match=f"key '{next(iter(more))}' is "):
            parse_config({**deberta, **more}, "config.json")
    eye = json.loads((configs / "qwen3-vl-8b.json").read_text())
    for more in (
        {"num_position_embeddings": 2300},
        {"deepstack_visual_indexes": [24, 8]},
        {"num_heads": 64},
        {"image_size": 440},
    ):
        with pytest.raises(ImportModelError):
            parse_config({**eye, "vision_config": {**eye["vision_config"], **more}}, "config.json", part="vision")


def test_a_number_that_no_float_holds_is_refused() -> None:
    from tx8fast.frontend.hf.reader import positive

    assert positive(1e308) and positive(10**300)
    assert not positive(10**400) and not positive(float("inf")) and not positive(True) and not positive(0)


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
         "vocab_size": 37, "head_dim": 8}  # fmt: skip
#: without the key itself, as the library's classes have it
BASES = {"cohere": 5e5, "cohere2": 1e4, "helium": 1e5, "minimax_m2": 5e6}
TYPES = ["sliding_attention", "full_attention"]


@pytest.mark.parametrize("family", sorted(BASES))
def test_rotation_of_files_that_do_not_say_its_base(family):
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2} if family == "minimax_m2" else {}
    c = parse_config({"model_type": family, **SIZES, **experts}, "c")
    assert c.ropes[0].theta == BASES[family]


@pytest.mark.parametrize("family, windows", [("phi3", (3, 3)), ("starcoder2", (3, 3)), ("ministral", (3, 0))])
def test_families_that_do_not_read_the_kinds_of_layers(family, windows):
    raw = {"model_type": family, **SIZES, "sliding_window": 3, "layer_types": TYPES}
    assert parse_config(raw, "c").windows == windows


def test_a_mistral_with_kinds_of_layers_is_a_ministral_unless_it_is_a_section():
    """So does AutoConfig; a section is read by the class that its own `model_type` names."""
    text = {**SIZES, "sliding_window": 3, "layer_types": TYPES}
    alone = parse_config({"model_type": "mistral", **text}, "c")
    assert alone == parse_config({"model_type": "ministral", **text}, "c") and alone.windows == (3, 0)
    section = {"model_type": "mistral3", "text_config": {"model_type": "mistral", **text}}
    assert parse_config(section, "c").windows == (3, 3)


@pytest.mark.parametrize(
    "family, key, value, known",
    [
        ("gemma", "hidden_act", "relu", "'gelu', 'gelu_pytorch_tanh'"),
        ("phimoe", "num_experts_per_tok", 1, "2"),
        ("bamba", "partial_rotary_factor", 1.0, "0.5"),
        ("granitemoehybrid", "hidden_act", "relu", "'silu'"),
        ("nemotron_h", "tie_word_embeddings", True, "False"),
    ],
)
def test_values_that_are_not_obeyed_are_refused(family, key, value, known):
    with pytest.raises(ImportModelError, match=f"key '{key}' is {value!r}, supported: {known}"):
        parse_config({"model_type": family, **SIZES, key: value}, "c")


def test_gemma3_caps_no_scores():
    assert parse_config({"model_type": "gemma3_text", **SIZES, "attn_logit_softcapping": 2.0}, "c").attention_cap == 0
