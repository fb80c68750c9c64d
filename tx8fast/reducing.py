"""The smallest part of a graph that still shows something: a failure, or a slow group.

May import: everything below; what is looked for is a question that the caller answers. Must not: print.

A part is some ops of the entry function, in their order: what they take from ops that are gone becomes an argument, what nobody
in the part takes becomes a result. Whether a part still shows it is asked of its *text*, read back without weights, so that the
file that is given away shows it too. First the ends are cut off by halving, then pieces of every size are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tx8fast import api
from tx8fast.errors import Tx8Error
from tx8fast.frontend.graph import program_of
from tx8fast.ir.clone import clone_op
from tx8fast.ir.core import Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.machine import Machine
from tx8fast.options import CompileOptions
from tx8fast.records import dataclass

_NAMES = re.compile(r"""'[^']*'|"[^"]*"|[0-9][0-9,.]*""")
#: whether a part's text still shows what is looked for
Shows = Callable[[str], bool]
#: a slow group counts as found again if it takes so much of its cycles, at so much of its distance from the bound
SAME_CYCLES, SAME_RATIO = 0.9, 1.1


@dataclass(frozen=True)
class Reduced:
    """text: of the part; ops, first_ops: of it and of the whole; tries: parts that were asked about; finished: nothing more can be left out."""

    text: str
    ops: int
    first_ops: int
    tries: int
    finished: bool


class OutOfTries(Exception):
    """As many parts have been asked about as were allowed."""


class Reducer:
    """Looks for the smallest part of `program` that `shows` what is looked for, with at most `tries` questions."""

    def __init__(
        self, program: IRProgram, shows: Shows, tries: int, done: Callable[[int, int], None] | None = None
    ) -> None:
        self.program, self.shows, self.tries, self.done = program, shows, tries, done
        self.ops = [op for op in program.main.body if op.next is not None and not _is_leaf(op)]
        self.asked: dict[tuple[int, ...], bool] = {}
        self.best = tuple(range(len(self.ops)))

    def run(self) -> Reduced:
        """Return the smallest part that was found. Raises Tx8Error if the whole, read back from its text, does not show it."""
        if not self._holds(self.best):
            raise Tx8Error(
                "reducing: the graph without the values of its weights does not show it; no part of it can be given away"
            )
        finished = True
        try:
            self._cut_ends()
            self._leave_out()
        except OutOfTries:
            finished = False
        return Reduced(self._text(self.best), len(self.best), len(self.ops), len(self.asked), finished)

    def _cut_ends(self) -> None:
        """Find by halving how many ops of the end, then of the beginning, can go."""
        for cut in (lambda part, n: part[: len(part) - n], lambda part, n: part[n:]):
            whole, low, high = self.best, 0, len(self.best)
            while high - low > 1:  # `low` ops can go, `high` cannot
                middle = (low + high) // 2
                low, high = (middle, high) if self._holds(cut(whole, middle)) else (low, middle)

    def _leave_out(self) -> None:
        """Leave out pieces, large ones first, until no op can go."""
        size = max(1, len(self.best) // 2)
        while True:
            gone, at = False, 0
            while at < len(self.best):
                rest = self.best[:at] + self.best[at + size :]
                if rest and self._holds(rest):
                    gone = True
                else:
                    at += size
            if size == 1 and not gone:
                return
            size = size if gone and size == 1 else max(1, size // 2)

    def _holds(self, part: tuple[int, ...]) -> bool:
        if part not in self.asked:
            if len(self.asked) >= self.tries:
                raise OutOfTries
            self.asked[part] = self.shows(self._text(part))
            if self.done is not None:
                self.done(len(self.asked), self.tries)
        if self.asked[part]:
            self.best = min(self.best, part, key=len)
        return self.asked[part]

    def _text(self, part: Sequence[int]) -> str:
        return part_of(self.program, [self.ops[i] for i in part]).text()


def _is_leaf(op: Op) -> bool:
    """A parameter or constant: it comes along with whoever takes it."""
    return not op.operands and not op.regions and bool(op.results)


def part_of(program: IRProgram, chosen: Sequence[Op]) -> IRProgram:
    """Return a program whose entry has the ops `chosen` alone, with the parameters and constants that they take."""
    inside = set(chosen)
    top = {id(v) for op in program.main.body for v in op.results} | {id(v) for v in program.main.body.args}
    leaves: dict[Op, None] = {}
    taken: dict[Value, None] = {}
    for op in chosen:
        for inner in op.walk():
            for v in inner.operands:
                if id(v) not in top or v.op in inside:
                    continue
                if v.op is not None and _is_leaf(v.op):
                    leaves.setdefault(v.op)
                else:
                    taken.setdefault(v)
    used = {v for op in chosen for inner in op.walk() for v in inner.operands}
    results = [v for op in chosen for v in op.results if v not in used]
    mapping: dict[Value, Value] = {}
    module = clone_op(program.module)
    made = IRProgram(program.ctx, module, None, program.name)
    main = made.main
    for op in reversed(list(main.body)):
        op.erase()
    block = main.body
    block.args.clear()
    for v in taken:
        mapping[v] = block.add_arg(v.type, v.name)
    for op in (*leaves, *chosen):
        block.append(clone_op(op, mapping))
    block.append(program.ctx.create("tx8be.return", [mapping[v] for v in results], []))
    main.attrs = {
        **main.attrs,
        "arg_names": tuple(f"x{i}" for i in range(len(taken))),
        "result_names": tuple(f"y{i}" for i in range(len(results))),
    }
    if "donated" in main.attrs:
        main.attrs["donated"] = ()
    return made


def failure(text: str, machine: Machine, options: CompileOptions) -> Exception | None:
    """Return what the compilation of a graph's text raises, None if it comes to an end."""
    try:
        with api.quiet_collector():
            api.compile_ir(program_of(text, "part"), machine, options)
    except Exception as e:  # defects of ours are what is looked for, too
        return e
    return None


def kind_of(error: Exception) -> str:
    """Return what kind of failure an error is: its class and the first problem that it tells, without names and numbers."""
    lines = str(error).splitlines() or [""]
    first = next((x.removeprefix("  - ") for x in lines if x.startswith("  - ")), lines[0])
    return f"{type(error).__name__}: {_NAMES.sub('#', first)}"


def fails_so(kind: str, machine: Machine, options: CompileOptions) -> Shows:
    """Return the question whether a part fails in this way, whatever else is wrong with it."""

    def shows(text: str) -> bool:
        error = failure(text, machine, options)
        name, _, problem = kind.partition(": ")
        return error is not None and type(error).__name__ == name and problem in _NAMES.sub("#", str(error))

    return shows


def as_slow(cycles: float, ratio: float, machine: Machine, options: CompileOptions) -> Shows:
    """Return the question whether a part has a group that is nearly as large and as far from its bound."""
    return lambda text: slow_group(text, machine, options, cycles * SAME_CYCLES, ratio * SAME_RATIO) is not None


def slow_group(
    text: str, machine: Machine, options: CompileOptions, cycles: float = 0.0, ratio: float = 1.0
) -> tuple[float, float] | None:
    """Return cycles and roofline ratio of the group of a graph's text that loses most, of those that take at least `cycles` per run at
    at most this ratio; None if there is none, or the graph does not compile."""
    try:
        with api.quiet_collector():
            result = api.compile_ir(program_of(text, "part"), machine, options).simulate()
    except Tx8Error:
        return None
    found = [
        (g.cycles, g.roofline.bound_cycles / g.cycles, (g.cycles - g.roofline.bound_cycles) * g.count)
        for g in result.groups
        if g.cycles
    ]
    fits = [g for g in found if g[0] >= cycles and g[1] <= ratio]
    worst = max(fits, key=lambda g: g[2], default=None)
    return None if worst is None else worst[:2]
