"""Runs a lifting pass on a small graph and compares what it computes before and after."""

from __future__ import annotations

import numpy as np
from support.run_graph import run_graph
from support.small_graph import SmallGraph, kinds

from tx8fast.ir.attrs import DenseAttr

RNG = np.random.default_rng(11)
QUIET = ("constant", "get_param", "return")


def constant(g: SmallGraph, x, dtype: type = np.float32):
    return g("constant", value=DenseAttr(np.array(x, dtype)))


def lifted(program, *passes, inputs=None, tolerance=2e-6) -> list[str]:
    """Run `passes`, verify, compare results on random (or given) inputs; return the kinds of ops left."""
    feed = dict(inputs or {})
    for name, v in zip(program.main.attrs["arg_names"], program.main.body.args):
        if name not in feed:
            whole = v.dtype in ("i64", "i32")
            feed[name] = RNG.integers(0, 3, v.shape) if whole else RNG.standard_normal(v.shape).astype(np.float32)
    wanted = run_graph(program, feed)
    for p in passes:
        p.run(program)
        program.verify()
    found = run_graph(program, feed)
    for name, w in wanted.items():
        assert found[name].shape == w.shape and found[name].dtype == w.dtype
        np.testing.assert_allclose(found[name].astype(np.float64), w.astype(np.float64), rtol=tolerance, atol=tolerance)
    for p in passes:
        again = p.run(program)
        assert not again.changed, f"{p.name} changes its own result: {again.stats}"
    return [k for k in kinds(program) if k not in QUIET]
