"""The tile grid: coordinates, dimension-order routes, hop counts and ring orders.

May import: numpy. Must not: know costs or instructions.
Source: TX8 hardware manual 4.1. Tile id t = tiles_x * y + x; routes go along X first, then Y.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from tx8fast.records import dataclass

_RING_4X4 = (0, 1, 2, 3, 7, 11, 15, 14, 13, 12, 8, 9, 10, 6, 5, 4)


@dataclass(frozen=True)
class Topology:
    """A tiles_x by tiles_y mesh."""

    tiles_x: int
    tiles_y: int

    @property
    def n_tiles(self) -> int:
        return self.tiles_x * self.tiles_y

    @property
    def diameter(self) -> int:
        """Largest hop count between two tiles."""
        return self.tiles_x + self.tiles_y - 2

    def coords(self, tile: int) -> tuple[int, int]:
        """Return (x, y) of `tile`."""
        return tile % self.tiles_x, tile // self.tiles_x

    def tile_at(self, x: int, y: int) -> int:
        return self.tiles_x * y + x

    def hardware_id(self, tile: int) -> int:
        """Return the id word the hardware reports: (y << 16) | x."""
        x, y = self.coords(tile)
        return (y << 16) | x

    @cached_property
    def hops(self) -> np.ndarray:
        """Hop counts between all pairs of tiles, i64 [n_tiles, n_tiles]."""
        ids = np.arange(self.n_tiles)
        x, y = ids % self.tiles_x, ids // self.tiles_x
        return np.abs(x[:, None] - x) + np.abs(y[:, None] - y)

    def route(self, src: int, dst: int) -> list[int]:
        """Return the tiles from `src` to `dst`, both included, X before Y."""
        x, y = self.coords(src)
        to_x, to_y = self.coords(dst)
        path = [src]
        while x != to_x:
            x += 1 if to_x > x else -1
            path.append(self.tile_at(x, y))
        while y != to_y:
            y += 1 if to_y > y else -1
            path.append(self.tile_at(x, y))
        return path

    def links(self, src: int, dst: int) -> list[tuple[int, int]]:
        """Return the directed links (from tile, to tile) of the route."""
        path = self.route(src, dst)
        return list(zip(path, path[1:], strict=False))

    @cached_property
    def link_numbers(self) -> dict[tuple[int, int], int]:
        """The number of every directed link (from tile, to tile)."""
        return {(a, b): i for i, (a, b) in enumerate(np.argwhere(self.hops == 1).tolist())}

    @property
    def n_links(self) -> int:
        return len(self.link_numbers)

    @cached_property
    def snake(self) -> tuple[int, ...]:
        """Row-snake order: odd rows run backwards, neighbours differ by one hop."""
        out: list[int] = []
        for y in range(self.tiles_y):
            row = [self.tile_at(x, y) for x in range(self.tiles_x)]
            out += row if y % 2 == 0 else row[::-1]
        return tuple(out)

    @cached_property
    def ring(self) -> tuple[int, ...]:
        """A closed nearest-neighbour order over all tiles.

        It exists when one side is even and both exceed 1 (or two tiles in a line); otherwise the
        snake is returned, whose closing step takes more than one hop.
        """
        w, h = self.tiles_x, self.tiles_y
        if (w, h) == (4, 4):
            return _RING_4X4
        if w < 2 or h < 2 or (w % 2 and h % 2):
            return self.snake
        # go out along one border, come back in a snake over the rest
        if h % 2 == 0:
            out = [self.tile_at(x, 0) for x in range(w)]
            for y in range(1, h):
                xs = range(1, w) if y % 2 == 0 else range(w - 1, 0, -1)
                out += [self.tile_at(x, y) for x in xs]
            return (*out, *(self.tile_at(0, y) for y in range(h - 1, 0, -1)))
        out = [self.tile_at(0, y) for y in range(h)]
        for x in range(1, w):
            ys = range(1, h) if x % 2 == 0 else range(h - 1, 0, -1)
            out += [self.tile_at(x, y) for y in ys]
        return (*out, *(self.tile_at(x, 0) for x in range(w - 1, 0, -1)))


def mask_tiles(mask: int) -> list[int]:
    """Return the tiles of a bit mask, ascending."""
    return [t for t in range(max(mask, 0).bit_length()) if mask >> t & 1]


@lru_cache(maxsize=64)
def topology(tiles_x: int, tiles_y: int) -> Topology:
    """Return the shared grid object of this size, so its tables are built once."""
    return Topology(tiles_x, tiles_y)
