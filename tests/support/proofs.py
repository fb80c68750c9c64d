"""Proofs as a part of other tests: what is compiled is proved, as long as it is small."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tx8fast import api
from tx8fast.api import prove  # by name: tests that stand in for it mean only the program's own
from tx8fast.options import CompileOptions

#: programs that store or multiply more are left out, so that tests stay fast
MOST_ELEMENTS, MOST_MACS = 1 << 22, 1 << 30


def is_small(program) -> bool:
    """Say whether one seed of a proof takes a second or two."""
    shapes = [a.shape for x in program.launches for a in program.segments[x.segment].arguments if a is not None]
    stored = sum(int(np.prod(s)) for s in shapes)
    return stored <= MOST_ELEMENTS and program.meta["useful_macs"] <= MOST_MACS


def check(program, model, options: CompileOptions) -> None:
    """Fail unless one seed proves `program`; what lies outside the proof is allowed."""
    report = prove(program, model, options, quick=True)
    assert report.proved, f"{model}, {options}:\n" + "\n".join(report.lines())


@contextmanager
def proving() -> Iterator[None]:
    """Prove every small program that `api.compile` makes meanwhile."""
    plain = api.compile

    def compile_and_prove(model, options=None, **given):
        made = plain(model, options, **given)
        fields = {k: v for k, v in given.items() if k not in ("progress", "dump")}
        if is_small(made.program):
            check(made.program, model, options or CompileOptions(**fields))
        return made

    api.compile = compile_and_prove
    try:
        yield
    finally:
        api.compile = plain
