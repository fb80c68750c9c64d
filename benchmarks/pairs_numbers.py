"""Products and conversions and their twins, for bench_kernels.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tx8fast import _kernels
from tx8fast._kernels.reference import product as product_twin
from tx8fast._kernels.reference import shorts as shorts_twin

Pair = tuple[Callable[[], object], Callable[[], object]]


def product() -> Pair:
    """A tile's part of a product in fp32, the right side transposed."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((64, 128), (64, 128)))
    lists = a.tolist(), b.T.tolist()
    return lambda: _kernels.single_product(a, b.T), lambda: product_twin.product(*lists, 64)


def halves() -> Pair:
    """A slab of a weight, from f32 to f16."""
    x = np.random.default_rng(0).standard_normal(1 << 17).astype(np.float32)
    bits = x.view(np.uint32).tolist()
    return lambda: _kernels.f16_of_f32(x), lambda: shorts_twin.halves(bits)


def looked_up() -> Pair:
    """A slab of a weight, from one 16-bit format to another."""
    table, x = np.random.default_rng(0).integers(0, 1 << 16, (2, 1 << 16)).astype(np.uint16)
    lists = x.tolist(), table.tolist()
    return lambda: _kernels.looked_up(x, table), lambda: shorts_twin.looked_up(*lists)


PAIRS: dict[str, Callable[[], Pair]] = {
    "product: 64 x 128 x 64": product,
    "shorts: 131072 to f16": halves,
    "shorts: 65536 by a table": looked_up,
}
