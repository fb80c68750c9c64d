"""A routine that computes a function of elements in steps.

May import: isa.routines.base, isa.routines.values, isa.work, numerics.steps. Must not: execute one.
"""

from __future__ import annotations

from tx8fast.isa.routines import values  # noqa: F401 - the routines that steps name
from tx8fast.isa.routines.base import ROUTINES, Call, declare, real_word
from tx8fast.isa.work import Work
from tx8fast.numerics.steps import Step, parse_steps


def _steps(call: Call) -> tuple[Step, ...]:
    return parse_steps(str(call.attrs["steps"]), len(call.ins))


def _step_words(step: Step) -> list[int]:
    """A step: its routine's number, how many operands, and each as a place, or -1 and the number."""
    operands = [[o] if type(o) is int else [-1, real_word(o)] for o in step.operands]
    return [ROUTINES[step.kind].code, len(operands), *(word for words in operands for word in words)]


def _stepped(call: Call) -> Work:
    each = [found for step in _steps(call) if (found := ROUTINES[step.kind].each) is not None]
    return (sum(each, Work()) + Work(loads=len(call.ins), stores=1)) * call.out.n


declare("map", "routine_map", lambda call: [w for s in _steps(call) for w in _step_words(s)], work=_stepped)
