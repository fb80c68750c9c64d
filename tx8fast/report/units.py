"""Numbers as people read them.

May import: the standard library. Must not: round what is compared or stored.
"""

from __future__ import annotations

from collections.abc import Sequence


def size_text(n_bytes: float) -> str:
    """Return bytes in a binary unit with three digits or so: "812 B", "1.25 MiB"."""
    if n_bytes < 1024:
        return f"{n_bytes:,.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        n_bytes /= 1024
        if n_bytes < 1024 or unit == "GiB":
            break
    return f"{n_bytes:,.2f} {unit}"


def time_text(seconds: float) -> str:
    """Return seconds in a unit that keeps three digits before the point at most."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:,.2f} us"
    return f"{seconds * 1e3:,.3f} ms" if seconds < 1 else f"{seconds:,.3f} s"


def count_text(n: float) -> str:
    """Return a large count with a decimal prefix: "7.42 T"."""
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if n >= factor:
            return f"{n / factor:,.2f} {unit}"
    return f"{n:,.0f}"


def tensor_text(dtype: str, shape: Sequence[int]) -> str:
    """Return "bf16[4, 128]"."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


def cut_text(values: Sequence[int]) -> str:
    """Return plan lengths as "16x1x4", "-" for none."""
    return "x".join(map(str, values)) or "-"
