"""Ops that reach outside a program are refused by name, before any pass could drop them."""

from __future__ import annotations

import numpy as np
import pytest
from support.small_graph import SmallGraph

from tx8fast.api import compile_ir
from tx8fast.errors import UnsupportedError
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.weights import WeightTable


def test_all_are_named_at_once():
    g = SmallGraph(x=((4, 64), "f32"))
    y = g("relu", g.args["x"])
    p = g.done(y=y)
    p.weights = WeightTable()
    p.weights.add_array("steps", np.zeros((4, 64), np.float32))
    made = [p.ctx.create("set_param", [y], key="steps"),
            p.ctx.create("send", [y], [p.ctx.types.token], peer=1, channel=3),
            p.ctx.create("recv", (), [y.type], peer=2)]  # fmt: skip
    for op in made:
        p.main.body.insert_before(p.main.body.last, op)
    with pytest.raises(UnsupportedError) as e:
        compile_ir(p, load_machine("test_2x2"), CompileOptions())
    said = str(e.value)
    assert "3 problems" in said and "set_param changes parameter 'steps'" in said and "as a result" in said
    assert (
        "send exchanges data with peer 1 on channel 3" in said
        and "recv exchanges data with peer 2 on channel 0" in said
    )
