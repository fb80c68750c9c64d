"""Comparisons of drawn numbers: each wrong one is refused whatever the seed, equal ones however they are written."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.support.corpus import DATA
from tests.support.proof_runner import tables_of
from tx8fast import api, isa
from tx8fast.proof.cells import ABSENT, UNDEFINED, Elements
from tx8fast.proof.compared import Comparisons
from tx8fast.proof.degree import degree_of
from tx8fast.proof.evaluate import slice_of
from tx8fast.proof.field import Field
from tx8fast.proof.graph import written_out

#: ways to write down one comparison of a with b: relation, whether operands are exchanged, and negated
SAME = {
    "lt": [("gt", True, False), ("ge", False, False), ("le", True, False), ("gt", False, True), ("lt", True, True)],
    "le": [("ge", True, False), ("gt", False, False), ("lt", True, False), ("ge", False, True)],
    "eq": [("ne", False, False), ("eq", True, False), ("eq", False, True), ("ne", True, True)],
}


def noted(field: Field, name: str, a: Elements, b: Elements, exchanged: bool = False, negated: bool = False):
    if negated:
        a, b = field.neg(a), field.neg(b)
    made = Comparisons()
    made.note(name, *((b, a) if exchanged else (a, b)), (field.p, field.q))
    return made


@pytest.mark.parametrize("sides", ["pq", "p"])
@pytest.mark.parametrize("name", SAME)
def test_one_comparison_however_it_is_written(name, sides):
    for seed in range(1, 6):
        field = Field(seed)
        a, b = field.random("a", (50,), sides=sides), field.random("b", (50,), sides=sides)
        wanted = noted(field, name, a, b)
        for other, exchanged, negated in SAME[name]:
            assert wanted.missing(noted(field, other, a, b, exchanged, negated)) == (50, 0)


def test_every_single_wrong_comparison_is_missed_by_none_of_twenty_seeds():
    for seed in range(1, 21):
        field = Field(seed)
        a, b, c = (field.random(name, (40,)) for name in "abc")
        for name in ("lt", "le", "gt", "ge", "eq", "ne"):
            wanted = noted(field, name, a, b)
            others = [x for x in ("lt", "le", "eq") if noted(field, name, a, b).missing(noted(field, x, a, b))[1]]
            assert len(others) == 2  # another relation
            if name not in ("eq", "ne"):
                assert wanted.missing(noted(field, name, b, a)) == (40, 40)  # exchanged operands
            one = Elements(np.where(np.arange(40) == 7, c.p, a.p), np.where(np.arange(40) == 7, c.q, a.q))
            assert wanted.missing(noted(field, name, one, b)) == (40, 1)  # another operand in one place
            assert wanted.missing(noted(field, name, a, field.constant(0.0))) == (40, 40)


def test_what_is_undefined_is_no_comparison_and_an_absent_side_falls_back_to_the_other():
    field = Field(3)
    a, b = field.random("a", (6,)), field.random("b", (6,))
    beside = Elements(np.append(a.p, np.uint32(UNDEFINED)), np.append(a.q, np.uint32(0)))
    longer = Elements(np.append(b.p, b.p[:1]), np.append(b.q, b.q[:1]))
    assert len(noted(field, "lt", beside, longer).joined()[0]) == 6
    half = Elements(a.p, np.where(np.arange(6) < 3, np.uint32(ABSENT), a.q))
    for one, other in ((a, half), (half, a)):
        assert noted(field, "lt", one, b).missing(noted(field, "lt", other, b)) == (6, 0)
    assert noted(field, "lt", a, b).missing(noted(field, "lt", Elements(a.p, None), b)) == (6, 0)
    # another element modulo q alone is another element
    moved = Elements(a.p, (a.q + np.uint32(1)) % np.uint32(field.q))
    assert noted(field, "lt", a, b).missing(noted(field, "lt", moved, b)) == (6, 6)


@pytest.mark.parametrize("wrong", ["lt", "ge", "le", "eq"])
def test_a_program_with_another_relation_is_refused(wrong):
    """The model compares with gt; ge differs only where numbers are equal, which no drawn ones are."""
    model = DATA / "found" / "gt_only.onnx"
    program = api.compile(model).program
    assert api.prove(program, model, quick=True).comparisons > 0
    changed = 0
    for segment in program.segments:
        for code in segment.codes:
            for form in ("vv", "vs", "vuv", "vuvloop"):
                own = code["opcode"] == isa.instruction(f"gt_{form}").OPCODE
                code["opcode"][own] = isa.instruction(f"{wrong}_{form}").OPCODE
                changed += int(own.sum())
    report = api.prove(program, model, quick=True)
    # not a > b is another value everywhere, but not another comparison
    why = "2,432 of 2,432 elements differ" if wrong == "le" else "comparisons are nowhere made"
    assert changed and not report.proved and why in "\n".join(report.lines())


def test_comparisons_behind_an_exponential_leave_fewer_bits(tmp_path):
    """They have no residue modulo q: each wrong one may be any of the others with a chance of one in p."""
    found = {}
    for kind in ("Identity", "Softmax"):
        nodes = f"s = {kind} (x) y = Greater (s, z)"
        text = (
            f'<ir_version: 8, opset_import: ["" : 20]> g (float[6,24] x, float[6,24] z) => (bool[6,24] y) {{ {nodes} }}'
        )
        onnx.save(parser.parse_model(text), str(tmp_path / f"{kind}.onnx"))
        graph = written_out(tables_of(tmp_path / f"{kind}.onnx")[1])
        degree = degree_of(graph, slice_of(graph, [], [graph.roots[name] for name in graph.results]), {})
        found[kind] = degree.compared
        assert math.log2(max(1, degree.compared)) <= 23 - degree.bits(Field(1))
    assert found == {"Identity": 0, "Softmax": 144}
