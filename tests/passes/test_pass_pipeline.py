"""Pipelines: text, options, order of facts, verification between passes, dumps."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from support.toy_dialect import Toy

from tx8fast.errors import ConfigError, VerifyError
from tx8fast.passes.base import CompilerPass, PassResult, parse_pipeline, pipeline_text
from tx8fast.passes.pipeline import PASSES, check_order, passes_by_name, run_pipeline


@dataclass(frozen=True)
class Probe(CompilerPass):
    name: ClassVar[str] = "probe"
    some_count: int = 3
    ratio: float = 0.5
    deep: bool = False
    label: str = "x"

    def run(self, program):
        return PassResult(False, {"ops": program.n_ops()})


@dataclass(frozen=True)
class Breaker(CompilerPass):
    name: ClassVar[str] = "breaker"

    def run(self, program):
        next(op for op in program.module.walk() if op.kind == "relu").attrs["oops"] = 1
        return PassResult(True)


KNOWN = {c.name: c for c in (Probe, Breaker)}


def toy():
    t = Toy()
    t.ret(t.b("toy.relu", t.args[0]))
    return t


def test_text_round_trips():
    text = "probe,probe{some-count=7 ratio=1e-05 deep=true label=abc},breaker"
    passes = parse_pipeline(text, KNOWN)
    assert passes == [Probe(), Probe(7, 1e-5, True, "abc"), Breaker()]
    assert pipeline_text(passes) == text and parse_pipeline(pipeline_text(passes), KNOWN) == passes
    assert parse_pipeline(" probe { some_count=1 } , breaker ", KNOWN) == [Probe(1), Breaker()]
    assert parse_pipeline("", KNOWN) == []
    every = ",".join(c.name for c in PASSES)
    assert pipeline_text(parse_pipeline(every, passes_by_name())) == every
    assert str(parse_pipeline("outline{min-ops=8}", passes_by_name())[0]) == "outline"  # 8 is the default


@pytest.mark.parametrize(
    "text, message",
    [
        ("prob", "unknown pass 'prob', expected one of breaker, probe"),
        ("probe{deep=maybe}", "pass 'probe': option 'deep': expected bool, found 'maybe'"),
        ("probe{some-count=1.5}", "pass 'probe': option 'some-count': expected int, found '1.5'"),
        (
            "probe{size=1}",
            "pass 'probe': unknown option 'size', its options are some-count, ratio, deep, label",
        ),
        ("breaker{size=1}", "its options are none"),
        ("probe{deep}", "expected option=value, found 'deep'"),
        ("probe{deep=true deep=true}", "option 'deep' is given twice"),
        ("probe,,breaker", "column 7"),
        ("probe,", "expected a pass after the comma"),
        ("probe{deep=true", "at column 1"),
    ],
)
def test_errors_name_pass_and_option(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(text, KNOWN)
    assert message in str(caught.value)


def test_a_pass_that_breaks_the_graph_is_named_and_the_graph_before_it_kept():
    t = toy()
    before = t.program.text()
    dumps = []
    with pytest.raises(VerifyError, match="pass 'breaker' left an invalid graph: 1 error"):
        run_pipeline(
            t.program,
            [Probe(), Breaker(), Probe()],
            dump_on_error=lambda p, text: dumps.append((p.name, text)),
        )
    assert dumps == [("breaker", before)]
    run_pipeline(toy().program, [Breaker()], verify_between=False)


def test_an_invalid_graph_is_not_blamed_on_the_first_pass():
    t = toy()
    Breaker().run(t.program)
    with pytest.raises(VerifyError, match="before the first pass"):
        run_pipeline(t.program, [Probe()])


def test_runs_report_stats_time_and_dump_each_pass():
    seen = []
    runs = run_pipeline(
        toy().program,
        [Probe(), Probe(1)],
        dump=lambda p, program: seen.append((str(p), program.n_ops())),
    )
    assert seen == [("probe", 3), ("probe{some-count=1}", 3)]
    assert [r.result.stats for r in runs] == [{"ops": 3}] * 2 and all(r.seconds >= 0 for r in runs)


def test_facts_must_be_ensured_in_order():
    class Make(Probe):
        name: ClassVar[str] = "make"
        ensures: ClassVar[tuple[str, ...]] = ("layouts",)

    class Need(Probe):
        name: ClassVar[str] = "need"
        requires: ClassVar[tuple[str, ...]] = ("layouts",)

    class Spoil(Probe):
        name: ClassVar[str] = "spoil"
        breaks: ClassVar[tuple[str, ...]] = ("layouts",)

    check_order([Make(), Need(), Spoil()])
    with pytest.raises(ConfigError, match="pass 'need' requires layouts: an earlier pass must ensure it"):
        check_order([Need()])
    with pytest.raises(ConfigError, match="comes later"):
        check_order([Need(), Make()])
    with pytest.raises(ConfigError, match="pass 'need'"):
        check_order([Make(), Spoil(), Need()])


def test_a_dynamic_pipeline_runs_inside_a_pass():
    @dataclass(frozen=True)
    class Outer(CompilerPass):
        name: ClassVar[str] = "outer"

        def run(self, program):
            inner = run_pipeline(program, "dce,cse", verify_between=False)
            return PassResult(any(r.result.changed for r in inner))

    t = Toy()
    t.b("toy.relu", t.args[0])
    t.ret()
    assert run_pipeline(t.program, [Outer()])[0].result.changed and t.kinds() == ["return"]


def test_pass_names_are_unique_and_a_pass_needs_a_run_method():
    names = [c.name for c in PASSES]
    assert len(set(names)) == len(names) and all(names)
    with pytest.raises(ConfigError, match="'cse' is defined twice"):
        passes_by_name([type("Other", (Probe,), {"name": "cse"})])
    with pytest.raises(TypeError, match="defines no run method"):
        CompilerPass().run(toy().program)


def test_stripping_run_time_attributes_changes_nothing_else():
    plain, noted = Toy(), Toy()
    plain.ret(plain.b("toy.scale", plain.args[0], by=2.0))
    noted.ret(noted.b("toy.scale", noted.args[0], by=2.0, rt_a=1, rt_b="x"))
    assert noted.program.text() != plain.program.text()
    runs = run_pipeline(noted.program, "strip-runtime")
    assert runs[0].result.stats == {"attributes": 2} and noted.program.text() == plain.program.text()


NESTED = "cse,func(cse,dce,strip-runtime),subgraph(canonicalize),dce"


def two_functions():
    t = Toy(n_args=1)
    sub, b = t.subgraph("layer")
    for block, builder in ((sub.body, b), (t.body, t.b)):
        x = builder("toy.relu", block.args[0], rt_note=1)
        y = builder("toy.relu", block.args[0])
        builder.op("subgraph_return" if builder is b else "return", builder("toy.add", x, y), result_types=())
    return t, sub


def test_nesting_by_kind_of_op_round_trips_and_is_checked():
    passes = parse_pipeline(NESTED, passes_by_name())
    assert pipeline_text(passes) == NESTED and parse_pipeline(NESTED, passes_by_name()) == passes
    assert [str(p) for p in passes[1].passes] == ["cse", "dce", "strip-runtime"]
    spaced = parse_pipeline(" func ( fold-constants{limit-bytes=8} , cse ) ", passes_by_name())
    assert pipeline_text(spaced) == "func(fold-constants{limit-bytes=8},cse)"
    for text, message in (
        ("group(cse)", "cannot nest passes in 'group', expected func or subgraph"),
        ("func(outline)", "pass 'outline' works on the whole program"),
        ("func(cse", "expected ')'"), ("func(cse)dce", "expected ')'"), ("func(cse),", "expected a pass after the comma"),
        ("func(csee)", "unknown pass 'csee'"), ("func(dce{deep=1})", "pass 'dce': unknown option 'deep'"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            parse_pipeline(text, passes_by_name())
        assert message in str(caught.value)


@pytest.mark.parametrize("kind, changed", [("func", 0), ("subgraph", 1)])
def test_nested_passes_see_one_function_at_a_time(kind, changed):
    t, sub = two_functions()
    names = [f.attrs["sym_name"] for f in t.program.functions]
    result = run_pipeline(t.program, f"{kind}(cse)")[0].result
    assert result.changed and result.stats == {"cse merged": 1}
    sizes = [len(t.body), len(sub.body)]
    assert sizes[changed] == 3 and sizes[1 - changed] == 4
    assert [f.attrs["sym_name"] for f in t.program.functions] == names, "functions keep their places"
    assert t.program.whole is t.program


def test_nested_dce_keeps_the_subgraph_it_stands_in_and_nested_cse_knows_of_writes_elsewhere():
    t, sub = two_functions()
    run_pipeline(t.program, "subgraph(dce)")
    assert sub in t.program.functions
    t = Toy(n_args=1)
    other, b = t.subgraph("writes")
    b.op("set_param", other.body.args[0], key="w")
    b.op("subgraph_return", other.body.args[0], result_types=())
    first = t.b("get_param", key="w", result_types=[t.type])
    t.b("call", t.args[0], callee="writes", result_types=[t.type])
    t.ret(first, t.b("get_param", key="w", result_types=[t.type]))
    assert not run_pipeline(t.program, "func(cse)")[0].result.changed
