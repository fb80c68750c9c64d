"""Handlers of what the devices of one program exchange: collectives over groups of chips, and a device's own number.

May import: numpy, frontend.stablehlo.node, frontend.stablehlo.reader, weights. Must not: know how bytes travel.
Replicas or partitions are chips; a module has several of one of them at most.
"""

from __future__ import annotations

import re

import numpy as np

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.stablehlo.node import Handler, Node
from tx8fast.frontend.stablehlo.reader import dense_array
from tx8fast.weights import ArraySource

_COMBINE = {"add": "add", "maximum": "max", "minimum": "min", "multiply": "mul"}
#: formats in which the vector engine combines
_FLOATS = ("bf16", "f16", "f32")


def _table(n: Node, name: str) -> np.ndarray:
    """Return a two-dimensional table of whole numbers."""
    attr = n.attr(name)
    if attr is None:
        return np.zeros((0, 0), np.int64)
    shape = tuple(attr.type.shape)
    return np.broadcast_to(dense_array(attr, shape, "i64", np.dtype(np.int64)), shape)


def _groups(n: Node) -> tuple[tuple[int, ...], int]:
    """Return (chips, group after group, -1 where a group is smaller; chips of a group); parts 1: every chip alone."""
    replicas, partitions = n.importer.devices
    table = _table(n, "replica_groups")
    handle = re.search(r"handle = (-?\d+)", str(n.attr("channel_handle") or ""))
    across_partitions = handle is not None and int(handle.group(1)) > 0
    if partitions > 1 and not across_partitions:
        return (), 1  # the groups are of replicas, and there is one
    both = (
        n.name.rpartition(".")[2] in ("all_reduce", "all_gather", "reduce_scatter")
        and n.attr("use_global_device_ids") is None
    )
    if not table.size or (across_partitions and partitions > 1 and both):
        table = np.arange(max(1, replicas * partitions)).reshape(1, -1)
    return tuple(int(c) for c in table.reshape(-1)), int(table.shape[1])


def _combine(n: Node, dtype: str) -> str:
    name = n.combiner()
    if name not in _COMBINE or dtype not in _FLOATS:
        raise n.unsupported(
            f"combining {dtype} of several chips by '{name or 'several ops'}' is not supported, only {', '.join(_COMBINE)} of "
            f"{', '.join(_FLOATS)}"
        )
    return _COMBINE[name]


def _all_reduce(n: Node) -> list[Tensor]:
    groups, parts = _groups(n)
    if parts == 1:
        return [n.full(i) for i in range(len(n))]
    return [
        n.op_("all_reduce", n.full(i), combine=_combine(n, n[i].dtype), groups=groups, parts=parts)
        for i in range(len(n))
    ]


def _all_gather(n: Node) -> list[Tensor]:
    groups, parts = _groups(n)
    if parts == 1:
        return [n.full(i) for i in range(len(n))]
    return [
        n.op_("all_gather", n.full(i), dim=n.int("all_gather_dim"), groups=groups, parts=parts) for i in range(len(n))
    ]


def _reduce_scatter(n: Node) -> Tensor:
    groups, parts = _groups(n)
    if parts == 1:
        return n.full(0)
    return n.op_(
        "reduce_scatter",
        n.full(0),
        dim=n.int("scatter_dimension"),
        combine=_combine(n, n[0].dtype),
        groups=groups,
        parts=parts,
    )


def _all_to_all(n: Node) -> list[Tensor]:
    groups, parts = _groups(n)
    if parts == 1:
        return [n.full(i) for i in range(len(n))]
    if n.int("split_count") != parts:
        raise n.bad(f"split_count is {n.int('split_count')}, its groups have {parts} devices")
    return [
        n.op_(
            "all_to_all",
            n.full(i),
            split_dim=n.int("split_dimension"),
            concat_dim=n.int("concat_dimension"),
            groups=groups,
            parts=parts,
        )
        for i in range(len(n))
    ]


def _permute(n: Node) -> Tensor:
    return n.op_("permute", n.full(0), pairs=tuple(int(c) for c in _table(n, "source_target_pairs").reshape(-1)))


def _broadcast(n: Node) -> Tensor:
    groups, parts = _groups(n)
    return n.full(0) if parts == 1 else n.op_("broadcast_dev", n.full(0), groups=groups, parts=parts)


def _device_id(which: int) -> Handler:
    """The number of the replica (0) or partition (1): a weight that differs by chip."""

    def handler(n: Node) -> Tensor:
        devices = n.importer.devices[which]
        if devices == 1:
            return n.const(np.uint32(0), "u32")
        key, table = n.name.rpartition(".")[2], n.importer.emitter.weights
        if key not in table:
            table.add_per_chip(key, {c: ArraySource(np.array(c, np.uint32)) for c in range(devices)}, (), "u32")
        return Tensor((), "u32", key=key)

    return handler


HANDLERS: dict[str, Handler] = {
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.all_gather": _all_gather,
    "stablehlo.reduce_scatter": _reduce_scatter,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_permute": _permute,
    "stablehlo.collective_broadcast": _broadcast,
    "stablehlo.replica_id": _device_id(0),
    "stablehlo.partition_id": _device_id(1),
}
