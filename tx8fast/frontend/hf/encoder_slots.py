"""The slots of what an encoder sees or hears, and of what pools its result.

May import: frontend.hf. Must not: open files; know the IR.
"""

from __future__ import annotations

from collections.abc import Iterator

from tx8fast.frontend.hf.slots import Slot, SlotList, outer_key, part
from tx8fast.frontend.hf.spec import Cells, Image


def patches(s: SlotList, image: Image) -> Iterator[Slot]:
    c, lead = s.c, () if image.flat else (1,)
    # stored [out, channel, row, column]; the convolution wants [row, column, out, channel]
    shape, steps = (image.channels, image.patch_height, image.patch_width), [("transpose", [2, 3, 0, 1])]
    if image.frames:
        shape, steps = (image.channels, image.frames, *shape[1:]), [("sum", 2), *steps]
    yield s.outer("patches", (c.hidden, *shape), steps=tuple(steps))
    if image.bias:
        yield s.outer("patches", (c.hidden,), ".bias")
    if image.class_token:
        yield s.outer("class_token", (*lead, *lead, c.hidden), "")
    if c.cells is not None:
        yield from _cells(s, c.cells)
        return
    if c.squares is None:
        yield s.outer("positions", (*lead, c.positions, c.hidden), "")
        return
    if c.positions:
        yield s.outer("positions", (1, *image.patches, c.hidden), "", steps=(("reshape", [1, c.positions, c.hidden]),))
    yield from _map(s, c.squares.channels)


def _cells(s: SlotList, kind: Cells) -> Iterator[Slot]:
    """A square of positions, and what merges a cell into a row: a norm and two products, of the result and of single layers."""
    h = s.c.hidden
    if kind.table:
        yield s.outer("places", (kind.table**2, h))
    wide = kind.merge**2 * h
    for name, stored, normed in (
        ("merger", "merger", h),
        *((f"deep.{n}", "deep", wide) for n in range(len(kind.deep))),
    ):
        shapes = {"norm": (normed,), "in": (wide, wide), "out": (kind.width, wide)}
        for module, shape in shapes.items():
            key = outer_key(s.names, f"{stored}.{module}", s.prefix).format(name.removeprefix("deep."))
            yield Slot(f"{name}.{module}.weight", (key + ".weight",), shape)
            if module != "norm" or s.c.norm_bias:
                yield Slot(f"{name}.{module}.bias", (key + ".bias",), shape[:1])


def _map(s: SlotList, channels: int) -> Iterator[Slot]:
    """Two convolutions without biases, stored [out, in, row, column], and the norms behind them."""
    h = s.c.hidden
    yield s.outer("map1", (channels, h, 1, 1), steps=(("reshape", [channels, h]),))
    yield s.outer("map2", (channels, channels, 3, 3), steps=(("transpose", [2, 3, 0, 1]),))
    for module in ("map1_norm", "map2_norm"):
        yield from (s.outer(module, (channels,), side) for side in (".weight", ".bias"))


def sound(s: SlotList, channels: int) -> Iterator[Slot]:
    """Two convolutions along time, stored [out, in, 3], as those of an image one pixel wide."""
    h = s.c.hidden
    for module, source in (("conv1", channels), ("conv2", h)):
        yield s.outer(module, (h, source, 3), steps=(("transpose", [2, 0, 1]), ("reshape", [3, 1, h, source])))
        yield s.outer(module, (h,), ".bias")
    yield s.outer("positions", (s.c.positions, h))


def probe(s: SlotList) -> Iterator[Slot]:
    """A learned query that attends to all rows, and a feed-forward part behind a norm (SigLIP)."""
    c = s.c
    key, h = outer_key(s.names, "probe", s.prefix), c.hidden
    yield Slot("probe", (key + ".probe",), (1, 1, h))
    for at, module in enumerate(("q_proj", "k_proj", "v_proj")):
        yield Slot(
            f"probe.{module}.weight", (key + ".attention.in_proj_weight",), (3 * h, h), part((h, h), (at * h, 0))
        )
        yield Slot(f"probe.{module}.bias", (key + ".attention.in_proj_bias",), (3 * h,), part((h,), (at * h,)))
    for module, stored, rows, cols in (
        ("o_proj", "attention.out_proj", h, h),
        ("up_proj", "mlp.fc1", c.intermediate, h),
        ("down_proj", "mlp.fc2", h, c.intermediate),
    ):
        yield Slot(f"probe.{module}.weight", (f"{key}.{stored}.weight",), (rows, cols))
        yield Slot(f"probe.{module}.bias", (f"{key}.{stored}.bias",), (rows,))
    for side in ("weight", "bias"):
        yield Slot(f"probe.norm.{side}", (f"{key}.layernorm.{side}",), (h,))
