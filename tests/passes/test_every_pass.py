"""Every pass by itself, on every graph of the corpus that it changes: the numbers stay.

A pass is tried on the graph as imported, unless it needs facts about it, and wherever the standard pipeline runs it.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

from tests.support.corpus import (
    CONFIGS,
    DATA,
    MODELS,
    conversions,
    exported,
    family,
    gate_of_a_product,
    norm_of_heads,
    products_of_bytes,
    random_inputs,
    scores_in_f16,
    small_cnn,
)
from tests.support.run_graph import run_graph
from tests.support.small_graph import check_forms
from tx8fast.api import compile_ir
from tx8fast.frontend import open_model
from tx8fast.ir.program import IRProgram
from tx8fast.ir.stages import check_stage
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.passes.base import CompilerPass
from tx8fast.passes.compute_dtype import ComputeDtype
from tx8fast.passes.const_norm import ConstNorm
from tx8fast.passes.f16_range import F16Range
from tx8fast.passes.layout_align import LayoutAlign
from tx8fast.passes.layout_calls import LayoutCalls
from tx8fast.passes.layout_init import LayoutInit
from tx8fast.passes.layout_opt import LayoutOpt
from tx8fast.passes.layout_transmit import LayoutTransmit
from tx8fast.passes.lift_stablehlo import LiftStablehlo
from tx8fast.passes.move_constants import MoveConstants
from tx8fast.passes.pipeline import PASSES, run_pipeline, standard_pipeline

FAMILIES = tuple(CONFIGS) if "TX8FAST_ALL_MODELS" in os.environ else ("gemma2", "deepseek_v2")
HAS_JAXLIB = importlib.util.find_spec("jaxlib") is not None
#: passes that only act on aliasable tensors, which no reader makes: tests/passes/test_pass_value_semantics.py
BUFFERS = {"inplace-to-functional", "wrap-value", "fold-copies", "values-only"}
#: passes that act where an option asks for it: tests/passes/test_interface_dtype.py, test_cut_over_chips.py,
#: tests/frontend/onnx/test_masks_of_items.py
ASKED = {"interface-dtype", "cut-over-chips", "masks-apart"}


@dataclass
class State:
    """A graph, and what it computes on `inputs`."""

    name: str
    program: IRProgram
    inputs: dict[str, np.ndarray]

    @cached_property
    def wanted(self) -> dict[str, np.ndarray]:
        return run_graph(self.program, self.inputs)


@dataclass
class Model:
    """`states[i]` is the graph before `passes[i]`; the last one is what leaves the pipeline."""

    states: list[State]
    passes: list[CompilerPass]

    def trials(self, cls: type[CompilerPass]) -> list[tuple[State, CompilerPass]]:
        there = [(s, p) for s, p in zip(self.states, self.passes, strict=False) if type(p) is cls]
        alone = [] if cls.requires else [(self.states[0], cls())]
        return [*alone, *there] if there else [*alone, (self.states[-1], cls())]


def model(name: str, program: IRProgram) -> Model:
    program.main.body.first.attrs["rt_note"] = 1
    passes = standard_pipeline("keep")
    inputs = random_inputs(program)
    states = [State(f"{name}, imported", program, inputs)]
    for p in passes:
        program = program.clone()
        p.run(program)
        states.append(State(f"{name}, behind {p}", program, inputs))
    return Model(states, passes)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> list[Model]:
    root = tmp_path_factory.mktemp("corpus")
    found = [model(name, exported(name)) for name in MODELS]
    for name in FAMILIES:
        found.append(model(name, family(root, name)))
        if name not in ("bert", "vit"):
            found.append(model(name, family(root, name, "decode")))
    found.append(model("cnn", small_cnn(root)))
    small = {
        "conversions": conversions,
        "norm of heads": norm_of_heads,
        "scores in f16": scores_in_f16,
        "bytes": products_of_bytes,
        "gate": gate_of_a_product,
    }
    found += [model(name, make()) for name, make in small.items()]
    if HAS_JAXLIB:
        found += [model(p.stem, open_model(p)) for p in sorted((DATA / "stablehlo").glob("*.mlir"))]
    return found


@pytest.mark.parametrize("cls", PASSES, ids=lambda c: c.name)
@pytest.mark.slow(but_every=5)
def test_numbers_stay(corpus, cls):
    changed = 0
    for state, p in (t for m in corpus for t in m.trials(cls)):
        program = state.program.clone()
        before = program.text()
        p.run(program)
        if program.text() == before:
            continue
        changed += 1
        program.verify(2, f"{p} on {state.name}")
        tolerance = 0.05 if cls is ComputeDtype else 1e-5
        same(state.wanted, run_graph(program, state.inputs), tolerance, f"{p} on {state.name}")
    if cls.name in BUFFERS:
        assert not changed, "a reader gave an aliasable tensor, and says that it does not"
    else:
        assert changed or cls.name in ASKED or (cls is LiftStablehlo and not HAS_JAXLIB), (
            "the corpus has nothing for this pass"
        )


def same(wanted, found, tolerance, what):
    assert list(wanted) == list(found), what
    for name, w in wanted.items():
        assert found[name].shape == w.shape and found[name].dtype == w.dtype, (what, name)
        a, b = found[name].astype(np.float64), w.astype(np.float64)
        assert np.array_equal(np.isnan(a), np.isnan(b)), (what, name)
        assert np.nanmax(np.abs(a - b), initial=0.0) <= tolerance * np.nanmax(np.abs(b), initial=0.0), (what, name)


@pytest.fixture(scope="module")
def simulated():
    """Return a function that compiles a graph and executes it bit by bit; a graph met before is not run again."""
    machine, known = load_machine("test_2x2"), {}

    def run(program, inputs):
        text = program.text()
        if text not in known:
            known[text] = compile_ir(program.clone(), machine, CompileOptions()).run(inputs)
        return known[text]

    return run


@pytest.mark.parametrize("cls", PASSES, ids=lambda c: c.name)
@pytest.mark.slow(but_every=5)
def test_simulated_numbers_stay(corpus, simulated, cls):
    """The smallest graph that the pass changes, compiled with and without it."""
    trials = sorted((t for m in corpus for t in m.trials(cls)), key=lambda t: t[0].program.n_ops())
    if cls is MoveConstants:
        pytest.skip("loads are numbers in a container of constants; the tables are read from the graph before")
    for state, p in trials:
        program = state.program.clone()
        if p.run(program).changed:
            tolerance = 0.05 if cls is ComputeDtype else 1e-3 if cls is F16Range else 1e-4
            same(simulated(state.program, state.inputs), simulated(program, state.inputs), tolerance, str(p))
            same(state.wanted, simulated(program, state.inputs), tolerance, str(p))
            return
    assert cls.name in BUFFERS | ASKED or (cls is LiftStablehlo and not HAS_JAXLIB)


def test_the_minimum_cut_never_converts_more_than_greedy_and_nothing_is_converted_in_vain(corpus):
    less = 0
    for m in corpus:
        (state,) = (s for s, p in zip(m.states, m.passes, strict=False) if type(p) is LayoutAlign)
        counts = state.program.symbols().call_counts()
        cost = {}
        for method in ("greedy", "mincut"):
            program = state.program.clone()
            run_pipeline(
                program,
                [LayoutInit(), LayoutTransmit(), LayoutCalls(), LayoutAlign(method, "keep"), LayoutOpt(), ConstNorm()],
            )
            check_forms(program)
            check_stage(program, "legal-layout")
            cost[method] = sum(
                max(1, counts[f.attrs["sym_name"]]) * op.result.type.size_bytes
                for f in program.functions for op in f.walk() if op.kind == "channel_norm"
            )  # fmt: skip
        assert cost["mincut"] <= cost["greedy"], state.name
        less += cost["mincut"] < cost["greedy"]
    assert less, "the corpus cannot tell the methods apart"
