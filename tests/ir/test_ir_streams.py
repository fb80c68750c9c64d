"""Transfers of collectives: replayed on arrays they give the collective's result; volumes are the ring's."""

import numpy as np
import pytest
from support.small_graph import SmallGraph

from tx8fast.errors import VerifyError
from tx8fast.ir import new_context
from tx8fast.ir.core import COLLECTIVE
from tx8fast.ir.streams import stream_config

ATTRS = {
    "all_reduce": {}, "all_gather": {"dim": 0, "parts": 4}, "reduce_scatter": {"dim": 0, "parts": 4}, "broadcast_dev": {"root": 2},
    "all_to_all": {"split_dim": 0, "concat_dim": 1, "parts": 4}, "permute": {"pairs": (0, 1, 1, 2, 3, 3)},
}  # fmt: skip


def collective(kind, n=4):
    g = SmallGraph(x=((4 * n, 8), "f32"))
    attrs = {**ATTRS[kind], **({"parts": n} if "parts" in ATTRS[kind] else {})}
    return g.op(kind, g.args["x"], **attrs)


def test_every_collective_answers():
    kinds = [i for i in new_context().infos.values() if i.traits & COLLECTIVE]
    assert {i.name.partition(".")[2] for i in kinds} == set(ATTRS)
    for info in kinds:
        answer = info.impl["StreamConfig", "stream_config"]
        found = answer(collective(info.name.partition(".")[2]), 4)
        assert found and all(t.nbytes > 0 and t.source != t.target for t in found)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter", "all_gather"])
def test_rings_replayed_give_the_result(kind, n):
    """Chunks held per device: sums for reductions, presence for gathers."""
    chunks = np.random.default_rng(n).integers(0, 99, (n, n))  # [device, chunk]
    held = chunks.astype(object) if kind != "all_gather" else np.where(np.eye(n, dtype=bool), chunks, None)
    transfers = stream_config(collective(kind, n), n)
    for step in sorted({t.step for t in transfers}):
        sent = [(t, held[t.source, t.chunk]) for t in transfers if t.step == step]
        assert len({t.source for t, _ in sent}) == len({t.target for t, _ in sent}) == n
        for t, value in sent:
            assert value is not None
            held[t.target, t.chunk] = held[t.target, t.chunk] + value if t.combine else value
    total = chunks.sum(axis=0)
    if kind == "all_reduce":
        assert (held == total).all()
    elif kind == "reduce_scatter":
        assert all(held[i, (i + 1) % n] == total[(i + 1) % n] for i in range(n))
    else:
        assert (held == np.diag(chunks)).all()


def test_volumes_per_device():
    whole = 16 * 8 * 4
    sent = {}
    for kind in ATTRS:
        sent[kind] = sum(t.nbytes for t in stream_config(collective(kind), 4) if t.source == 1)
    assert sent == {"all_reduce": 2 * 3 * whole // 4, "reduce_scatter": 3 * whole // 4, "all_gather": 3 * whole,
                    "all_to_all": 3 * whole // 4, "permute": whole, "broadcast_dev": 0}  # fmt: skip


def test_point_to_point_and_kinds_that_send_nothing():
    g = SmallGraph(x=((4, 8), "f32"))
    token = g.op("send", g.args["x"], peer=3, result_types=[g.ctx.types.token])
    got = g.op("recv", token.result, peer=2, result_types=[g.args["x"].type])
    (out,), (back,) = stream_config(token, 4), stream_config(got, 4)
    assert (out.target, out.nbytes, back.source, back.nbytes) == (3, 128, 2, 128)
    with pytest.raises(VerifyError, match="tx8be.relu '': this kind sends nothing"):
        stream_config(g.op("relu", g.args["x"]), 4)
    with pytest.raises(VerifyError, match="found 0 devices"):
        stream_config(collective("all_reduce"), 0)
