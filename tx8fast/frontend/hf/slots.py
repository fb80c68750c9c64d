"""The tensors a model reads, each a slot of the graph with its place in the checkpoint: names of every family.

May import: frontend.hf.spec. Must not: open files; know the IR.

A slot has the same name in all families ("layers.3.self_attn.q_proj.weight"). What families store fused or
per expert becomes an expression over the stored tensors, so nothing is read to import a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tx8fast.frontend.hf.spec import ModelConfig

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """`keys`: stored tensors, all of shape `stored`, joined along `axis`; or one, of which `steps` take a part.

    `shift` is added to every element. A matrix is [out, in]; `flipped` ones are [in, out].
    """

    name: str
    keys: tuple[str, ...]
    stored: Shape
    steps: tuple[tuple[Any, ...], ...] = ()
    axis: int = 0
    shift: float = 0.0
    flipped: bool = False
    expert: bool = False


@dataclass(frozen=True, slots=True)
class Names:
    """A family's spelling. `prefixes`: of the base model, the first that the checkpoint has wins.

    `layer`: a layer's prefix; `modules`: graph name -> stored name within a layer; `outer`: outside of the layers,
    a leading "^" goes before the prefix.
    """

    prefixes: tuple[str, ...]
    layer: str
    modules: dict[str, str]
    outer: dict[str, str]


_ATTENTION = {f"self_attn.{m}": f"self_attn.{m}" for m in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")}
_MLP = {f"mlp.{m}": f"mlp.{m}" for m in ("gate_proj", "up_proj", "down_proj")}
_OUTER = {"embed_tokens": "embed_tokens", "norm": "norm", "lm_head": "^lm_head"}
_LLAMA = {
    **_ATTENTION,
    **_MLP,
    "attn_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
}
_SANDWICH = {**_ATTENTION, **_MLP, "attn_norm": "input_layernorm", "attn_post_norm": "post_attention_layernorm",
             "mlp_norm": "pre_feedforward_layernorm", "mlp_post_norm": "post_feedforward_layernorm"}  # fmt: skip
_VIT = {"self_attn.q_proj": "attention.attention.query", "self_attn.k_proj": "attention.attention.key",
        "self_attn.v_proj": "attention.attention.value", "self_attn.o_proj": "attention.output.dense",
        "mlp.up_proj": "intermediate.dense", "mlp.down_proj": "output.dense", "attn_norm": "layernorm_before",
        "mlp_norm": "layernorm_after"}  # fmt: skip
_BERT = {"self_attn.q_proj": "attention.self.query", "self_attn.k_proj": "attention.self.key",
         "self_attn.v_proj": "attention.self.value", "self_attn.o_proj": "attention.output.dense",
         "mlp.up_proj": "intermediate.dense", "mlp.down_proj": "output.dense",
         "attn_norm": "attention.output.LayerNorm", "mlp_norm": "output.LayerNorm"}  # fmt: skip
_EMBED = "embeddings."
DEFAULT = Names(("model.", ""), "layers.{}.", _LLAMA, _OUTER)
NAMES: dict[str, Names] = {
    "gemma2": Names(("model.",), "layers.{}.", _SANDWICH, _OUTER),
    "gemma3_text": Names(("model.", "language_model.model.", "model.language_model."), "layers.{}.", _SANDWICH, _OUTER),
    "olmo2": Names(("model.",), "layers.{}.", {k: v for k, v in _SANDWICH.items() if k not in ("attn_norm", "mlp_norm")},
                   _OUTER),
    "mixtral": Names(("model.",), "layers.{}.", {**_LLAMA, "router": "block_sparse_moe.gate",
                     "experts": "block_sparse_moe.experts.", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}, _OUTER),
    "gpt2": Names(("transformer.", ""), "h.{}.",
                  {"self_attn.qkv": "attn.c_attn", "self_attn.o_proj": "attn.c_proj", "mlp.up_proj": "mlp.c_fc",
                   "mlp.down_proj": "mlp.c_proj", "attn_norm": "ln_1", "mlp_norm": "ln_2"},
                  {"embed_tokens": "wte", "positions": "wpe", "norm": "ln_f", "lm_head": "^lm_head"}),
    "gpt_neox": Names(("gpt_neox.",), "layers.{}.",
                      {"self_attn.qkv": "attention.query_key_value", "self_attn.o_proj": "attention.dense",
                       "mlp.up_proj": "mlp.dense_h_to_4h", "mlp.down_proj": "mlp.dense_4h_to_h",
                       "attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"},
                      {"embed_tokens": "embed_in", "norm": "final_layer_norm", "lm_head": "^embed_out"}),
    "opt": Names(("model.decoder.", "decoder."), "layers.{}.",
                 {**_ATTENTION, "self_attn.o_proj": "self_attn.out_proj", "mlp.up_proj": "fc1", "mlp.down_proj": "fc2",
                  "attn_norm": "self_attn_layer_norm", "mlp_norm": "final_layer_norm"},
                 {"embed_tokens": "embed_tokens", "positions": "embed_positions", "norm": "final_layer_norm",
                  "project_in": "project_in", "project_out": "project_out", "lm_head": "^lm_head"}),
    "phi3": Names(("model.",), "layers.{}.", {**_LLAMA, "self_attn.qkv": "self_attn.qkv_proj",
                  "mlp.gate_up": "mlp.gate_up_proj"}, _OUTER),
    "bert": Names(("bert.", ""), "encoder.layer.{}.", _BERT,
                  {"embed_tokens": _EMBED + "word_embeddings", "positions": _EMBED + "position_embeddings",
                   "token_types": _EMBED + "token_type_embeddings", "embed_norm": _EMBED + "LayerNorm",
                   "pooler": "pooler.dense"}),
    "vit": Names(("vit.", ""), "encoder.layer.{}.", _VIT,
                 {"patches": _EMBED + "patch_embeddings.projection", "positions": _EMBED + "position_embeddings",
                  "class_token": _EMBED + "cls_token", "norm": "layernorm", "pooler": "pooler.dense",
                  "classifier": "^classifier"}),
}  # fmt: skip
_MOE = {**_LLAMA, "router": "mlp.gate", "experts": "mlp.experts.", "gate_proj": "gate_proj", "up_proj": "up_proj",
        "down_proj": "down_proj"}  # fmt: skip
_DEEPSEEK = {**_MOE, **{f"self_attn.{m}": f"self_attn.{m}" for m in ("q_a_proj", "q_a_layernorm", "q_b_proj",
             "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj")}}  # fmt: skip
NAMES |= {"qwen3_moe": Names(("model.",), "layers.{}.", _MOE, _OUTER),
          **{k: Names(("model.",), "layers.{}.", _DEEPSEEK, _OUTER) for k in ("deepseek_v2", "deepseek_v3")}}  # fmt: skip


#: names in GGUF files, which all families share
_GGUF = {
    **{f"self_attn.{m}_proj": f"attn_{m}" for m in "qkv"}, "self_attn.o_proj": "attn_output", "self_attn.qkv": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.gate_up": "ffn_up", "mlp.down_proj": "ffn_down", "attn_norm": "attn_norm",
    "attn_post_norm": "post_attention_norm", "mlp_norm": "ffn_norm", "mlp_post_norm": "post_ffw_norm",
    "router": "ffn_gate_inp", "gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps",
}  # fmt: skip
_GGUF_OUTER = {
    "embed_tokens": "token_embd",
    "positions": "position_embd",
    "norm": "output_norm",
    "lm_head": "output",
}


def names_of(c: ModelConfig) -> Names:
    names = NAMES.get(c.model_type, DEFAULT)
    if not c.gguf:
        return names
    return Names(("",), "blk.{}.", {m: _GGUF[m] for m in names.modules if m in _GGUF}, _GGUF_OUTER)


def outer_key(names: Names, module: str, prefix: str) -> str:
    """Return the stored name of a module outside of the layers."""
    stored = names.outer[module]
    if not stored.startswith("^"):
        return prefix + stored
    # an image-text model keeps its head beside the base model, below the same parent
    parent = prefix.removesuffix("model.") if prefix == "language_model.model." else ""
    return parent + stored[1:]


def part(rows: Shape, start: Shape) -> tuple[tuple[Any, ...], ...]:
    return (("slice", list(start), list(rows)),)


def _halves(heads: int, shape: Shape) -> tuple[tuple[Any, ...], ...]:
    """Bring lanes stored as pairs into the order of a rotation that turns the halves of a head against each other."""
    if not heads:
        return ()
    rows, *rest = shape
    split = [heads, rows // heads // 2, 2, *rest]
    return ("reshape", split), ("transpose", [0, 2, 1, *range(3, len(split))]), ("reshape", list(shape))


class SlotList:
    """Collects the slots of one model under one checkpoint prefix."""

    def __init__(self, c: ModelConfig, prefix: str) -> None:
        self.c, self.names, self.prefix = c, names_of(c), prefix

    def outer(self, module: str, shape: Shape, suffix: str = ".weight", **more: Any) -> Slot:
        return Slot(module + suffix, (outer_key(self.names, module, self.prefix) + suffix,), shape, **more)

    def key(self, i: int, module: str) -> str:
        return self.prefix + self.names.layer.format(i) + self.names.modules[module]

    def vector(self, i: int, module: str, size: int, suffix: str = ".weight", **more: Any) -> Slot:
        return Slot(f"layers.{i}.{module}{suffix}", (self.key(i, module) + suffix,), (size,), **more)

    def linear(self, i: int, module: str, rows: int, cols: int, bias: bool = False, flipped: bool = False,
               heads: int = 0) -> Iterator[Slot]:  # fmt: skip
        """`heads`: the rows are those of so many heads, and pair lanes."""
        stored = (cols, rows) if flipped else (rows, cols)
        key = self.key(i, module) + ".weight"
        yield Slot(f"layers.{i}.{module}.weight", (key,), stored, _halves(heads, stored), flipped=flipped)
        if bias:
            yield self.vector(i, module, rows, ".bias", steps=_halves(heads, (rows,)))

    def norm(self, i: int, module: str, size: int) -> Iterator[Slot]:
        if module in self.names.modules:
            yield self.vector(i, module, size, shift=self.c.norm_offset)
            if self.c.norm_bias:
                yield self.vector(i, module, size, ".bias")
