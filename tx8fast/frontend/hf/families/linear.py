"""Decoders with attention without a softmax in most layers: at a fixed pace, or corrected channel by channel.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tx8fast.frontend.hf.families.names import ATTENTION, BLOCK_SPARSE, LATENT
from tx8fast.frontend.hf.family import SILU, Family, Fields, Read, flag
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import rotation
from tx8fast.frontend.hf.routing import grouped, latent_attention, routed
from tx8fast.frontend.hf.spec import Stream
from tx8fast.frontend.hf.states import ChannelDelta, Lightning
from tx8fast.frontend.hf.windows import window_of


def _factors(part: str) -> Read:
    return lambda r, f: tuple(r.number(f"{part}_{side}_factor", 1) or 1.0 for side in ("alpha", "beta"))


def _minimax(r: Reader, f: Fields) -> Fields:
    layers = f["layers"]
    kinds = r.layer_list("layer_types", layers, {"linear_attention": "lightning", "full_attention": "attention"})
    found = Lightning(f["heads"], f["head_dim"] or 1, r.size("block_size", 256) or 1, layers)
    attention, others, fed = (_factors(part)(r, f) for part in ("full_attn", "linear_attn", "mlp"))
    return {
        "mixers": tuple(kinds or ("lightning" if i % 2 else "attention" for i in range(layers))),
        "keepers": (found,),
        "stream": Stream(attention, others, fed),
    }


_MINIMAX = Family(
    "attention without a softmax that decays at a fixed pace in most layers, the stream between the parts is what their norms give, weighed; "
    "routed experts",
    BLOCK_SPARSE.but(lightning="self_attn"),
    {"windows": lambda r, f: (window_of(r),) * f["layers"]},
    (rotation(theta=1e6), _minimax, routed("num_local_experts", normalise=True)),
    defaults={"rms_norm_eps": 1e-5, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    aliases={"num_experts": "num_local_experts"},
    fixed={"hidden_act": SILU},
)


def _numbered(r: Reader, section: dict[str, Any], layers: int) -> tuple[str, ...] | None:
    """Lists of layers, counted from one."""
    lists = [section.get(key) for key in ("full_attn_layers", "kda_layers")]
    if lists == [None, None]:
        return None
    full, delta = lists
    if any(type(v) is not list for v in lists) or sorted([*(full or ()), *(delta or ())]) != list(range(1, layers + 1)):
        r.problems.append(
            f"linear_attn_config: full_attn_layers and kda_layers do not name the layers 1 to {layers} once each"
        )
        return None
    return tuple("attention" if i + 1 in (full or ()) else "channel_delta" for i in range(layers))


def _kimi(r: Reader, f: Fields) -> Fields:
    layers, raw = f["layers"], r.raw.get("linear_attn_config") or {}
    section = raw if isinstance(raw, dict) else {}
    inner = Reader(
        {
            "linear_head_dim": section.get("head_dim"),
            "linear_num_heads": section.get("num_heads"),
            "linear_conv_kernel_dim": section.get("short_conv_kernel_size"),
        }
    )
    found = ChannelDelta(
        *(
            inner.size(key, r.size(key, default)) or 1
            for key, default in (("linear_num_heads", 32), ("linear_head_dim", 128), ("linear_conv_kernel_dim", 4))
        )
    )
    r.problems += inner.problems
    kinds = r.layer_list("layer_types", layers, {"linear_attention": "channel_delta", "full_attention": "attention"})
    mixers = tuple(kinds) if kinds else _numbered(r, section, layers)
    return {
        "keepers": (found,),
        "rope_of": (-1,) * layers,
        "mixers": mixers or tuple("attention" if i and i % 4 == 0 else "channel_delta" for i in range(layers)),
    }


def _kimi_sparse(r: Reader, f: Fields) -> Fields:
    kinds = r.layer_list("mlp_layer_types", f["layers"], {"dense": False, "sparse": True})
    return {"sparse": tuple(kinds)} if kinds else {}


_KIMI_LINEAR = Family(
    "delta networks whose state decays row by row, latent attention without rotation in some layers, experts routed as in deepseek_v3",
    replace(
        LATENT.but(
            router="block_sparse_moe.gate",
            experts="block_sparse_moe.experts.",
            gate_proj="w1",
            up_proj="w3",
            down_proj="w2",
            shared="block_sparse_moe.shared_experts.",
            channel_delta="self_attn",
            also={k: v for k, v in ATTENTION.items() if k.endswith("_proj")},
        ),
        # what the library saves calls the plain parts as the experts
        written={r"\bblock_sparse_moe\.(gate|up|down)_proj\.": r"mlp.\1_proj."},
    ),
    {"qkv_bias": flag("attention_bias"), "out_bias": flag("attention_bias")},
    (
        latent_attention("half"),
        _kimi,
        grouped(
            1,
            scores="sigmoid",
            group_score="top2",
            normalise=flag("norm_topk_prob", True),
            correction=True,
            floor=1e-20,
        ),
        _kimi_sparse,
    ),
    keys={"max_position_embeddings": "model_max_length"},
    defaults={
        "rms_norm_eps": 1e-5,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "routed_scaling_factor": 2.446,
        "n_group": 1,
        "topk_group": 1,
    },
    aliases={
        "num_experts": "n_routed_experts",
        "num_local_experts": "n_routed_experts",
        "num_experts_per_token": "num_experts_per_tok",
        "num_shared_experts": "n_shared_experts",
        "num_expert_group": "n_group",
        "moe_renormalize": "norm_topk_prob",
    },
    fixed={
        "moe_router_activation_func": ("sigmoid",),
        "mla_use_nope": (True,),
        "hidden_act": SILU,
        "num_nextn_predict_layers": (0,),
        "tie_word_embeddings": (False,),
    },
)

FAMILIES: dict[str, Family] = {"minimax": _MINIMAX, "kimi_linear": _KIMI_LINEAR}
