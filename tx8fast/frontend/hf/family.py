"""What a family of models is: one record of its config keys, its blocks and its tensor names, and the words to write it in.

May import: frontend.hf.reader. Must not: know the IR, weights or any one family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from tx8fast.frontend.hf.reader import Reader, positive
from tx8fast.records import dataclass

#: hidden_act of the config -> name of the op, also the activation of `swiglu`
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "sigmoid": "sigmoid",
    "relu2": "relu2",
    "xielu": "xielu",
    "quick_gelu": "quick_gelu",
}
#: what configs call the activation of parts that have no other
SILU = tuple(name for name, op in ACTIVATIONS.items() if op == "silu")
Fields = dict[str, Any]
Read = Callable[[Reader, Fields], Any]
Part = Callable[[Reader, Fields], Fields]


@dataclass(frozen=True, slots=True)
class Stack:
    """One tensor that holds a matrix of all experts. `axes`: what each stored dimension counts, from the outside in: e experts,
    i hidden units, h the model's width, 2 gate and up, of which `at` is meant. `turned`: some files have
    the last two the other way round."""

    key: str
    axes: tuple[str, ...]
    at: int = 0
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Names:
    """A family's spelling. `prefixes`: of the base model, the first that the checkpoint has wins.

    `layer`: a layer's prefix; `modules`: graph name -> stored name within a layer; `outer`: outside of the layers,
    a leading "^" goes before the prefix; `stacks`: expert matrices stored in one tensor; `written`: pattern -> the name here
    of tensors that newer versions of the library write under another.
    """

    prefixes: tuple[str, ...]
    layer: str
    modules: Mapping[str, str]
    outer: Mapping[str, str]
    stacks: Mapping[str, Stack] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)

    def at(self, prefixes: tuple[str, ...], layer: str) -> Names:
        return replace(self, prefixes=prefixes, layer=layer)

    def but(
        self, *without: str, also: Mapping[str, str] | None = None, outer: Mapping[str, str] | None = None, **named: str
    ) -> Names:
        """Return these names with modules taken out or named otherwise, by `also` or keywords, where "__" stands for a dot."""
        modules = {k: v for k, v in self.modules.items() if k not in without}
        modules |= {**(also or {}), **{k.replace("__", "."): v for k, v in named.items()}}
        return replace(self, modules=modules, outer={**self.outer, **(outer or {})})

    def stacked(self, **stacks: Stack) -> Names:
        return replace(self, stacks=stacks)


@dataclass(frozen=True, slots=True)
class Family:
    """How the config of a `model_type` is read, and where its tensors are.

    `honours`: the particulars in words, for the documentation. `keys`: usual key -> the family's own spelling.
    `sections`: nested objects whose keys count as the config's own. `defaults`: keys that published files leave out. `aliases`:
    newer spelling -> the one read here. `counted`: keys that newer files leave out -> the list whose length they are. `fixed`: keys of which only these values are supported. `becomes`: key of a config of its own, not of
    a section -> the family that the library takes it for where the key stands. `inner`: hidden units per
    column of the model where the config does not say. `fields`: field of ModelConfig -> its value, or a function that reads
    it; `parts`: functions that read several fields at once, after those. `sized`: the caller chooses the
    size of the image. `pairs_lanes`: converters to GGUF reorder queries and keys.
    """

    honours: str
    names: Names
    fields: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    sections: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    becomes: Mapping[str, str] = field(default_factory=dict)
    norm: str = "rms"
    inner: float = 0.0
    encoder: bool = False
    sized: bool = False
    pairs_lanes: bool = False

    def like(self, honours: str, **changes: Any) -> Family:
        """Return a relative: mappings and parts are added to, everything else is replaced."""
        merged: Fields = {}
        for name, new in changes.items():
            old = getattr(self, name)
            merged[name] = {**old, **new} if isinstance(old, Mapping) else old + new if name == "parts" else new
        return replace(self, honours=honours, **merged)

    def read(self, r: Reader, common: Fields) -> Fields:
        """Return all fields; `common`: those that every family has."""
        for key, allowed in self.fixed.items():
            r.fixed(key, *allowed)
        f = dict(common)
        for name, value in self.fields.items():
            f[name] = value(r, f) if callable(value) else value
        for part in self.parts:
            f |= part(r, f)
        return f


def flag(key: str, default: bool = False) -> Read:
    return lambda r, f: r.flag(key, default)


def number(key: str, default: Any = ...) -> Read:
    return lambda r, f: r.number(key, default)


def size(key: str, default: Any = ...) -> Read:
    return lambda r, f: r.size(key, default)


def inverse(key: str, default: float) -> Read:
    """A multiplier that the graph takes as a divisor."""
    return lambda r, f: 1.0 / (r.number(key, default) or 1.0)


def inverse_root(key: str, default: float) -> Read:
    return lambda r, f: (r.number(key, default) or 1.0) ** -0.5


def root_of_width(key: str, default: bool = False) -> Read:
    """A factor of the root of the model's width where the flag says so."""
    return lambda r, f: (f["hidden"] or 1) ** 0.5 if r.flag(key, default) else 1.0


def cap(key: str, default: float = 0.0) -> Read:
    """A soft cap; null in the file switches it off."""
    return lambda r, f: r.get(key, 0.0 if key in r.raw else default, "a number > 0, or null for no cap", positive)


def when(key: str, value: Any, default: bool = False, otherwise: Any = "") -> Read:
    return lambda r, f: value if r.flag(key, default) else otherwise


def biases(key: str = "attention_bias", default: bool = False, **more: Any) -> Fields:
    """One switch for the biases into and out of the attention; `more`: other fields."""
    return {"qkv_bias": flag(key, default), "out_bias": flag(key, default), **more}
