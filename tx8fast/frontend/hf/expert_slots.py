"""The slots of routed experts: stored one by one, or stacked in one tensor.

May import: frontend.hf. Must not: open files; know the IR.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tx8fast.frontend.hf.family import Stack
from tx8fast.frontend.hf.slots import Slot, SlotList, part

#: dimensions of the experts' tensors as the graph has them: experts side by side
_ORDER = {
    "gate_proj": "eih",
    "up_proj": "eih",
    "down_proj": "hei",
    "gate_bias": "ei",
    "up_bias": "ei",
    "down_bias": "eh",
}
_GGUF_AXES = {"gate_proj": ("e", "i", "h"), "up_proj": ("e", "i", "h"), "down_proj": ("e", "h", "i")}


def _stacked(s: SlotList, i: int, module: str, name: str) -> Slot:
    """All experts in one stored tensor, brought into the graph's order of dimensions."""
    if s.c.gguf:
        stack = Stack(s.names.modules[module] + ".weight", _GGUF_AXES[module])
    else:
        stack = s.names.stacks[module]
    if len(stack.axes) == 3 and (s.c.quantization or {}).get("method") == "mxfp4":
        stack = replace(stack, axes=(stack.axes[0], *stack.axes[:0:-1]))  # packed along what goes in, which comes last
    slot = _unstacked(s, i, module, name, stack)
    other = stack.turned and _unstacked(s, i, module, name, replace(stack, axes=(stack.axes[0], *stack.axes[:0:-1])))
    return replace(slot, other=other) if other else slot


def _unstacked(s: SlotList, i: int, module: str, name: str, stack: Stack) -> Slot:
    e = s.c.experts
    assert e is not None
    sizes = {"e": e.count, "i": e.intermediate, "h": s.c.hidden, "2": 2}
    stored = tuple(prod(sizes[n] for n in axis) for axis in stack.axes)
    axes, order = "".join(stack.axes), _ORDER[module]
    steps: list[tuple] = [("reshape", [sizes[n] for n in axes])]
    if "2" in axes:
        steps += part(
            tuple(1 if n == "2" else sizes[n] for n in axes), tuple(stack.at if n == "2" else 0 for n in axes)
        )
        axes = axes.replace("2", "")
        steps.append(("reshape", [sizes[n] for n in axes]))
    if axes != order:
        steps.append(("transpose", [axes.index(n) for n in order]))
    side = {
        "eih": [e.count * e.intermediate, s.c.hidden],
        "hei": [s.c.hidden, e.count * e.intermediate],
        "ei": [e.count * e.intermediate],
        "eh": [e.count, s.c.hidden],
    }[order]
    key = s.layer(i) + stack.key
    return Slot(
        f"layers.{i}.experts.{name}", (key,), stored, (*steps, ("reshape", side)), flipped=module == "down_bias"
    )


def experts(s: SlotList, i: int) -> Iterator[Slot]:
    """All experts side by side: one tall matrix into them, one wide matrix out of them."""
    c, e = s.c, s.c.experts
    assert e is not None
    yield from s.linear(i, "router", e.count, c.hidden, e.router_bias)
    if e.router_norm:
        yield s.vector(i, "router_scale", c.hidden, "")
    if e.expert_scale:
        yield s.vector(i, "expert_scale", e.count, "")
    if e.beside:
        yield from (
            x for module in ("mlp_own_norm", "experts_norm", "experts_post_norm") for x in s.norm(i, module, c.hidden)
        )
    if e.correction:
        stored = (
            s.key(i, "correction")
            if "correction" in s.names.modules
            else s.key(i, "router") + ".e_score_correction_bias"
        )
        slot = Slot(f"layers.{i}.router.e_score_correction_bias", (stored,), (e.count,))
        yield replace(slot, other=replace(slot, stored=(1, e.count), steps=(("reshape", [e.count]),)))
    for module, shape, axis in (
        ("gate_proj", (e.intermediate, c.hidden), 0),
        ("up_proj", (e.intermediate, c.hidden), 0),
        ("down_proj", (c.hidden, e.intermediate), 1),
    ):
        if c.gguf or module in s.names.stacks:
            yield _stacked(s, i, module, module + ".weight")
            continue
        keys = tuple(f"{s.key(i, 'experts')}{n}.{s.names.modules[module]}.weight" for n in range(e.count))
        yield Slot(f"layers.{i}.experts.{module}.weight", keys, shape, axis=axis, expert=True)
    if e.bias:
        for module, name in (
            ("gate_bias", "gate_proj.bias"),
            ("up_bias", "up_proj.bias"),
            ("down_bias", "down_bias.weight"),
        ):
            yield _stacked(s, i, module, name)
    if e.shared:
        if "shared.gate_up" in s.names.modules:
            yield from _shared_fused(s, i, e.shared)
            return
        shared = s.key(i, "shared")
        for module, shape in (
            ("gate_proj", (e.shared, c.hidden)),
            ("up_proj", (e.shared, c.hidden)),
            ("down_proj", (c.hidden, e.shared)),
        ):
            yield Slot(f"layers.{i}.shared_experts.{module}.weight", (f"{shared}{module}.weight",), shape)
    if e.shared_gate:
        yield from s.linear(i, "shared_gate", 1, c.hidden)


def _shared_fused(s: SlotList, i: int, units: int) -> Iterator[Slot]:
    """Shared experts whose gate and unit are one matrix."""
    h, key = s.c.hidden, s.key(i, "shared.gate_up") + ".weight"
    for at, module in enumerate(("gate_proj", "up_proj")):
        yield Slot(
            f"layers.{i}.shared_experts.{module}.weight", (key,), (2 * units, h), part((units, h), (at * units, 0))
        )
    yield Slot(f"layers.{i}.shared_experts.down_proj.weight", (s.key(i, "shared.down") + ".weight",), (h, units))
