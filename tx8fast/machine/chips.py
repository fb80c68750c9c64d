"""Several chips in a grid: their tiles as one mesh, routes that cross chips, ring orders of groups of chips.

May import: machine.topology. Must not: know costs or instructions.
Source: TX8 hardware manual 4.3, 16.6. Chip c = chips_x * y + x. Tile t of chip c has the number c * tiles + t here.
The meshes of neighbouring chips continue each other; all rows (columns) that cross a side share the one link there in
each direction. A route goes along X over all chips, then along Y.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tx8fast.machine.topology import Topology, topology
from tx8fast.records import dataclass


@dataclass(frozen=True)
class ChipGrid:
    """chips_x by chips_y chips of one tile grid each; no links around the edges."""

    chips_x: int
    chips_y: int
    chip: Topology

    @property
    def n_chips(self) -> int:
        return self.chips_x * self.chips_y

    @property
    def n_tiles(self) -> int:
        """Tiles of all chips."""
        return self.n_chips * self.chip.n_tiles

    @cached_property
    def _whole(self) -> Topology:
        return topology(self.chips_x * self.chip.tiles_x, self.chips_y * self.chip.tiles_y)

    def _node(self, tile: int) -> int:
        """Return where a tile is in the mesh of all chips."""
        chip, own = divmod(tile, self.chip.n_tiles)
        x, y = self.chip.coords(own)
        cy, cx = divmod(chip, self.chips_x)
        return self._whole.tile_at(cx * self.chip.tiles_x + x, cy * self.chip.tiles_y + y)

    def _tile(self, node: int) -> int:
        x, y = self._whole.coords(node)
        cx, own_x = divmod(x, self.chip.tiles_x)
        cy, own_y = divmod(y, self.chip.tiles_y)
        return (cy * self.chips_x + cx) * self.chip.n_tiles + self.chip.tile_at(own_x, own_y)

    def route(self, src: int, dst: int) -> list[int]:
        """Return the tiles from `src` to `dst`, both included."""
        return [self._tile(node) for node in self._whole.route(self._node(src), self._node(dst))]

    def links(self, src: int, dst: int) -> list[tuple[int, int]]:
        """Return the directed steps (from tile, to tile) of the route; `link_numbers` says which link each takes."""
        path = self.route(src, dst)
        return list(zip(path, path[1:], strict=False))

    def crossings(self, src: int, dst: int) -> int:
        """Return how often the route between two tiles goes from chip to chip."""
        n = self.chip.n_tiles
        return sum(a // n != b // n for a, b in self.links(src, dst))

    @cached_property
    def chip_links(self) -> list[tuple[int, int]]:
        """The directed links between chips (from chip, to chip), in the order of their numbers."""
        grid = topology(self.chips_x, self.chips_y)
        return [(a, b) for a, b in np.argwhere(grid.hops == 1).tolist()]

    @cached_property
    def link_numbers(self) -> dict[tuple[int, int], int]:
        """The number of the link of every step between neighbouring tiles; the last ones are those between chips."""
        n, per_chip = self.chip.n_tiles, self.chip.link_numbers
        found = {
            (c * n + a, c * n + b): c * len(per_chip) + i for c in range(self.n_chips) for (a, b), i in per_chip.items()
        }
        between = {link: self.n_chips * len(per_chip) + i for i, link in enumerate(self.chip_links)}
        for a, b in np.argwhere(self._whole.hops == 1).tolist():
            step = self._tile(a), self._tile(b)
            if step not in found:
                found[step] = between[step[0] // n, step[1] // n]
        return found

    @property
    def n_links(self) -> int:
        return self.n_chips * len(self.chip.link_numbers) + len(self.chip_links)

    def ring(self, chips: Sequence[int]) -> tuple[int, ...]:
        """Return the chips in an order whose longest step, the closing one included, is as short as we know how.

        A rectangle with an even side has a ring of neighbours. Of other groups, a line say, every second chip is
        passed on the way out and the others on the way back: no step is longer than two places of the line.
        """
        grid = topology(self.chips_x, self.chips_y)
        spots = {grid.coords(c): c for c in sorted(set(chips))}
        xs, ys = sorted({x for x, _ in spots}), sorted({y for _, y in spots})
        if len(spots) == len(xs) * len(ys):
            box = topology(len(xs), len(ys))
            ring = [spots[xs[x], ys[y]] for x, y in map(box.coords, box.ring)]
            snake = [spots[xs[x], ys[y]] for x, y in map(box.coords, box.snake)]
        else:
            ring = snake = sorted(spots.values())
        folded = [*snake[::2], *snake[1::2][::-1]]

        def cost(order: list[int]) -> tuple[int, int]:
            steps = [int(grid.hops[a, b]) for a, b in zip(order, [*order[1:], order[0]], strict=True)]
            return max(steps), sum(steps)

        return tuple(min((ring, folded), key=cost))


@lru_cache(maxsize=64)
def chip_grid(chips: tuple[int, int], chip: Topology) -> Any:
    """Return the links of a program's chips: those of its one chip, or of the grid."""
    return chip if chips == (1, 1) else ChipGrid(*chips, chip)
