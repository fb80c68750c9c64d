"""Messages say what matters and count the rest, whatever the size of a model and the depth of its names."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.support.cli_case import refused
from tx8fast.errors import MAX_LINE, MAX_LISTED, MAX_MESSAGE, ConfigError, Tx8Error, bounded, raise_all, short


@given(st.lists(st.text(max_size=30) | st.integers(0, 3000).map("x".__mul__), max_size=300))
def test_every_message_is_bounded(lines):
    message = "\n".join(lines)
    found = str(Tx8Error(message))
    assert len(found) <= MAX_MESSAGE and all(len(line) <= MAX_LINE for line in found.split("\n"))
    assert bounded(found) == found
    if len(message) <= MAX_MESSAGE and all(len(line) <= MAX_LINE for line in message.split("\n")):
        assert found == message


def test_names_lose_their_middle():
    assert short("a" * 160) == "a" * 160
    assert short("a" * 70 + "b" * 100_000 + "c" * 70) == "a" * 65 + " ... 100,010 characters ... " + "c" * 65


def test_problems_are_listed_then_counted():
    with pytest.raises(ConfigError) as e:
        raise_all(ConfigError, "reading", (f"problem {i}" for i in range(1000)))
    lines = str(e.value).split("\n")
    assert lines[0] == "reading: 1000 problems" and lines[-1] == f"  and {1000 - MAX_LISTED} more"
    assert lines[1:-1] == [f"  - problem {i}" for i in range(MAX_LISTED)]


def _value(name: str, dtype: int = TensorProto.FLOAT, shape: tuple[int, ...] = (2,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _nested_loops(depth: int, trips: int) -> onnx.GraphProto:
    """A body of loops in loops; the innermost has an operator that nothing knows."""
    node = helper.make_node("Mystery", ["a0"], ["b0"], "unknown")
    for i in range(depth):
        body = helper.make_graph(
            [node, helper.make_node("Identity", [f"c{i}"], [f"d{i}"])], f"body{i}",
            [_value(f"n{i}", TensorProto.INT64, ()), _value(f"c{i}", TensorProto.BOOL, ()), _value(f"a{i}")],
            [_value(f"d{i}", TensorProto.BOOL, ()), _value(f"b{i}")],
        )  # fmt: skip
        node = helper.make_node("Loop", ["trips", "yes", f"a{i + 1}"], [f"b{i + 1}"], "a_loop_with_a_long_name_of_its_own",
                                body=body)  # fmt: skip
    stored = [numpy_helper.from_array(np.array(trips), "trips"), numpy_helper.from_array(np.array(True), "yes")]
    return helper.make_graph([node], "g", [_value(f"a{depth}")], [_value(f"b{depth}")], stored)


def _unknown_ops(count: int, kinds: int) -> onnx.GraphProto:
    nodes = [
        helper.make_node(f"Mystery{i % kinds}", ["x"], [f"y{i}"], f"layer/{i}/" + "block/" * 40) for i in range(count)
    ]
    return helper.make_graph(nodes, "g", [_value("x")], [_value(f"y{i}") for i in range(count)])


@pytest.mark.parametrize(("graph", "says"), [
    (_nested_loops(25, 1), ("Mystery", "not supported", " characters ... ", "'a_loop_with_a_long_name")),
    (_nested_loops(4, 4), ("Mystery", "not supported")),
    (_unknown_ops(1000, 1), ("operator Mystery0", "and 992 more is not supported")),
    (_unknown_ops(1000, 1000), ("1000 problems", "operator Mystery0", "and ")),
], ids=["deep", "wide", "one operator", "all different"])  # fmt: skip
def test_messages_of_large_models(tx8, tmp_path, graph, says):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    found = refused(tx8, tmp_path, "compile", tmp_path / "m.onnx", "-o", tmp_path / "o.tx8", says=says)
    assert len(found) <= MAX_MESSAGE + 100
