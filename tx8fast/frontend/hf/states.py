"""Layers that keep a state instead of a cache: their sizes, and what they remember.

May import: the standard library. Must not: know config keys, weights or the IR.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from tx8fast.records import dataclass


@dataclass(frozen=True, slots=True)
class Cache:
    """What a layer remembers: one row per token, or a state whose size does not depend on how many there were. `shape`: behind the
    batch and, of rows, the tokens; `dtype` None: the activations' own."""

    name: str
    shape: tuple[int, ...]
    rows: bool = True
    dtype: str | None = None


class Keeper(Protocol):
    """A layer that keeps a state. `kind`: its name in `mixers.MIXERS`."""

    kind: ClassVar[str]

    def caches(self, hidden: int) -> tuple[Cache, ...]:
        """Return what it remembers, of a model `hidden` wide."""
        ...


def _state(*shape: int, name: str = "state") -> Cache:
    return Cache(name, shape, False, "f32")


def _rows(taps: int, channels: int, name: str = "conv") -> Cache:
    """The rows in front of the next token that a convolution sees."""
    return Cache(name, (taps - 1, channels), False)


@dataclass(frozen=True, slots=True)
class ShortConv:
    """A causal convolution over the last `taps` tokens, channel by channel, between two gates (LFM2)."""

    kind: ClassVar[str] = "conv"
    taps: int
    bias: bool

    def caches(self, hidden: int) -> tuple[Cache, ...]:
        return (_rows(self.taps, hidden),)


@dataclass(frozen=True, slots=True)
class Scan:
    """A state per head [width, state] that decays and takes up tokens (Mamba 2). `groups` of heads share what is written and read;
    `taps` of the convolution in front; prompts are computed in chunks of at most `chunk` tokens; `limits` of the time step;
    `norm`: of the gated result, in so many `norm_groups`; `norm_first`: the gate comes behind it."""

    kind: ClassVar[str] = "scan"
    heads: int
    width: int
    state: int
    groups: int
    taps: int
    chunk: int
    conv_bias: bool = True
    bias: bool = False
    limits: tuple[float, float] = (0.0, float("inf"))
    norm: bool = True
    norm_groups: int = 1
    norm_first: bool = False

    @property
    def inner(self) -> int:
        return self.heads * self.width

    @property
    def channels(self) -> int:
        """What the convolution sees: values, and what is written and read by every group."""
        return self.inner + 2 * self.groups * self.state

    def caches(self, hidden: int) -> tuple[Cache, ...]:
        return _rows(self.taps, self.channels), _state(self.inner, self.state)


@dataclass(frozen=True, slots=True)
class Delta:
    """A state per value head [key width, value width] that decays and is corrected (gated delta rule). Groups of value heads share a key
    head; `taps` of the convolutions in front; `pace`: the most of a correction that is made; `eps` of the norm behind, 0: that of the model."""

    kind: ClassVar[str] = "delta"
    key_heads: int
    value_heads: int
    key_width: int
    value_width: int
    taps: int
    pace: float = 1.0
    eps: float = 0.0

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_width

    @property
    def values(self) -> int:
        return self.value_heads * self.value_width

    def caches(self, hidden: int) -> tuple[Cache, ...]:
        parts = (("query", self.keys), ("key", self.keys), ("value", self.values))
        rows = (_rows(self.taps, width, f"conv_{name}") for name, width in parts)
        return *rows, _state(self.value_heads * self.key_width, self.value_width)


@dataclass(frozen=True, slots=True)
class ChannelDelta:
    """A state per head [width, width] whose every row decays at a pace of its own and is corrected (Kimi delta attention); `taps` of the
    convolutions in front; decay and output gate go through matrices as narrow as a head."""

    kind: ClassVar[str] = "channel_delta"
    heads: int
    width: int
    taps: int

    @property
    def lanes(self) -> int:
        return self.heads * self.width

    def caches(self, hidden: int) -> tuple[Cache, ...]:
        return *(_rows(self.taps, self.lanes, f"conv_{n}") for n in ("query", "key", "value")), _state(
            self.lanes, self.width
        )


@dataclass(frozen=True, slots=True)
class Lightning:
    """A state per head [width, width] that decays at a fixed pace and takes up tokens (lightning attention). Prompts are computed in
    chunks of at most `chunk` tokens; the pace falls from the first of `layers` to the last."""

    kind: ClassVar[str] = "lightning"
    heads: int
    width: int
    chunk: int
    layers: int

    def slopes(self, i: int) -> tuple[float, ...]:
        """Return what the logarithm of every head's state loses per token in layer `i`, as the library computes it."""
        share = 1 - i / (self.layers - 1 + 1e-5) + 1e-5
        return tuple(2.0 ** (-8.0 * (head + 1) / self.heads) * share for head in range(self.heads))

    def caches(self, hidden: int) -> tuple[Cache, ...]:
        return (_state(self.heads * self.width, self.width),)


@dataclass(frozen=True, slots=True)
class Selective:
    """A state per channel that decays at rates of its own and takes up tokens (Mamba). `rank` of the time step; `norms`: of time step and
    of what is written and read, with learned gains ("gain"), without ("plain"), or none; `eps` of these, 0 = that of the model. `heads`: so
    many equal parts of the channels have a time step, and what is written and read, of their own."""

    kind: ClassVar[str] = "selective"
    inner: int
    state: int
    rank: int
    taps: int
    conv_bias: bool = True
    bias: bool = False
    norms: str = ""
    eps: float = 0.0
    heads: int = 1

    def caches(self, hidden: int) -> tuple[Cache, ...]:
        return _rows(self.taps, self.inner), _state(self.state, self.inner)


@dataclass(frozen=True, slots=True)
class TimeMix:
    """Averages of values per channel, weighed by keys and by how long ago they were (RWKV 4); the feed-forward part sees the token before,
    too. `width` of the averages."""

    kind: ClassVar[str] = "time_mix"
    width: int

    def caches(self, hidden: int) -> tuple[Cache, ...]:
        rows = (_rows(2, hidden, name) for name in ("row", "fed_row"))
        return *rows, *(_state(self.width, name=name) for name in ("numerator", "denominator", "largest"))


@dataclass(frozen=True, slots=True)
class Lru:
    """A number per channel that decays as far as a gate lets it (RG-LRU), behind a convolution; gates are products in `blocks`."""

    kind: ClassVar[str] = "lru"
    width: int
    blocks: int
    taps: int

    def caches(self, hidden: int) -> tuple[Cache, ...]:
        return _rows(self.taps, self.width), _state(self.width)
