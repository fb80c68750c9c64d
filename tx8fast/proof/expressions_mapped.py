"""The expression of a function in steps: each step is the op of its kind.

May import: numpy, graph_table, numerics.steps, proof.expression. Must not: know how a step is computed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tx8fast.graph_table import OpRecord, TensorSpec
from tx8fast.numerics.steps import COMPARISONS, Step, parse_steps
from tx8fast.proof.expression import EXPRESSIONS, Operands, Scope, Value, elements, expression, need


def step_records(record: OpRecord) -> Iterator[tuple[Step, OpRecord]]:
    """Yield the steps of a map, each with the op that it is."""
    shape = record.results[0].shape
    for step in parse_steps(record.attr("steps"), len(record.operands)):
        out = TensorSpec(shape, "pred" if step.kind in COMPARISONS else "f32")
        ins = tuple(TensorSpec(shape if type(o) is int else (), "f32") for o in step.operands)
        yield step, OpRecord(step.kind, (("fmod", False),), ins, (out,), None)


def step_numbers(record: OpRecord) -> set[float]:
    """Return the numbers that the steps of an op hold."""
    texts = [value for name, value in record.attrs if name == "steps"]
    steps = [step for text in texts for step in parse_steps(text, len(record.operands))]
    return {o for step in steps for o in step.operands if type(o) is float}


@expression("map")
def mapped(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """The last of the steps."""
    values: list[Value] = [elements(scope, need(operands, k)) for k in range(len(operands))]
    for step, record in step_records(op):
        given: list[Value] = [values[o] if type(o) is int else scope.number(o) for o in step.operands]
        if (
            any(isinstance(v, np.ndarray) for v in given) and step.kind != "select"
        ):  # truth values, and numbers that stand for some
            numbers = [np.asarray(o != 0) if type(o) is not int else v for o, v in zip(step.operands, given)]
            given = numbers if all(isinstance(v, np.ndarray) for v in numbers) else [elements(scope, v) for v in given]
        values += EXPRESSIONS[step.kind](scope, record, given)
    return [elements(scope, values[-1])]
