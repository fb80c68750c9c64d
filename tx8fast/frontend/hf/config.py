"""`config.json` of every supported family as a checked, typed record: what all families share.

May import: errors, frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from typing import Any

from tx8fast.errors import ImportModelError, UnsupportedError, raise_all
from tx8fast.frontend.hf.families import ALIASES, DEFAULTS, FAMILIES
from tx8fast.frontend.hf.options import DTYPES
from tx8fast.frontend.hf.quantization import read_scheme
from tx8fast.frontend.hf.reader import MAX_LAYERS, Reader
from tx8fast.frontend.hf.spec import ModelConfig

MODEL_TYPES = tuple(FAMILIES)
#: hidden_act of the config -> name of the op, also the activation of `swiglu`
ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "sigmoid": "sigmoid",
}  # fmt: skip


def parse_config(raw: Any, where: str) -> ModelConfig:
    """Return the checked config of the JSON object `raw`; `where` names the file in messages.

    Raises UnsupportedError for another family, ImportModelError that lists every bad key and unsupported feature.
    """
    doing = f"reading model config {where}"
    if not isinstance(raw, dict):
        raise ImportModelError(f"{doing}: found {type(raw).__name__}, required a JSON object")
    kind = raw.get("model_type")
    if type(kind) is not str:
        raise ImportModelError(f"{doing}: key 'model_type' is {kind!r}, required one of {', '.join(MODEL_TYPES)}")
    if kind == "gemma3" and isinstance(raw.get("text_config"), dict):
        # the text half of an image-text model; what both halves share stands outside
        outer = {k: raw[k] for k in ("torch_dtype", "dtype", "tie_word_embeddings", "quantization_config") if k in raw}
        raw = {**outer, **raw["text_config"]}
        kind = "gemma3_text"
    if kind not in FAMILIES:
        raise UnsupportedError(
            f"{doing}: model_type '{kind}' is not supported, supported are {', '.join(MODEL_TYPES)}, gemma3; "
            "export the model to ONNX and compile that"
        )
    for new, old in ALIASES.get(kind, {}).items():
        if raw.get(new) is not None:
            raw = {old: raw[new], **raw}
    usual = DEFAULTS.get(kind, {})
    r = Reader({**usual, **{k: v for k, v in raw.items() if v is not None or k not in usual}})
    fields = {**_common(r, kind), "quantization": read_scheme(r)}
    # stand-ins for bad sizes let the family's own keys be checked too
    fields |= FAMILIES[kind](r, {**fields, "heads": fields["heads"] or 1, "layers": fields["layers"] or 0})
    raise_all(ImportModelError, doing, r.problems)
    return ModelConfig(**fields)


def _common(r: Reader, kind: str) -> dict[str, Any]:
    """Sizes under the usual names. GPT-2 has its own spelling of nearly all of them."""
    short = kind == "gpt2"
    hidden = r.size("n_embd" if short else "hidden_size")
    heads = r.size("n_head" if short else "num_attention_heads")
    layers = r.size("n_layer" if short else "num_hidden_layers", most=MAX_LAYERS)
    kv_heads = heads if short else r.size("num_key_value_heads", heads)
    given = r.raw.get("head_dim")
    head_dim = r.size("head_dim", hidden // heads if hidden and heads else None)
    if heads and kv_heads and heads % kv_heads:
        r.problems.append(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    if hidden and heads and given is None and hidden % heads:
        r.problems.append(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}; give 'head_dim'")
    if short:
        inter = r.size("n_inner", 4 * hidden if hidden else None)
    else:
        inter = r.size("ffn_dim" if kind == "opt" else "intermediate_size")
    layer_norm = "layer_norm_epsilon" if short else "layer_norm_eps"
    rms = kind not in ("gpt2", "gpt_neox", "opt", "bert", "vit")
    act = {"gpt2": "activation_function", "opt": "activation_function", "gemma": "hidden_activation",
           "gemma2": "hidden_activation", "gemma3_text": "hidden_activation"}.get(kind, "hidden_act")  # fmt: skip
    dtype_key = "torch_dtype" if r.raw.get("torch_dtype") is not None else "dtype"
    return {
        "model_type": kind, "hidden": hidden, "layers": layers, "heads": heads, "kv_heads": kv_heads,
        "head_dim": head_dim, "intermediate": inter, "vocab": 1 if kind == "vit" else r.size("vocab_size"),
        "norm_eps": r.number("rms_norm_eps", 1e-6) if rms else r.number(layer_norm, 1e-5),
        "activation": r.text(act, "silu", ACTIVATIONS), "tied": r.flag("tie_word_embeddings"),
        "dtype": r.text(dtype_key, None, DTYPES),
        "attention_scale": (head_dim or 1) ** -0.5,
        "windows": (0,) * (layers or 0), "sparse": (False,) * (layers or 0), "rope_of": (-1,) * (layers or 0),
        **({} if rms else {"norm": "layer", "norm_bias": True}),
    }  # fmt: skip
