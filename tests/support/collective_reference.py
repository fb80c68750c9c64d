"""Numpy models of the collectives: arrays have a leading axis over chips; sums are rounded after every chip, in ring order.

The elements of a chunk are cut over the tiles in equal contiguous parts; parts of odd tiles go round the ring the other way.
"""

from __future__ import annotations

import numpy as np

FUNCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def groups_of(groups, parts, n):
    """Return the lists of chips."""
    if not groups:
        return [list(range(n))]
    return [[c for c in groups[i : i + parts] if c >= 0] for i in range(0, len(groups), parts)]


def combined(x, ring, first, how):
    """Return the values of chips ring[first], ring[first + 1], ... combined one after the other, in the format of x."""
    order = [ring[(first + k) % len(ring)] for k in range(len(ring))]
    total = x[order[0]]
    for chip in order[1:]:
        total = FUNCTIONS[how](total.astype(np.float32), x[chip].astype(np.float32)).astype(x.dtype)
    return total


def both_ways(x, ring, first_of, how, per_tile):
    """Return the combined values of x [chips, elements], `per_tile` elements one way round, as many the other way, and so on."""
    ways = [combined(x, r, first_of(r), how) for r in (ring, ring[::-1])]
    return np.where(np.arange(x.shape[1]) // per_tile % 2 == 1, ways[1], ways[0])


def collective(kind, x, attrs, ring_of, unit=64, tiles=1, rounds=1):
    """Return what every chip has afterwards; ring_of(chips) is the order of a group's ring.

    Of an all_reduce, chunk k of the n equal parts (in multiples of `unit` elements) begins with device k of the ring; a part that
    a reduce_scatter leaves on a chip begins with the chip behind it. `tiles`: of a chip; `rounds`: in which they share a chunk.
    """

    def per_tile(elements):
        part = -(-(-(-elements // tiles)) // unit) * unit
        return -(-(-(-part // rounds)) // unit) * unit * rounds

    n = len(x)
    if kind == "permute":
        out = np.zeros_like(x)
        for source, target in zip(attrs["pairs"][::2], attrs["pairs"][1::2]):
            out[target] = x[source]
        return out
    results = [None] * n
    for members in groups_of(attrs.get("groups"), attrs.get("parts", 1), n):
        size, ring = len(members), ring_of(members)
        if kind == "all_reduce":
            flat = x.reshape(n, -1)
            chunk = -(-(-(-flat.shape[1] // size)) // unit) * unit
            share = per_tile(min(chunk, flat.shape[1]))
            cuts = [flat[:, k * chunk : (k + 1) * chunk] for k in range(size)]
            pieces = [both_ways(cut, ring, lambda r, k=k: k, attrs["combine"], share) for k, cut in enumerate(cuts)]
            found = [np.concatenate(pieces).reshape(x.shape[1:])] * size
        elif kind == "reduce_scatter":
            found = []
            for i, chip in enumerate(members):
                cut = np.split(x, size, axis=attrs["dim"] + 1)[i]
                first = lambda r, chip=chip: r.index(chip) + 1  # noqa: E731
                made = both_ways(cut.reshape(n, -1), ring, first, attrs["combine"], per_tile(cut[0].size))
                found.append(made.reshape(cut.shape[1:]))
        elif kind == "all_gather":
            found = [np.concatenate([x[c] for c in members], axis=attrs["dim"])] * size
        elif kind == "all_to_all":
            cut = [np.split(x[c], size, axis=attrs["split_dim"]) for c in members]
            found = [np.concatenate([cut[j][i] for j in range(size)], axis=attrs["concat_dim"]) for i in range(size)]
        else:
            found = [x[members[attrs["root"]]]] * size
        for chip, array in zip(members, found, strict=True):
            results[chip] = array
    return np.stack(results)
