"""The simulator's books against the same counted from the instructions, on whole compiled programs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from simulator.recount import recount

import tx8fast
from tests.support.checkpoints import model_config
from tests.support.cli_case import write_mlp
from tests.support.cnn_models import CnnBuilder
from tests.support.plain import on_plain
from tx8fast.simulator.cycle import simulate, traces

CASES = ("mlp", "prefill", "decode", "encoder", "convolutions")


LLAMA = model_config(hidden=256, intermediate=512, heads=8, kv_heads=8, dtype="bfloat16")
BERT = {
    "model_type": "bert", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2,
    "vocab_size": 64, "max_position_embeddings": 64, "type_vocab_size": 2, "hidden_act": "gelu", "torch_dtype": "bfloat16",
}  # fmt: skip


def small_net(path):
    """Convolutions with strides and padding, both poolings, a classifier."""
    b = CnnBuilder()
    y = b.node("Relu", b.conv("x", 3, 24, 7, 2))
    y = b.node("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = b.node("Add", b.conv(b.node("Relu", b.conv(y, 24, 70, 3)), 70, 24, 1), y)
    y = b.node("Flatten", b.node("GlobalAveragePool", y))
    y = b.node("Gemm", y, b.weight((10, 24), 0.02), b.weight((10,), 0.1), transB=1)
    return b.save(path, (2, 3, 32, 32), y, (2, 10))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    root, known = tmp_path_factory.mktemp("recount"), {}
    for name, config in (("llama", LLAMA), ("bert", BERT)):
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(config))
    options = {
        "mlp": lambda: (write_mlp(root / "mlp.onnx", (128, 256)), {"dtype": "bf16"}),
        "prefill": lambda: (root / "llama", {"seq": 128}),
        "decode": lambda: (root / "llama", {"phase": "decode", "past": 64}),
        "encoder": lambda: (root / "bert", {"seq": 64, "batch": 2}),
        "convolutions": lambda: (small_net(root / "net.onnx"), {"dtype": "bf16"}),
    }

    def get(name):
        if name not in known:
            model, given = options[name]()
            known[name] = on_plain(tx8fast.compile(model, **given).program)
        return known[name]

    return get


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow(but_every=3)
def test_books_agree_to_the_last_unit(name, compiled):
    program = compiled(name)
    found, counted = simulate(program), recount(program)
    for unit in ("ct", "ne", "tdma", "kcore", "issue"):
        assert found.busy[unit] == counted.get(unit, 0), unit
    assert found.ddr_bytes == counted["ddr_bytes"] > 0
    assert found.noc_bytes == counted["noc_bytes"]
    if name == "prefill":
        assert counted["noc_bytes"] > 0 and counted["port_bytes"] > 0
    # nothing works for more than the time there is, in any stretch
    m = program.machine
    tiles = m["chip"]["tiles_x"] * m["chip"]["tiles_y"]
    links = 2 * (2 * m["chip"]["tiles_x"] * m["chip"]["tiles_y"] - m["chip"]["tiles_x"] - m["chip"]["tiles_y"])
    for g in found.groups:
        assert g.ddr_bytes <= g.cycles * m["chip"]["ddr_bw"] * m["chip"]["ddr_efficiency"]
        assert g.noc_bytes <= g.cycles * links * m["noc"]["link_bytes"]
        for unit in ("ct", "ne", "rdma", "wdma", "tdma", "kcore", "issue"):
            assert g.busy[unit] <= g.cycles * tiles, unit


@pytest.mark.parametrize("name", CASES)
def test_bytes_through_write_ports(name, compiled):
    program = compiled(name)
    found, counted = simulate(on_plain(program, **{"dte.write_port_bytes": 128})), recount(program)
    assert found.port_bytes == counted.get("port_bytes", 0)
    assert (found.port_bytes > 0) == (counted.get("noc_bytes", 0) > 0)
    assert all(g.port_bytes <= g.cycles * 16 * 128 for g in found.groups)


@pytest.mark.parametrize("name", ["prefill"])
def test_no_engine_does_two_things_at_once(name, compiled):
    for stretch in traces(compiled(name)):
        for tile in stretch.tiles:
            unit = np.array([tx8fast.isa.decode(r)["engine"] for r in tile.rows])
            for engine in ("ct", "ne", "rdma", "wdma", "tdma"):
                own = unit == engine
                start, end = tile.start[own], tile.end[own]
                assert (start[1:] >= end[:-1]).all()
