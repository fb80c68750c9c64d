"""Searches that find what only large models gain by."""

from __future__ import annotations

import pytest

from tx8fast.search import gathering as gathering_plans
from tx8fast.search import memory
from tx8fast.tile import sharing
from tx8fast.tile.tiling import Tiling


@pytest.fixture()
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands are shared however small they are."""
    monkeypatch.setattr(sharing, "SHARE_MIN_BYTES", 256)


@pytest.fixture()
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """What gathers, or leaves what others gather, seems to take next to no time."""
    inner = memory.Memory.cycles

    def cheap(of: memory.Memory, how: Tiling, held: frozenset[int], closely: bool = False) -> int:
        cycles = inner(of, how, held, closely)
        return cycles // 16 if how.plan.gathered or any(k >= len(how.low.reads) for k in how.plan.kept) else cycles

    monkeypatch.setattr(memory.Memory, "cycles", cheap)
    monkeypatch.setattr(gathering_plans, "GRIDS", 8)
