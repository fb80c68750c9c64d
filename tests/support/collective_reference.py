"""Numpy models of the collectives: arrays have a leading axis over chips; sums are rounded after every chip, in ring order."""

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


def collective(kind, x, attrs, ring_of, unit=64):
    """Return what every chip has afterwards; ring_of(chips) is the order of a group's ring.

    Of an all_reduce, chunk k of the n equal parts (in multiples of `unit` elements) begins with ring device k.
    """
    n, out = len(x), None
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
            chunk = -(-(-(-flat.shape[1] // size)) // unit) * unit if size > 1 else flat.shape[1]
            pieces = [combined(flat[:, k * chunk : (k + 1) * chunk], ring, k, attrs["combine"]) for k in range(size)]
            found = [np.concatenate(pieces).reshape(x.shape[1:])] * size
        elif kind == "reduce_scatter":
            found = []
            for i, chip in enumerate(members):
                part = np.split(x, size, axis=attrs["dim"] + 1)[i]
                found.append(combined(part, ring, ring.index(chip) + 1, attrs["combine"]))
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
