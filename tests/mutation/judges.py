"""What sees a mutant: checks that look at the program, and its results on random inputs.

A check is a function from a program and one feed of its inputs to whether it finds a fault. They are asked in order; another
judge of programs is one more entry of `checks_of`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.mutation.mutants import Mutant
from tests.simulator.planting import feed_of
from tx8fast import api
from tx8fast.api import CompiledProgram
from tx8fast.errors import ProgramError, SimulationError
from tx8fast.program.model import Program
from tx8fast.program.verify import verify
from tx8fast.simulator.sanitizer_report import SanitizerError

Feed = dict[str, np.ndarray]
Check = Callable[[Program, Feed], bool]


def verifier(program: Program, feed: Feed) -> bool:
    try:
        verify(program)
    except ProgramError:
        return True
    return False


def sanitizer(program: Program, feed: Feed) -> bool:
    try:
        CompiledProgram(program).run(feed, sanitize=True)
    except SanitizerError:
        return True
    except SimulationError:
        return False
    return False


def proof(model: Path) -> Check:
    """Return the check whether one seed of a proof refuses a program of `model`; what it leaves out, it must leave out of the
    right program, too."""

    def check(program: Program, feed: Feed) -> bool:
        try:
            return not api.prove(program, model, quick=True).complete
        except ProgramError:
            return True

    return check


#: the checks of memory, in the order in which they are asked
MEMORY: dict[str, Check] = {"verifier": verifier, "sanitizer": sanitizer}
#: the names of all checks that look at no numbers, in the order in which they are asked
CHECKS = (*MEMORY, "proof")


def checks_of(model: Path) -> dict[str, Check]:
    """Return the checks of programs of a model."""
    return {**MEMORY, "proof": proof(model)}


@dataclass(frozen=True)
class Verdict:
    """seen: the first check that found a fault, "" for none; outcome: "illegal" (it cannot be executed), "differs" in bits from
    the program on some feed, or "equal"."""

    mutant: Mutant
    seen: str
    outcome: str


class Jury:
    """Judges mutants of one program. `feeds` random inputs decide whether results differ."""

    def __init__(self, program: Program, checks: Mapping[str, Check], feeds: int = 3) -> None:
        self.checks = checks
        self.program = program
        self.feeds = [feed_of(program, seed) for seed in range(feeds)]
        self.right = [_run(program, feed) for feed in self.feeds]
        for name, check in self.checks.items():
            assert not check(program, self.feeds[0]), f"the {name} refuses the program itself"

    def judge(self, mutant: Mutant) -> Verdict:
        found = (name for name, check in self.checks.items() if check(mutant.program, self.feeds[0]))
        return Verdict(mutant, next(found, ""), self._outcome(mutant.program))

    def _outcome(self, program: Program) -> str:
        try:
            same = all(_run(program, feed) == right for feed, right in zip(self.feeds, self.right, strict=True))
        except (SimulationError, ProgramError):
            return "illegal"
        return "equal" if same else "differs"


def _run(program: Program, feed: Feed) -> list[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [np.asarray(a).tobytes() for a in CompiledProgram(program).run(feed).values()]


@dataclass
class Tally:
    """Counts of verdicts by outcome and by who saw the mutant first."""

    counts: Counter[tuple[str, str]]
    verdicts: list[Verdict]

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Tally:
        verdicts = list(verdicts)
        return cls(Counter((v.outcome, v.seen) for v in verdicts), verdicts)

    def share(self, outcome: str = "differs", by: Collection[str] = ()) -> float:
        """Return the part of the mutants of that outcome that some check (`by`: one of these, the first asked) saw; 1 if there are none."""
        every = [v for v in self.verdicts if v.outcome == outcome]
        return sum(v.seen in by if by else bool(v.seen) for v in every) / len(every) if every else 1.0

    def unseen(self, by: Collection[str] = (), **kind: bool) -> list[Verdict]:
        """Return the mutants that no check (`by`: none of these, the first asked) saw, of those with these attributes."""
        alike = [v for v in self.verdicts if all(getattr(v.mutant, k) == x for k, x in kind.items())]
        return [v for v in alike if not (v.seen in by if by else v.seen)]

    def table(self, checks: Iterable[str]) -> str:
        columns = [*checks, ""]
        lines = [f"{'outcome':10}" + "".join(f"{c or 'unseen':>11}" for c in columns) + f"{'seen':>8}"]
        for outcome in ("differs", "illegal", "equal"):
            cells = "".join(f"{self.counts[outcome, c]:11}" for c in columns)
            lines.append(f"{outcome:10}{cells}{100 * self.share(outcome):7.1f}%")
        return "\n".join(lines)
