"""Decoders with state-space scans in place of attention or beside it.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tx8fast.frontend.hf.families.experts import FAMILIES as EXPERTS
from tx8fast.frontend.hf.families.names import LLAMA, OUTER
from tx8fast.frontend.hf.family import SILU, Family, Fields, Names, Part, Read, biases, flag
from tx8fast.frontend.hf.reader import Reader, finite
from tx8fast.frontend.hf.rope import rotation
from tx8fast.frontend.hf.states import Scan
from tx8fast.frontend.hf.windows import size_or_none

_KINDS = {
    "mamba": "scan",
    "linear_attention": "scan",
    "mamba2": "scan",
    "attention": "attention",
    "full_attention": "attention",
}


def _scan(
    heads: str = "mamba_n_heads",
    width: str = "mamba_d_head",
    state: str = "mamba_d_state",
    groups: str = "mamba_n_groups",
    taps: str = "mamba_d_conv",
    chunk: str = "mamba_chunk_size",
    conv_bias: str = "mamba_conv_bias",
    bias: str = "mamba_proj_bias",
    inner: str = "mamba_expand",
    total: Read | None = None,
    **more: Any,
) -> Part:
    """Read a scan; the arguments name its keys. `inner`: that of its width per column of the model, `total`: reads that width outright, 0 = not given; `more`: fields of `Scan`."""

    def read(r: Reader, f: Fields) -> Fields:
        number = r.size(heads, 128) or 1
        if r.value(width, "auto") == "auto":
            lanes = (total(r, f) if total else 0) or int((r.number(inner, 2) or 1) * (f["hidden"] or 1))
            lanes = lanes // number or 1
        else:
            lanes = r.size(width) or 1
        shared = r.size(groups, 1) or 1
        if number % shared:
            r.problems.append(f"{heads} {number} is not a multiple of {groups} {shared}")
        fields: Fields = {k: v(r, f) if callable(v) else v for k, v in more.items()}
        found = Scan(
            number,
            lanes,
            r.size(state, 256) or 1,
            shared,
            r.size(taps, 4) or 1,
            r.size(chunk, 256) or 1,
            conv_bias=r.flag(conv_bias, True),
            bias=r.flag(bias),
            **{"limits": _limits(r), "norm_groups": shared, **fields},
        )
        return {"keepers": (found,)}

    return read


def _limits(r: Reader) -> tuple[float, float]:
    limits = r.get("time_step_limit", [0.0, float("inf")], "two numbers or null", _two) or [0.0, float("inf")]
    low, high = (float(v["__float__"]) if isinstance(v, dict) else float(v) for v in limits)
    return low, high


def least(r: Reader, f: Fields) -> tuple[float, float]:
    """The limits of families that read the smallest step alone."""
    return r.number("time_step_min", 0.001) or 0.0, float("inf")


def _two(value: Any) -> bool:
    """Newer files spell infinity as an object."""
    return (
        type(value) is list
        and len(value) == 2
        and all(
            isinstance(v, int | float) or (isinstance(v, dict) and v.get("__float__") in ("Infinity", "-Infinity"))
            for v in value
        )
    )


def _layers(key: str, names: dict[str, str], default: str) -> Part:
    """Which layers are what: a list of words, else all of them `default`."""

    def read(r: Reader, f: Fields) -> Fields:
        kinds = r.layer_list(key, f["layers"], names)
        return {"mixers": tuple(kinds or (default,) * f["layers"])}

    return read


def _attention_at(key: str) -> Part:
    """A list of the layers that are attention, the others are scans."""

    def read(r: Reader, f: Fields) -> Fields:
        at = (
            r.get(key, [], "a list of layer numbers", lambda v: type(v) is list and all(type(i) is int for i in v))
            or []
        )
        return {"mixers": tuple("attention" if i in at else "scan" for i in range(f["layers"]))}

    return read


# ------------------------------------------------------------ Mamba 2 alone and beside attention


def _bare(r: Reader, f: Fields) -> Fields:
    return {"mixers": ("scan",) * f["layers"], "fed": (False,) * f["layers"]}


_MAMBA2 = Family(
    "state-space layers in chunks, no feed-forward parts, residual stream in f32",
    Names(
        ("backbone.",),
        "layers.{}.",
        {"scan": "mixer", "attn_norm": "norm"},
        {"embed_tokens": "embeddings", "norm": "norm_f", "lm_head": "^lm_head"},
    ),
    {"wide_residual": flag("residual_in_fp32", True)},
    (
        _scan(
            "num_heads", "head_dim", "state_size", "n_groups", "conv_kernel", "chunk_size", "use_conv_bias", "use_bias"
        ),
        _bare,
    ),
    keys={"num_attention_heads": "num_heads", "rms_norm_eps": "layer_norm_epsilon"},
    inner=2,
    defaults={
        "layer_norm_epsilon": 1e-5,
        "num_heads": 128,
        "head_dim": 64,
        "state_size": 128,
        "n_groups": 8,
        "hidden_size": 4096,
        "num_hidden_layers": 64,
    },
    fixed={"hidden_act": SILU, "rms_norm": (True,)},
)
_SCAN_NAMES = LLAMA.but(scan="mamba")
_FED = _SCAN_NAMES.but(
    also={f"mlp.{p}_proj": f"feed_forward.{p}_proj" for p in ("gate", "up", "down")},
    mlp_norm="pre_ff_layernorm",
    outer={"norm": "final_layernorm"},
)
_BAMBA = Family(
    "state-space layers, attention with rotation of half of each head in some",
    _FED,
    {**biases(), "mlp_bias": flag("mlp_bias")},
    (rotation(part=0.5), _scan(), _attention_at("attn_layer_indices")),
    defaults={"rms_norm_eps": 1e-5, "num_key_value_heads": 8},
    fixed={"hidden_act": SILU, "partial_rotary_factor": (0.5,)},
)


def _granite(r: Reader, f: Fields) -> Fields:
    """Without experts the shared part is the feed-forward part; attention turns only where the config says so."""
    fields: Fields = {} if r.value("position_embedding_type") == "rope" else {"rope_of": (-1,) * f["layers"]}
    shared = r.size("shared_intermediate_size", 1024) or 1
    if r.count("num_local_experts", 8):
        return fields | {"experts": replace(f["experts"], shared=shared)}
    return fields | {"experts": None, "sparse": (False,) * f["layers"], "intermediate": shared, "mlp_bias": False}


def _granite_experts(r: Reader, f: Fields) -> Fields:
    return EXPERTS["granitemoe"].parts[-1](r, f) if r.count("num_local_experts", 8) else {}


_GRANITE = EXPERTS["granitemoe"].like("")
_GRANITE_HYBRID = replace(
    _GRANITE.like(
        "the multipliers of granite, state-space layers, attention without rotation in some, routed experts and a shared one",
        names=_GRANITE.names.but(
            scan="mamba",
            mlp__gate_up="shared_mlp.input_linear",
            mlp__down_proj="shared_mlp.output_linear",
            shared__gate_up="shared_mlp.input_linear",
            shared__down="shared_mlp.output_linear",
        ),
    ),
    parts=(rotation(), _scan(), _layers("layer_types", _KINDS, "scan"), _granite_experts, _granite),
    fixed={**_GRANITE.fixed, "hidden_act": SILU},  # of the state-space layers, too
)


def _multipliers(r: Reader, f: Fields) -> Fields:
    """Factors of what single matrices give; two factors of one place are one."""
    of = {k: r.real(f"{k}_multiplier", 1.0) for k in ("key", "attention_in", "attention_out", "ssm_in", "ssm_out")}
    gate, down = r.get("mlp_multipliers", [1.0, 1.0], "two numbers", lambda v: _numbers(v, 2)) or [1.0, 1.0]
    parts = r.get("ssm_multipliers", [1.0] * 5, "five numbers", lambda v: _numbers(v, 5)) or [1.0] * 5
    head = r.get("lm_head_multiplier", 1.0, "a number other than 0", lambda v: finite(v) and v != 0)
    places = {
        "self_attn.q_proj": of["attention_in"],
        "self_attn.k_proj": of["attention_in"] * of["key"],
        "self_attn.v_proj": of["attention_in"],
        "self_attn.o_proj": of["attention_out"],
        "scan.out_proj": of["ssm_out"],
        "scan.gate_proj": of["ssm_in"] * parts[0],
        "scan.values": of["ssm_in"] * parts[1],
        "scan.written": of["ssm_in"] * parts[2],
        "scan.read": of["ssm_in"] * parts[3],
        "scan.step_proj": of["ssm_in"] * parts[4],
        "mlp.gate_proj": gate,
        "mlp.down_proj": down,
    }
    return {
        "multipliers": tuple((k, v) for k, v in places.items() if v != 1.0),
        "mixers": ("attention+scan",) * f["layers"],
        "logits_divisor": 1.0 / (head or 1.0),
        "embedding_scale": r.real("embedding_multiplier", 1.0),
    }


def _numbers(value: Any, count: int) -> bool:
    return type(value) is list and len(value) == count and all(finite(v) for v in value)


_FALCON_H1 = Family(
    "attention and a state-space scan side by side in every layer, multipliers of what the matrices give",
    _FED,
    {"mlp_bias": flag("mlp_bias")},
    (
        rotation(),
        _scan(
            total=lambda r, f: size_or_none(r, "mamba_d_ssm", 1024),
            norm=flag("mamba_rms_norm"),
            norm_first=flag("mamba_norm_before_gate", True),
        ),
        _multipliers,
    ),
    defaults={"rms_norm_eps": 1e-5, "num_key_value_heads": 8},
    fixed={
        "hidden_act": SILU,
        "attention_bias": (False,),
        "projectors_bias": (False,),
        "mamba_proj_bias": (False,),
    },
)
_PATTERN = {
    "M": "scan",
    "*": "attention",
    "-": "none",
    "linear_attention": "scan",
    "mamba": "scan",
    "full_attention": "attention",
    "attention": "attention",
    "mlp": "none",
}


def _nemotron(r: Reader, f: Fields) -> Fields:
    """Every layer is one thing: a scan, attention or a feed-forward part, by a letter or a word each."""
    letters, layers = r.raw.get("hybrid_override_pattern"), f["layers"]
    if type(letters) is str:
        r = Reader({**r.raw, "layers_block_type": list(letters)})
    kinds = r.layer_list("layers_block_type", layers, _PATTERN)
    if kinds is None:
        r.problems.append(
            f"key 'layers_block_type' or 'hybrid_override_pattern' does not name {layers} layers out of M, * and -"
        )
        kinds = ["none"] * layers
    plain = tuple(kind == "none" for kind in kinds)
    return {
        "mixers": tuple(kinds),
        "fed": plain,
        "unnormed": tuple(f"{i}.attn_norm" for i, fed in enumerate(plain) if fed),
        "rope_of": (-1,) * layers,
    }


_NEMOTRON_H = Family(
    "layers of one kind each: state-space, attention without rotation, or a feed-forward part with squared relu",
    Names(
        ("backbone.", "model."),
        "layers.{}.",
        {
            **{f"self_attn.{p}_proj": f"mixer.{p}_proj" for p in "qkvo"},
            "scan": "mixer",
            "mlp.up_proj": "mixer.up_proj",
            "mlp.down_proj": "mixer.down_proj",
            "attn_norm": "norm",
            "mlp_norm": "norm",
        },
        {**OUTER, "embed_tokens": "embeddings", "norm": "norm_f"},
    ),
    {
        # files of the original code have the biases that the key says, the library's never do
        "loose_bias": flag("attention_bias"),
        "mlp_bias": flag("mlp_bias"),
        "gated": False,
        "wide_residual": flag("residual_in_fp32"),
    },
    (
        _scan(
            "mamba_num_heads",
            "mamba_head_dim",
            "ssm_state_size",
            "n_groups",
            "conv_kernel",
            "chunk_size",
            "use_conv_bias",
            limits=least,
        ),
        _nemotron,
    ),
    keys={"rms_norm_eps": "layer_norm_epsilon", "hidden_act": "mlp_hidden_act"},
    aliases={
        "attention_head_dim": "head_dim",
        "mamba_n_groups": "n_groups",
        "mamba_d_conv": "conv_kernel",
        "layer_types": "layers_block_type",
    },
    counted={"num_hidden_layers": "layers_block_type"},
    defaults={
        "mlp_hidden_act": "relu2",
        "layer_norm_epsilon": 1e-5,
        "head_dim": 128,
        "num_key_value_heads": 8,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
    },
    fixed={"mamba_hidden_act": SILU, "use_bias": (False,), "tie_word_embeddings": (False,)},
)

FAMILIES: dict[str, Family] = {
    "mamba2": _MAMBA2,
    "bamba": _BAMBA,
    "granitemoehybrid": _GRANITE_HYBRID,
    "falcon_h1": _FALCON_H1,
    "nemotron_h": _NEMOTRON_H,
}
