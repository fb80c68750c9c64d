"""What may be one fused op: beside today's lowerings over the groups that searches ask for, and rule by rule."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pytest

from tests.replay.cases import CASES, MACHINE
from tests.support.group_records import asked
from tests.support.rule_groups import Group
from tx8fast.graph_table import GroupRecord
from tx8fast.ir import factors
from tx8fast.machine import load_machine
from tx8fast.tile.fused_op import FusedOp, Members, Reduction
from tx8fast.tile.legality import _sums, kernel_of, why_not

ALL = os.environ.get("TX8FAST_ALL_MODELS") == "1"
FEW = ("llama-3-8b prefill 512", "llama-3-8b decode 2048", "qwen3-0.6b prefill 512", "bert-base 384 batch 1", "resnet-50 batch 8",
       "resnext stage batch 8", "gpt2-decode-op23.onnx", "mixtral-prefill-op20-batched_mm.onnx")  # fmt: skip

#: refusals of today's lowerings where the rules see nothing wrong, with the number of groups in the whole corpus: the classes' own limits
ADMITTED = {
    "a normalisation leads products whose left operand it makes, and nothing else": 92,
    "a batched product has no row-major result slice": 89,
    "a closing product takes row-major rows and one matrix of weights": 44,
    "ops on rows share a loop nest where these lie in blocks": 44,
    "what a closing product sums over leaves the group": 42,
    "leading ops of a group must have equal factors, products columns in a whole ratio": 13,
    "a member needs whole what comes in slices": 2,
    "only products close what products lead": 1,
    "members of a group keep the dimensions of what they follow": 1,
}


@lru_cache(maxsize=1)
def machine():
    return load_machine(str(MACHINE))


@pytest.mark.slow
def test_nothing_that_is_fused_today_is_lost() -> None:
    """What a lowering takes, the rules admit; where only the rules do, today's reason is one of a class, not of the ops."""
    admitted: Counter[str] = Counter()
    known: set[GroupRecord] = set()
    for name in CASES if ALL else FEW:
        for record, refusal in asked(name).items():
            if record in known:
                continue
            known.add(record)
            why = why_not(record, machine())
            assert refusal or why is None, (name, record.kind, why)
            if refusal and why is None:
                admitted[refusal] += 1
    assert admitted.keys() <= ADMITTED.keys()
    assert not ALL or dict(admitted) == ADMITTED
    assert len(known) > 150


def fused(record: GroupRecord, opened: str = "") -> FusedOp:
    """Return the fused op with the classes opened that the factor called `opened` of the last member that has one stands for."""
    kernels = [kernel_of(op, machine())[0] for op in record.ops]
    assert None not in kernels
    members = Members(record, kernels)  # type: ignore[arg-type]
    found: frozenset[int] = frozenset()
    for rule, classes in zip(members.comp.rules, members.comp.factors, strict=True):
        if opened in rule.names:
            found = frozenset(classes[rule.names.index(opened)])
    assert found or not opened
    return FusedOp(members, found)


def attention(heads: int = 4, rows: int = 256, keys: int = 512, depth: int = 64) -> GroupRecord:
    g = Group()
    q, k, v = g.operand(heads, rows, depth), g.operand(heads, keys, depth), g.operand(heads, keys, depth)
    attrs = {"trans_a": False, "trans_b": True}
    s, out = (heads, rows, keys), (heads, rows, depth)
    scores = g.op("gemm", factors.gemm((g.shape(q), g.shape(k)), (s,), attrs), s, q, k, act="none")
    mix = factors.gemm((s, g.shape(v)), (out,), {"trans_a": False, "trans_b": False})
    return g.record(g.op("gemm", mix, out, g.softmax(scores), v, act="none"))


def feed_forward(norm: bool = True) -> GroupRecord:
    g = Group()
    x = g.operand(2, 128, 256)
    up = g.unary(g.gemm(g.norm(x) if norm else x, 1024))
    return g.record(g.add(g.gemm(up, 256), x))


def test_levels_of_a_feed_forward() -> None:
    """The hidden channels are open: the normalisation comes before them, the residual after."""
    op = fused(feed_forward(), "k")
    assert op.levels == ("prologue", "body", "body", "body", "epilogue")
    assert [r.combine for r in op.reductions] == ["add"] and op.reductions[0].member == 3
    assert fused(feed_forward()).levels == ("body",) * 5


def test_keys_of_attention_come_in_slices() -> None:
    """Whole rows of probabilities come in slices of keys, since the mix sums over them."""
    op = fused(attention(), "k")
    (keys,) = op.opened
    assert op.levels == ("body",) * 3
    assert op.reductions == (Reduction(keys, 2, "add"), Reduction(keys, 1, "online"))
    lens = [b - a for a, b in zip(*op.least[1], strict=True)]
    assert lens[-1] < 512 == [b - a for a, b in zip(*fused(attention()).least[1], strict=True)][-1]


def test_a_sum_that_slices_need_is_refused() -> None:
    """Rule 3: both products' sums at once on one path."""
    members = fused(feed_forward(norm=False)).members
    both = frozenset(c for own in members.comp.kinds for c, kind in own.items() if kind == "R")
    why = _sums(FusedOp(members, both))
    assert why is not None and "relu (op 1)" in why and "gemm (op 0)" in why and "1,024" in why and "256" in why
    assert why_not(feed_forward(norm=False), machine()) is None


def test_ops_without_a_kernel_are_named() -> None:
    g = Group()
    s = (4, 64)
    y = g.unary(g.operand(*s))
    record = g.record(g.op("cumsum", factors.along_axis((s,), (s,), {"axis": -1}), s, y, axis=-1))
    assert why_not(record, machine()) == "cumsum (op 1) has no kernel that works on slices: no engine performs cumsum"


def test_values_seen_with_another_rank_are_named() -> None:
    """The second op reads what the first makes through a reshape, which costs nothing."""
    g = Group()
    g.unary(g.operand(4, 6, 64))
    g.unary(g.operand(24, 64))
    record = replace(g.record(("op", 1)), wires=((("in", 0),), (("op", 0),)))
    assert why_not(record, machine()) == "relu (op 1) sees 2 dimensions of what relu (op 0) makes with 3"


def test_order_of_the_steps_is_checked() -> None:
    record = feed_forward()
    turned = GroupRecord(record.ops, (record.wires[-1], *record.wires[1:]), record.operands, record.outputs)
    assert why_not(turned, machine()) == "rmsnorm (op 0) comes before what it reads"


@pytest.mark.parametrize("columns", [1024, 16384])
def test_the_least_tile_must_fit(columns: int) -> None:
    """Rule 5: twelve normalised rows that are needed again when their sum is complete, with all columns."""
    g = Group()
    rows = [g.norm(g.gemm(g.operand(512, 256), columns)) for _ in range(12)]
    total = rows[0]
    for y in rows[1:]:
        total = g.add(total, y)
    last = g.norm(total)
    record = g.record(*(g.add(y, last) for y in rows))
    why = why_not(record, machine())
    if columns == 1024:
        assert why is None
    else:
        assert why is not None and "bytes of scratchpad" in why and "16,384 stays whole" in why


def test_more_members_never_need_less() -> None:
    """Bytes of the least tile grow with the chain, and parts of neighbours that take turns cost nothing."""
    g = Group()
    y = g.gemm(g.operand(512, 512), 512)
    alone = fused(g.record(y)).least_bytes(0)[0]
    followed = fused(g.record(g.unary(g.unary(y)))).least_bytes(0)[0]
    assert alone <= followed < 2 * alone
