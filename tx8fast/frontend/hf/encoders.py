"""Encoder families: bert (text) and vit (images).

May import: frontend.hf.reader. Must not: know the IR or weights.
"""

from __future__ import annotations

from typing import Any

from tx8fast.frontend.hf.reader import Reader

Fields = dict[str, Any]
_BIASED = {"gated": False, "qkv_bias": True, "out_bias": True, "mlp_bias": True}


def bert(r: Reader, f: Fields) -> Fields:
    r.fixed("position_embedding_type", "absolute")
    for key in ("is_decoder", "add_cross_attention"):
        r.fixed(key, False)
    return {**_BIASED, "post_norm": True, "final_norm": False, "positions": r.size("max_position_embeddings"),
            "token_types": r.size("type_vocab_size")}  # fmt: skip


def vit(r: Reader, f: Fields) -> Fields:
    height, width = _pair(r, "image_size")
    patch_h, patch_w = _pair(r, "patch_size")
    if height % patch_h or width % patch_w:
        r.problems.append(f"image_size {height}x{width} is not a multiple of patch_size {patch_h}x{patch_w}")
    bias = r.flag("qkv_bias", True)
    patches = (height // patch_h) * (width // patch_w)
    return {**_BIASED, "qkv_bias": bias, "positions": patches + 1,
            "image": (r.size("num_channels") or 1, height, width, patch_h, patch_w)}  # fmt: skip


def _pair(r: Reader, key: str) -> tuple[int, int]:
    def good(v: Any) -> bool:
        both = v if type(v) is list and len(v) == 2 else [v]
        return all(type(n) is int and n >= 1 for n in both)

    value = r.get(key, ..., "a whole number >= 1 or two of them", good) or 1
    return (value[0], value[1]) if type(value) is list else (value, value)
