"""Random programs of several tiles: the core, the interpreter and emitted C give the same bytes, in one thread and in two."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.emitted import CC, MORE, check_c
from tests.support.random_programs import MACHINE, UNSAID, dealt_routines, random_program
from tx8fast import isa
from tx8fast.api import CompiledProgram
from tx8fast.codegen.program import program_text
from tx8fast.errors import ProgramError
from tx8fast.numerics.formats import FORMAT_CODES
from tx8fast.program.builder import CodeBuilder, make_program, make_segment

#: programs, the routines of the kernel core dealt out to them; `make test-core` makes more
PROGRAMS = 6 if MORE else 1
FORMATS = {FORMAT_CODES[fmt] for cls in isa.INSTRUCTIONS.values() for fmt in cls.FORMATS}


@pytest.mark.toolchain
@pytest.mark.skipif(not CC, reason="no C compiler")
@pytest.mark.parametrize("number", range(PROGRAMS))
@pytest.mark.slow
def test_core_interpreter_and_c_give_the_same_bytes(tmp_path, number):
    @settings(max_examples=2, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.data())
    def one(data):
        drawn = random_program(data.draw, number, dealt_routines(PROGRAMS)[number])
        assert drawn.names == isa.INSTRUCTIONS.keys() - UNSAID
        made = CompiledProgram(drawn.program)
        want = made.run(drawn.feed, exact=True)
        for threads in (1, 2):
            for name, y in made.run(drawn.feed, threads=threads).items():
                differ = np.flatnonzero(y != want[name])
                assert not len(differ), (name, threads, differ[:4])
        check_c(made, tmp_path / "c", drawn.feed)
        found.update(drawn.formats)

    found: set[int] = set()
    one()
    assert found == FORMATS


@pytest.mark.parametrize("name", sorted(UNSAID))
def test_c_refuses_what_random_programs_leave_out(name):
    cls = isa.INSTRUCTIONS[name]
    code = CodeBuilder().add(name, fmt="f32", **dict.fromkeys((*cls.FIELDS_SPM, *cls.FIELDS_P), 256)).finish().code()
    with pytest.raises(ProgramError, match=f"{name}.: .*(the C interface has no|which C does not know)"):
        "".join(program_text(make_program(MACHINE, [make_segment(MACHINE, "s", [code])], [(0, [])])))
