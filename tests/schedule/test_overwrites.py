"""The check of a program's DDR finds what is wrong, and nothing else."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from support.one_op import Arg, tables
from support.small_graph import SmallGraph

from tx8fast.errors import InternalError
from tx8fast.graph_table import GraphTable, OpRecord, TensorSpec
from tx8fast.ir.view import build_view
from tx8fast.machine import load_machine
from tx8fast.passes.outline import Outline
from tx8fast.program.model import Program
from tx8fast.schedule import assemble as assembling
from tx8fast.schedule.overwrites import _Ddr, find_overwrites
from tx8fast.search.program import plan_table

CHIP = load_machine()


def body(b, cache, new, at):
    made = b("add", cache, cache, mem_layout="dense")
    before = b("neg", made, mem_layout="dense")
    updated = b("kv_update", b("max", made, before, mem_layout="dense"), new, at, mem_layout="dense", axis=-2)
    return [b("abs", updated, mem_layout="dense"), before]


@pytest.fixture
def compiled() -> tuple[GraphTable, Program]:
    table, _, _ = tables([Arg((40, 66)), Arg((3, 66)), Arg((1,), "i64", lo=5, hi=5)], body)
    plans = plan_table(table, CHIP, opt=1)
    return table, assembling.assemble(table, CHIP, plans, lambda key: {}, {})


def launch(program: Program, name: str):
    return next(x for x in program.launches if x.name == name)


def only(found: list[str], text: str) -> None:
    assert found and all(text in f for f in found[:1]), found


def test_a_right_program(compiled) -> None:
    table, program = compiled
    assert find_overwrites(table, program) == []
    update = launch(program, "kv_update")
    assert update.args[0] == update.args[-1]


def test_a_result_in_the_bytes_of_what_is_read_later(compiled) -> None:
    table, program = compiled
    launch(program, "max").args[-1] = launch(program, "neg").args[-1]  # an output of the program
    only(find_overwrites(table, program), "launch 'max': result 0 lies in operand 1, which is no update in place")


def test_an_update_in_place_that_the_graph_did_not_ask_for(compiled) -> None:
    table, program = compiled
    for step in table.functions["main"].steps:
        if step.name == "kv_update":
            assert isinstance(step.record, OpRecord)
            step.record = replace(step.record, attrs=tuple(a for a in step.record.attrs if a[0] != "in_place"))
    only(find_overwrites(table, program), "launch 'kv_update': result 0 lies in operand 0")


def test_an_output_elsewhere_and_launches_in_another_order(compiled) -> None:
    table, program = compiled
    read = launch(program, "neg")
    spoilt = copy.deepcopy(program)
    out = next(t for t in spoilt.outputs if t.address == read.args[-1])
    out.address = launch(program, "add").args[-1]
    only(find_overwrites(table, spoilt), "output 'y1' does not lie at its address")
    program.launches.reverse()
    only(find_overwrites(table, program), "launch 'abs' with 2 arguments is not step 'add'")


def test_launches_that_do_not_wait(compiled) -> None:
    table, program = compiled
    segment = program.segments[launch(program, "max").segment]
    segment.barrier = False
    found = find_overwrites(table, program)
    only(found, "launch 'kv_update': no barrier between it and the launch that makes operand 0")
    assert any("result 0 is written where a launch since the last barrier reads or writes" in f for f in found)


def test_a_parameter_that_is_written_over_and_steps_without_launch(compiled) -> None:
    table, program = compiled
    spec = TensorSpec((40, 66), "f32")
    spoilt = copy.deepcopy(program)
    at = launch(program, "abs").args[-1]
    spoilt.params.append(replace(spoilt.inputs[0], name="w", address=int(at), source={"key": "w"}))
    assert spec.shape == spoilt.params[0].shape
    only(find_overwrites(table, spoilt), "parameter 'w' has been written over when the program ends")
    last = program.launches.pop()
    only(find_overwrites(table, program), f"step '{last.name}' has no launch")
    program.launches += [last, last]
    only(find_overwrites(table, program), f"launch '{last.name}' is no step of the graph")


def test_a_mark_where_somebody_still_reads() -> None:
    """The schedule follows the graph's decision; were that wrong, no program would come of it."""

    def read_later(b, cache, new, at):
        made = b("add", cache, cache, mem_layout="dense")
        updated = b("kv_update", made, new, at, mem_layout="dense", axis=-2)
        return [b("add", updated, made, mem_layout="dense")]

    table, _, _ = tables([Arg((40, 66)), Arg((3, 66)), Arg((1,), "i64", lo=5, hi=5)], read_later)
    for step in table.functions["main"].steps:
        if step.name == "kv_update":
            assert isinstance(step.record, OpRecord) and step.in_place < 0
            step.record = replace(step.record, attrs=(*step.record.attrs, ("in_place", 0)))
    with pytest.raises(InternalError, match="launch 'add': operand 1 has been written over before it is read"):
        assembling.assemble(table, CHIP, plan_table(table, CHIP, opt=1), lambda key: {}, {})


def test_no_wrong_program_leaves_the_compiler(monkeypatch) -> None:
    table, _, _ = tables([Arg((40, 66)), Arg((3, 66)), Arg((1,), "i64", lo=5, hi=5)], body)
    plan = assembling.plan_frames

    def confused(functions, capacity):
        frames = plan(functions, capacity)
        values = list(frames["main"].offset)
        frames["main"].offset |= dict.fromkeys(values, 0)
        return frames

    monkeypatch.setattr(assembling, "plan_frames", confused)
    with pytest.raises(InternalError, match="would read what has been written over"):
        assembling.assemble(table, CHIP, plan_table(table, CHIP, opt=1), lambda key: {}, {})


@pytest.mark.parametrize("seed", range(10))
def test_stretches_against_an_array(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ddr, array = _Ddr(), np.zeros(64, np.int64)
    for value in range(1, 60):
        start = int(rng.integers(0, 60))
        end = start + int(rng.integers(1, 64 - start + 1))
        if rng.random() < 0.5:
            ddr.write(start, end, value, 0)
            array[start:end] = value
        else:
            wanted = int(array[start])
            assert ddr.holds(start, end, wanted) == (wanted > 0 and bool((array[start:end] == wanted).all()))
        assert [s.value for s in ddr.over(start, end)] == [
            int(v) for v, before in zip(array[start:end], [-1, *array[start : end - 1]]) if v != before and v
        ]


def test_a_call_of_reshapes_is_no_step() -> None:
    """It has no code, so no barrier at its end either, on which the steps beside it could count."""
    g = SmallGraph(x=((4, 16), "f32"))
    rows = [g("neg", g.args["x"])]
    rows += [g("neg", rows[-1]) for _ in range(47)]
    flat = [g("reshape", row, shape=(1, 64)) for row in rows]
    program = g.done(y=g("concat", *flat, axis=0))
    Outline().run(program)
    assert "subgraph" in {f.kind for f in program.module.body}
    functions = build_view(program).table.functions
    made = [s for s in functions["main"].steps if s.kind == "alias"]
    assert len(made) == 48
    called = {s.callee for s in functions["main"].steps if s.kind == "call"}
    assert all(any(s.kind == "group" for s in functions[name].steps) for name in called)
