"""What must hold of every program. `CHECKS` lists the judges; one more is one function more.

A judge takes a `Case` and returns the first Failure it sees, or None. `judge` runs those that a case is due for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
from hunt.execute import Failed, Failure, Refused, Setting, compiled, compiled_file, digest, general, proof, run
from hunt.formats import FORMAT_OF_OPTION, subgraphs, widen
from hunt.oracle import SLACK, Expected, Oracle
from hunt.reference import Arrays, NoReference, Session
from onnx import ModelProto

from tests.support.run_over_chips import joined
from tx8fast.api import CompiledProgram

#: times what is allowed, below which a proof says whether a value is wrong
NEAR_MISS = 3.0
#: one program of so many is compiled with plans that only larger ones have
EAGER = 25
#: one is shared by two to four chips
CHIPS = 7


@dataclass
class Case:
    """A model with inputs and a setting; what several judges need is made once. `seed` chooses other settings."""

    model: ModelProto
    feeds: Arrays
    setting: Setting
    seed: int = 0
    slack: float = SLACK
    excess: float = 0.0  # of the worst value: its error in units of what is allowed
    failed: tuple[Check, Setting] | None = None  # the judge that saw the first failure, and the setting it looked at
    _made: dict[Setting, CompiledProgram] = field(default_factory=dict)
    _outputs: dict[Setting, Arrays] = field(default_factory=dict)

    @cached_property
    def oracle(self) -> Oracle:
        return Oracle(self.model, self.feeds)

    @cached_property
    def expected(self) -> dict[str, Expected]:
        return self.oracle.expected(FORMAT_OF_OPTION.get(self.setting.dtype), self.slack)

    def program(self, setting: Setting) -> CompiledProgram:
        if setting not in self._made:
            self._made[setting] = compiled(self.model, setting)
        return self._made[setting]

    def programs(self, eager: bool = False) -> list[CompiledProgram]:
        """Return what has been compiled so far; eager: with `eager_plans` alone."""
        return [program for setting, program in self._made.items() if setting.eager or not eager]

    def outputs(self, setting: Setting, sanitize: bool = True) -> Arrays:
        if setting not in self._outputs:
            self._outputs[setting] = run(self.program(setting), self.feeds, sanitize)
        return self._outputs[setting]


Check = Callable[[Case], Failure | None]


def right_values(case: Case) -> Failure | None:
    """Values at the case's setting, under the sanitizer."""
    return _compare(case, case.outputs(case.setting), case.setting)


def values_alone(case: Case) -> Failure | None:
    """Values at the case's setting, without the sanitizer, which takes longer than everything else."""
    return _compare(case, case.outputs(case.setting, sanitize=False), case.setting)


def other_setting(case: Case) -> Failure | None:
    """The program at another level, and with sharing the other way at the highest: values, or every other time the proof if
    that leaves nothing out."""
    level = case.setting.level % 3 + 1
    other = replace(case.setting, level=level, sharing=case.setting.sharing != (level == 3 and case.seed % 2 == 0))
    if case.seed % 2:
        case.failed = other_setting, case.setting
        failure, complete = _proof(case, other)
        if failure is not None or complete:
            return failure
    return _elsewhere(case, other, sanitize=case.seed % 4 == 0)


def without_sharing(case: Case) -> Failure | None:
    """Values with sharing the other way."""
    return _elsewhere(case, replace(case.setting, sharing=not case.setting.sharing), sanitize=False)


def eager(case: Case) -> Failure | None:
    """Values at level 2 or 3, where small operands are shared too and results that tiles gather from each other seem cheap."""
    level = 2 + case.seed // EAGER % 2
    return _elsewhere(case, replace(case.setting, level=level, sharing=True, eager=True), sanitize=True)


def _elsewhere(case: Case, other: Setting, sanitize: bool) -> Failure | None:
    """Values at another setting; a failure there is one of `right_values`."""
    case.failed = right_values, other
    try:
        return _compare(case, case.outputs(other, sanitize), other)
    except Failed as e:
        raise Failed(replace(e.failure, text=f"at {other}: {e.failure.text}")) from e


def same_bytes(case: Case) -> Failure | None:
    """A second compilation gives the same program; one of the model with other names inside, but for these."""
    first = digest(case.program(case.setting))
    if digest(compiled(case.model, case.setting)) != first:
        return Failure("bytes", "two compilations differ", f"at {case.setting}")
    other = compiled(renamed(case.model), case.setting)
    if digest(other, names=False) != digest(case.program(case.setting), names=False):
        return Failure("bytes", "renamed nodes change the program", f"at {case.setting}")
    return None


def weights_in_files(case: Case) -> Failure | None:
    """A program whose weights stay in the model's files computes the same."""
    plain = replace(case.setting, eager=False)
    with tempfile.TemporaryDirectory() as folder:
        path, model = Path(folder) / "model.onnx", ModelProto()
        model.CopyFrom(case.model)  # what is saved loses its data
        onnx.save(model, path, save_as_external_data=True, location="model.data", size_threshold=0)
        found = run(compiled_file(path, plain), case.feeds, sanitize=False)
    for name, want in case.outputs(plain).items():
        if found[name].tobytes() != want.tobytes():
            return Failure("files", "weights that stay in files change the results", f"{name} at {plain}")
    return None


def batch_is_its_parts(case: Case) -> Failure | None:
    """If the model, made for half of the batch, gives the reference half of the results, it must give them here too."""
    half = halved(case)
    if half is None:
        return None
    model, feeds, size = half
    try:
        found = run(compiled(model, case.setting), feeds, sanitize=False)
    except Refused:
        return None
    except Failed as e:
        if (
            e.failure.stage == "import"
        ):  # a stored tensor for the whole batch, of which the reference read the first half
            return None
        raise
    whole = case.outputs(case.setting)
    for name, want in case.expected.items():
        half_of_it = replace(_cut(want, size), values=whole[name][:size], allowed=2 * want.allowed[:size])
        if (bad := differences(found[name], half_of_it)[0]).any():
            return Failure(
                "batch", "a batch is not its parts", f"{name}: {int(bad.sum())} of {bad.size} at {case.setting}"
            )
    return None


def over_chips(case: Case) -> Failure | None:
    """Chips that share the model have in f32, where no summand is rounded by much, what one has; of what is cut each has its part."""
    chips = 2 + case.seed // CHIPS % 3
    shared = Case(
        case.model, case.feeds, replace(case.setting, dtype="fp32", eager=False, tp=chips), case.seed, case.slack
    )
    try:
        found = shared.outputs(shared.setting)
    except Refused:
        return None
    except Failed as e:
        raise Failed(replace(e.failure, text=f"at {shared.setting}: {e.failure.text}")) from e
    whole = {name: joined(found[name], want.values.shape, chips) for name, want in shared.expected.items()}
    return _compare(shared, whole, shared.setting)


def proved(case: Case) -> Failure | None:
    """The proof of the program at the case's setting, as far as the proof has expressions."""
    return _proof(case, case.setting)[0]


def _proof(case: Case, setting: Setting) -> tuple[Failure | None, bool]:
    """Return what a proof finds wrong, and whether it left nothing out."""
    program = case.program(setting)
    try:
        report = proof(case.model, program, setting)
    except Refused:
        return None, False
    if not report.failures:
        return None, report.complete
    text = "\n".join(report.lines())
    return Failure("prove", general("\n" + report.failures[0].why), f"at {setting}: {text}"), False


def _proves(case: Case, setting: Setting, output: str) -> bool:
    """True if the proof finds nothing wrong and leaves nothing out that the output needs: of a model that has parts without expressions,
    the one that makes this output is proved by itself too."""
    failure, complete = _proof(case, setting)
    if failure is not None or complete:
        return failure is None
    from hunt.shrink import pruned  # it imports this module

    part, feeds = pruned(case.model, [o for o in case.model.graph.output if o.name == output], case.feeds)
    return len(part.graph.node) < len(case.model.graph.node) and _proof(Case(part, feeds, setting), setting) == (
        None,
        True,
    )


#: (judge, one case of how many)
CHECKS: list[tuple[Check, int]] = [
    (right_values, 1), (other_setting, 1), (without_sharing, 5), (same_bytes, 8), (batch_is_its_parts, 6),
    (proved, 2), (eager, EAGER), (weights_in_files, 9), (over_chips, CHIPS),
]  # fmt: skip


def judge(case: Case, checks: Sequence[Check] | None = None) -> Failure | None:
    """Return the first failure of `checks` (None: of those that are due). Raises Refused, and NoReference for what is no model."""
    _ = case.expected
    for check in checks if checks is not None else [c for c, often in CHECKS if case.seed % often == 0]:
        case.failed = check, case.setting
        try:
            failure = check(case)
        except Failed as e:
            return e.failure
        if failure is not None:
            return failure
    case.failed = None
    return None


def _compare(case: Case, found: Arrays, setting: Setting) -> Failure | None:
    """Values of the program at a setting. A miss by little is rounding if a proof of the whole program finds nothing: what is allowed
    is measured by few random roundings."""
    where = f"at {setting}"
    for name, want in case.expected.items():
        got = found[name]
        if got.shape != want.values.shape or got.dtype != want.values.dtype:
            text = f"{name} is {got.dtype}{got.shape}, expected {want.values.dtype}{want.values.shape} {where}"
            return Failure("wrong", "type", text)
        bad, excess = differences(got, want)
        if bad.any() and not (not want.exact and excess < NEAR_MISS and _proves(case, setting, name)):
            case.excess = excess
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            text = (f"{name}: {int(bad.sum())} of {bad.size} elements {where}; first at {at}: {got[at]!s}, "
                    f"expected {want.values[at]!s} within {want.allowed[at]:.3g}; worst {excess:.3g} times what is allowed")  # fmt: skip
            kind = "values" if not want.exact else "bits of what only moves"
            return Failure("wrong", kind, text)
    return None


def differences(got: np.ndarray, want: Expected) -> tuple[np.ndarray, float]:
    """Return where `got` is wrong, and the largest error in units of the allowed one."""
    if want.values.dtype.kind != "f":
        bad = (got != want.values) & ~want.unsure
        return bad, float(bad.any()) * 1e6
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - want.values.astype(np.float64))
        error = np.where(np.isfinite(error), error, np.inf)
        bad = (error > want.allowed) & ~want.unsure
        excess = np.where(bad, error / np.maximum(want.allowed, 1e-6 * np.abs(want.values) + 1e-9), 0)
    return bad, float(excess.max(initial=0))


def renamed(model: ModelProto) -> ModelProto:
    """Return the model with other names of nodes and of values inside the main graph."""
    new = ModelProto()
    new.CopyFrom(model)
    g = new.graph
    kept = {i.name for i in [*g.input, *g.output]} | {t.name for t in g.initializer}
    table = {o: f"other.{k}" for k, o in enumerate(o for n in g.node for o in n.output if o and o not in kept)}

    def visit(nodes) -> None:
        for n in nodes:
            n.name = f"node/{n.name}"
            n.input[:] = [table.get(i, i) for i in n.input]
            n.output[:] = [table.get(o, o) for o in n.output]
            for inner in subgraphs(n):
                visit(inner.node)

    visit(g.node)
    return new


def halved(case: Case) -> tuple[ModelProto, Arrays, int] | None:
    """Return the model for the first half of the batch, or None if that does not mean the same to the reference."""
    g = case.model.graph
    sizes = {a.shape[0] if a.ndim else 0 for a in case.feeds.values()}
    if len(sizes) != 1 or (batch := sizes.pop()) < 2 or any(n.op_type == "Split" for n in g.node):
        return None
    if any(w.values.ndim == 0 or w.values.shape[0] != batch for w in case.expected.values()):
        return None
    half = ModelProto()
    half.CopyFrom(case.model)
    size = batch // 2
    for info in [*half.graph.input, *half.graph.output]:
        info.type.tensor_type.shape.dim[0].dim_value = size
    feeds = {k: a[:size] for k, a in case.feeds.items()}
    try:
        found = Session(widen(half)).run(feeds)
    except NoReference:
        return None
    for name, want in case.expected.items():
        if found[name].shape != want.values[:size].shape or differences(found[name], _cut(want, size))[0].any():
            return None
    return half, feeds, size


def _cut(want: Expected, size: int) -> Expected:
    return Expected(want.values[:size], want.allowed[:size], want.unsure[:size], want.exact)
