"""GGUF files as models: the same numbers as the checkpoint they were converted from, and errors that say what is wrong."""

import json

import numpy as np
import pytest

from tests.support.cli_case import Caller
from tests.support.family_checkpoints import CONFIGS, HIDDEN, VOCAB, family_config, family_weights, make_family
from tests.support.gguf_files import gguf_tensors, make_gguf, write_gguf
from tests.support.run_graph import run_graph
from tx8fast.errors import ImportModelError, UnsupportedError
from tx8fast.frontend import open_model

gguf = pytest.importorskip("gguf")

#: what the format cannot say, or says in another way
WITHOUT = {
    "llama": {"mlp_bias": False, "attention_bias": True}, "mistral": {"sliding_window": None},
    "gemma2": {"query_pre_attn_scalar": 8}, "gemma3_text": {"query_pre_attn_scalar": 8, "rope_local_base_freq": 10000.0},
    "qwen3_moe": {"mlp_only_layers": []},
}  # fmt: skip
FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "gpt2", "gpt_neox",
            "gpt_neox-serial", "granite", "olmo2", "mixtral", "qwen3_moe"]  # fmt: skip
IDS = np.random.default_rng(1).integers(0, VOCAB, (1, 12))


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    def make(case, **changes):
        whole = {k: v for k, v in {**CONFIGS[case], **WITHOUT.get(case, {}), **changes}.items() if v is not None}
        monkeypatch.setitem(CONFIGS, case, whole)
        config, weights = make_family(tmp_path / "hf", case)
        return config, weights, tmp_path / "m.gguf"

    return make


def logits(path, **options):
    return run_graph(open_model(path, phase="prefill", seq=12, **options), {"input_ids": IDS})["logits"]


@pytest.mark.parametrize("case", FAMILIES)
def test_the_numbers_are_those_of_the_checkpoint(checkpoint, tmp_path, case):
    config, weights, path = checkpoint(case)
    if case == "gemma3_text":
        pattern = ["sliding_attention"] * 5 + ["full_attention"]
        config, weights, path = checkpoint(case, num_hidden_layers=6, layer_types=pattern)
    make_gguf(path, config, weights)
    want, got = logits(tmp_path / "hf"), logits(path)
    # a table or gain computed in f32 may round once more
    assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()


@pytest.mark.parametrize("case", ["llama", "gpt2", "qwen3"])
def test_the_graph_is_that_of_the_checkpoint(checkpoint, tmp_path, case):
    config, weights, path = checkpoint(case)
    make_gguf(path, config, weights)
    kinds = [[op.kind for op in open_model(p, phase="decode", past=16).main.body] for p in (tmp_path / "hf", path)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("packed", ["Q8_0", "Q4_0", "F16"])
def test_packed_matrices_are_unpacked(checkpoint, tmp_path, packed):
    """Against a checkpoint that holds what the blocks stand for."""
    from tests.support.checkpoints import write_weights

    config, weights, path = checkpoint("qwen2")
    if packed == "F16":
        weights = {k: v.astype(np.float16) if v.ndim > 1 else v for k, v in weights.items()}
        make_gguf(path, config, weights, **{"general.file_type": 1})
    else:
        make_gguf(path, config, weights, packed, **{"general.file_type": 0})
    kind = getattr(gguf.GGMLQuantizationType, packed)
    rounded = {
        k: gguf.quants.dequantize(gguf.quants.quantize(v.astype(np.float32), kind), kind)
        if v.ndim > 1 and v.shape[-1] % 32 == 0
        else v
        for k, v in weights.items()
    }
    if packed == "F16":
        rounded = {k: v.astype(np.float16) for k, v in rounded.items()}
    write_weights(tmp_path / "hf", rounded)
    want, got = logits(tmp_path / "hf"), logits(path)
    assert np.abs(got - want).max() <= (2e-3 if packed == "F16" else 1e-5) * np.abs(want).max()


def test_stretched_rotations(checkpoint, tmp_path):
    """Factors stand in a tensor of their own: divisors of the frequencies."""
    from tx8fast.weights import rope_frequencies

    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 16}  # fmt: skip
    config, weights, path = checkpoint("llama", rope_scaling=scaling)
    factors = rope_frequencies(1e4, 8) / rope_frequencies(1e4, 8, scaling)
    make_gguf(path, config, {**weights, "rope_freqs.weight": factors.astype(np.float32)})
    want, got = logits(tmp_path / "hf"), logits(path)
    assert np.abs(got - want).max() <= 2e-5 * np.abs(want).max()
    assert np.abs(got - logits_without(tmp_path, config, weights)).max() > 1e-3 * np.abs(want).max()


def logits_without(tmp_path, config, weights):
    make_gguf(tmp_path / "plain.gguf", config, weights)
    return logits(tmp_path / "plain.gguf")


def test_a_file_in_parts(checkpoint, tmp_path):
    config, weights, path = checkpoint("llama")
    make_gguf(path, config, weights)
    from tests.support.gguf_files import gguf_metadata

    tensors = list(gguf_tensors(config, weights).items())
    for i in range(2):
        meta = {**(gguf_metadata(config) if i == 0 else {}), "split.no": i, "split.count": 2}
        write_gguf(tmp_path / f"p-0000{i + 1}-of-00002.gguf", "llama", meta, dict(tensors[i::2]))
    np.testing.assert_array_equal(logits(tmp_path / "p-00001-of-00002.gguf"), logits(path))
    with pytest.raises(ImportModelError, match="part 00002 of 2; name the first"):
        open_model(tmp_path / "p-00002-of-00002.gguf", seq=4)
    (tmp_path / "p-00002-of-00002.gguf").unlink()
    with pytest.raises(ImportModelError, match="p-00002-of-00002.gguf: No such file"):
        open_model(tmp_path / "p-00001-of-00002.gguf", seq=4)


def test_compile_and_run_from_the_command_line(checkpoint, tmp_path, capsys):
    """Weights outside of the program file: their file is given as such, or as its directory."""
    tx8 = Caller(capsys)
    config, weights, path = checkpoint("llama")
    make_gguf(path, config, weights, "Q8_0", **{"general.file_type": 7})
    program, inputs, out = tmp_path / "m.tx8", tmp_path / "in.npz", tmp_path / "out.npz"
    made = tx8("compile", path, "--seq", 12, "--dtype", "fp32", "--embed-limit-mib", 0, "-o", program, "--json")
    assert made.code == 0, made.err
    facts = json.loads(made.out)
    assert (facts["model"], facts["phase"]) == ("m", "prefill")
    np.savez(inputs, input_ids=IDS)
    want = logits(path)
    for place in (path, tmp_path):
        done = tx8("run", program, "--inputs", inputs, "--outputs", out, "--weights", place)
        assert done.code == 0, done.err
        got = np.load(out)["logits"]
        got = (got.astype(np.uint32) << 16).view(np.float32) if got.dtype == np.uint16 else got
        assert np.abs(got - want).max() <= 2e-2 * np.abs(want).max()
    assert "no such file" in tx8("run", program, "--inputs", inputs, "--outputs", out, "--weights", tmp_path / "x").err


def changed(tmp_path, checkpoint, metadata=(), drop=(), tensors=(), arch="llama"):
    config, weights, path = checkpoint("llama")
    from tests.support.gguf_files import gguf_metadata

    meta = {k: v for k, v in {**gguf_metadata(config), **dict(metadata)}.items() if k not in drop}
    held = {
        k: v for k, v in {**gguf_tensors(config, weights), **dict(tensors)}.items() if k not in drop and v is not None
    }
    write_gguf(path, arch, meta, held)
    return path


BAD = {
    "a list as alignment": ({"metadata": {"general.alignment": [1, 2]}}, r"'general.alignment' is \[1, 2\]"),
    "lists everywhere": ({"metadata": {"general.file_type": [1, 2], "block_count": [1, 2]}}, r"num_hidden_layers' is \[1, 2\]"),
    "missing keys": ({"drop": ("block_count", "attention.layer_norm_rms_epsilon")}, "block_count' is missing(.|\n)*epsilon' is missing"),
    "no embedding": ({"drop": ("token_embd.weight",)}, "'token_embd.weight' .* is missing"),
    "heads per layer": ({"metadata": {"attention.head_count_kv": [1, 2]}}, r"num_key_value_heads' is \[1, 2\]"),
    "no heads": ({"metadata": {"attention.head_count": 0}}, "num_attention_heads' is 0"),
    "many layers": ({"metadata": {"block_count": 1 << 30}}, "num_hidden_layers' is 1073741824"),
    "a text as size": ({"metadata": {"embedding_length": "wide"}}, "hidden_size' is 'wide'"),
    "scaling": ({"metadata": {"rope.scaling.type": "spiral"}}, "'spiral', supported: none, linear"),
    "no factor": ({"metadata": {"rope.scaling.type": "yarn"}}, "'factor' is None"),
    "bad factors": ({"tensors": {"rope_freqs.weight": np.zeros(4, np.float32)}}, "not numbers > 0"),
    "missing tensor": ({"drop": ("blk.1.ffn_up.weight",)}, "'blk.1.ffn_up.weight' is absent"),
    "shape": ({"tensors": {"blk.1.ffn_up.weight": np.zeros((3, HIDDEN), np.float32)}}, r"has shape \[3, 32\], required \[48, 32\]"),
    "integers": ({"tensors": {"blk.1.ffn_up.weight": np.zeros((48, HIDDEN), np.int8)}}, "has dtype i8"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_metadata_is_one_clear_error(tmp_path, checkpoint, name):
    changes, message = BAD[name]
    with pytest.raises(ImportModelError, match=message):
        open_model(changed(tmp_path, checkpoint, **changes), seq=4)


def test_other_architectures_are_named(tmp_path, checkpoint):
    with pytest.raises(UnsupportedError, match="general.architecture is 'mamba', supported are llama, qwen2"):
        open_model(changed(tmp_path, checkpoint, arch="mamba"), seq=4)


def test_a_small_model_fits_its_config(checkpoint):
    """The reader and the family's own config agree on every field that GGUF can say."""
    from tx8fast.frontend.hf import parse_config
    from tx8fast.frontend.hf.gguf import read_gguf

    config, weights, path = checkpoint("qwen2")
    make_gguf(path, config, weights)
    found, _ = read_gguf(path)
    want = parse_config(family_config("qwen2"), "x")
    for field in ("hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate", "vocab", "norm_eps", "activation",
                  "tied", "rope_of", "qkv_bias", "windows"):  # fmt: skip
        assert getattr(found, field) == getattr(want, field), field
    assert family_weights(config).keys() == weights.keys()
