"""The tensors a model reads, each a slot of the graph with its place in the checkpoint.

May import: frontend.hf. Must not: open files; know the IR.

A slot has the same name in all families ("layers.3.self_attn.q_proj.weight"). What families store fused or
per expert becomes an expression over the stored tensors, so nothing is read to import a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tx8fast.frontend.hf.families import FAMILIES
from tx8fast.frontend.hf.family import Names
from tx8fast.frontend.hf.spec import ModelConfig
from tx8fast.records import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """`keys`: stored tensors, all of shape `stored`, joined along `axis` if `expert`; or one. `lengths`: theirs along `axis`, where
    they differ. `steps` take a part of it.

    `shift` is added to every element. A matrix is [out, in]; `flipped` ones are [in, out]. `optional`: a checkpoint may lack it.
    `other`: the same slot of a checkpoint that stores it in another shape.
    """

    name: str
    keys: tuple[str, ...]
    stored: Shape
    steps: tuple[tuple[Any, ...], ...] = ()
    axis: int = 0
    shift: float = 0.0
    flipped: bool = False
    expert: bool = False
    optional: bool = False
    other: Slot | None = None
    lengths: tuple[int, ...] = ()

    def shapes(self) -> list[Shape]:
        """Return the shape of every stored tensor."""
        before, behind = self.stored[: self.axis], self.stored[self.axis + 1 :]
        return [(*before, n, *behind) for n in self.lengths] or [self.stored] * len(self.keys)


#: names in GGUF files, which all families share
_GGUF = {
    **{f"self_attn.{m}_proj": f"attn_{m}" for m in "qkv"},
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "attn_norm": "attn_norm",
    "attn_post_norm": "post_attention_norm",
    "mlp_norm": "ffn_norm",
    "mlp_post_norm": "post_ffw_norm",
    "router": "ffn_gate_inp",
    "gate_proj": "ffn_gate_exps",
    "up_proj": "ffn_up_exps",
    "down_proj": "ffn_down_exps",
}
_GGUF_OUTER = {
    "embed_tokens": "token_embd",
    "positions": "position_embd",
    "norm": "output_norm",
    "lm_head": "output",
}


#: prefixes of a language model inside an image-text model, of old and new files, in front of the family's own
WRAPPED = ("language_model.model.", "model.language_model.", "model.text_model.")


def names_of(c: ModelConfig) -> Names:
    names = FAMILIES[c.model_type].names
    if c.renamed:
        names = replace(names, modules={**names.modules, **dict(c.renamed)})
    if not c.gguf:
        return names
    return Names(("",), "blk.{}.", {m: _GGUF[m] for m in names.modules if m in _GGUF}, _GGUF_OUTER)


def outer_key(names: Names, module: str, prefix: str) -> str:
    """Return the stored name of a module outside of the layers."""
    stored = names.outer[module]
    if not stored.startswith("^"):
        return prefix + stored
    # a base model inside another one has its heads beside it, below the same parent
    parent = prefix.removesuffix("model.") if prefix.startswith(("language_model.", "detr.")) else ""
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


def head_parts(
    heads: int, name: str, key: str, cols: int, parts: tuple[tuple[str, int], ...], bias: bool = False
) -> Iterator[Slot]:
    """Matrices whose rows stand one behind the other in every head of the stored one, `parts` of so many rows."""
    total, at = sum(n for _, n in parts), 0
    for suffix, n in parts:
        steps = (("reshape", [heads, total, cols]), *part((heads, n, cols), (0, at, 0)), ("reshape", [heads * n, cols]))
        yield Slot(f"{name}{suffix}.weight", (key + ".weight",), (heads * total, cols), steps)
        if bias:
            steps = (("reshape", [heads, total]), *part((heads, n), (0, at)), ("reshape", [heads * n]))
            yield Slot(f"{name}{suffix}.bias", (key + ".bias",), (heads * total,), steps)
        at += n


class SlotList:
    """Collects the slots of one model under one checkpoint prefix."""

    def __init__(self, c: ModelConfig, prefix: str) -> None:
        self.c, self.names, self.prefix = c, names_of(c), prefix

    def outer(self, module: str, shape: Shape, suffix: str = ".weight", **more: Any) -> Slot:
        return Slot(module + suffix, (outer_key(self.names, module, self.prefix) + suffix,), shape, **more)

    def key(self, i: int, module: str) -> str:
        modules = self.names.modules
        if self.c.shared is not None and self.c.shared.lender[i] >= 0 and "behind." + module in modules:
            module = "behind." + module
        return self.layer(i) + modules[module]

    def layer(self, i: int) -> str:
        """Return what stands in front of the names of a layer."""
        return self.prefix + self.names.layer.format(self.c.stored_layers[i] if self.c.stored_layers else i)

    def vector(self, i: int, module: str, size: int, suffix: str = ".weight", **more: Any) -> Slot:
        return Slot(f"layers.{i}.{module}{suffix}", (self.key(i, module) + suffix,), (size,), **more)

    def table(self, i: int, module: str, shape: Shape, **more: Any) -> Slot:
        return Slot(f"layers.{i}.{module}.weight", (self.key(i, module) + ".weight",), shape, **more)

    def linear(
        self, i: int, module: str, rows: int, cols: int, bias: bool = False, flipped: bool = False, heads: int = 0
    ) -> Iterator[Slot]:
        """`heads`: the rows are those of so many heads, and pair lanes."""
        stored = (cols, rows) if flipped else (rows, cols)
        key = self.key(i, module) + ".weight"
        yield Slot(f"layers.{i}.{module}.weight", (key,), stored, _halves(heads, stored), flipped=flipped)
        if bias:
            yield self.vector(i, module, rows, ".bias", steps=_halves(heads, (rows,)))

    def norm(self, i: int, module: str, size: int) -> Iterator[Slot]:
        if f"{i}.{module}" in self.c.unnormed:
            return
        if module in self.names.modules and self.c.norm_gain and not (self.c.one_norm and module == "mlp_norm"):
            yield self.vector(i, module, size, shift=self.c.norm_offset)
            if self.c.norm_bias:
                yield self.vector(i, module, size, ".bias")
