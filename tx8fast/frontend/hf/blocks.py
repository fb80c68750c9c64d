"""Building blocks that all transformers share: parameters, linear layers, norms, rotation and masks.

May import: ir, weights, frontend.hf. Must not: read files. Activations are [batch, seq, features]; heads stay
inside the last dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tx8fast.errors import ImportModelError
from tx8fast.frontend.hf.checkpoint import ModelWeights
from tx8fast.frontend.hf.parallel import Parallel
from tx8fast.frontend.hf.slots import names_of
from tx8fast.frontend.hf.spec import ModelConfig
from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.builder import Builder
from tx8fast.ir.core import Context, Value
from tx8fast.weights import np_dtype


class Blocks:
    """Emits ops at the end of a function block. `dtype`: the activations' format; `mask_value`: what hides a score."""

    def __init__(
        self, ctx: Context, b: Builder, c: ModelConfig, weights: ModelWeights, mask_value: float, p: Parallel
    ) -> None:
        self.ctx, self.b, self.c, self.weights, self.parallel = ctx, b, c, weights, p
        self.table, self.dtype, self.mask_value = weights.table, weights.dtype, mask_value
        self.ropes: dict[int, tuple[Value, Value]] = {}
        self.masks: dict[tuple[int, int], Value] = {}  # by window and chunk
        self.leaning: dict[int, Value] = {}  # masks with learned summands, of the layers that have tables
        self.kept: dict[int, tuple[Value, Value]] = {}  # keys and values by layer, for layers that have none
        self.embedded: Value | None = None  # what went into the first layer
        self.aside: Value | None = None  # rows of the second table for all layers
        self.source: Value | None = None  # the encoder's result that a prefill attends to
        self.padding: Value | None = None  # which of an encoder's rows are padding, [batch, 1, 1, rows]
        self.padded: dict[Value | None, Value] = {}  # masks that hide padding, too, by what they hide else
        self.longest = 0  # tokens or slots that all masks and factors are made for, where that is more than there are
        self.grown: Value | None = None  # what queries without rotation are multiplied by, one number per token
        names = names_of(c)
        self.multipliers = dict(c.multipliers)
        self.places = {*names.modules, *names.outer}

    # ------------------------------------------------------------ leaves

    def has(self, name: str) -> bool:
        return name in self.weights.slots

    def param(self, name: str, dtype: str | None = None) -> Value:
        """Return a slot's weight in the activations' format (or `dtype`); most checkpoints have one format throughout."""
        key = self.weights.slots[name].key
        w = self.table[key]
        dtype = dtype or self.dtype
        v = self.b("get_param", result_types=[self.ctx.tensor(w.shape, w.dtype)], key=key, loc=name)
        return v if w.dtype == dtype else self.b("convert", v, dtype=dtype, loc=name)

    def derived(
        self,
        key: str,
        expr: str,
        attrs: dict[str, Any],
        shape: tuple[int, ...],
        dtype: str | None = None,
        inputs: tuple[str, ...] = (),
    ) -> Value:
        dtype = dtype or self.dtype
        if key not in self.table:
            self.table.add_derived(key, expr, attrs, inputs, shape, dtype)
        return self.b("get_param", result_types=[self.ctx.tensor(shape, dtype)], key=key, loc=key)

    def number(self, value: float, dtype: str, loc: str) -> Value:
        array = np.asarray(value, np.float32).astype(np_dtype(dtype))
        return self.b("constant", value=DenseAttr(array), result_types=[self.ctx.tensor((), dtype)], loc=loc)

    def scaled(self, x: Value, by: float, loc: str, kind: str = "mul") -> Value:
        return x if by == 1.0 else self.b(kind, x, self.number(by, x.dtype, loc), loc=loc)

    def capped(self, x: Value, cap: float, loc: str) -> Value:
        """cap * tanh(x / cap)."""
        return self.scaled(self.b("tanh", self.scaled(x, 1.0 / cap, loc), loc=loc), cap, loc)

    def narrow(self, x: Value) -> Value:
        """Bring what flows past the layers into the format they compute in."""
        return x if x.dtype == self.dtype else self.b("convert", x, dtype=self.dtype, loc="residual")

    def added(self, x: Value, y: Value, loc: str) -> Value:
        """Add what a part of a layer gives to what flows past it."""
        return self.b("add", x, y if x.dtype == y.dtype else self.b("convert", y, dtype=x.dtype, loc=loc), loc=loc)

    # ------------------------------------------------------------ layers

    def linear(self, x: Value, name: str, useful_macs: int = -1, dtype: str | None = None, bias: bool = True) -> Value:
        """y = x W^T (+ bias), or x W for a matrix stored [in, out]."""
        flipped = self.weights.slots[name + ".weight"].flipped
        operands = [x, self.param(name + ".weight", dtype)]
        if bias and self.has(name + ".bias"):
            operands.append(self.param(name + ".bias", dtype))
        y = self.b("gemm", *operands, trans_b=not flipped, useful_macs=useful_macs, loc=name)
        return self.scaled(y, self.multiplier(name), name)

    def multiplier(self, name: str) -> float:
        """Return what the family multiplies the result of a module of a layer by."""
        return self.multipliers.get(name.split(".", 2)[-1], 1.0)

    def out_linear(self, x: Value, name: str, useful_macs: int = -1) -> Value:
        """The linear layer out of heads or hidden units: where chips share these, the sum of what they give."""
        if self.parallel.parts == 1:
            return self.linear(x, name, useful_macs)
        y = self.summed(self.linear(x, name, useful_macs, bias=False), name)
        return self.b("add", y, self.param(name + ".bias"), loc=name) if self.has(name + ".bias") else y

    def summed(self, x: Value, name: str) -> Value:
        """Add up what the chips of a group have."""
        p = self.parallel
        return self.b("all_reduce", x, combine="add", groups=p.groups, parts=p.parts, loc=name + ".sum")

    def gathered(self, x: Value, name: str) -> Value:
        """Put together the last dimension, of which every chip of a group has a part."""
        p = self.parallel
        return self.b("all_gather", x, dim=len(x.shape) - 1, groups=p.groups, parts=p.parts, loc=name + ".gather")

    def norm(self, x: Value, name: str, eps: float | None = None) -> Value:
        """The family's norm, or nothing if the model has none at this place."""
        gain = (self.gain(name),) if self.has(name + ".weight") else ()
        if not gain and (self.c.norm_gain or name.split(".", 2)[-1] not in self.places):
            return x
        return self.normalised(x, name, *gain, eps=eps)

    def gain(self, name: str) -> Value:
        """Return a norm's gain: one that is stored less a summand in f32, in which norms work."""
        return self.param(name + ".weight", "f32" if self.c.norm_offset else None)

    def normalised(self, x: Value, name: str, *gain: Value, eps: float | None = None) -> Value:
        """Normalise the last dimension the family's way."""
        eps = self.eps(name) if eps is None else eps
        if self.c.norm == "layer":
            bias = (self.param(name + ".bias"),) if gain and self.has(name + ".bias") else ()
            return self.b("layernorm", x, *gain, *bias, eps=eps, loc=name)
        return self.b("rmsnorm", x, *gain, eps=eps, loc=name)

    def eps(self, name: str) -> float:
        """Return the eps of a norm: of a stream that was halved k times, 4^k times that of the stream as it is here."""
        place, c = name.split("."), self.c
        layer = int(place[1]) if place[0] == "layers" else c.layers if name == "norm" else 0
        eps = c.final_eps if name == "norm" and c.final_eps else c.norm_eps
        return eps * 4.0 ** (layer // c.halved) if c.halved else eps

    def head_norm(self, x: Value, heads: int, name: str) -> Value:
        """Normalise every head of [batch, seq, heads * head_dim] on its own; gains are of a head or of all of them."""
        batch, seq, width = x.shape
        eps = self.c.qk_norm_eps or None
        shared = self.c.qk_norm_gain and self.c.qk_norm == "head"
        gain = None if not self.c.qk_norm_gain else self.gain(name) if shared else self.param(name + ".weight")
        split = self.b("reshape", x, shape=(batch, seq, heads, width // heads), loc=name)
        split = self.normalised(split, name, *((gain,) if shared and gain is not None else ()), eps=eps)
        x = self.b("reshape", split, shape=(batch, seq, width), loc=name)
        return x if gain is None or shared else self.b("mul", x, gain, loc=name)

    def rope(self, x: Value, which: int, heads: int, loc: str) -> Value:
        """Rotate every head; `which` -1 = this layer has no rotation."""
        if which < 0:
            return x
        rope = self.c.ropes[which]
        cos, sin = self.ropes[which]
        rotary = -1 if rope.rotary_dim == x.shape[-1] // heads else rope.rotary_dim
        return self.b("rope", x, cos, sin, heads=heads, style=rope.style, rotary_dim=rotary, loc=loc)

    # ------------------------------------------------------------ what all layers share

    def rope_tables(self, which: int, length: int) -> tuple[Value, Value]:
        """Return cos and sin [length, head_dim]; the sine carries the sign of the rotation."""
        rope = self.c.ropes[which]
        scaling = dict(rope.scaling)
        if scaling["rope_type"] == "longrope":
            far = length > scaling["original_max_position_embeddings"]
            scaling = {
                "rope_type": "longrope",
                "factors": scaling["long_factor" if far else "short_factor"],
            }
        if scaling["rope_type"] == "dynamic":
            if length > scaling.get("trained", length):
                raise ImportModelError(
                    f"building {self.c.model_type}: {length} positions asked for, its dynamic rotation is fixed up to the "
                    f"{scaling['trained']} it was trained for; lower seq or past"
                )
            scaling = {"rope_type": "default"}
        attrs = {
            "theta": rope.theta,
            "rotary_dim": rope.rotary_dim,
            "scaling": scaling,
            "style": rope.style,
        }
        if rope.gain != 1.0:
            attrs["gain"] = rope.gain
        if rope.backwards:
            attrs["backwards"] = True
        shape = (length, self.c.latent.rope if self.c.latent else rope.width or self.c.head_dim)
        name = f"/{length}" + (f"/{which}" if which else "")
        return self.derived("%rope_cos" + name, "rope_cos", attrs, shape), self.derived(
            "%rope_sin" + name, "rope_sin", attrs, shape
        )

    def hide(self, there: Value | None) -> None:
        """Let scores of an encoder's rows hide where `there` [batch, rows] i64 is 0; None: all are there."""
        if there is None:
            return
        none = self.derived("%absent", "fill", {"value": 0}, (), "i64")
        rows = self.b("reshape", there, shape=(there.shape[0], 1, 1, there.shape[1]), loc="padding")
        self.padding = self.b("eq", rows, none, loc="padding")

    def with_padding(self, mask: Value | None) -> Value | None:
        """Return what hides what `mask` (None: nothing) hides, and padding."""
        if self.padding is None:
            return mask
        if mask not in self.padded:
            low = self.number(self.mask_value, self.dtype, "padding")
            seen = self.number(0.0, self.dtype, "padding") if mask is None else mask
            self.padded[mask] = self.b("select", self.padding, low, seen, loc="padding")
        return self.padded[mask]

    def prefill_inputs(self, seq: int) -> None:
        """Emit rotation tables and additive masks [seq, seq] that all layers share."""
        for which in self._used_ropes():
            self.ropes[which] = self.rope_tables(which, seq)
        shared: dict[tuple[int, int], Value] = {}
        for sight in () if self.c.ahead else self._sights():
            window, chunk = short = self._within(sight, seq)
            if short not in shared:
                attrs = {"window": window, "value": self.mask_value, **({"chunk": chunk} if chunk else {})}
                name = f"%causal_mask/{seq}" + (f"/{window}" if window else "") + (f"/chunk{chunk}" if chunk else "")
                shared[short] = self.derived(name, "causal_mask", attrs, (seq, seq))
            self.masks[sight] = shared[short]
        self._lean(seq)
        if self._grows(seq):
            self.grown = self._growth(self.derived(f"%places/{seq}", "arange", {}, (seq, 1), "f32"))

    def encoder_inputs(self, seq: int) -> None:
        """Emit rotation tables, and masks where an encoder's tokens do not see everything."""
        c = self.c
        if c.causal:
            self.prefill_inputs(seq)
            return
        for which in self._used_ropes():
            self.ropes[which] = self.rope_tables(which, seq)
        for sight in self._sights():
            window = sight[0]
            if 0 < window < seq:  # reaches as far ahead as back
                attrs = {"window": window, "ahead": window - 1, "value": self.mask_value}
                self.masks[sight] = self.derived(f"%near/{seq}/{window}", "causal_mask", attrs, (seq, seq))

        self._lean(seq)

    def _lean(self, length: int, position: Value | None = None) -> None:
        """Emit masks with learned summands [heads, length, length], or their row at `position` [heads, 1, length]."""
        r, heads = self.c.relative, self.c.heads
        if r is None:
            return
        for i in range(self.c.layers if r.each else 1):
            table = self.weights.slots[f"layers.{i}.relative.weight"].key
            attrs = {"distance": r.distance, "both": r.both, "value": 0.0 if self.c.encoder else self.mask_value}
            key, dtype = f"%relative/{i}/{length}", self.table[table].dtype
            if position is None:
                bias = self.derived(key, "relative_bias", attrs, (heads, length, length), dtype, (table,))
            else:  # a row of all heads is looked up at once
                rows = self.derived(key + "/rows", "relative_bias", attrs, (length, heads * length), dtype, (table,))
                bias = self.b("embedding", rows, position, loc=key)
                bias = self.b("reshape", bias, shape=(heads, 1, length), loc=key)
            self.leaning[i] = bias if dtype == self.dtype else self.b("convert", bias, dtype=self.dtype, loc=key)

    def decode_inputs(self, position: Value, past: int) -> None:
        """Emit rotation rows [1, head_dim] at `position` and additive mask rows [past] that all layers share."""
        b = self.b
        for which in self._used_ropes():
            cos, sin = self.rope_tables(which, past)
            row = b("embedding", cos, position, loc="rope.cos")
            self.ropes[which] = row, b("embedding", sin, position, loc="rope.sin")
        slot = self.derived(f"%slots/{past}", "arange", {}, (past,), "i64")
        zero = self.derived("%zero", "fill", {"value": 0.0}, ())
        low = self.derived("%mask_value", "fill", {"value": self.mask_value}, ())
        causal = b("le", slot, position, loc="mask.causal")
        shared: dict[tuple[int, int], Value] = {}
        for sight in self._sights():
            window, chunk = short = self._within(sight, past)
            if short not in shared:
                seen = causal
                if window:
                    width = self.derived(f"%window/{window}", "fill", {"value": window}, (1,), "i64")
                    oldest = b("sub", position, width, loc="mask.oldest")
                    seen = b("and", causal, b("gt", slot, oldest, loc="mask.window"), loc="mask.seen")
                if chunk:
                    firsts = self.derived(
                        f"%chunk_firsts/{past}/{chunk}", "chunk_first", {"chunk": chunk}, (past, 1), "i64"
                    )
                    first = b(
                        "reshape", b("gather", firsts, position, axis=0, loc="mask.chunk"), shape=(1,), loc="mask.chunk"
                    )
                    seen = b("and", seen, b("ge", slot, first, loc="mask.chunk"), loc="mask.seen")
                shared[short] = b("select", seen, zero, low, loc="mask")
            self.masks[sight] = shared[short]
        self._lean(past, position)
        if self._grows(past):
            self.grown = self._growth(
                b("reshape", b("convert", position, dtype="f32", loc="growth"), shape=(1, 1), loc="growth")
            )

    def reach(self, length: int) -> int:
        """Return how many tokens decide which masks and factors a graph of `length` has."""
        return max(length, self.longest)

    def _within(self, sight: tuple[int, int], length: int) -> tuple[int, int]:
        """Return the window and chunk that hide anything among `length` tokens."""
        window, chunk = sight
        return window if window < self.reach(length) else 0, chunk if chunk < self.reach(length) else 0

    def _sights(self) -> list[tuple[int, int]]:
        return list(dict.fromkeys(self.c.sight(i) for i in range(self.c.layers)))

    def _used_ropes(self) -> list[int]:
        return sorted({which for which in self.c.rope_of if which >= 0})

    def _grows(self, length: int) -> bool:
        """The first positions have the factor one."""
        g = self.c.growth
        return g is not None and self.reach(length) - 1 + g.first >= g.step

    def _growth(self, place: Value) -> Value:
        """Return what queries at `place` (f32) are multiplied by."""
        g, b, at = self.c.growth, self.b, "growth"
        assert g is not None
        place = b("add", place, self.number(g.first, "f32", at), loc=at) if g.first else place
        steps = b("floor", b("div", place, self.number(g.step, "f32", at), loc=at), loc=at)
        one = self.number(1.0, "f32", at)
        grown = self.scaled(b("log", b("add", steps, one, loc=at), loc=at), g.factor, at)
        grown = b("add", grown, one, loc=at)
        return grown if self.dtype == "f32" else b("convert", grown, dtype=self.dtype, loc=at)
