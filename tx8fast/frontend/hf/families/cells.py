"""Encoders of images of any size whose patches are merged cell by cell, the eyes of Qwen's language models.

May import: frontend.hf. Must not: know the IR or weights.
"""

from __future__ import annotations

from tx8fast.frontend.hf.families.encoders import BIASED
from tx8fast.frontend.hf.families.vision import image, numbers
from tx8fast.frontend.hf.family import Family, Fields, Names, Part
from tx8fast.frontend.hf.reader import Reader, positive
from tx8fast.frontend.hf.spec import Cells

#: pixels, where nobody says how large the image is
USUAL = 448


def _cells(bias: bool = False) -> Part:
    """`bias`: of the patches' product."""

    def read(r: Reader, f: Fields) -> Fields:
        f |= image(class_token=False, bias=bias, frames=r.size("temporal_patch_size", 2) or 1)(r, f)
        merge, seen = r.size("spatial_merge_size", 2) or 1, f["image"]
        if any(n % merge for n in seen.patches):
            cell = f"{merge * seen.patch_height}x{merge * seen.patch_width}"
            r.problems.append(
                f"an image of {seen.height}x{seen.width} is not a multiple of cells of {cell}; give --dim height=N --dim width=N"
            )
        turned = r.raw.get("rope_parameters") or {}
        theta = turned.get("rope_theta", 10000.0) if isinstance(turned, dict) else None
        if not positive(theta) or turned.get("rope_type", "axial") not in ("axial", "default"):
            r.problems.append(
                f"key 'rope_parameters' is {turned!r}, required: an object of rope_type axial with rope_theta > 0"
            )
            theta = 1.0
        if (f["head_dim"] or 4) % 4:
            r.problems.append(f"heads are {f['head_dim']} wide, a rotation by row and column takes a multiple of 4")
        found = Cells(merge, r.size("merged_size") or 1, float(theta), **_windows(r, f, merge), **_learned(r, f))
        return {"cells": found, "mixers": ("cells",) * f["layers"], "positions": 0, "image": seen}

    return read


def _windows(r: Reader, f: Fields, merge: int) -> Fields:
    """The layers that see a window, and its side."""
    if "window_size" not in r.raw:
        return {}
    window, patch = r.size("window_size") or 1, f["image"].patch_height
    whole = r.get("fullatt_block_indexes", [7, 15, 23, 31], "a list of layer numbers", numbers) or []
    side = window // merge // patch
    if not side:
        r.problems.append(f"window_size {window} is less than a cell, {merge * patch}")
    return {"side": side, "near": tuple(i not in whole for i in range(f["layers"]))}


def _learned(r: Reader, f: Fields) -> Fields:
    """A square of positions, and the layers whose result is merged, too."""
    if "num_position_embeddings" not in r.raw:
        return {}
    count = r.size("num_position_embeddings") or 1
    side = round(count**0.5)
    if side * side != count:
        r.problems.append(f"num_position_embeddings is {count}, required: those of a square")
    deep = r.get("deepstack_visual_indexes", [], "a list of layer numbers", numbers) or []
    if any(i >= f["layers"] for i in deep) or list(deep) != sorted(set(deep)):
        r.problems.append(f"key 'deepstack_visual_indexes' is {deep!r}, required: layer numbers, ascending")
    return {"table": side, "deep": tuple(deep)}


def _wide(r: Reader, f: Fields) -> Fields:
    return {"intermediate": int((f["hidden"] or 1) * (r.number("mlp_ratio", 4) or 4))}


_KEYS = {
    "num_hidden_layers": "depth",
    "num_attention_heads": "num_heads",
    "num_channels": "in_channels",
    "merged_size": "out_hidden_size",
}
_SEES = {"image_size": USUAL, "patch_size": 14, "in_channels": 3, "vocab_size": 1, "depth": 32, "num_heads": 16}
_LAYER = {"self_attn.qkv": "attn.qkv", "self_attn.o_proj": "attn.proj", "attn_norm": "norm1", "mlp_norm": "norm2"}
_TOWERS = ("model.visual.", "visual.", "")
_QWEN2_VL = Family(
    "an encoder of images of any size; patches turn by row and column, cells of four are merged",
    Names(
        _TOWERS,
        "blocks.{}.",
        {**_LAYER, "mlp.up_proj": "mlp.fc1", "mlp.down_proj": "mlp.fc2"},
        {
            "patches": "patch_embed.proj",
            "merger.norm": "merger.ln_q",
            "merger.in": "merger.mlp.0",
            "merger.out": "merger.mlp.2",
        },
    ),
    {**BIASED, "final_norm": False, "norm_eps": 1e-6},
    (_cells(), _wide),
    norm="layer",
    encoder=True,
    sized=True,
    keys={**_KEYS, "hidden_size": "embed_dim", "merged_size": "hidden_size"},
    defaults={**_SEES, "hidden_act": "quick_gelu", "embed_dim": 1280, "hidden_size": 3584, "intermediate_size": 1},
)
_QWEN2_5_VL = Family(
    "an encoder of images of any size; layers that see windows, gated feed-forward parts; patches turn by row and column, cells of four are "
    "merged",
    Names(
        _TOWERS,
        "blocks.{}.",
        {**_LAYER, **{f"mlp.{p}_proj": f"mlp.{p}_proj" for p in ("gate", "up", "down")}},
        _QWEN2_VL.names.outer,
    ),
    {**BIASED, "gated": True, "final_norm": False, "norm_eps": 1e-6},
    (_cells(),),
    encoder=True,
    sized=True,
    keys=_KEYS,
    defaults={
        **_SEES,
        "hidden_act": "silu",
        "hidden_size": 3584,
        "intermediate_size": 3420,
        "window_size": 112,
        "out_hidden_size": 3584,
    },
)
_QWEN3_VL = Family(
    "an encoder of images of any size; a square of positions stretched to the image, patches turn by row and column, cells of four are merged, "
    "those of some layers, too",
    Names(
        _TOWERS,
        "blocks.{}.",
        {**_LAYER, "mlp.up_proj": "mlp.linear_fc1", "mlp.down_proj": "mlp.linear_fc2"},
        {
            "patches": "patch_embed.proj",
            "places": "pos_embed",
            **{
                f"{name}.{ours}": f"{stored}.{theirs}"
                for name, stored in (("merger", "merger"), ("deep", "deepstack_merger_list.{}"))
                for ours, theirs in (("norm", "norm"), ("in", "linear_fc1"), ("out", "linear_fc2"))
            },
        },
    ),
    {**BIASED, "final_norm": False, "norm_eps": 1e-6},
    (_cells(bias=True),),
    norm="layer",
    encoder=True,
    sized=True,
    keys=_KEYS,
    defaults={
        **_SEES,
        "hidden_act": "gelu_pytorch_tanh",
        "patch_size": 16,
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
        "out_hidden_size": 3584,
    },
)
_QWEN3_5 = _QWEN3_VL.like(
    "an encoder of images of any size; a square of positions stretched to the image, patches turn by row and column, cells of four are merged",
    defaults={"deepstack_visual_indexes": []},
    fixed={"deepstack_visual_indexes": ([],)},
)

FAMILIES: dict[str, Family] = {
    "qwen2_vl_vision": _QWEN2_VL,
    "qwen2_5_vl_vision": _QWEN2_5_VL,
    "qwen3_vl_vision": _QWEN3_VL,
    "qwen3_5_vision": _QWEN3_5,
}
