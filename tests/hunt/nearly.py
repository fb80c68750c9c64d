"""Decisions on rounded numbers that go one way in one disturbed run and the other way in the next, so that none of them is sure.

`NEAR` is an input of the disturbed model: how near is near, as a share of the largest number; negative: nothing is near.
`OTHER`: 0, or -1 for the other sign.
"""

from __future__ import annotations

from hunt.formats import F32
from onnx import NodeProto, helper

NEAR, OTHER = "noise of equality", "noise of signs"


def nearly_equal(node: NodeProto) -> list[NodeProto]:
    """Equality of rounded numbers: true for near ones in one run, for none in the next, so that no such result is sure."""
    a, b = node.input
    y = node.output[0]
    make = helper.make_node  # near to each other among the largest, by which disturbances are measured
    return [make("Sub", [a, b], [y + "-"]), make("Abs", [y + "-"], [y + "|"]), make("Abs", [a], [y + "a"]), make("Abs", [b], [y + "b"]),
            make("Add", [y + "a", y + "b"], [y + "s"]), make("ReduceMax", [y + "s"], [y + "m"], keepdims=0),
            make("Mul", [y + "m", NEAR], [y + "t"]), make("LessOrEqual", [y + "|", y + "t"], [y])]  # fmt: skip


def nearly_nothing(node: NodeProto) -> list[NodeProto]:
    """Truth of a rounded number: false for what is near nothing in one run, true for it in the next."""
    x, y = node.input[0], node.output[0]
    make = helper.make_node
    return [make("Abs", [x], [y + "|"]), make("ReduceMax", [y + "|"], [y + "m"], keepdims=0), make("Mul", [y + "m", NEAR], [y + "t"]),
            make("Greater", [y + "|", y + "t"], [y])]  # fmt: skip


def nearly_without_sign(node: NodeProto) -> list[NodeProto]:
    """Sign of a rounded number: of what is near nothing none in one run, the other one in the next."""
    x, y = node.input[0], node.output[0]
    make = helper.make_node
    return [*nearly_nothing(make("", [x], [y + "is"])), make("Cast", [y + "is"], [y + "1"], to=F32), make("Sign", [x], [y + "s"]),
            make("Mul", [y + "1", y + "s"], [y + "far"]), make("Sub", [y + "s", y + "far"], [y + "rest"]),
            make("Mul", [y + "rest", OTHER], [y + "turned"]), make("Add", [y + "far", y + "turned"], [y])]  # fmt: skip


def nearly_largest(node: NodeProto) -> list[NodeProto]:
    """One for the largest of rounded numbers: for all that are near it in one run, for one in the next."""
    x, y = node.input[0], node.output[0]
    make, axis = helper.make_node, [next((a.i for a in node.attribute if a.name == "axis"), -1)]
    return [make("Abs", [x], [y + "|"]), make("ReduceMax", [y + "|"], [y + "m"], keepdims=0), make("Mul", [y + "m", NEAR], [y + "t"]),
            make("Constant", [], [y + "axis"], value_ints=axis), make("ReduceMax", [x, y + "axis"], [y + "top"], keepdims=1),
            make("Sub", [y + "top", y + "t"], [y + "low"]), make("GreaterOrEqual", [x, y + "low"], [y + "is"]),
            make("Cast", [y + "is"], [y + "many"], to=F32), make("Hardmax", [x], [y + "one"], axis=axis[0]),
            make("Sub", [NEAR, NEAR], [y + "0"]), make("Greater", [NEAR, y + "0"], [y + "near"]),
            make("Where", [y + "near", y + "many", y + "one"], [y])]  # fmt: skip
