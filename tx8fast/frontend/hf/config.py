"""`config.json` of the Llama family (llama, mistral, qwen2, qwen3) as a checked, typed record.

May import: errors, frontend.hf.options. Must not: know the IR or weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from tx8fast.errors import ImportModelError, UnsupportedError, raise_all
from tx8fast.frontend.hf.options import DTYPES

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
#: hidden_act of the config -> activation of the `swiglu` op
ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "sigmoid": "sigmoid",
}  # fmt: skip
_ROPE_KEYS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes in elements. `windows[i]` is the attention window of layer i in tokens, 0 = unlimited."""

    model_type: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    norm_eps: float
    activation: str
    tied: bool
    dtype: str | None  # None: the config does not say
    rope_theta: float
    rotary_dim: int
    rope_scaling: dict[str, Any] = field(hash=False)
    windows: tuple[int, ...] = ()
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False


class _Reader:
    """Typed access to the keys; collects every problem instead of stopping at the first."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw
        self.problems: list[str] = []

    def _get(self, key: str, default: Any, want: str, good: Callable[[Any], bool]) -> Any:
        value = self.raw.get(key)
        if value is None:
            if default is ...:
                self.problems.append(f"key '{key}' is missing, required: {want}")
                return None
            return default
        if not good(value):
            self.problems.append(f"key '{key}' is {value!r}, required: {want}")
            return None
        return value

    def size(self, key: str, default: Any = ...) -> int | None:
        return self._get(key, default, "a whole number >= 1", lambda v: type(v) is int and v >= 1)

    def number(self, key: str, default: Any = ...) -> float | None:
        return self._get(key, default, "a number > 0", _positive)

    def flag(self, key: str, default: bool = False) -> bool:
        return bool(self._get(key, default, "true or false", lambda v: type(v) is bool))

    def text(self, key: str, default: Any, known: Mapping[str, Any]) -> Any:
        value = self._get(
            key, default, f"one of {', '.join(known)}", lambda v: type(v) is str and v in known
        )
        return None if value is None else known[value]


def _positive(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and 0 < value < float("inf")


def parse_config(raw: Any, where: str) -> ModelConfig:
    """Return the checked config of the JSON object `raw`; `where` names the file in messages.

    Raises UnsupportedError for another family or feature, ImportModelError that lists every bad key.
    """
    doing = f"reading model config {where}"
    if not isinstance(raw, dict):
        raise ImportModelError(f"{doing}: found {type(raw).__name__}, required a JSON object")
    kind = raw.get("model_type")
    if type(kind) is not str:
        raise ImportModelError(
            f"{doing}: key 'model_type' is {kind!r}, required one of {', '.join(MODEL_TYPES)}"
        )
    if kind not in MODEL_TYPES:
        raise UnsupportedError(
            f"{doing}: model_type '{kind}' is not supported, supported are {', '.join(MODEL_TYPES)}; "
            "export the model to ONNX and compile that"
        )
    r = _Reader(raw)
    hidden, heads, layers = (
        r.size("hidden_size"),
        r.size("num_attention_heads"),
        r.size("num_hidden_layers"),
    )
    kv_heads = r.size("num_key_value_heads", heads)
    head_dim = r.size(
        "head_dim", 128 if kind == "qwen3" else (hidden // heads if hidden and heads else None)
    )
    if heads and kv_heads and heads % kv_heads:
        r.problems.append(
            f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}"
        )
    if hidden and heads and raw.get("head_dim") is None and kind != "qwen3" and hidden % heads:
        r.problems.append(
            f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}; give 'head_dim'"
        )
    theta, rotary, scaling = _rope(r, head_dim)
    dtype_key = "torch_dtype" if raw.get("torch_dtype") is not None else "dtype"
    config: dict[str, Any] = dict(
        model_type=kind, hidden=hidden, layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        intermediate=r.size("intermediate_size"), vocab=r.size("vocab_size"),
        norm_eps=r.number("rms_norm_eps", 1e-6), activation=r.text("hidden_act", "silu", ACTIVATIONS),
        tied=r.flag("tie_word_embeddings"), dtype=r.text(dtype_key, None, DTYPES),
        rope_theta=theta, rotary_dim=rotary, rope_scaling=scaling, windows=_windows(r, kind, layers or 0),
        qkv_bias=kind == "qwen2" or (kind in ("llama", "qwen3") and r.flag("attention_bias")),
        out_bias=kind in ("llama", "qwen3") and r.flag("attention_bias"),
        mlp_bias=kind == "llama" and r.flag("mlp_bias"), qk_norm=kind == "qwen3",
    )  # fmt: skip
    raise_all(ImportModelError, doing, r.problems)
    if raw.get("quantization_config"):
        raise UnsupportedError(
            f"{doing}: 'quantization_config' is not supported; use the unquantised checkpoint"
        )
    return ModelConfig(**config)


def _rope(r: _Reader, head_dim: int | None) -> tuple[float | None, int, dict[str, Any]]:
    """Return theta, the rotary width and the scaling record; newer files nest all under `rope_parameters`."""
    section = "rope_parameters" if r.raw.get("rope_parameters") else "rope_scaling"
    raw = r.raw.get(section) or {}
    if not isinstance(raw, dict):
        r.problems.append(f"key '{section}' is {raw!r}, required: an object")
        raw = {}
    kind = raw.get("rope_type", raw.get("type", "default"))
    scaling: dict[str, Any] = {"rope_type": kind}
    if type(kind) is not str or kind not in _ROPE_KEYS:
        r.problems.append(f"{section}: rope_type {kind!r} is not one of {', '.join(_ROPE_KEYS)}")
    else:
        for key in _ROPE_KEYS[kind]:
            if not _positive(raw.get(key)):
                r.problems.append(
                    f"{section}: key '{key}' is {raw.get(key)!r}, required for {kind}: a number > 0"
                )
            scaling[key] = raw.get(key)
        low, high = scaling.get("low_freq_factor"), scaling.get("high_freq_factor")
        if _positive(low) and _positive(high) and low >= high:
            r.problems.append(
                f"{section}: low_freq_factor {low} is not below high_freq_factor {high}"
            )
    nested = raw.get("rope_theta")
    if nested is not None and not _positive(nested):
        r.problems.append(f"{section}: key 'rope_theta' is {nested!r}, required: a number > 0")
    theta = nested if _positive(nested) else r.number("rope_theta", 10000.0)
    part = raw.get("partial_rotary_factor", r.raw.get("partial_rotary_factor", 1.0))
    if not _positive(part) or part > 1:
        r.problems.append(f"key 'partial_rotary_factor' is {part!r}, required: a number in (0, 1]")
        part = 1.0
    rotary = int((head_dim or 2) * part)
    if rotary < 2 or rotary % 2:
        r.problems.append(
            f"rotary width {rotary} (head_dim {head_dim} x {part}) is not an even number >= 2"
        )
    return theta, rotary, scaling


def _windows(r: _Reader, kind: str, layers: int) -> tuple[int, ...]:
    """Return the window of every layer. Mistral: all layers; Qwen: only if switched on, from a layer upwards."""
    if kind == "llama":
        return (0,) * layers
    window = r.size("sliding_window", 0) or 0
    if kind == "mistral":
        return (window,) * layers
    if not r.flag("use_sliding_window"):
        return (0,) * layers
    types = r.raw.get("layer_types")
    if types is not None:
        known = {"full_attention": 0, "sliding_attention": window}
        if (
            type(types) is not list
            or len(types) != layers
            or any(type(t) is not str or t not in known for t in types)
        ):
            r.problems.append(
                f"key 'layer_types' is not a list of {layers} entries out of {', '.join(known)}"
            )
            return (0,) * layers
        return tuple(known[t] for t in types)
    first = (
        r._get("max_window_layers", 28, "a whole number >= 0", lambda v: type(v) is int and v >= 0)
        or 0
    )
    return tuple(window if i >= first else 0 for i in range(layers))
