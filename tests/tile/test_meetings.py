"""Tiles that share several operands in sets that cross meet in one order; slices hold whole heads of every member."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import tx8fast
from tx8fast import isa
from tx8fast.lower import fused

SIZES = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "vocab_size": 128,
    "intermediate_size": 256,
    "torch_dtype": "bfloat16",
}
MEET = isa.instruction("barrier_sub").OPCODE


def layer(folder, hidden: int, heads: int, kv: int, depth: int, seq: int, batch: int):
    """Return the program of one layer, without weights."""
    own = {"hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": depth}
    (folder / "config.json").write_text(json.dumps(SIZES | own))
    return tx8fast.compile(folder, seq=seq, batch=batch, embed_limit_bytes=0)


@pytest.mark.parametrize("shape", [(3072, 24, 8, 128, 512, 2), (3584, 28, 4, 128, 512, 2), (3584, 12, 1, 256, 512, 2)])
@pytest.mark.slow
def test_sets_of_tiles_that_cross_meet_in_one_order(shape, tmp_path) -> None:
    """Rows by columns, tables by sequences and weights by rows: of two sets, no tile may meet the one first that another one meets last."""
    made = layer(tmp_path, *shape)
    assert made.simulate().cycles > 0
    most = 0
    for segment in made.program.segments:
        for codes in segment.codes:
            masks = np.asarray(codes["p"][codes["opcode"] == MEET, 0])
            most = max(most, len(set(masks.tolist())))
    assert most >= 3, "the sets do not cross"


@pytest.mark.parametrize("shape", [(2880, 32, 4, 96, 600, 2), (1920, 16, 2, 80, 300, 2), (1152, 16, 4, 72, 330, 1)])
@pytest.mark.slow
def test_slices_hold_whole_heads_of_queries_and_keys(shape, tmp_path, monkeypatch) -> None:
    """Heads that are no whole blocks are rotated some at a time, and queries have several times the heads of keys."""
    units: list[tuple[int, ...]] = []
    limits = fused.Fused._limits

    def seen(of, *args):
        found = limits(of, *args)
        for m in of.members:
            for link, k in m.loops():
                if link.factor >= 0 and m.low.kind == "rope":
                    units.append(
                        (found[0][link.factor] * link.width, link.scale * m.low.units[k], link.scale * m.low.sizes[k])
                    )
        return found

    monkeypatch.setattr(fused.Fused, "_limits", seen)
    assert layer(tmp_path, *shape).simulate().cycles > 0
    assert units and all(math.gcd(own, step) == step or own >= whole for own, step, whole in units)
