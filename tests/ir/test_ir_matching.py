"""Sequences along the data flow: optional and repeated entries, borders of groups, choice among overlaps."""

import random

import pytest
from support.small_graph import SmallGraph

from tx8fast.errors import InternalError
from tx8fast.ir.matching import Entry, Sequence, Trie
from tx8fast.ir.order import topological_sort
from tx8fast.passes.group_single import make_group

ACTS = ("relu", "gelu", "silu")
DENSE = Sequence(
    "dense", (Entry(("gemm",)), Entry(("add",), optional=True), Entry(ACTS, optional=True, repeated=True)), 1
)
TAIL = Sequence("tail", (Entry(("add", "mul"), repeated=True), Entry(ACTS)))
NORM = Sequence("norm", (Entry(("layernorm", "rmsnorm")), Entry(("gemm",))))


def graph():
    """Two dense layers joined by an add, a norm in front of a third, a shared value, a chain that ends in a return."""
    g = SmallGraph(x=((4, 8), "f32"), w=((8, 8), "f32"))
    x, w = g.args["x"], g.args["w"]
    a = g("relu", g("gelu", g("add", g("gemm", x, w, loc="g0"), x)))
    b = g("gemm", a, w, loc="g1")
    c = g("gemm", x, w, loc="g2")
    d = g("silu", g("mul", g("add", b, c), x))
    e = g("gemm", g("rmsnorm", d, loc="n"), w, loc="g3")
    shared = g("gemm", e, w, loc="g4")
    return g, g.done(y=g("relu", shared), z=g("neg", shared))


def found(trie, block):
    return {(m.sequence.name, m.ops[0].loc, tuple(op.kind for op in m.ops)) for m in trie.find(block)}


EXPECTED = {
    ("dense", "g0", ("gemm", "add", "gelu", "relu")), ("dense", "g1", ("gemm",)), ("dense", "g2", ("gemm", "add")),
    ("norm", "n", ("rmsnorm", "gemm")), ("dense", "g4", ("gemm",)),
}  # fmt: skip


def test_optional_and_repeated_entries():
    g, program = graph()
    block = program.main.body
    trie = Trie(g.ctx, [DENSE, NORM])
    heads = {op.loc: {m.sequence.name: len(m.ops) for m in trie.matches_from(op)} for op in block if op.loc}
    assert heads == {"g0": {"dense": 4}, "g1": {"dense": 2}, "g2": {"dense": 2}, "n": {"norm": 2}, "g3": {"dense": 1},
                     "g4": {"dense": 1}}  # fmt: skip
    (g1,) = [op for op in block if op.loc == "g1"]
    assert [len(m.ops) for m in Trie(g.ctx, [DENSE, TAIL]).matches_from(g1)] == [2]
    tails = Trie(g.ctx, [TAIL]).find(block)
    assert [[op.kind for op in m.ops] for m in tails] == [["add", "gelu"], ["add", "mul", "silu"]]


def test_the_longest_wins_then_the_one_nearer_to_the_sources():
    g, program = graph()
    assert found(Trie(g.ctx, [DENSE, NORM]), program.main.body) == EXPECTED
    with_tail = found(Trie(g.ctx, [DENSE, NORM, TAIL]), program.main.body)
    assert with_tail == EXPECTED - {("dense", "g2", ("gemm", "add"))} | {
        ("tail", None, ("add", "mul", "silu")), ("dense", "g2", ("gemm",))
    }  # fmt: skip
    low = Sequence("low", DENSE.entries, 0)
    assert {m.sequence.name for m in Trie(g.ctx, [low, DENSE]).find(program.main.body)} == {"dense"}


@pytest.mark.parametrize("seed", range(20))
def test_another_order_of_the_block_gives_the_same_groups(seed):
    g, program = graph()
    block = program.main.body
    sequences = [DENSE, NORM, TAIL]
    expected = found(Trie(g.ctx, sequences), block)
    rng = random.Random(seed)
    rng.shuffle(sequences)
    ops = list(block)
    rng.shuffle(ops)
    for op in ops:
        op.detach()
    for op in ops:
        block.append(op)
    topological_sort(block)
    assert found(Trie(g.ctx, sequences), block) == expected


def test_borders_of_groups_and_ops_that_do_not_count_are_looked_through():
    g, program = graph()
    block = program.main.body
    expected = found(Trie(g.ctx, [DENSE, NORM, TAIL]), block)
    for op in list(block):
        if op.kind != "return":
            make_group(g.ctx, op)
    program.verify()
    trie = Trie(g.ctx, [DENSE, NORM, TAIL])
    assert found(trie, block) == expected
    relu = next(op for op in program.module.walk() if op.kind == "relu")
    assert trie.producer(relu.operands[0]).kind == "gelu"
    skipping = Trie(
        g.ctx, [Sequence("s", (Entry(("gemm",)), Entry(("relu",))))], lambda op: op.kind in ("gemm", "relu")
    )
    assert ("s", "g0", ("gemm", "relu")) in found(skipping, block)


def test_codes_are_shared_and_an_empty_sequence_is_refused():
    g, _ = graph()
    trie = Trie(g.ctx, [DENSE, Sequence("other", DENSE.entries[:2])])
    assert len(trie._nodes) == 4, "gemm, add after gemm, activations after gemm and after add"
    with pytest.raises(InternalError, match="'none' matches nothing"):
        Trie(g.ctx, [Sequence("none", (Entry(("relu",), optional=True),))])
