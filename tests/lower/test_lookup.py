"""Rows of tables by number: whole rows are transferred by the engines, alone and as the start of a group."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.one_op import Arg, Case, best_plan, build, check, grouped, one_op, random_plan, with_plan

import tx8fast
from tx8fast import isa
from tx8fast.api import CompiledProgram
from tx8fast.errors import SimulationError
from tx8fast.lower import NotLowerable
from tx8fast.lower.fused import Fused
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.lower.lookup import Lookup

FLOATS = ("f32", "bf16", "f16")


def same_bytes(case: Case, inputs) -> None:
    """Looked-up rows are the table's bytes, whatever they stand for; the sanitizer finds nothing."""
    feed = {f"x{i}": a for i, a in enumerate(inputs)}
    got = CompiledProgram(case.program).run(feed, sanitize=True)["y0"]
    assert got.tobytes() == case.expected(inputs)[0].tobytes()


@settings(max_examples=25)
@given(
    st.sampled_from(["embedding", "gather"]),
    st.sampled_from(["f32", "bf16", "i64", "i8", "u32"]),
    st.sampled_from(["i32", "i64", "u32"]),
    st.integers(1, 40),
    st.integers(1, 200),
    st.lists(st.integers(1, 9), max_size=3),
    st.sampled_from(["tx8", "test_2x2"]),
    st.integers(0, 99),
)
@pytest.mark.slow
def test_any_table(kind, dtype, index, entries, width, shape, machine, seed) -> None:
    """Any element type, numbers from the front and from the end, any plan, both sources of rows."""
    least = 0 if index[0] == "u" else -entries
    args = [Arg((entries, width), dtype, lo=0, hi=100), Arg(tuple(shape), index, lo=least, hi=entries - 1)]
    case = one_op(kind, *args, machine=machine, **({"axis": 0} if kind == "gather" else {}))
    rng = np.random.default_rng(seed)
    inputs = [a.values(rng) for a in args]
    same_bytes(case, inputs)
    low = case.lowering()
    assert isinstance(low, Lookup)
    plan = random_plan(case, rng, low)
    if plan is not None:
        same_bytes(with_plan(case, plan, low), inputs)


def test_tables_of_several_dimensions_are_rows_of_all_of_them() -> None:
    args = [Arg((9, 3, 5, 40), "bf16"), Arg((64,), "i64", lo=-9, hi=8)]
    case = one_op("gather", *args, axis=0)
    assert case.segment.info["engine"] == "lookup"
    same_bytes(case, [a.values(np.random.default_rng(0)) for a in args])
    inner = one_op("gather", Arg((9, 30), "bf16"), Arg((6,), "i64", lo=0, hi=8), axis=1)
    assert inner.segment.info["engine"] == "kernel core"


def test_the_cheaper_of_engines_and_kernel_core_does_it() -> None:
    few = one_op("embedding", Arg((64, 4)), Arg((2,), "i64", lo=0, hi=63))
    many = one_op("embedding", Arg((64, 512)), Arg((128,), "i64", lo=0, hi=63))
    assert few.segment.info["engine"] == "kernel core" and many.segment.info["engine"] == "lookup"
    low = KernelCore(many.records[0], many.machine)
    assert many.segment.estimate_cycles < best_plan(low, many.machine).estimate_cycles


def test_a_table_smaller_than_its_use_is_loaded_once() -> None:
    case = one_op("embedding", Arg((3, 514), "bf16"), Arg((16, 24), "i64", lo=0, hi=2))
    assert case.lowering().resident and not one_op("embedding", *resized(case, 40)).lowering().resident
    names = {row["opcode"] for code in case.program.segments[0].codes for row in code}
    assert 0x180 in names and 0x302 not in names
    same_bytes(case, [a.values(np.random.default_rng(1)) for a in case.args])


def resized(case: Case, entries: int) -> list[Arg]:
    table, index = case.args
    return [dataclasses.replace(table, shape=(entries, table.shape[1])), index]


@pytest.mark.parametrize("entries", [3, 600])
@pytest.mark.parametrize("wrong", [-1, 0])
def test_a_number_outside_the_table_is_an_error(entries: int, wrong: int) -> None:
    """The same as the reference routine says, from DDR and out of scratchpad."""
    case = one_op("embedding", Arg((entries, 512), "bf16"), Arg((16, 24), "i64", lo=0, hi=2))
    table, index = (a.values(np.random.default_rng(1)) for a in case.args)
    index[7, 5] = entries if not wrong else -entries - 1
    with pytest.raises(SimulationError, match=rf"at \[7, 5\] is {index[7, 5]}, required 0 to {entries - 1}\b"):
        case.run([table, index])
    index[7, 5] = -entries
    case.run([table, index])


@st.composite
def starts(draw):
    """The start of a transformer: rows of one or two tables, sums with others, a scale, a normalisation."""
    dtype = draw(st.sampled_from(FLOATS))
    lead = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    width, entries, kinds = draw(st.integers(1, 200)), draw(st.integers(1, 30)), draw(st.integers(1, 3))
    pick = Arg(lead, draw(st.sampled_from(["i32", "i64"])), lo=-entries, hi=entries - 1)
    shapes = [lead, lead[1:], (1, *lead[1:]), (), (*(1,) * len(lead),)]
    beside = (*draw(st.sampled_from(shapes)), width)
    parts = {name: draw(st.booleans()) for name in ("types", "layout", "again", "norm", "scale", "both", "cut")}
    layout = draw(st.sampled_from(["dense", "blocked"])) if len(beside) > 1 else "dense"
    args = [Arg((entries, width), dtype), pick, Arg((kinds, width), dtype), Arg(lead, "i64", lo=0, hi=kinds - 1),
            Arg(beside, dtype, layout), Arg((width,), dtype), Arg((1,), dtype)]  # fmt: skip

    def body(b, table, index, types, which, positions, gain, factor):
        x = b("embedding", table, index, mem_layout="dense")
        if parts["types"]:
            x = b("add", x, b("embedding", types, which, mem_layout="dense"), mem_layout="dense")
        elif parts["again"]:
            x = b("sub", x, b("embedding", table, which, mem_layout="dense"), mem_layout="dense")
        x = b("add", positions, x, mem_layout="dense")
        if parts["scale"]:
            x = b("mul", x, factor, mem_layout="dense")
        if parts["layout"]:
            x = b("channel_norm", x, to="align", mem_layout="blocked")
        out = "blocked" if parts["layout"] else "dense"
        if parts["norm"]:
            y = b("layernorm", x, gain, None, axes=(-1,), eps=1e-5, mem_layout=out)
            return [y, x] if parts["both"] else [y]
        return [x, b("relu", x, mem_layout=out)] if parts["both"] else [x]

    machine = draw(st.sampled_from(["tx8", "test_2x2"]))
    return build(args, body, machine)


@settings(max_examples=25)
@given(starts(), st.integers(0, 99))
@pytest.mark.slow
def test_start_of_a_transformer_in_scratchpad(case: Case, seed: int) -> None:
    """One launch, any plan: what the reference says, and nothing for the sanitizer to find."""
    case = grouped(case)
    low = case.lowering()
    assert isinstance(low, Fused) and len(case.program.launches) == 1
    rng = np.random.default_rng(seed)
    inputs = [a.values(rng) for a in case.args]
    inputs[3] %= case.args[0].shape[0]
    check(case, inputs, tolerance=3e-2)
    CompiledProgram(case.program).run({f"x{i}": a for i, a in enumerate(inputs)}, sanitize=True)
    plan = random_plan(case, rng, low)
    if plan is not None:
        check(with_plan(case, plan, low), inputs, tolerance=3e-2)


@pytest.mark.parametrize("columns", [1, 8])
def test_a_norm_takes_its_own_columns_of_a_row(columns: int) -> None:
    """Rows of a table have several dimensions, of which the norm sees the last one alone."""

    def body(b, table, index):
        x = b("channel_norm", b("gather", table, index, axis=0, mem_layout="dense"), to="align", mem_layout="blocked")
        return b("layernorm", x, None, None, axes=(-1,), eps=1e-5, mem_layout="blocked")

    args = [Arg((16, 4, columns)), Arg((3,), "i64", lo=0, hi=15)]
    case = build(args, body, opt=3)
    check(case, [a.values(np.random.default_rng(columns)) for a in args])
    with pytest.raises(NotLowerable, match="last dimension"):
        grouped(case)


@pytest.mark.parametrize("opt", [1, 2, 3])
@pytest.mark.slow(but_every=4)
def test_numbers_that_another_launch_made(opt: int) -> None:
    """The kernel core reads them behind a barrier; look-ups of one table by different numbers have nothing in common."""

    def body(b, table, first, second):
        numbers = b("add", first, second, mem_layout="dense")
        x = b("embedding", table, numbers, mem_layout="dense")
        y = b("embedding", table, first, mem_layout="dense")
        return [b("mul", x, b("relu", y, mem_layout="dense"), mem_layout="dense"), y]

    args = [Arg((70, 1024), "bf16"), *[Arg((4, 30), "i32", lo=0, hi=34)] * 2]
    case = build(args, body, opt=opt)
    inputs = [a.values(np.random.default_rng(opt)) for a in args]
    check(case, inputs)
    CompiledProgram(case.program).run({f"x{i}": a for i, a in enumerate(inputs)}, sanitize=True)
    lookups = [s for s in case.program.segments if any(len(isa.lookup.numbers(code)[0]) for code in s.codes)]
    assert lookups and all(s.info["engine"] in ("lookup", "rows of tables") for s in lookups)


def test_start_of_bert_reads_every_row_once(tmp_path) -> None:
    config = {"model_type": "bert", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1, "vocab_size": 900,
              "num_attention_heads": 4, "max_position_embeddings": 64, "hidden_act": "gelu"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    made = tx8fast.compile(tmp_path, phase="prefill", seq=48, batch=16, dtype="bf16")
    start = made.program.segments[0]
    assert start.info["engine"] == "rows of tables" and start.info["op"].startswith("embedding+embedding+add+add")
    moved = {"rdma_row": 0, "wdma": 0, "tdma_row": 0}
    for c in start.tile_code.tolist():
        code = isa.expand(start.codes[c])
        for name in moved:
            own = code[code["opcode"] == isa.INSTRUCTIONS[name].OPCODE]["p"]
            runs = own[:, 6] if name == "tdma_row" else own[:, 2] * own[:, 4] * own[:, 6] if name == "wdma" else 1
            moved[name] += int((own[:, 0] * runs).sum())
    assert set(moved.values()) == {16 * 48 * 256 * 2}
