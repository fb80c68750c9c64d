"""Models made of several parts, of which a program computes one: the halves of image-text models, the sides of others.

May import: errors, frontend.hf.families. Must not: know the IR or weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tx8fast.errors import ConfigError
from tx8fast.records import dataclass

_LLAMA_7B = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
#: what such configs leave out of a section because the library has it as default, by the section's family
SECTION_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {**_LLAMA_7B, "intermediate_size": 11008, "vocab_size": 32000},
    "mistral": {**_LLAMA_7B, "intermediate_size": 14336, "vocab_size": 32000},
    "qwen3_vl_moe_text": {"tie_word_embeddings": False},  # the whole ties the logits, by a default of its own
}
#: keys outside of a section that hold for it too
_OUTER = ("torch_dtype", "dtype", "tie_word_embeddings", "quantization_config")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a model. `section`: the nested object of the config that describes it, "" = the config itself; `family`: what it
    is where the section names none; `shared`: keys outside of the section that hold for it too; `together`: as in `ModelConfig`, rows
    that see each other because they stand in this model."""

    section: str
    family: str
    shared: tuple[str, ...] = ()
    together: str = ""


@dataclass(frozen=True, slots=True)
class Composite:
    """A model of several parts. `default`: the part compiled where none is named."""

    pieces: Mapping[str, Piece]
    default: str = ""


def _image_text(text: str, vision: str = "", together: str = "") -> Composite:
    """A language model that sees images; its text half is compiled unless --part says otherwise."""
    pieces = {"text": Piece("text_config", text, _OUTER, together)}
    if vision:
        pieces["vision"] = Piece("vision_config", vision, ("torch_dtype", "dtype"))
    return Composite(pieces, "text")


def _sides(kind: str) -> Composite:
    return Composite({side: Piece("", f"{kind}.{side}") for side in ("encoder", "decoder")})


def _towers(text: str, vision: str) -> Composite:
    return Composite(
        {
            "text": Piece("text_config", text, ("torch_dtype", "dtype")),
            "vision": Piece("vision_config", vision, ("torch_dtype", "dtype")),
        }
    )


COMPOSITES: dict[str, Composite] = {
    "gemma3": _image_text("gemma3_text", "siglip_vision_model", "image"),
    "gemma3n": _image_text("gemma3n_text"), "gemma4": _image_text("gemma4_text"),
    "paligemma": _image_text("gemma", "siglip_vision_model", "prompt"),
    "mistral3": _image_text("mistral"), "llama4": _image_text("llama4_text"),
    "llava": _image_text("llama", "clip_vision_model"), "llava_next": _image_text("llama", "clip_vision_model"),
    "llava_onevision": _image_text("qwen2", "siglip_vision_model"), "vipllava": _image_text("llama", "clip_vision_model"),
    "idefics3": _image_text("llama"), "smolvlm": _image_text("llama"), "aya_vision": _image_text("cohere2", "siglip_vision_model"),
    "internvl": _image_text("qwen2"), "qwen3_5": _image_text("qwen3_5_text", "qwen3_5_vision"),
    "qwen3_5_moe": _image_text("qwen3_5_moe_text", "qwen3_5_vision"), "mllama": _image_text("mllama_text_model"), "lfm2_vl": _image_text("lfm2"),
    "qwen2_vl": _image_text("qwen2_vl_text", "qwen2_vl_vision"), "qwen2_5_vl": _image_text("qwen2_5_vl_text", "qwen2_5_vl_vision"),
    "qwen3_vl": _image_text("qwen3_vl_text", "qwen3_vl_vision"), "qwen3_vl_moe": _image_text("qwen3_vl_moe_text", "qwen3_vl_vision"),
    "clip": _towers("clip_text_model", "clip_vision_model"), "siglip": _towers("siglip_text_model", "siglip_vision_model"),
    **{kind: _image_text("qwen2") for kind in ("got_ocr2", "ovis2", "video_llama_3", "qwen2_audio", "audioflamingo3", "musicflamingo", "pp_chart2table")},
    **{kind: _image_text("llama") for kind in ("deepseek_vl", "deepseek_vl_hybrid", "janus", "llava_next_video", "video_llava", "voxtral",
                                               "glmasr", "omniasr")},
    **{kind: _image_text("qwen3") for kind in ("lighton_ocr", "qwen3_asr", "moss_transcribe_diarize")},
    **{kind: _image_text("granite") for kind in ("granite_speech", "granite_speech_plus")},
    "exaone4_5": _image_text("exaone4"), "fuyu": _image_text("persimmon"),
    "idefics2": _image_text("mistral"), "kimi_k25": _image_text("deepseek_v3"),
    "sam": Composite({"vision": Piece("vision_config", "sam_vision_model", ("torch_dtype", "dtype"))}, "vision"),
    **{kind: _sides(kind) for kind in ("t5", "mt5", "umt5", "bart", "mbart", "marian", "pegasus", "m2m_100", "whisper")},
}  # fmt: skip


def together_in(kind: str, part: str | None) -> str:
    """Return which rows of the `part` of a model see each other because of what the whole is."""
    composite = COMPOSITES.get(kind)
    piece = None if composite is None else composite.pieces.get(part or composite.default)
    return "" if piece is None else piece.together


def piece_of(kind: str, raw: dict[str, Any], part: str | None, doing: str) -> tuple[str, dict[str, Any]]:
    """Return family and config of the `part` of a model; other models are returned as they are.

    Raises ConfigError if there is no such part, or none is named where one must be."""
    composite = COMPOSITES.get(kind)
    if composite is None:
        if part is not None:
            raise ConfigError(
                f"{doing}: part '{part}' is asked for, a model of type '{kind}' has no parts; drop --part"
            )
        return kind, raw
    names = ", ".join(composite.pieces)
    if part is None and not composite.default:
        raise ConfigError(f"{doing}: a model of type '{kind}' has the parts {names}; give one of them by --part")
    piece = composite.pieces.get(part or composite.default)
    if piece is None:
        raise ConfigError(f"{doing}: part '{part}' is asked for, a model of type '{kind}' has the parts {names}")
    if not piece.section:
        return piece.family, raw
    inner = raw.get(piece.section)
    if not isinstance(inner, dict):
        # a flat config describes the text half, as that of one model
        return (piece.family if kind.endswith("_vl") else kind, raw) if part in (None, "text") else (piece.family, {})
    outer: dict[str, Any] = {k: raw[k] for k in piece.shared if k in raw}
    inner_kind = inner.get("model_type")
    inner_kind = inner_kind if type(inner_kind) is str and inner_kind else piece.family
    if inner_kind in (kind, f"{kind}_vision") and part == "vision":  # some files call a section as they call the whole
        inner_kind = piece.family
    given = {k: v for k, v in inner.items() if v is not None or k not in outer}
    if piece.together == "prompt" and given.get("use_bidirectional_attention") is True:
        given.pop("use_bidirectional_attention")  # newer files say of the section what the whole model does
    return inner_kind, {**SECTION_DEFAULTS.get(inner_kind, {}), **outer, **given}
