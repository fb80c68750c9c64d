"""Back-end kinds: group, loads, stores, channel_norm, iota, raw transfers, collectives between chips or tiles.

May import: ir.ops.base, ir.factors, ir.streams. Must not: know lowering.
"""

from __future__ import annotations

from typing import Any

from tx8fast.ir import factors
from tx8fast.ir.attrs import RegionAttr
from tx8fast.ir.core import (
    BACKEND_ONLY,
    COLLECTIVE,
    COMPUTE,
    CONSTANT_LIKE,
    IDEMPOTENT,
    ISOLATED,
    PURE,
    READ_ONLY,
    REQUIRED,
    VALUE_SEMANTICS,
    Op,
)
from tx8fast.ir.ops.base import LAYOUT_ATTRS, OpDef, fail, norm_axis, tensor
from tx8fast.ir.streams import stream_config
from tx8fast.ir.types import DTYPE_BITS


def _same(op: Op):
    t = tensor(op, 0)
    return [(t.shape, t.dtype)]


def _channel_norm(op: Op):
    if op.attrs["to"] not in ("align", "compact"):
        raise fail(op, "to", repr(op.attrs["to"]), "align or compact")
    return _same(op)


def _iota(op: Op):
    shape, a = op.attrs["shape"], op.attrs["axis"]
    if op.attrs["dtype"] not in DTYPE_BITS:
        raise fail(op, "dtype", repr(op.attrs["dtype"]), "an element type")
    norm_axis(op, "axis", a, len(shape))
    return [(shape, op.attrs["dtype"])]


def _scaled(attr: str, times: bool):
    def infer(op: Op):
        t, p = tensor(op, 0, min_rank=1), op.attrs["parts"]
        a = norm_axis(op, attr, op.attrs[attr], len(t.shape))
        n = t.shape[a]
        if p < 1 or (not times and n % p):
            raise fail(op, "parts", p, f"a positive divisor of {n}")
        return [(t.shape[:a] + (n * p if times else n // p,) + t.shape[a + 1 :], t.dtype)]

    return infer


def _all_to_all(op: Op):
    t, p = tensor(op, 0, min_rank=1), op.attrs["parts"]
    s, c = (norm_axis(op, n, op.attrs[n], len(t.shape)) for n in ("split_dim", "concat_dim"))
    if p < 1 or t.shape[s] % p:
        raise fail(op, "parts", p, f"a positive divisor of {t.shape[s]}")
    shape = list(t.shape)
    shape[s] //= p
    shape[c] *= p
    return [(tuple(shape), t.dtype)]


def _channel(op: Op) -> list[tuple[str, Any]]:
    return [("write" if op.kind == "send" else "read", ("state", f"channel {op.attrs['channel']}"))]


_MOVE = PURE | VALUE_SEMANTICS | BACKEND_ONLY
_GROUP_ATTRS: dict[str, tuple[Any, Any]] = {
    "pipeline_parallel": (bool, False),
    "sp_stage_num": (int, 1),
    "dev_region": ((tuple, RegionAttr), ()),
    "spm_alloc_size": (int, -1),
    "group_tag": (int, 0),
    "stream_online_check": (tuple, ()),
    "stream_offline": (tuple, ()),
    "need_barrier": (bool, True),
    "group_id": (int, -1),
    "template_id": (int, -1),
}


_STREAM = {"StreamConfig": {"stream_config": stream_config}}


def _grouped(infer):
    """Check the groups: chips, one group of `parts` after the other; () is one group of all chips, -1 fills up."""

    def checked(op: Op):
        groups, parts = op.attrs["groups"], op.attrs["parts"]
        named = [c for c in groups if c != -1]
        if any(type(c) is not int or c < -1 for c in groups) or len(set(named)) < len(named):
            raise fail(op, "groups", list(groups), "chips, each at most once")
        if groups and (parts < 1 or len(groups) % parts):
            raise fail(op, "groups", list(groups), f"groups of {parts} chips")
        if -1 in groups and op.kind != "all_reduce":
            raise fail(op, "groups", list(groups), "groups of one size")
        return infer(op)

    return checked


def _permute(op: Op):
    pairs = op.attrs["pairs"]
    sources, targets = pairs[::2], pairs[1::2]
    if len(pairs) % 2 or any(type(c) is not int or c < 0 for c in pairs):
        raise fail(op, "pairs", list(pairs), "pairs of chips")
    if len(set(sources)) < len(sources) or len(set(targets)) < len(targets):
        raise fail(op, "pairs", list(pairs), "no chip twice as source or twice as target")
    return _same(op)


def _collective(name: str, infer, align: str = "nalign", **attrs) -> OpDef:
    spec = {"axis_name": (str, "x"), **attrs}
    return OpDef(
        name,
        ("x",),
        attrs=spec,
        traits=COMPUTE | COLLECTIVE,
        infer=infer,
        engine="dte",
        align=align,
        routine="",
        interfaces=_STREAM,
    )


_G = {"groups": (tuple, ())}
_P = {"parts": (int, REQUIRED), **_G}
_ANY = {"parts": (int, 1), **_G}
_COLLECTIVES = (
    _collective("all_reduce", _grouped(_same), "both", combine=(str, "add"), **_ANY),
    _collective("all_gather", _grouped(_scaled("dim", True)), dim=(int, REQUIRED), **_P),
    _collective("reduce_scatter", _grouped(_scaled("dim", False)), dim=(int, REQUIRED), combine=(str, "add"), **_P),
    _collective("all_to_all", _grouped(_all_to_all), split_dim=(int, REQUIRED), concat_dim=(int, REQUIRED), **_P),
    _collective("permute", _permute, "both", pairs=(tuple, REQUIRED)),
    _collective("broadcast_dev", _grouped(_same), "both", root=(int, 0), **_ANY),
    OpDef(
        "send",
        ("x", "token?"),
        ("token",),
        {"peer": (int, REQUIRED), "channel": (int, 0)},
        0,
        engine="dte",
        routine="",
        effects=_channel,
        interfaces=_STREAM,
    ),
    OpDef(
        "recv",
        ("token?",),
        ("x",),
        {"peer": (int, REQUIRED), "channel": (int, 0)},
        0,
        engine="dte",
        routine="",
        effects=_channel,
        interfaces=_STREAM,
    ),
)

OPS: tuple[OpDef, ...] = (
    OpDef("group", ("operands*",), ("results*",), _GROUP_ATTRS, ISOLATED | READ_ONLY | BACKEND_ONLY, engine="none",
          routine=""),
    OpDef("load_var", ("x",), attrs={"shape_buf": (int, -1), **LAYOUT_ATTRS}, traits=_MOVE, infer=_same,
          rule_of=factors.copy_dma, engine="dma", inplace=-1, routine=""),
    OpDef("store_var", ("x",), attrs=dict(LAYOUT_ATTRS), traits=_MOVE, infer=_same, rule_of=factors.copy_dma,
          engine="dma", routine=""),
    OpDef("load_const", (), attrs={"const_map_id": (int, REQUIRED), "bypass_codegen": (bool, False), **LAYOUT_ATTRS},
          traits=_MOVE | CONSTANT_LIKE, rule_of=factors.results_only, engine="dma", routine=""),
    OpDef("channel_norm", ("x",), attrs={"to": (str, REQUIRED)}, traits=COMPUTE | BACKEND_ONLY | IDEMPOTENT,
          infer=_channel_norm, rule_of=factors.copy_dma, engine="tdma"),
    OpDef("gather_scatter", ("x",), attrs={"strides": (tuple, REQUIRED), "counts": (tuple, REQUIRED)}, traits=_MOVE,
          engine="tdma", align="nalign", routine=""),
    OpDef("iota", (), attrs={"shape": (tuple, REQUIRED), "dtype": (str, REQUIRED), "axis": (int, REQUIRED)},
          infer=_iota, rule_of=factors.results_only, engine="kcore", align="nalign", traits=COMPUTE | CONSTANT_LIKE),
    *_COLLECTIVES,
)  # fmt: skip
