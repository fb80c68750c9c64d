"""A run computes nothing in Python: of every op kind, whether an engine does it or a routine of the kernel core."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ir.op_cases import make_case
from tests.support.one_op import Arg, Case, build
from tests.support.random_programs import random_program
from tx8fast.api import CompiledProgram
from tx8fast.ir import new_context
from tx8fast.ir.core import REAL
from tx8fast.isa.routines import ROUTINES
from tx8fast.numerics import routines
from tx8fast.numerics.formats import np_dtype
from tx8fast.simulator import exact


def programs() -> dict[str, tuple[Case, dict[str, np.ndarray]]]:
    """Return a program of each op kind that has a random case, with its inputs."""
    out = {}
    for info in new_context().infos.values():
        kind = info.name.partition(".")[2]
        rng = np.random.default_rng(zlib.crc32(kind.encode()))
        case = make_case(kind, rng) if info.traits & REAL else None
        if case is None or kind.endswith("_"):
            continue
        given = [o for o in case.operands if o is not None]
        feed = {}
        for k, (shape, dtype, *most) in enumerate(given):
            whole = dtype[0] in "iu"
            x = rng.integers(0, most[0] if most else 2, shape) if whole else rng.uniform(0.1, 1, shape)
            feed[f"x{k}"] = np.asarray(x).astype(np_dtype(dtype))
        made = build([Arg(tuple(s), d) for s, d, *_ in given], lambda b, *x, c=case: body(b, c, list(x)))
        out[kind] = made, feed
    return out


def body(b, case, values):
    operands = [None if o is None else values.pop(0) for o in case.operands]
    return list(b.op(case.kind, *[b("none") if o is None else o for o in operands], **case.attrs).results)


def refused(*_, **__):
    raise AssertionError("computed in Python")


@pytest.fixture
def in_c(monkeypatch):
    """The interpreter and the oracles of routines raise from here on."""
    return lambda: [
        monkeypatch.setattr(routines, "ROUTINES", dict.fromkeys(routines.ROUTINES, refused)),
        monkeypatch.setattr(exact, "run_row", refused),
    ]


def test_no_op_kind_is_computed_in_python(in_c):
    made = programs()
    in_c()
    for kind, (case, feed) in made.items():
        found = CompiledProgram(case.program).run(feed)
        assert found and all(x.size for x in found.values()), kind
    called = [kind for kind, (case, _) in made.items() if any(s.routines for s in case.program.segments)]
    assert len(called) > 30, "the kernel core does some of them"


def test_no_instruction_and_no_routine_is_computed_in_python(in_c):
    """Kinds that have no random case are routines, and these are all of them."""

    @settings(max_examples=1, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def one(data):
        drawn = random_program(data.draw, 0, list(ROUTINES))
        assert {d["routine"] for d in drawn.program.segments[0].routines} == set(ROUTINES)
        in_c()
        assert len(CompiledProgram(drawn.program).run(drawn.feed)) == 3
        with pytest.raises(AssertionError, match="computed in Python"):
            CompiledProgram(drawn.program).run(drawn.feed, exact=True)

    one()
