"""The slots of a DETR: convolutions with the norms of their channels, encoder, decoder and heads; and the plan of its convolutions.

May import: frontend.hf. Must not: open files; know the IR.
"""

from __future__ import annotations

from collections.abc import Iterator

from tx8fast.frontend.hf.slots import Slot, SlotList, outer_key
from tx8fast.frontend.hf.spec import Backbone, Detection
from tx8fast.records import dataclass

#: what the norm of a convolution's channels has, of which nothing changes with the batch
STATISTICS = ("gain", "variance", "bias", "mean")
_STORED = dict(zip(STATISTICS, ("weight", "running_var", "bias", "running_mean"), strict=True))
#: products behind each other that make a box of an object's row
BOX_LAYERS = 3


@dataclass(frozen=True, slots=True)
class Convolution:
    """`name` of its slots; `kernel`, `norm`: as they are stored; `source`, `channels`: in and out; `side` of its square; `step`."""

    name: str
    kernel: str
    norm: str
    source: int
    channels: int
    side: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Block:
    """Convolutions behind each other, and what the block's input passes on its way to their result, None: nothing."""

    path: tuple[Convolution, ...]
    shortcut: Convolution | None


def stem(kind: Backbone, channels: int) -> Convolution:
    names = ("conv1", "bn1") if kind.timm else _named("embedder.embedder")
    return Convolution("backbone.stem", *names, channels, kind.stem, 7, 2)


def blocks(kind: Backbone) -> Iterator[Block]:
    """Yield the blocks of all stages."""
    source = kind.stem
    for s, (channels, count) in enumerate(zip(kind.channels, kind.blocks, strict=True)):
        for i in range(count):
            step = 2 if i == 0 and (s or kind.first) else 1
            yield _block(kind, s, i, source, channels, step)
            source = channels


def _block(kind: Backbone, s: int, i: int, source: int, channels: int, step: int) -> Block:
    at, stored = f"backbone.{s}.{i}", f"layer{s + 1}.{i}." if kind.timm else f"encoder.stages.{s}.layers.{i}."
    between = channels // 4 if kind.narrow else channels
    sides, widths = ((1, 3, 1), (between, between, channels)) if kind.narrow else ((3, 3), (between, channels))
    stepping = 1 if kind.narrow and not kind.early else 0
    path = tuple(
        Convolution(
            f"{at}.{k}",
            *((f"{stored}conv{k + 1}", f"{stored}bn{k + 1}") if kind.timm else _named(f"{stored}layer.{k}")),
            widths[k - 1] if k else source,
            widths[k],
            side,
            step if k == stepping else 1,
        )
        for k, side in enumerate(sides)
    )
    if source == channels and step == 1:
        return Block(path, None)
    names = (stored + "downsample.0", stored + "downsample.1") if kind.timm else _named(stored + "shortcut")
    return Block(path, Convolution(at + ".shortcut", *names, source, channels, 1, step))


def _named(module: str) -> tuple[str, str]:
    return module + ".convolution", module + ".normalization"


def detection(s: SlotList, kind: Detection) -> Iterator[Slot]:
    """Yield every slot in the order of the graph."""
    c, net = s.c, kind.backbone
    assert c.image is not None
    yield from _normed(s, stem(net, c.image.channels))
    for block in blocks(net):
        for conv in (*block.path, *((block.shortcut,) if block.shortcut else ())):
            yield from _normed(s, conv)
    # a convolution of single pixels, which is a product
    yield s.outer("input", (c.hidden, net.channels[-1], 1, 1), steps=(("reshape", [c.hidden, net.channels[-1]]),))
    yield s.outer("input", (c.hidden,), ".bias")
    for i in range(c.layers):
        yield from _layer(s, f"encoder.{i}", s.layer(i), ("self_attn",), c.intermediate)
    yield s.outer("queries", (kind.queries, c.hidden))
    for i in range(kind.layers):
        stored = outer_key(s.names, "decoder", s.prefix).format(i)
        yield from _layer(s, f"decoder.{i}", stored, ("self_attn", "cross_attn"), kind.units)
    yield from (s.outer("norm", (c.hidden,), side) for side in (".weight", ".bias"))
    if kind.classes:
        yield from _linear("classes", outer_key(s.names, "classes", s.prefix), kind.classes, c.hidden)
        for i in range(BOX_LAYERS):
            stored = outer_key(s.names, "box", s.prefix).format(i)
            yield from _linear(f"box.{i}", stored, c.hidden if i + 1 < BOX_LAYERS else 4, c.hidden)


def _normed(s: SlotList, conv: Convolution) -> Iterator[Slot]:
    at = outer_key(s.names, "backbone", s.prefix)
    shape = (conv.channels, conv.source, conv.side, conv.side)
    yield Slot(conv.name + ".kernel", (f"{at}{conv.kernel}.weight",), shape)
    for name, stored in _STORED.items():
        yield Slot(f"{conv.name}.{name}", (f"{at}{conv.norm}.{stored}",), (conv.channels,))


def _layer(s: SlotList, name: str, stored: str, attends: tuple[str, ...], units: int) -> Iterator[Slot]:
    """A layer of the encoder or decoder, whose modules are called alike."""
    h, called = s.c.hidden, s.names.modules
    products = [(f"{at}.{p}_proj", h, h) for at in attends for p in "qkvo"]
    for module, rows, cols in (*products, ("mlp.up_proj", units, h), ("mlp.down_proj", h, units)):
        yield from _linear(f"{name}.{module}", stored + called[module], rows, cols)
    for at in (*attends, "mlp"):
        for side in ("weight", "bias"):
            yield Slot(f"{name}.{at}_norm.{side}", (f"{stored}{called[at + '_norm']}.{side}",), (h,))


def _linear(name: str, stored: str, rows: int, cols: int) -> Iterator[Slot]:
    yield Slot(name + ".weight", (stored + ".weight",), (rows, cols))
    yield Slot(name + ".bias", (stored + ".bias",), (rows,))
