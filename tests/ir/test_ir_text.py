"""Text: what is printed reads back to the same graph, and damaged text is located."""

import math
import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.toy_dialect import Toy, toy_context

from tx8fast.errors import VerifyError
from tx8fast.ir.attrs import (
    DenseAttr,
    DevAttr,
    MemLayout,
    MemScope,
    ParallelAttr,
    ParallelMode,
    RegionAttr,
    WindowAttr,
)  # fmt: skip
from tx8fast.ir.clone import equal
from tx8fast.ir.parser import parse_op
from tx8fast.ir.printer import format_attr, print_op
from tx8fast.ir.types import Type
from tx8fast.ir.verify import verify

VALUES = [
    ((), "array<i64>"),
    ((1, -2), "array<i64: 1, -2>"),
    ((1.0, 1e-5), "array<f64: 1.0, 1.0e-05>"),
    ((math.inf,), "array<f64: 0x7FF0000000000000>"),
    (("a", "b"), '["a", "b"]'),
    (("h", 8), '["h", 8 : i64]'),
    ((True, False), "[true, false]"),
    (((1,), ("a",)), '[array<i64: 1>, ["a"]]'),
    (True, "true"),
    (-5, "-5 : i64"),
    (0.5, "0.5 : f64"),
    (1e300, "1.0e+300 : f64"),
    (-math.inf, "0xFFF0000000000000 : f64"),
    (2**63, "9223372036854775808 : ui64"),
    ('a"b\\c\nd\u00e9', '"a\\22b\\\\c\\0Ad\\C3\\A9"'),
    ("}> : (", '"}> : ("'),
    (MemScope.spm, "#tx8be.mem_scope<spm>"),
    (ParallelAttr(), "#tx8be.parallel<>"),
    (DevAttr(imm_size=256, mem_layout=MemLayout.cx), "#tx8be.dev<imm_size = 256, mem_layout = cx>"),
    (WindowAttr((3, 3), pad_lo=(1, 1)), "#tx8be.window<kernel = [3, 3], pad_lo = [1, 1]>"),
    (RegionAttr(x=2, dx=2), "#tx8be.region<x = 2, dx = 2>"),
    (DenseAttr(np.array([1, 2], np.float32)), 'dense<"0x0000803F00000040"> : tensor<2xf32>'),
    (DenseAttr(np.array(1.5, ml_dtypes.bfloat16)), 'dense<"0xC03F"> : tensor<bf16>'),
    (DenseAttr(np.array([[True], [False]])), "dense<[[true], [false]]> : tensor<2x1xi1>"),
    (DenseAttr(np.zeros((0, 3), np.int8)), "dense<> : tensor<0x3xi8>"),
]  # pairs: a dictionary would confuse True, 1 and enumeration members


def with_attr(value):
    t = Toy()
    t.b.op("toy.any", result_types=[t.type], a=value)
    return t.ret()


@pytest.mark.parametrize("value, expected", VALUES, ids=[str(k)[:30] for k, _ in VALUES])
def test_text_of_each_kind_of_attribute(value, expected):
    program = with_attr(value)
    text = program.text()
    assert f"<{{a = {expected}, b = 1.5 : f64}}>" in text
    back = parse_op(program.ctx, text)
    found = next(op for op in back.walk() if op.kind == "any").attrs["a"]
    assert found == value and type(found) is type(value)
    assert equal(program.module, back) and print_op(back) == text


@given(st.floats())
def test_floats_read_back_exactly(x):
    program = with_attr(x)
    back = next(op for op in parse_op(program.ctx, program.text()).walk() if op.kind == "any").attrs["a"]
    assert math.isnan(back) if math.isnan(x) else (back == x and math.copysign(1, back) == math.copysign(1, x))


_SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=12),
)
_TREES = st.recursive(_SCALARS, lambda s: st.lists(s, max_size=4).map(tuple), max_leaves=8)


@given(_TREES, st.dictionaries(st.text(max_size=6), _SCALARS, max_size=3), st.text(max_size=20))
def test_arbitrary_attributes_round_trip(value, mapping, note):
    t = Toy()
    t.b.op("toy.any", result_types=[t.type], a=value, rt_note=note, rt_map=mapping, loc=note)
    t.b.op("toy.any", result_types=[t.type], a=mapping)
    t.ret()
    for locations in (False, True):
        text = t.program.text(locations)
        back = parse_op(t.ctx, text)
        assert equal(back, t.module) and print_op(back, locations) == text


@pytest.mark.parametrize(
    "value",
    [
        ParallelAttr(ParallelMode.dp_tp, False, 2, 1, 1, 1, 2, 1, True, (2, 2)),
        *[ParallelAttr(**{f: v}) for f, v in [("parallel", ParallelMode.tp), ("is_dp_inner", False), ("dp_dim_y", 3),
                                              ("tp_dim_x", 2), ("sharding_is_given", True), ("shape_spatial_sharding", (1, 1))]],
        DevAttr(512, MemLayout.ncx, MemScope.spm, True, 3, (1, -1), (1, 7), 2, 4096, (0, 1, 2)),
        *[DevAttr(**{f: v}) for f, v in [("imm_size", 256), ("mem_scope", MemScope.dram3d), ("out_shape_buf_idx", (0,)),
                                         ("temporal_mem_slice", (4, 64)), ("source_type", 1), ("imm_addr", 65536), ("mem_addr", (8,))]],
        DevAttr(multi_buf_en=True, multi_buf_num=2),
    ],
)  # fmt: skip
def test_fields_of_struct_attributes_round_trip_alone_and_together(value):
    program = with_attr(value)
    back = next(op for op in parse_op(program.ctx, program.text()).walk() if op.kind == "any")
    assert back.attrs["a"] == value


def test_exact_text_of_a_small_module():
    t = Toy(n_args=1)
    w = t.b("get_param", key="l0.w", result_types=[t.type])
    y = t.b("toy.scale", t.b("toy.add", t.args[0], w), by=2.0, rt_b="x", rt_a=1)
    two = t.b.op("toy.any", y, result_types=[t.type, t.ctx.types.none], a=None)
    t.ret(two.results[0])
    assert t.program.text() == (
        '"tx8be.module"() ({\n'
        '  "tx8be.func"() <{sym_name = "main"}> ({\n'
        "  ^bb0(%0: !tx8be.vtensor<4xf32>):\n"
        '    %1 = "tx8be.get_param"() <{key = "l0.w"}> : () -> !tx8be.vtensor<4xf32>\n'
        '    %2 = "toy.add"(%0, %1) : (!tx8be.vtensor<4xf32>, !tx8be.vtensor<4xf32>) -> !tx8be.vtensor<4xf32>\n'
        '    %3 = "toy.scale"(%2) <{by = 2.0 : f64}> {rt_a = 1 : i64, rt_b = "x"} : '
        "(!tx8be.vtensor<4xf32>) -> !tx8be.vtensor<4xf32>\n"
        '    %4:2 = "toy.any"(%3) <{b = 1.5 : f64}> : (!tx8be.vtensor<4xf32>) -> (!tx8be.vtensor<4xf32>, !tx8be.none)\n'
        '    "tx8be.return"(%4#0) : (!tx8be.vtensor<4xf32>) -> ()\n'
        "  }) : () -> ()\n"
        "}) : () -> ()\n"
    )


def nested() -> Toy:
    """module > func > group > scope; numbers of the group begin again behind it."""
    t = Toy()
    x = t.b("toy.add", *t.args)
    group = t.b.op("group", x, result_types=[t.type], n_regions=1)
    inner = group.regions[0].add_block([t.type])
    gb = type(t.b)(t.ctx, inner)
    y = gb("toy.relu", inner.args[0])
    scope = gb.op("toy.scope", result_types=[t.type], n_regions=2)
    for r in scope.regions:
        sb = type(t.b)(t.ctx, r.add_block())
        sb.op("toy.yield", sb("toy.add", y, y), result_types=())
    gb.op("group_return", scope.result, result_types=())
    t.ret(group.result, x)
    return t


def test_three_levels_print_parse_clone_and_verify():
    t = nested()
    verify(t.module, 2)
    text = t.program.text()
    assert '    %3 = "tx8be.group"(%2)' in text and "^bb0(%4: " in text and "}, {" in text
    assert '"tx8be.return"(%3, %2)' in text
    back = parse_op(t.ctx, text)
    assert equal(back, t.module) and print_op(back) == text
    assert t.program.clone().same_as(t.program) and t.program.clone().text() == text


def test_empty_regions_and_several_blocks():
    ctx = toy_context()
    text = (
        '"toy.scope"() ({\n'
        "}, {\n"
        "^bb0:\n"
        "}, {\n"
        '  "toy.yield"() : () -> ()\n'
        "^bb1(%0: !tx8be.none):\n"
        '  "toy.yield"(%0) : (!tx8be.none) -> ()\n'
        "}) : () -> ()\n"
    )
    op = parse_op(ctx, text)
    assert [len(r.blocks) for r in op.regions] == [0, 1, 2]
    assert print_op(op) == text


def test_types_round_trip_and_a_dialect_may_add_its_own():
    ctx = toy_context()

    class Stream(Type):
        __slots__ = ("channel",)

    def stream(c, body):
        return c.types._make(("stream", body), Stream, f"!tx8be.stream<{body}>", channel=body)

    ctx.type_readers["stream"] = stream
    tensor = ctx.tensor
    types = [
        tensor((), "pred"), tensor((2, -1, "S", "max"), "bf16"), tensor(None, "f16"), tensor(None, "?"),
        tensor((1, 2, 3, 4, 5, 6), "f8e4m3fn", "tensor"), ctx.types.none, ctx.types.token, stream(ctx, "a, b"),
        ctx.types.tuple_of([ctx.types.tuple_of([tensor((2,), "i8"), ctx.types.token]), stream(ctx, "3")]),
    ]  # fmt: skip
    op = ctx.create("toy.any", (), types)
    text = print_op(op)
    back = parse_op(ctx, text)
    assert [r.type for r in back.results] == types  # interned: the same objects
    assert "!tx8be.vtensor<2x?x[S]x[max]xbf16>" in text and print_op(back) == text


def lines(n: int, replace: str, by: str) -> str:
    text = nested().program.text().split("\n")
    assert replace in text[n - 1], text[n - 1]
    text[n - 1] = text[n - 1].replace(replace, by, 1)
    return "\n".join(text)


@pytest.mark.parametrize(
    "text, where, message",
    [
        (lines(4, '"toy.add"', '"toy.mul"'), "4:11", "expected a registered operation, found 'toy.mul'"),
        (lines(4, "(%0, %1)", "(%0, %9)"), "4:24", "expected a value defined above, found '%9'"),
        (lines(4, "(%0, %1)", "(%0, %1"), "4:19", "expected operands in parentheses"),
        (lines(4, " : (", " (", ), "4:27", "expected ' : ' and the types"),
        (lines(2, '<{sym_name = "main"}>', '<{sym_name = main}>'), "2:31", "expected an attribute value, found 'main'"),
        (lines(2, '<{sym_name = "main"}>', '<{sym = "main"}>'), "2:20", "found 'sym'"),
        (lines(2, ' <{sym_name = "main"}>', ""), "2:1", "attribute 'sym_name' is required"),
        (lines(2, '<{sym_name = "main"}>', '<{sym_name = 3 : i64}>'), "2:20", "expects str, found 3"),
        (lines(2, '<{sym_name = "main"}>', '<{sym_name = "a", sym_name = "b"}>'), "2:36", "an attribute name not yet given"),
        (lines(5, "tag = 0 : i64", "tag = #tx8be.window<size = [1]>"), "5:50", "expected a field of #tx8be.window"),
        (lines(5, "tag = 0 : i64", "tag = #tx8be.dev<mem_scope = l2>"), "5:59", "expected one of ddr, spm, dram3d, found 'l2'"),
        (lines(5, "tag = 0 : i64", "tag = #tx8be.region<x = 9>"), "5:36", "a tile coordinate 0..3"),
        (lines(4, "<4xf32>)", "<4xf33>)"), "4:54", "unknown dtype 'f33'"),
        (lines(4, "<4xf32>)", "<4xxf32>)"), "4:54", "unknown dtype 'xf32'"),
        (lines(4, "<4xf32>)", "<5xf32>)"), "4:30", "expected operand 1 of type !tx8be.vtensor<4xf32>, found !tx8be.vtensor<5xf32>"),
        (lines(4, ", !tx8be.vtensor<4xf32>)", ")"), "4:30", "expected 2 operand types, found 1"),
        (lines(4, "%2 =", "%2:2 ="), "4:1", "expected 1 result names for 1 result types, found 2"),
        (lines(3, "^bb0", "^bb1"), "3:3", "expected a block '^bb0(%0: type, ...):'"),
        (lines(18, "})", ""), None, "expected"),
        ("", "1:1", "expected an operation"),
        (nested().program.text() + "x", None, "expected the end of the text"),
    ],
)  # fmt: skip
def test_parse_errors_name_line_and_column_in_one_line(text, where, message):
    with pytest.raises(VerifyError) as caught:
        parse_op(toy_context(), text, "m.mlir")
    found = str(caught.value)
    assert message in found and "\n" not in found and len(found) < 600
    assert found.startswith("m.mlir:") and (where is None or found.startswith(f"m.mlir:{where}: ")), found


def test_every_truncation_is_diagnosed():
    text = nested().program.text().rstrip("\n")
    ctx = toy_context()
    for end in range(len(text)):
        with pytest.raises(VerifyError):
            parse_op(ctx, text[:end])


def test_a_hostile_line_reads_in_linear_time():
    line = '"toy.any"() <{a = "' + 'x"}> {' * 20_000
    start = time.perf_counter()
    with pytest.raises(VerifyError):
        parse_op(toy_context(), line)
    assert time.perf_counter() - start < 2


def test_attributes_without_text_are_refused():
    with pytest.raises(VerifyError, match="no text form"):
        format_attr(object())


def test_run_time_attributes_stand_apart_and_nothing_else_does():
    t = Toy()
    t.b("toy.relu", t.args[0], rt_z=1, rt_a=True)
    text = t.ret().text()
    assert "{rt_a = true, rt_z = 1 : i64}" in text
    with pytest.raises(VerifyError, match="expected a run-time attribute named rt_..., found 'note'"):
        parse_op(t.ctx, text.replace("rt_a", "note"))
