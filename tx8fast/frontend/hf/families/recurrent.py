"""Decoders with layers whose every channel keeps a state of its own: Mamba, alone or beside attention, and gated recurrent units.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

import struct
from dataclasses import replace

from tx8fast.frontend.hf.families.names import LLAMA, Names
from tx8fast.frontend.hf.family import SILU, Family, Fields, Part, Read, cap, flag
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import rotation
from tx8fast.frontend.hf.routing import routed
from tx8fast.frontend.hf.states import Lru, Selective, TimeMix


def selective(
    inner: Read,
    state: str = "state_size",
    taps: str = "conv_kernel",
    rank: str = "time_step_rank",
    conv_bias: str = "use_conv_bias",
    bias: str = "use_bias",
    norms: str = "",
    eps: str = "",
    heads: str = "",
) -> Part:
    """Read a selective scan; the arguments name its keys. `inner` reads its channels; `eps`: key of that of its `norms`; `heads`: of how
    many heads it has, "" = one."""

    def read(r: Reader, f: Fields) -> Fields:
        width = f["hidden"] or 1
        lanes = -(-width // 16) if r.value(rank, "auto") == "auto" else r.size(rank) or 1
        found = Selective(
            inner(r, f) or 1,
            r.size(state, 16) or 1,
            lanes,
            r.size(taps, 4) or 1,
            r.flag(conv_bias, True),
            r.flag(bias),
            norms,
            (r.number(eps, 1e-6) or 0.0) if eps else 0.0,
            (r.size(heads, 2) or 1) if heads else 1,
        )
        if found.inner % found.heads:
            r.problems.append(f"the scan's {found.inner} channels are not a multiple of {heads} {found.heads}")
        return {"keepers": (found,)}

    return read


def mamba_keys(**more: str) -> Part:
    """Read a selective scan whose keys say that they are its own, as in files of models that have attention, too."""
    names = ("mamba_d_state", "mamba_d_conv", "mamba_dt_rank", "mamba_conv_bias", "mamba_proj_bias")
    return selective(lambda r, f: (r.size("mamba_expand", 2) or 1) * (f["hidden"] or 1), *names, **more)


def _expanded(r: Reader, f: Fields) -> int:
    return r.size("intermediate_size", int((r.number("expand", 2) or 1) * (f["hidden"] or 1)))


def _bare(r: Reader, f: Fields) -> Fields:
    return {"mixers": ("selective",) * f["layers"], "fed": (False,) * f["layers"]}


_MAMBA = Family(
    "state-space layers whose channels decay at rates of their own, no feed-forward parts, residual stream in f32",
    Names(
        ("backbone.",),
        "layers.{}.",
        {"selective": "mixer", "attn_norm": "norm"},
        {"embed_tokens": "embeddings", "norm": "norm_f", "lm_head": "^lm_head"},
    ),
    {"wide_residual": flag("residual_in_fp32", True)},
    (selective(_expanded), _bare),
    keys={"rms_norm_eps": "layer_norm_epsilon"},
    inner=2,
    fixed={"hidden_act": SILU},
    defaults={
        "layer_norm_epsilon": 1e-5,
        "num_attention_heads": 1,
        "tie_word_embeddings": True,
        "num_hidden_layers": 32,
        "hidden_size": 768,
    },
    aliases={"d_model": "hidden_size", "n_layer": "num_hidden_layers"},
)
_FALCON_MAMBA = replace(
    _MAMBA.like("a mamba with norms of the time step and of what is written and read"),
    parts=(selective(_expanded, norms="plain", eps="mixer_rms_eps"), _bare),
)


def _jamba(r: Reader, f: Fields) -> Fields:
    """Every so many layers attention, every so many experts, from a layer on; without experts all layers are dense."""
    layers, every = f["layers"], r.size("attn_layer_period", 8) or 1
    first = r.count("attn_layer_offset", 4)
    return {"mixers": tuple("selective" if i % every != first else "attention" for i in range(layers))}


def _jamba_sparse(r: Reader, f: Fields) -> tuple[bool, ...]:
    every, first = r.size("expert_layer_period", 2) or 1, r.count("expert_layer_offset", 1)
    return tuple(i % every == first and r.raw.get("num_experts") != 1 for i in range(f["layers"]))


_JAMBA = Family(
    "selective state-space layers with norms of the time step and of what is written and read, attention without rotation in some, "
    "routed experts in some",
    LLAMA.but(
        also={f"mlp.{p}_proj": f"feed_forward.{p}_proj" for p in ("gate", "up", "down")},
        mlp_norm="pre_ff_layernorm",
        selective="mamba",
        router="feed_forward.router",
        experts="feed_forward.experts.",
        gate_proj="gate_proj",
        up_proj="up_proj",
        down_proj="down_proj",
        outer={"norm": "final_layernorm"},
    ),
    {},
    (
        mamba_keys(norms="gain"),
        _jamba,
        routed("num_experts", sparse=_jamba_sparse),
    ),
    defaults={"num_key_value_heads": 8, "num_experts": 16, "num_experts_per_tok": 2},
    aliases={"num_local_experts": "num_experts"},
    fixed={"hidden_act": SILU, "sliding_window": (None,)},
)


def _half(value: float) -> float:
    """Round to bfloat16, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000))[0]


def _griffin(r: Reader, f: Fields) -> Fields:
    """The kinds of layers are a pattern that repeats."""
    kinds = {"recurrent": "lru", "attention": "attention"}
    pattern = r.get(
        "block_types",
        ["recurrent", "recurrent", "attention"],
        "a list of 'recurrent' and 'attention'",
        lambda v: type(v) is list and bool(v) and all(type(k) is str and k in kinds for k in v),
    ) or ["attention"]
    mixers = tuple(kinds[pattern[i % len(pattern)]] for i in range(f["layers"]))
    width = r.size("lru_width", f["hidden"]) or 1
    if width % f["heads"]:
        r.problems.append(f"lru_width {width} is not a multiple of num_attention_heads {f['heads']}")
    units = f["intermediate"] or 2
    if units % 2:
        r.problems.append(f"intermediate_size {units} is odd; it counts gates and units")
    window = r.size("attention_window_size", 2048) or 0
    return {
        "mixers": mixers,
        "keepers": (Lru(width, f["heads"], r.size("conv1d_width", 4) or 1),),
        "intermediate": units // 2 or 1,
        "windows": tuple(window if kind == "attention" else 0 for kind in mixers),
        "embedding_scale": _half((f["hidden"] or 1) ** 0.5),
    }


_RECURRENT_GEMMA = Family(
    "gated recurrent units behind a convolution, attention with a window and rotation of half of each head in every third layer, gains stored "
    "less one, scaled embeddings, soft cap of the logits",
    LLAMA.but(
        also={
            **{f"self_attn.{p}_proj": f"temporal_block.{p}_proj" for p in "qkvo"},
            **{f"mlp.{p}_proj": f"mlp_block.{p}_proj" for p in ("gate", "up", "down")},
        },
        lru="temporal_block",
        attn_norm="temporal_pre_norm",
        mlp_norm="channel_pre_norm",
        outer={"norm": "final_norm"},
    ),
    {
        "qkv_bias": flag("attention_bias"),
        "out_bias": True,
        "mlp_bias": True,
        "norm_offset": 1.0,
        "logits_cap": cap("logits_soft_cap", 30.0),
    },
    (rotation(part=0.5), _griffin),
    keys={"hidden_act": "hidden_activation"},
    defaults={"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "intermediate_size": 7680},
)


def _halved(r: Reader, f: Fields) -> int:
    """After how many layers the library halves the stream; nothing below one does."""
    every = r.get("rescale_every", 6, "a whole number", lambda v: type(v) is int)
    return max(0, every or 0)


_RWKV = Family(
    "averages over time in place of attention, gates and feed-forward parts that see the token before, too; a norm of the embeddings",
    Names(
        ("rwkv.",),
        "blocks.{}.",
        {"time_mix": "attention", "channel_mix": "feed_forward", "attn_norm": "ln1", "mlp_norm": "ln2"},
        {"embed_tokens": "embeddings", "embed_norm": "blocks.0.pre_ln", "norm": "ln_out", "lm_head": "^head"},
    ),
    {"embedding_norm": True, "channel_mix": True, "final_eps": 1e-5, "halved": _halved},
    (
        lambda r, f: {
            "keepers": (TimeMix(r.size("attention_hidden_size", f["hidden"]) or 1),),
            "mixers": ("time_mix",) * f["layers"],
        },
    ),
    keys={"layer_norm_eps": "layer_norm_epsilon"},
    norm="layer",
    inner=4,
    defaults={"layer_norm_epsilon": 1e-5, "num_attention_heads": 1, "hidden_act": "relu2"},
)

FAMILIES: dict[str, Family] = {
    "mamba": _MAMBA,
    "falcon_mamba": _FALCON_MAMBA,
    "jamba": _JAMBA,
    "recurrent_gemma": _RECURRENT_GEMMA,
    "rwkv": _RWKV,
}
