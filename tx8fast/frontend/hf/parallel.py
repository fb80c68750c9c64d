"""Tensor parallelism: every chip of a group holds a part of each layer's matrices.

May import: ir, weights, errors, frontend.hf. Must not: read tensor bytes.

What leads into heads and hidden units is cut by its outputs, what leads out of them by its inputs, so that a layer needs two
sums over the chips and nothing else. Chip c holds part c mod n; chips of a group follow each other. Where there are fewer key
heads than chips, several chips hold the same key head. Norms, routers, the latent rows, the embedding and layers that keep a state are
on every chip.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tx8fast.errors import ConfigError, UnsupportedError, raise_all
from tx8fast.frontend.hf.checkpoint import Bound, ModelWeights
from tx8fast.frontend.hf.spec import ModelConfig
from tx8fast.records import dataclass
from tx8fast.weights.dtypes import ITEM_BYTES
from tx8fast.weights.parts import add_shared

#: parts of a layer whose heads chips share
HEADED = ("attention", "disentangled", "squares", "cells")
#: what stands in front of the number of a layer
STACKS = ("layers.", "encoder.", "decoder.")
#: modules of a layer that are cut by their outputs (rows of a matrix [out, in], elements of a bias), by what the outputs are
HEADS, KEY_HEADS, UNITS, EXPERT_UNITS = "heads", "key heads", "hidden units", "hidden units of each expert"
COLUMNS = {
    "self_attn.q_proj": HEADS,
    "self_attn.k_proj": KEY_HEADS,
    "self_attn.v_proj": KEY_HEADS,
    "self_attn.pos_q_proj": HEADS,
    "self_attn.pos_k_proj": HEADS,
    "cross_attn.q_proj": HEADS,
    "cross_attn.k_proj": KEY_HEADS,
    "cross_attn.v_proj": KEY_HEADS,
    "self_attn.gate_proj": HEADS,
    "self_attn.sinks": HEADS,
    "self_attn.q_nope": HEADS,
    "self_attn.q_rope": HEADS,
    "self_attn.k_nope": HEADS,
    "self_attn.v": HEADS,
    "mlp.gate_proj": UNITS,
    "mlp.up_proj": UNITS,
    "shared_experts.gate_proj": UNITS,
    "shared_experts.up_proj": UNITS,
    "experts.gate_proj": EXPERT_UNITS,
    "experts.up_proj": EXPERT_UNITS,
}
#: likewise where every head has gains of its own
HEAD_GAINS = {"self_attn.q_norm": HEADS, "self_attn.k_norm": KEY_HEADS}
#: modules that are cut by their inputs; what they give is a summand, and a bias is added behind the sum
ROWS = {
    "self_attn.o_proj": HEADS,
    "cross_attn.o_proj": HEADS,
    "mlp.down_proj": UNITS,
    "shared_experts.down_proj": UNITS,
    "experts.down_proj": EXPERT_UNITS,
}
#: tables with a column for every head
TABLES = {"relative": HEADS}


@dataclass(frozen=True)
class Parallel:
    """`parts` chips share a layer; `chips` run the program, group after group."""

    parts: int = 1
    chips: int = 1

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(range(self.chips))


def split(c: ModelConfig, weights: ModelWeights, p: Parallel, what: str) -> tuple[ModelConfig, ModelWeights]:
    """Return the model that one chip computes: its sizes, and its slots bound to entries that differ by chip.

    Raises ConfigError listing all sizes that do not divide, UnsupportedError for what cannot be cut.
    """
    if p.parts == 1:
        return c, weights
    n = p.parts
    _check(c, n, what)
    slots = {name: _cut(c, weights, p, name, bound) for name, bound in weights.slots.items()}
    experts = c.experts and replace(c.experts, intermediate=c.experts.intermediate // n, shared=c.experts.shared // n)
    found = c.detection and replace(c.detection, heads=c.detection.heads // n, units=c.detection.units // n)
    small = replace(
        c,
        heads=max(1, c.heads // n),
        kv_heads=max(1, c.kv_heads // n),
        intermediate=c.intermediate // n,
        experts=experts,
        detection=found,
    )
    return small, replace(weights, slots=slots)


def _check(c: ModelConfig, n: int, what: str) -> None:
    if c.alibi:
        raise UnsupportedError(
            f"{what}: scores of {c.model_type} lean by a slope per head, which --tp does not cut yet; drop --tp"
        )
    if c.forms or c.keys_from or c.side is not None or c.shared is not None:
        raise UnsupportedError(
            f"{what}: layers of {c.model_type} differ in their heads or share keys or weights, which --tp does not cut yet; drop --tp"
        )
    if c.qk_norm == "full":
        raise UnsupportedError(
            f"{what}: {c.model_type} normalises all heads together, which cannot be cut over chips; drop --tp"
        )
    problems = [f"{size} {name} do not divide by {n}" for name, size in _sizes(c).items() if size % n]
    if _attends(c) and c.latent is None and c.kv_heads % n and n % c.kv_heads:
        problems.append(f"{c.kv_heads} key heads neither divide by {n} nor divide it")
    raise_all(ConfigError, f"{what} over {n} chips", problems)


def share(c: ModelConfig, weights: ModelWeights, n: int) -> tuple[int, float]:
    """Return the bytes, as stored, of the weights that one of `n` chips holds, and its share of the caches.

    c, weights: of the whole model. Raises as `split`."""
    if n > 1:
        _check(c, n, f"cutting {c.model_type}")
    held: dict[str, float] = {}  # a tied embedding is one entry
    for name, bound in weights.slots.items():
        w = weights.table[bound.key]
        what = _what(c, n, name, "lm_head.weight" in weights.slots)
        parts = 1 if what is None else _held(c, n, what)
        held[bound.key] = max(held.get(bound.key, 0.0), math.prod(w.shape) * ITEM_BYTES.get(w.dtype, 1) / parts)
    return round(sum(held.values())), 1 if c.latent is not None else 1 / _held(c, n, KEY_HEADS)


def _what(c: ModelConfig, n: int, name: str, headed: bool) -> str | None:
    """Return by what a slot is cut over `n` chips, None if every chip has the whole of it; headed: the model has a head of its own,
    not the embedding, which is whole."""
    module, kind = _place(name)
    if module == "lm_head" and headed and c.vocab % n == 0:
        return "vocabulary"
    if c.qk_norm == "heads" and module in HEAD_GAINS:
        return HEAD_GAINS[module]
    return None if module in ROWS and kind == "bias" else ROWS.get(module) or COLUMNS.get(module) or TABLES.get(module)


def _place(name: str) -> tuple[str, str]:
    """Return a slot's module inside its layer, empty for what is the layer's own, and which of the module's weights it is."""
    module, _, kind = (name.split(".", 2)[2] if name.startswith(STACKS) else name).rpartition(".")
    return module, kind


def _attends(c: ModelConfig) -> bool:
    return any(part in HEADED for i in range(c.layers) for part in c.mixer(i).split("+"))


def _held(c: ModelConfig, n: int, what: str) -> int:
    """Return the number of different parts."""
    return n if what != KEY_HEADS else min(n, c.kv_heads)


def _sizes(c: ModelConfig) -> dict[str, int]:
    """Return what has to divide."""
    out = {"heads": c.heads} if _attends(c) else {}
    if any(not sparse and (not c.fed or fed) for sparse, fed in zip(c.sparse, c.fed or c.sparse, strict=True)):
        out["hidden units"] = c.intermediate
    if c.detection is not None:
        out |= {"heads of the decoder": c.detection.heads, "hidden units of the decoder": c.detection.units}
    if c.experts is not None and any(c.sparse):
        out |= {
            "hidden units of an expert": c.experts.intermediate,
            "hidden units of the shared experts": c.experts.shared,
        }
    return out


def _cut(c: ModelConfig, weights: ModelWeights, p: Parallel, name: str, bound: Bound) -> Bound:
    """Return the slot's entry as the chips hold it."""
    module, kind = _place(name)
    by_rows = module in ROWS or module in TABLES
    what = _what(c, p.parts, name, "lm_head.weight" in weights.slots)
    if what is None:
        return bound
    axis = 0 if kind == "bias" else int(by_rows) ^ int(bound.flipped)
    outer = c.experts.count if what == EXPERT_UNITS and c.experts is not None else 1
    key = f"%part/{name}"
    if key not in weights.table:
        add_shared(weights.table, key, bound.key, axis, outer, _held(c, p.parts, what), p.parts, p.chips)
    return replace(bound, key=key)
