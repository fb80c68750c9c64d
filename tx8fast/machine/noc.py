"""The mesh as the event kernel needs it: links by number, trees of links from a sender to sets of tiles.

May import: _kernels, machine.chips, machine.config, machine.topology. Must not: know instructions or programs.

A message goes along X, then along Y; the paths to its destinations share their beginnings, so that they form a
tree in which every link is used once (TX8 hardware manual 4.1, 16.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tx8fast._kernels import Routes
from tx8fast.machine.chips import ChipGrid, chip_grid
from tx8fast.machine.config import Machine
from tx8fast.machine.topology import Topology, mask_tiles, topology


def grid(machine: Machine, chips: tuple[int, int] = (1, 1)) -> Any:
    """Return the machine's tile grid: a Topology, of several chips a ChipGrid."""
    return chip_grid(chips, topology(machine.chip.tiles_x, machine.chip.tiles_y))


def all_links(tiles: Topology) -> list[tuple[int, int]]:
    """Return the directed links (from tile, to tile) in the order of their numbers."""
    return list(tiles.link_numbers)


def way_cycles(machine: Machine, tiles: Topology | ChipGrid, src: int, dst: int) -> int:
    """Return the cycles of a flag from tile to tile."""
    hops, crossings = len(tiles.links(src, dst)), 0
    if isinstance(tiles, ChipGrid):
        crossings = tiles.crossings(src, dst)
    return (hops - crossings) * machine.noc.hop_cycles + crossings * machine.c2c.latency


def build_routes(
    tiles: Topology | ChipGrid,
    masks: Sequence[int],
    senders: Iterable[tuple[int, int]],
    engines: int,
    link_rate: int,
    hop_cycles: int,
    scatters: Sequence[int] | None = None,
    write_rate: int = 0,
) -> Routes:
    """Return the trees for `senders`, pairs of a tile and an index into `masks`.

    `scatters` says which masks get parts one after the other: each tile then has a path of its own. write_rate: bytes per
    cycle of a tile's port for what arrives, one for all messages, its own part of a broadcast included; 0 = as fast as
    links, and one for each.
    """
    tree_of = np.full((tiles.n_tiles, len(masks)), -1, np.int64)
    hops: list[tuple[int, int, int]] = []
    leaves: list[tuple[int, int, int]] = []
    hop_begin, leaf_begin = [0], [0]
    for src, which in sorted(set(senders)):
        tree_of[src, which] = len(hop_begin) - 1
        some_hops, some_leaves = _tree(
            tiles, src, masks[which], scatters is not None and bool(scatters[which]), write_rate > 0
        )
        hops += some_hops
        leaves += some_leaves
        hop_begin.append(len(hops))
        leaf_begin.append(len(leaves))
    links, parents, hop_turns = np.array(hops, np.int64).reshape(-1, 3).T
    ends, last, leaf_turns = np.array(leaves, np.int64).reshape(-1, 3).T
    ports = tiles.n_tiles if write_rate else 0
    return Routes(
        n_links=tiles.n_links + ports,
        ports=ports,
        write_rate=write_rate or 1,
        mask_size=np.array([len(mask_tiles(m)) for m in masks], np.int64),
        tree_of=tree_of,
        tree_begin=np.array(hop_begin, np.int64),
        hop_link=links,
        hop_parent=parents,
        hop_turn=hop_turns,
        leaf_begin=np.array(leaf_begin, np.int64),
        leaf_tile=ends,
        leaf_hop=last,
        leaf_turn=leaf_turns,
        engines=engines,
        link_rate=link_rate,
        hop_cycles=hop_cycles,
    )


@lru_cache(maxsize=4096)
def _tree(
    tiles: Topology | ChipGrid, src: int, mask: int, scatter: bool, ports: bool
) -> tuple[list[tuple[int, int, int]], ...]:
    """Return the tree from `src` to the tiles of `mask`: hops (link, parent, turn), leaves (tile, last link, turn)."""
    number = tiles.link_numbers
    hops: list[tuple[int, int, int]] = []
    leaves: list[tuple[int, int, int]] = []
    place = {src: -1}  # tile -> position of the link that reaches it
    for k, dst in enumerate(mask_tiles(mask)):
        turn = k if scatter else 0
        if scatter:
            place = {src: -1}
        for a, b in _links(tiles, src, dst):
            if b not in place:
                place[b] = len(hops)
                hops.append((number[a, b], place[a], turn))
        last = place[dst]
        if ports:
            hops.append((tiles.n_links + dst, last, turn))
            last = len(hops) - 1
        leaves.append((dst, last, turn))
    return hops, leaves


@lru_cache(maxsize=4096)
def _links(tiles: Topology | ChipGrid, src: int, dst: int) -> list[tuple[int, int]]:
    return tiles.links(src, dst)
