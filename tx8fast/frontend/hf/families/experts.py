"""Decoders with routed experts, some with latent attention.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from tx8fast.frontend.hf.families.names import BLOCK_SPARSE, LATENT, MOE
from tx8fast.frontend.hf.family import Family, Fields, biases, flag
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import rotation
from tx8fast.frontend.hf.routing import grouped, latent_attention, routed, spaced
from tx8fast.frontend.hf.windows import all_layers

_ROUTED = {"num_local_experts": "n_routed_experts", "num_experts": "n_routed_experts"}


def _switched_window(r: Reader, f: Fields) -> tuple[int, ...]:
    return all_layers(4096)(r, f) if r.flag("use_sliding_window") else (0,) * f["layers"]


def _rotation_style(r: Reader, f: Fields) -> str:
    return "interleaved" if r.flag("rope_interleave") else "half"


_DEEPSEEK2 = Family(
    "latent attention, shared experts, grouped routing by the best expert of a group", LATENT,
    {**biases(), "mlp_bias": flag("mlp_bias")},
    (latent_attention("interleaved"), grouped(limited=lambda r, f: r.raw.get("topk_method") == "group_limited_greedy")),
    defaults={"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}, aliases=_ROUTED,
    fixed={"topk_method": ("greedy", "group_limited_greedy"), "scoring_func": ("softmax",), "norm_topk_prob": (False,)},
)  # fmt: skip
_DEEPSEEK3 = Family(
    "latent attention, sigmoid scores with a correction bias, groups by the sum of their two best, yarn with its softmax "
    "temperature",
    LATENT, biases(),
    (latent_attention(_rotation_style),
     grouped(8, scores="sigmoid", group_score="top2", normalise=flag("norm_topk_prob"), correction=True)),
    defaults={**_DEEPSEEK2.defaults, "norm_topk_prob": True, "rope_interleave": True}, aliases=_ROUTED,
    fixed={"topk_method": ("noaux_tc",), "scoring_func": ("sigmoid",), "mlp_bias": (False,)},
)  # fmt: skip
_MIXTRAL = Family(
    "routed experts, the weights of the chosen ones add up to one", BLOCK_SPARSE, {"windows": all_layers()},
    (rotation(), routed("num_local_experts", normalise=True)), aliases={"num_experts": "num_local_experts"},
    defaults={"rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_key_value_heads": 8, "num_local_experts": 8,
              "num_experts_per_tok": 2}, pairs_lanes=True,
)  # fmt: skip
_QWEN3_MOE = Family(
    "routed experts, dense layers in between, per-head query and key norms", MOE,
    {**biases(), "qk_norm": "head", "windows": _switched_window},
    (rotation(), routed("num_experts", "moe_intermediate_size", sparse=spaced("decoder_sparse_step"),
                        normalise=flag("norm_topk_prob"))),
    defaults={"num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8},
    aliases={"num_local_experts": "num_experts"},
)  # fmt: skip

FAMILIES: dict[str, Family] = {
    "mixtral": _MIXTRAL, "qwen3_moe": _QWEN3_MOE, "deepseek_v2": _DEEPSEEK2, "deepseek_v3": _DEEPSEEK3,
}  # fmt: skip
