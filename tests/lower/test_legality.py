"""Whatever ops stand next to each other: asked for a lowering, every family gives one or its own refusal, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from support.compositions import composition

from tx8fast.api import lower_graph
from tx8fast.errors import InfeasibleError
from tx8fast.frontend import open_model
from tx8fast.graph_table import FunctionTable, GroupRecord, OpRecord
from tx8fast.lower import FAMILIES, NotLowerable, lower, variants
from tx8fast.lower.attention import Attention
from tx8fast.lower.conv_chain import ConvChain
from tx8fast.lower.fused import Fused
from tx8fast.lower.sequence import SequenceStream
from tx8fast.lower.stream import ConvStream
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.search.grouping import groupable, join, order_steps, uses
from tx8fast.search.planning import Planner

GROUPS = (Fused, Attention, ConvChain, ConvStream, SequenceStream)
MOST = 5  # members of a group
PER_SIZE = 6  # groups of so many members looked at in one model


@lru_cache(maxsize=1)
def machine():
    return load_machine("tx8")


def tables(seed: int, dtype: str, path) -> list[FunctionTable]:
    onnx.save(composition(seed, 3 + seed % 4), str(path))
    ir = open_model(str(path))
    return list(lower_graph(ir, CompileOptions(dtype=dtype)).table.functions.values())


def groups(fn: FunctionTable, seed: int) -> Iterator[GroupRecord]:
    """Yield neighbours, and any other steps in an order in which they can run, as groups."""
    rng = np.random.default_rng(seed)
    steps = order_steps(fn)
    used = uses(fn, steps)
    places = [i for i, s in enumerate(steps) if groupable(s)]
    for size in range(2, min(MOST, len(places)) + 1):
        runs = [places[i : i + size] for i in range(len(places) - size + 1)]
        some = [sorted(rng.choice(places, size, replace=False).tolist()) for _ in range(PER_SIZE)]
        for items in [*runs[:PER_SIZE], *some]:
            yield join(fn, [steps[i] for i in items], set(items), used).record  # type: ignore[misc]


@settings(max_examples=25)
@given(seed=st.integers(0, 1 << 20), dtype=st.sampled_from(["fp32", "bf16"]))
def test_a_lowering_or_a_refusal(tmp_path_factory, seed, dtype):
    path = tmp_path_factory.mktemp("legality") / "model.onnx"
    for fn in tables(seed, dtype, path):
        ops = [s.record for s in fn.steps if isinstance(s.record, OpRecord) and not s.is_empty]
        for record in ops:
            lower(record, machine())
            variants(record, machine())
            for family in set(FAMILIES.values()):
                refused(family, record)
        for record in groups(fn, seed):
            refused(lower, record)
            variants(record, machine())
            for family in GROUPS:
                refused(family, record)


def refused(family, record) -> bool:
    try:
        family(record, machine())
    except NotLowerable:
        return True
    return False


@settings(max_examples=6)
@given(seed=st.integers(0, 1 << 20), dtype=st.sampled_from(["fp32", "bf16"]))
def test_a_plan_or_a_refusal(tmp_path_factory, seed, dtype):
    path = tmp_path_factory.mktemp("legality") / "model.onnx"
    planner = Planner(machine())
    for fn in tables(seed, dtype, path):
        for record in groups(fn, seed):
            try:
                planner.plan(record, "group")
            except (NotLowerable, InfeasibleError):
                pass
