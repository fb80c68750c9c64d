"""Every validator over every compiled test model at every opt level; each shares no code with what it checks."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
from support.one_op import MACHINES

import tx8fast
from tests.simulator.planting import findings
from tests.support.thorough import THOROUGH
from tx8fast import CompiledProgram
from tx8fast.alloc import Placement, Problem, solve, validate
from tx8fast.program.model import Program
from tx8fast.program.verify import verify
from tx8fast.schedule import buffers as buffers_module

MODELS = sorted((Path(__file__).parent.parent / "data" / "onnx").glob("*.onnx"))


@cache
def compiled(model: Path, opt: int, plans: str = "") -> tuple[CompiledProgram, list[tuple[Problem, Placement]]]:
    """Return the program, and what was placed in scratchpad on the way."""
    seen: list[tuple[Problem, Placement]] = []

    def recording(problem: Problem) -> Placement:
        seen.append((problem, solve(problem)))
        return seen[-1][1]

    with warnings.catch_warnings(), mock.patch.object(buffers_module, "solve", recording):
        warnings.simplefilter("ignore")
        return tx8fast.compile(model, opt=opt, load_plans=plans), seen


@pytest.mark.parametrize("opt", [1, 2, 3])
@pytest.mark.parametrize("model", MODELS, ids=lambda p: p.stem)
@pytest.mark.slow(but_every=5)
def test_loaded_plans_make_the_same_bytes(model: Path, opt: int, tmp_path: Path) -> None:
    """What is loaded is placed and verified like what was searched, and is the same file."""
    if not THOROUGH and MODELS.index(model) % 3 + 1 != opt:
        pytest.skip("every third model at this level; all with TX8FAST_ALL_MODELS=1")
    first, plans = compiled(model, opt)[0], tmp_path / "plans.json"
    first.save_plans(plans)
    again, placements = compiled(model, opt, str(plans))
    for problem, placed in placements:
        validate(problem, placed.offsets)
    verify(again.program)
    again.save(tmp_path / "b.tx8")
    first.save(tmp_path / "a.tx8")
    assert (tmp_path / "b.tx8").read_bytes() == (tmp_path / "a.tx8").read_bytes()


def code_of(program: Program) -> list[bytes]:
    return [c.tobytes() for s in program.segments for c in s.codes]


@pytest.mark.parametrize("opt", [1, 2, 3])
@pytest.mark.parametrize("model", MODELS, ids=lambda p: p.stem)
@pytest.mark.slow(but_every=5)
def test_placements_and_programs(model: Path, opt: int) -> None:
    made, placements = compiled(model, opt)
    program = made.program
    verify(program)
    capacity = MACHINES["tx8"].spm_limit - MACHINES["tx8"].spm_base
    on_engines = sum(s.info["engine"] != "kernel core" for s in program.segments)
    assert len(placements) >= on_engines > 0
    for problem, placed in placements:
        validate(problem, placed.offsets)
        assert problem.capacity_bytes <= capacity
        ends = [o + b.size_bytes for o, b in zip(placed.offsets, problem.buffers, strict=True)]
        assert max(ends, default=0) <= capacity
    assert max(s.spm_peak_bytes for s in program.segments) <= capacity


@pytest.mark.parametrize("model", MODELS, ids=lambda p: p.stem)
@pytest.mark.slow(but_every=5)
def test_opt_3_has_no_faults(model: Path) -> None:
    """Programs of opt 1 and 2 are in the sanitizer's own corpus; that of opt 3 is run where it is another one."""
    program = compiled(model, 3)[0].program
    if code_of(program) == code_of(compiled(model, 2)[0].program):
        pytest.skip("opt 3 makes the program of opt 2")
    assert not findings(program)
