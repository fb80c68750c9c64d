"""Pattern tables, their trie, and the groups they make (back-end notes 9.1)."""

import random

import pytest
from support.small_graph import SmallGraph, kinds, ops_of

from tests.passes.test_pass_value_semantics import Graph as Aliased
from tests.support.cli_case import Caller
from tx8fast.errors import ConfigError, VerifyError
from tx8fast.ir.order import topological_sort
from tx8fast.passes.group_load_store import GroupLoadStore
from tx8fast.passes.group_patterns import TABLES, Candidate, GroupPatterns, find_candidates, is_convex, resolve
from tx8fast.passes.group_single import GroupSingle, make_group
from tx8fast.passes.pattern_table import build_trie, parse_table
from tx8fast.passes.pipeline import run_pipeline

KINDS = {"gemm", "add", "relu", "conv", "mul", "exp"}
TABLE = """
gemm add relu = 10   # the whole chain
gemm add = 5
gemm * add OR conv relu = 3
relu * = 1
"""


def test_patterns_of_the_worked_table_expand() -> None:
    patterns = parse_table(TABLE, KINDS)
    assert [len(p.sequences()) for p in patterns] == [1, 1, 6, 5]
    assert [p.priority for p in patterns] == [10, 5, 3, 1]
    assert patterns[2].sequences() == [*((*("gemm",) * n, "add") for n in range(1, 6)), ("conv", "relu")]
    assert patterns[3].sequences()[-1] == ("relu",) * 5


def test_several_specials_multiply_and_duplicates_go() -> None:
    (p,) = parse_table("add * relu * OR add relu OR mul = -2", KINDS)
    assert len(p.sequences()) == 5 * 5 + 1 and p.priority == -2
    assert p.sequences()[:3] == [("add", "relu"), ("add", "relu", "relu"), ("add", "relu", "relu", "relu")]


def test_bad_lines_are_named_together() -> None:
    text = "gemm add\n* add = 1\ngemm OR = 2\nfoo bar = 3\ngemm * * = 4\ngemm = x\n# nothing\ngemm = 5"
    with pytest.raises(ConfigError, match="6 problems") as info:
        parse_table(text, KINDS, "pattern table t.txt")
    said = str(info.value)
    assert "t.txt" in said and "unknown op kind 'foo', 'bar'" in said
    assert all(f"line {n}:" in said for n in (1, 2, 3, 4, 5, 6))
    with pytest.raises(ConfigError, match="a form of 40 words, at most 32"):
        parse_table("relu " * 40 + "= 1", KINDS)
    with pytest.raises(ConfigError, match="more than 10,000 forms"):
        parse_table("gemm * add * relu * mul * exp * conv * = 1", KINDS)


def test_trie_of_the_worked_table() -> None:
    root = build_trie(parse_table(TABLE, KINDS))
    assert root.nodes() == 18
    assert root.find("gemm", "add").priority == 5
    assert root.find("gemm", "add", "relu").priority == 10
    assert root.find("gemm").pattern is None and root.find("relu", "relu").priority == 1


def chain():
    """g -> a -> r1 -> r2 -> m of the worked graph."""
    g = SmallGraph(x=((4, 64), "f32"), y=((4, 64), "f32"))
    v = g("gemm", g.args["x"], g.param("w", (64, 64)))
    v = g("add", v, g.args["y"])
    v = g("relu", g("relu", v))
    return g.done(y=g("mul", v, v))


def test_groups_of_the_worked_graph(tmp_path) -> None:
    p = chain()
    found = find_candidates(p.main.body, build_trie(parse_table(TABLE, KINDS)))
    assert [([op.kind for op in c.ops], c.priority) for c in found] == [
        (["gemm", "add", "relu"], 10), (["relu", "relu"], 1), (["relu"], 1)
    ]  # fmt: skip
    assert [[op.kind for op in c.ops] for c in resolve(found)] == [["gemm", "add", "relu"], ["relu"]]
    path = tmp_path / "table.txt"
    path.write_text(TABLE)
    GroupPatterns(str(path)).run(p)
    p.verify()
    assert kinds(p) == ["get_param", "group", "group", "mul", "return"]
    first = ops_of(p, "group")[0]
    assert [op.kind for op in first.body] == ["gemm", "add", "relu", "group_return"]
    assert len(first.operands) == 3 and len(first.results) == 1


def test_a_result_used_outside_leaves_the_group_and_the_order_is_mended() -> None:
    g = SmallGraph(x=((4, 64), "f32"))
    m = g("gemm", g.args["x"], g.param("w", (64, 64)))
    other = g("exp", m)  # stands between the members and feeds the last one's sibling
    late = g("neg", g.args["x"])
    a = g("add", m, late)
    p = g.done(y=a, z=other)
    run_pipeline(p, [GroupPatterns(), GroupSingle(), GroupLoadStore()])
    p.verify()
    big = next(op for op in ops_of(p, "group") if any(i.kind == "gemm" for i in op.body))
    assert [op.kind for op in big.body if op.kind not in ("load_var", "store_var")] == ["gemm", "add", "group_return"]
    assert len(big.results) == 2
    order = [op.body.terminator.prev.kind if op.kind == "group" else op.kind for op in p.main.body]
    assert order[-1] == "return"


def test_a_path_that_comes_back_forbids_the_group() -> None:
    g = SmallGraph(x=((4, 64), "f32"))
    m = g("gemm", g.args["x"], g.param("w", (64, 64)))
    a = g("add", m, g("softmax", m))
    p = g.done(y=a)
    gemm, add = m.op, a.op
    assert not is_convex((gemm, add), {})
    assert is_convex((gemm, add, next(op for op in p.main.body if op.kind == "softmax")), {})
    GroupPatterns().run(p)
    assert ops_of(p, "group") == []


def test_two_groups_that_wait_for_each_other_are_not_made() -> None:
    g = SmallGraph(x=((4, 64), "f32"))
    a, c = g("exp", g.args["x"]), g("neg", g.args["x"])
    d, b = g("add", c, a), g("mul", a, c)
    g.done(y=d, z=b)
    one, two = Candidate((a.op, b.op), 2, 0), Candidate((c.op, d.op), 1, 1)
    assert is_convex(one.ops, {}) and is_convex(two.ops, {})
    assert resolve([one, two]) == [one]


def test_what_may_be_written_over_is_not_grouped() -> None:
    """The product and the sum in one group would stand before the write whose result the sum reads."""
    g = Aliased(n_args=2, shape=(4, 4))
    product = g.b("gemm", *g.args)
    buffer = g.b("exp", g.args[0], loc="buffer")
    g.b("sub_", buffer, g.args[1])
    g.ret(g.b("add", product, buffer))
    with pytest.raises(VerifyError, match=r"group-patterns: tx8be.gemm '' touches a buffer.* values-only"):
        run_pipeline(g.program, "group-patterns")
    run_pipeline(g.program, "inplace-to-functional,wrap-value,fold-copies,values-only,dce,group-patterns")
    assert [op.kind for op in g.block] == ["exp", "sub", "group", "return"]
    assert [op.kind for op in g.block.last.prev.body] == ["gemm", "add", "group_return"]


def test_random_graphs_stay_valid() -> None:
    rng = random.Random(7)
    for _ in range(40):
        g = SmallGraph(x=((8, 8), "f32"))
        values = [g.args["x"]]
        for _ in range(rng.randint(3, 14)):
            kind = rng.choice(["add", "mul", "relu", "exp"])
            n = 2 if kind in ("add", "mul") else 1
            values.append(g(kind, *(rng.choice(values[-4:]) for _ in range(n))))
        p = g.done(**{f"r{i}": v for i, v in enumerate(values[1:]) if not v.users})
        root = build_trie(parse_table("add relu = 3\nmul * add = 2\nexp add OR exp mul * = 4\nadd mul = 1", KINDS))
        chosen = resolve(find_candidates(p.main.body, root))
        members = [op for c in chosen for op in c.ops]
        assert len(members) == len(set(members))
        for c in chosen:
            make_group(p.ctx, *c.ops)
        topological_sort(p.main.body)
        p.verify()


def test_built_in_tables_and_missing_files() -> None:
    p = chain()
    known = {name.rpartition(".")[2] for name in p.ctx.infos}
    assert all(parse_table(text, known) for text in TABLES.values())
    with pytest.raises(ConfigError, match=r"reading pattern table /nowhere.*built-in tables are 1"):
        GroupPatterns("/nowhere").run(p)


def test_the_command_line_runs_a_table(tmp_path, capsys) -> None:
    graph, table = tmp_path / "g.mlir", tmp_path / "t.txt"
    graph.write_text(chain().text())
    table.write_text("gemm add = 1\nrelu relu = 1")
    call = Caller(capsys)
    found = call("opt", graph, "--pass", f"group-patterns{{table={table}}}")
    assert found.code == 0 and found.out.count('"tx8be.group"') == 2
    table.write_text("gemm add")
    found = call("opt", graph, "--pass", f"group-patterns{{table={table}}}")
    assert found.code == 2 and "line 1: expected 'kind kind ... = priority'" in found.err
