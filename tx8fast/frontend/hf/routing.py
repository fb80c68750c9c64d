"""Routed experts as config files describe them: counts, widths, which layers have them, how they are chosen.

May import: frontend.hf. Must not: know the IR, weights or any one family.
"""

from __future__ import annotations

from typing import Any

from tx8fast.frontend.hf.family import Fields, Part, Read
from tx8fast.frontend.hf.reader import Reader
from tx8fast.frontend.hf.rope import rotation, softmax_gain
from tx8fast.frontend.hf.spec import Experts, Latent

MAX_EXPERTS, MAX_EXPERTS_IN_ALL = 1 << 14, 1 << 18


def routed(
    count: str,
    width: str = "intermediate_size",
    *,
    sparse: Read | None = None,
    top_k: str = "num_experts_per_tok",
    listed: bool = False,
    **more: Any,
) -> Part:
    """Experts in every layer or those `sparse` gives. `count`, `width`, `top_k`: keys; `listed`: files may say the first and the
    last once for every layer; `more`: fields of `Experts`, or functions that read them."""

    def read(r: Reader, f: Fields) -> Fields:
        layers = f["layers"]
        size = r.uniform if listed else r.size
        number, best = size(count, most=MAX_EXPERTS), size(top_k)
        # a model has a tensor per expert and layer; more than any real one means a damaged file
        if number and number * layers > MAX_EXPERTS_IN_ALL:
            r.problems.append(
                f"{count} {number} in {layers} layers are more than {MAX_EXPERTS_IN_ALL:,} experts in all"
            )
        if best and number and best > number:
            r.problems.append(f"{top_k} {best} exceeds {count} {number}")
        fields: Fields = {k: v(r, f) if callable(v) else v for k, v in more.items()}
        experts = Experts(number or 1, best or 1, r.size(width) or 1, **fields)
        return {"experts": experts, "sparse": sparse(r, f) if sparse is not None else (True,) * layers}

    return read


def spaced(step_key: str, first: str = "") -> Read:
    """Every so many layers, but those `mlp_only_layers` names."""

    def read(r: Reader, f: Fields) -> tuple[bool, ...]:
        step = r.size(step_key, 1) or 1
        dense = (
            r.get(
                "mlp_only_layers",
                [],
                "a list of layer numbers",
                lambda v: type(v) is list and all(type(i) is int for i in v),
            )
            or []
        )
        return tuple(i not in dense and (i + 1) % step == 0 for i in range(f["layers"]))

    return read


def behind(key: str, default: int, types_key: str = "") -> Read:
    """All layers but the first so many, unless the list `types_key` names each."""

    def read(r: Reader, f: Fields) -> tuple[bool, ...]:
        types = r.layer_list(types_key, f["layers"], {"dense": False, "sparse": True}) if types_key else None
        first = r.count(key, default)
        return tuple(types) if types is not None else tuple(i >= first for i in range(f["layers"]))

    return read


def grouped(default_groups: int = 1, limited: Read | None = None, *, sparse: Read | None = None, **more: Any) -> Part:
    """The experts of the DeepSeek models and their relatives: dense layers first, shared experts, groups of experts.

    `limited`: whether groups are used at all; `sparse`: the layers that have experts, None: all behind the first dense ones; `more`:
    fields of `Experts`."""

    def read(r: Reader, f: Fields) -> Fields:
        count = r.raw.get("n_routed_experts")
        if count is None:
            return {}
        r.fixed("moe_layer_freq", 1)
        groups = (r.size("n_group", default_groups) or 1) if limited is None or limited(r, f) else 1
        best = (r.size("topk_group", 1) or 1) if groups > 1 else 1
        if type(count) is int and (count % groups or best > groups):
            r.problems.append(f"n_group {groups} with topk_group {best} does not divide n_routed_experts {count}")
        part = routed(
            "n_routed_experts",
            "moe_intermediate_size",
            sparse=sparse or behind("first_k_dense_replace", 0),
            shared=(r.size("moe_intermediate_size") or 1) * r.count("n_shared_experts", 0),
            scale=r.number("routed_scaling_factor", 1.0),
            groups=groups,
            top_groups=best,
            wide_router=True,
            **more,
        )
        return part(r, f)

    return read


def latent_attention(style: Read | str, rank: int = 0, value_width: Read | None = None) -> Part:
    """Queries, keys and values through low ranks. Where the file says nothing: `rank` of queries (0: none), `value_width` of a head."""

    def read(r: Reader, f: Fields) -> Fields:
        nope, turned = r.size("qk_nope_head_dim"), r.size("qk_rope_head_dim")
        value = r.size("v_head_dim", value_width(r, f) if value_width is not None else ...)
        queries = r.count("q_lora_rank", 0 if "q_lora_rank" in r.raw else rank)
        latent = Latent(queries, r.size("kv_lora_rank") or 1, nope or 1, turned or 1, value or 1)
        fields = rotation(style, width=lambda r, f: turned)(r, f)
        if f["kv_heads"] != f["heads"]:
            r.problems.append(
                f"num_key_value_heads {f['kv_heads']} differs from num_attention_heads {f['heads']}, "
                "latent attention has one key per query head"
            )
        scale = ((nope or 1) + (turned or 1)) ** -0.5 * softmax_gain(r)
        return {**fields, "latent": latent, "attention_scale": scale}

    return read
