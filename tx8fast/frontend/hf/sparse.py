"""Families with routed experts: mixtral, qwen3_moe, and the deepseek ones, which also have latent attention.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from typing import Any

from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import read_rope, section_of, softmax_gain
from tx8fast.frontend.hf.spec import Experts, Latent
from tx8fast.frontend.hf.windows import all_layers

Fields = dict[str, Any]
MAX_EXPERTS, MAX_EXPERTS_IN_ALL = 1 << 14, 1 << 18


def _rotated(r: Reader, f: Fields, head_dim: int | None, style: str = "half") -> Fields:
    section, raw = section_of(r)
    rope = read_rope(r, head_dim, section=section, raw=raw, style=style)
    return {"ropes": (rope,), "rope_of": (0,) * f["layers"]}


def _expert_count(r: Reader, layers: int, key: str, default: Any = ...) -> Any:
    """A model has a tensor per expert and layer; more than any real one means a damaged file."""
    count = r.size(key, default, most=MAX_EXPERTS)
    if count and count * layers > MAX_EXPERTS_IN_ALL:
        r.problems.append(f"{key} {count} in {layers} layers are more than {MAX_EXPERTS_IN_ALL:,} experts in all")
    return count


def _top_k(r: Reader, count: int | None, key: str) -> int:
    top_k = r.size("num_experts_per_tok")
    if top_k and count and top_k > count:
        r.problems.append(f"num_experts_per_tok {top_k} exceeds {key} {count}")
    return top_k or 1


def mixtral(r: Reader, f: Fields) -> Fields:
    count = _expert_count(r, f["layers"], "num_local_experts")
    experts = Experts(count or 1, _top_k(r, count, "num_local_experts"), f["intermediate"] or 1, normalise=True)
    return {**_rotated(r, f, f["head_dim"]), "windows": all_layers(r, f["layers"]), "experts": experts,
            "sparse": (True,) * f["layers"]}  # fmt: skip


def qwen3_moe(r: Reader, f: Fields) -> Fields:
    layers = f["layers"]
    count = _expert_count(r, layers, "num_experts")
    experts = Experts(count or 1, _top_k(r, count, "num_experts"), r.size("moe_intermediate_size") or 1,
                      normalise=r.flag("norm_topk_prob"))  # fmt: skip
    step = r.size("decoder_sparse_step", 1) or 1
    dense = r.get("mlp_only_layers", [], "a list of layer numbers",
                  lambda v: type(v) is list and all(type(i) is int for i in v)) or []  # fmt: skip
    bias = r.flag("attention_bias")
    windows = all_layers(r, layers) if r.flag("use_sliding_window") else (0,) * layers
    return {**_rotated(r, f, f["head_dim"]), "qkv_bias": bias, "out_bias": bias, "qk_norm": "head", "windows": windows,
            "experts": experts, "sparse": tuple(i not in dense and (i + 1) % step == 0 for i in range(layers))}  # fmt: skip


def _latent(r: Reader, f: Fields, style: str) -> Fields:
    nope, turned, value = (
        r.size("qk_nope_head_dim"),
        r.size("qk_rope_head_dim"),
        r.size("v_head_dim"),
    )
    latent = Latent(r.count("q_lora_rank", 0), r.size("kv_lora_rank") or 1, nope or 1, turned or 1, value or 1)
    rotation = _rotated(r, f, turned, style)
    if f["kv_heads"] != f["heads"]:
        r.problems.append(f"num_key_value_heads {f['kv_heads']} differs from num_attention_heads {f['heads']}, "
                          "latent attention has one key per query head")  # fmt: skip
    scale = ((nope or 1) + (turned or 1)) ** -0.5
    if not r.problems:
        scale *= softmax_gain(rotation["ropes"][0])
    bias = r.flag("attention_bias")
    return {
        **rotation,
        "latent": latent,
        "attention_scale": scale,
        "qkv_bias": bias,
        "out_bias": bias,
    }


def _deepseek_experts(r: Reader, f: Fields, **more: Any) -> Fields:
    layers = f["layers"]
    count = _expert_count(r, layers, "n_routed_experts", 0)
    if not count:
        return {}
    r.fixed("moe_layer_freq", 1)
    width = r.size("moe_intermediate_size") or 1
    groups = more.pop("groups", 1) or 1
    top_groups = (r.size("topk_group", groups) or 1) if groups > 1 else 1
    if count % groups or top_groups > groups:
        r.problems.append(f"n_group {groups} with topk_group {top_groups} does not divide n_routed_experts {count}")
    experts = Experts(count, _top_k(r, count, "n_routed_experts"), width, shared=width * r.count("n_shared_experts", 0),
                      scale=r.number("routed_scaling_factor", 1.0), groups=groups, top_groups=top_groups,
                      wide_router=True, **more)  # fmt: skip
    first = r.count("first_k_dense_replace", 0)
    return {"experts": experts, "sparse": tuple(i >= first for i in range(layers))}


def deepseek_v2(r: Reader, f: Fields) -> Fields:
    r.fixed("topk_method", "greedy", "group_limited_greedy")
    r.fixed("scoring_func", "softmax")
    r.fixed("norm_topk_prob", False)
    limited = r.raw.get("topk_method") == "group_limited_greedy"
    groups = r.size("n_group", 1) if limited else 1
    return {
        **_latent(r, f, "interleaved"),
        **_deepseek_experts(r, f, groups=groups),
        "mlp_bias": r.flag("mlp_bias"),
    }


def deepseek_v3(r: Reader, f: Fields) -> Fields:
    r.fixed("topk_method", "noaux_tc")
    r.fixed("scoring_func", "sigmoid")
    r.fixed("mlp_bias", False)
    style = "interleaved" if r.flag("rope_interleave") else "half"
    routing = _deepseek_experts(r, f, groups=r.size("n_group", 8), scores="sigmoid", group_score="top2",
                                normalise=r.flag("norm_topk_prob"), correction=True)  # fmt: skip
    return {**_latent(r, f, style), **routing}
