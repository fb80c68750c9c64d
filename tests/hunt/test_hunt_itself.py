"""The hunt finds what was planted, shrinks it, survives what hangs and dies, and covers what it says."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hunt import checks
from hunt import run as runner
from hunt.again import in_another_process, remember
from hunt.checks import CHECKS, Case, judge, proved, renamed
from hunt.covered import Coverage
from hunt.draft import Draft, Unfit
from hunt.execute import Failed, Refused, Setting, compiled, digest
from hunt.formats import BF16, F16, F32
from hunt.generate import Generator, Program, alone_of, pairs_of
from hunt.pairs import TRIES, OpenPairs
from hunt.recipes import apply, declared_call, kinds, name_of, possible
from hunt.recipes_network import einsum
from hunt.shrink import shrink
from hunt.starts import STARTS
from hunt.store import load, save, setting_of

from tx8fast import isa
from tx8fast.frontend.onnx import supported_ops
from tx8fast.lower import elementwise, sequences

TESTS = Path(__file__).resolve().parents[1]


def model_of(code: int, *ops: str, shape=(3, 65)):
    d = Draft(np.random.default_rng(0), code)
    x = d.input(d.draw(shape))
    for op in ops:
        x = apply(d, x, ("", op))
    return d.model()


# ---- what it makes


def test_every_supported_operator_can_be_made():
    names = list(STARTS)
    never = []
    for kind in kinds():
        for seed in range(600):
            d = Draft(np.random.default_rng(seed), F32)
            try:
                apply(d, STARTS[names[seed % len(names)]](d), kind)
                break
            except Unfit:
                continue
        else:
            never.append(name_of(kind))
    assert not never, f"write recipes for {never}"


def test_operators_come_from_the_importer():
    assert set(kinds()) <= set(supported_ops())
    assert len(kinds()) > 180
    assert possible(("", "Relu"), ("", "Exp")) and not possible(("", "NonZero"), ("", "Conv"))


@pytest.mark.parametrize("rank", range(7))
def test_every_dimension_of_a_sum_has_a_letter(rank):
    """Of a matrix and more; others do not fit, nor results that are too large for a hunted model."""
    made = 0
    for seed in range(24):
        d = Draft(np.random.default_rng(seed), F32)
        x = d.input(np.ones((2,) * rank, np.float32))
        with contextlib.suppress(Unfit):
            made += einsum(d, x, "Einsum").rank > 0
    assert (made > 0) == (rank >= 2)


def test_an_operator_without_a_recipe_is_called_as_declared():
    d = Draft(np.random.default_rng(1), F32)
    x = d.input(d.draw((4, 5)))
    assert declared_call(d, x, "Sub").shape[-1] == 5
    with pytest.raises(Unfit, match="Reshape needs a recipe for its input shape"):
        declared_call(d, x, "Reshape")


def test_a_seed_alone_decides():
    one, other = Generator(), Generator()
    other.program(7)
    a, b = one.program(4), other.program(4)
    assert a.model.SerializeToString() == b.model.SerializeToString() and a.setting == b.setting


def test_models_are_made_for_pairs_that_are_missing():
    wanted = OpenPairs()
    for chain in (False, True):
        before = {p: set(r) for p, r in wanted.readers.items()}
        made = (Generator().paired(seed, wanted, chain) for seed in range(8, 20))
        of_each = (alone_of(program.model) if chain else pairs_of(program.model) for program in made)
        found = next(pairs for pairs in of_each if len(pairs) > 5)  # some operators have few readers
        assert any(c in before[p] for p, c in found)
        wanted.drop(found)
        assert wanted.count() == sum(map(len, before.values())) - len({p for p in found if p[1] in before[p[0]]})


def test_a_pair_in_vain_is_given_up_and_told():
    wanted = OpenPairs()
    told = [wanted.fail(("Relu", "And"), "element types") for _ in range(TRIES)]
    assert told == [False] * TRIES  # these were never wanted: bools and floats
    told = [wanted.fail(("Relu", "DFT"), "no signal") for _ in range(TRIES + 1)]
    assert told == [False] * (TRIES - 1) + [True, False] and "DFT" not in wanted.readers["Relu"]


def test_a_refused_model_is_judged_in_parts(tmp_path):
    d = Draft(np.random.default_rng(0), F32)
    x = d.op("Relu", d.input(d.draw((3, 3))))
    for op in ("Exp", "NonZero", "Neg"):
        d.op(op, x)
    said: list[dict] = []
    hunt = runner.Hunt(said.append, tmp_path, Coverage())
    model, feeds = d.model()
    hunt._judge(Program(model, feeds, Setting(1), 2, "fan"), Case(model, feeds, Setting(1), 2))
    done = {tuple(pair) for m in said for pair in m.get("done", {}).get("pairs", ())}
    assert done == {("Relu", "Exp"), ("Relu", "Neg")}
    assert "refused" in hunt.fans.why["Relu", "NonZero"]


# ---- what the proof sees


def test_the_proof_judges_programs_and_what_it_refuses_is_shrunk(monkeypatch):
    model, feeds = model_of(F32, "Relu", "Sigmoid", "Softmax")
    case = Case(model, feeds, Setting(machine_name="2x2"))
    assert proved(case) is None
    program = checks.compiled

    def with_tanh(model, setting):
        """Another function of the same operand: wrong alike whatever its buffer held before."""
        made = program(model, setting)
        right, wrong = (isa.instruction(name).OPCODE for name in ("sigmoid_v", "tanh_v"))
        for segment in made.program.segments:
            segment.codes[:] = [code.copy() for code in segment.codes]
            for code in segment.codes:
                code["opcode"][code["opcode"] == right] = wrong
        return made

    monkeypatch.setattr(checks, "compiled", with_tanh)
    case = Case(model, feeds, Setting(machine_name="2x2"))
    failure = judge(case, [proved])
    assert failure is not None and failure.stage == "prove" and "elements differ, the first at [0, 0]" in failure.text
    small = shrink(case, failure, seconds=20)
    assert [n.op_type for n in small.model.graph.node] == ["Sigmoid"]


# ---- what it finds


def first_failure(needs: str, seeds=range(400)):
    generator = Generator()
    for seed in seeds:
        try:
            program = generator.program(seed)
        except Unfit:
            continue
        if needs not in {n.op_type for n in program.model.graph.node}:
            continue
        case = Case(program.model, program.feeds, program.setting, seed)
        try:
            failure = judge(case)
        except Refused:
            continue
        if failure is not None:
            return case, failure
    raise AssertionError("nothing was found")


@pytest.mark.slow
def test_a_planted_wrong_lowering_is_found_and_shrunk(monkeypatch):
    right = sequences.UNARY["leaky_relu"]
    wrong = sequences.Recipe(right.scratch, right.wide, lambda em, x, y, n, f, t, a: em.vs("mul", x, 0.75, y, n, f))
    monkeypatch.setitem(sequences.UNARY, "leaky_relu", wrong)
    case, failure = first_failure("LeakyRelu", range(440, 700))
    assert failure.stage == "wrong"
    small = shrink(case, failure, 20.0)
    assert [n.op_type for n in small.model.graph.node] == ["LeakyRelu"]
    assert sum(a.size for a in small.feeds.values()) < 70


def test_a_planted_crash_of_one_width_is_found_and_shrunk(monkeypatch):
    check = elementwise.Elementwise._check

    def broken(self, ins, out):
        if self.op == "sigmoid" and out.shape[-1:] == (65,):
            raise IndexError("planted")
        check(self, ins, out)

    monkeypatch.setattr(elementwise.Elementwise, "_check", broken)
    model, feeds = model_of(F32, "Exp", "Neg", "Sigmoid", "Transpose", shape=(20, 65))
    case = Case(model, feeds, Setting(1), 1)
    failure = judge(case)
    assert failure is not None and failure.bucket.startswith("compile: IndexError in ")
    small = shrink(case, failure, 20.0)
    assert [n.op_type for n in small.model.graph.node] == ["Sigmoid"]
    assert [a.shape[-1] for a in small.feeds.values()] == [65] and small.feeds.popitem()[1].size == 65


def test_a_flipped_field_of_an_instruction_is_found(monkeypatch):
    import hunt.checks as checks

    def flipped(model, setting):
        program = compiled(model, setting)
        for segment in program.program.segments:
            for code in segment.codes:
                ddr = np.flatnonzero(code["slot"] > 0)
                if len(ddr) > 1:
                    code["slot"][ddr[0]], code["slot"][ddr[-1]] = code["slot"][ddr[-1]], code["slot"][ddr[0]]
        return program

    monkeypatch.setattr(checks, "compiled", flipped)
    model, feeds = model_of(F32, "Exp", "Add", "Neg")
    assert judge(Case(model, feeds, Setting(1), 1)) is not None


@pytest.mark.parametrize("what", ["again", "renamed"])
def test_unequal_bytes_are_found(monkeypatch, what):
    import hunt.checks as checks

    count = iter(range(100))

    def unsteady(model, setting):
        program = compiled(model, setting)
        changed = next(count) if what == "again" else len(model.graph.node[0].name)
        program.program.segments[0].codes[0]["worker"][0] ^= changed % 2
        return program

    model, feeds = model_of(F32, "Exp", "Add")
    case = Case(model, feeds, Setting(1), 8)
    assert checks.same_bytes(case) is None
    monkeypatch.setattr(checks, "compiled", unsteady)
    failure = checks.same_bytes(Case(model, feeds, Setting(1), 8))
    assert failure is not None and ("differ" if what == "again" else "renamed") in failure.kind


@pytest.mark.parametrize("off", [1.0, np.nan])
def test_a_batch_that_is_not_its_parts_is_found(monkeypatch, off):
    import hunt.checks as checks

    model, feeds = model_of(F32, "Exp", "Softmax", shape=(4, 65))
    case = Case(model, feeds, Setting(1), 6)
    assert checks.halved(case) is not None and checks.batch_is_its_parts(case) is None
    right = checks.run
    monkeypatch.setattr(
        checks,
        "run",
        lambda p, f, sanitize: {k: a + off * len(a) if len(a) == 2 else a for k, a in right(p, f, sanitize).items()},
    )
    failure = checks.batch_is_its_parts(case)
    assert failure is not None and failure.stage == "batch"


def test_another_judge_is_one_more_function(monkeypatch):
    seen = []
    monkeypatch.setattr("hunt.checks.CHECKS", [*CHECKS, (lambda case: seen.append(case), 1)])
    model, feeds = model_of(F32, "Exp")
    assert judge(Case(model, feeds, Setting(1), 1)) is None and len(seen) == 1


def test_a_refusal_is_no_failure():
    d = Draft(np.random.default_rng(0), F32)
    x = d.input(d.draw((3, 3)))
    d.op("NonZero", x)
    with pytest.raises(Refused, match="known at compile time"):
        judge(Case(*d.model(), Setting(1), 1))


# ---- around it


def test_programs_do_not_hang_on_hashes(tmp_path):
    generator = Generator()
    for seed in (1, 5):
        program = generator.program(seed)
        remember(Case(program.model, program.feeds, program.setting), tmp_path, seed)
    assert in_another_process(tmp_path, 7) == []
    (tmp_path / "5.sha").write_text("another")
    assert in_another_process(tmp_path, 7) == [str(tmp_path / "5.onnx")]


def test_other_names_change_names_alone():
    model, _ = model_of(F32, "Exp", "Add", "Neg")
    other = renamed(model)
    assert other.graph.node[0].output[0] != model.graph.node[0].output[0]
    assert [o.name for o in other.graph.output] == [o.name for o in model.graph.output]
    one, two = compiled(model, Setting(2)), compiled(other, Setting(2))
    assert digest(one, names=False) == digest(two, names=False)


def test_found_graphs_are_stored_with_inputs_and_setting(tmp_path):
    model, feeds = model_of(F16, "Exp", "Gather")
    setting = Setting(3, False, "bf16", "small")
    path = save(Case(model, feeds, setting), tmp_path / "x.onnx")
    again, arrays = load(path)
    assert setting_of(again) == setting
    assert all((arrays[k] == a).all() for k, a in feeds.items()) and pairs_of(again) == {("Exp", "Gather")}


def test_coverage_is_kept_and_told(tmp_path):
    table = Coverage(tmp_path / "coverage.json")
    table.add(pairs={("Relu", "Exp")}, grouped={("relu", "exp")}, alone=())
    table.apart["Relu", "DFT"] = "no signal"
    table.eager, table.gathering = 3, 2
    table.save()
    again = Coverage(tmp_path / "coverage.json")
    assert (again.pairs, again.grouped, again.apart) == (table.pairs, table.grouped, table.apart)
    assert (again.programs, again.eager, again.gathering) == (1, 3, 2)
    assert "1 programs; 1 of " in again.report() and "relu: exp" in again.report()
    assert "1  no signal\n         Relu: DFT" in again.report()


@pytest.mark.parametrize("what, says", [("hang", "hang"), ("loop", "hang"), ("die", "died"), ("memory", "MemoryError")])
@pytest.mark.slow(but_every=3)
def test_a_program_that_takes_the_hunter_with_it_is_a_finding(monkeypatch, tmp_path, what, says):
    def seed(self, number):
        self.say({"begin": number})
        if number == 3:
            if what == "hang":
                time.sleep(60)
            while what == "loop":
                pass
            if what == "die":
                os._exit(9)
            np.zeros(1 << 40)
        self.say({"complete": number} if number > 7 else {"done": {}})
        if number > 7:
            time.sleep(60)

    monkeypatch.setattr(runner.Hunt, "seed", seed)
    monkeypatch.setattr(runner, "PATIENCE", 0.4)
    lines: list[str] = []
    parent = runner.Parent(1, tmp_path, Coverage(), lines.append)
    parent.run(60)  # on a busy machine; it is complete long before
    assert any(says in line and "3" in line for line in lines), lines
    assert parent.counts["judged"] > 4 and parent.next > 6


def test_a_hunt_for_pairs_ends_when_none_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(OpenPairs, "count", lambda self: 0)
    parent = runner.Parent(1, tmp_path, Coverage(), lambda text: None, paired=True)
    started = time.monotonic()
    parent.run(30)
    assert parent.complete and not parent.found and time.monotonic() - started < 20


@pytest.mark.slow
def test_the_command_says_what_it_did(tmp_path):
    # a process of its own: what other tests have imported may have threads, and a hunt forks
    given = [sys.executable, "-m", "hunt.run", "--seconds", "4", "--seed", "100002", "--out", str(tmp_path)]
    made = subprocess.run(
        given, env={**os.environ, "PYTHONPATH": str(TESTS)}, cwd=TESTS.parent, capture_output=True, text=True
    )
    assert made.returncode in (0, 1), made.stderr
    assert "pairs of operators" in made.stdout and "judged" in made.stdout and (tmp_path / "coverage.json").exists()


def test_failures_have_the_name_of_their_cause():
    model, feeds = model_of(F32, "Exp")
    case = Case(model, feeds, Setting(1))
    case.program(Setting(1)).program.segments[0].codes[0]["opcode"][0] = 0x601
    with pytest.raises(Failed) as e:
        case.outputs(Setting(1))
    assert e.value.failure.stage in ("run", "sanitizer")


@pytest.mark.parametrize(("times", "wrong"), [(2.0, False), (20.0, True)])
def test_a_miss_by_little_is_rounding_if_the_program_is_proved(monkeypatch, times, wrong):
    model, feeds = model_of(F32, "Exp")
    case = Case(model, feeds, Setting(1))
    ((name, want),) = case.expected.items()
    monkeypatch.setattr(
        case, "outputs", lambda *_, **__: {name: want.values + (times * want.allowed).astype(np.float32)}
    )
    assert (checks.right_values(case) is not None) == wrong
    monkeypatch.setattr(checks, "_proof", lambda *_: (None, False))
    assert checks.right_values(case) is not None


@pytest.mark.parametrize("low, known", [(-1e4, True), (-1e9, False), (-np.inf, True)])
def test_numbers_that_fp16_has_not_are_not_hunted_in_it(low, known):
    """What hides scores is one number there, and rows that see nothing have equal shares: that is documented, not found."""
    d = Draft(np.random.default_rng(0), BF16)
    d.weight(np.asarray(low, np.float32))
    generator = Generator()
    assert ("fp16" in {generator._setting(d).dtype for _ in range(400)}) == known
