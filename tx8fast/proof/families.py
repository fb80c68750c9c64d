"""The families of expressions, read when the first graph is evaluated.

May import: proof.expressions_*. Must not: declare an expression.
"""

from __future__ import annotations


def load() -> None:
    """Make every family declare its expressions."""
    from tx8fast.proof import (  # noqa: F401
        expressions_elementwise,
        expressions_mapped,
        expressions_movement,
        expressions_products,
        expressions_reductions,
    )
