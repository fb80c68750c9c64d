"""Whole messages against packets in turn: what the event kernel says of exchanges beside links that serve packet after packet."""

from __future__ import annotations

import json
import random

import pytest
from event_rows import run
from simulator.packets_reference import arrivals
from simulator.test_event_messages import SETUP, recv, send

import tx8fast
from tx8fast import isa
from tx8fast.machine import load_machine

MACHINE = load_machine()
X, N = MACHINE.chip.tiles_x, MACHINE.n_tiles
RATE, HOP, PORT = MACHINE.noc.link_bytes, MACHINE.noc.hop_cycles, MACHINE.dte.write_port_bytes
PACKET_BYTES = 256  # the width of a bank: an assumption of the hardware manual (5)
#: to whom a tile of a group sends: what a compiled program does with operands that tiles share
GROUPS = {
    "all": lambda t: set(range(N)),
    "all others": lambda t: set(range(N)) - {t},
    "row": lambda t: {X * (t // X) + i for i in range(X)} - {t},
    "column": lambda t: {t % X + X * i for i in range(N // X)} - {t},
    "half": lambda t: {i for i in range(N) if i // (N // 2) == t // (N // 2)} - {t},
}
PAIRS = {"across": lambda t: {N - 1 - t}, "shift": lambda t: {(t + 5) % N}}


def both(to, size, messages=1, apart=0):
    """Return when each tile has all that is sent to it: of whole messages, and of packets. messages: that a tile sends, one right
    after the other; apart: cycles within which tiles begin."""
    rng = random.Random(7)
    begin = [rng.randrange(apart + 1) for _ in range(N)]
    tiles = [[send(to(t), size, issue=0 if k else begin[t]) for k in range(messages)] for t in range(N)]
    sent = [(begin[t] + SETUP, t, sorted(to(t)), size) for t in range(N) for _ in range(messages)]
    for t in range(N):
        tiles[t].append(recv(sum(size for _, _, dsts, size in sent if t in dsts)))
    ends = run(tiles, mesh=(X, RATE, HOP, MACHINE.dte.engines), write=PORT).end.tolist()
    whole = [ends[(messages + 1) * t + messages] for t in range(N)]
    found = arrivals(sent, X, RATE, HOP, PACKET_BYTES, PORT > 0)
    return whole, [max(when for (_, dst), when in found.items() if dst == t) for t in range(N)]


@pytest.mark.parametrize("size", [256, 8192])
def test_one_message_alone(size):
    whole, packets = both(lambda t: {0, 9, 2} if t == 0 else {t} - {9, 2} or {8}, size)
    assert whole == packets


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize(("size", "messages"), [(1024, 1), (8192, 1), (4096, 3)])
def test_groups_that_share_operands_have_them_at_the_same_cycle(name, size, messages):
    """Every tile waits for all parts, and a link is busy as long in whichever order it carries what it has. Compiled programs send
    nothing but such multicasts (`test_programs_send_to_whole_groups`)."""
    whole, packets = both(GROUPS[name], size, messages)
    assert whole == packets


@pytest.mark.parametrize("name", GROUPS)
def test_groups_whose_tiles_begin_apart(name):
    """Small messages let each other pass: a tile may have its parts earlier, the last one has them at the same time."""
    whole, packets = both(GROUPS[name], 8192, apart=500)
    assert max(packets) == pytest.approx(max(whole), rel=0.01) and sum(packets) == pytest.approx(sum(whole), rel=0.02)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("messages", [1, 3])
def test_messages_to_single_tiles_are_not_flattered(name, messages):
    """Where ways cross, a whole message holds up those behind it on links that it has not reached yet: up to a third longer."""
    whole, packets = both(PAIRS[name], 16384, messages)
    assert 0.65 * max(whole) <= max(packets) <= max(whole)


def test_programs_send_to_whole_groups(tmp_path):
    """Rows of a layer: every tile of a group sends to the others, or to all of it."""
    config = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 8,
              "num_key_value_heads": 2, "vocab_size": 512, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "hidden_act": "silu"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    program = tx8fast.compile(tmp_path, phase="prefill", seq=256, dtype="bf16").program
    cls, found = isa.INSTRUCTIONS["send"], set()
    for segment in program.segments:
        groups = set()
        for tile, k in enumerate(segment.tile_code.tolist()):
            rows = segment.codes[k] if k >= 0 else segment.codes[0][:0]
            masks = rows["p"][rows["opcode"] == cls.OPCODE][:, cls.FIELDS_P.index("mask")]
            groups |= {(tile, int(mask) | 1 << tile) for mask in masks}
        for tile, group in groups:
            assert group.bit_count() > 1 and group >> tile & 1
            assert {t for t, g in groups if g == group} <= {t for t in range(N) if group >> t & 1}
        found |= groups
    assert found
