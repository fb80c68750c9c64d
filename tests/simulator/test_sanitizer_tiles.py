"""Faults planted between tiles and between launches: messages, partial barriers, DDR races."""

from __future__ import annotations

from functools import cache

import numpy as np

from tests.simulator.planting import Edit, findings
from tests.support.one_op import Arg, Case, build, one_op
from tx8fast import isa
from tx8fast.isa.comm import mask_of
from tx8fast.machine import DDR_BASE, load_machine
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.model import Program, Tensor

SMALL = load_machine("test_2x2")
BUSY, EARLY, REUSED, UNREADY = "message into a buffer in use", "read before recv", "source reused", "source not ready"
A, B = 0x10000, 0x20000
LOADS = 1 << 1  # of the workers that a wait names: the one whose window the parts of shared operands are loaded through


@cache
def shared() -> Case:
    """A product whose left operand four tiles load together, in four fills through two buffers and two windows."""
    for m, k, n in ((256, 1024, 768), (256, 2048, 1536), (320, 1024, 512), (256, 1024, 1024), (256, 1024, 256)):
        case = one_op("gemm", Arg((m, k), "bf16"), Arg((k, n), "bf16"), machine="test_2x2")
        edit = Edit(case)
        if case.segment.info["shared"][0] == 4 and len(edit.at("send")) == 4 and len(edit.at("barrier_sub")) == 3:
            return case  # which shape gets such a plan is the search's business
    raise AssertionError("no product has a plan with four shared fills; add a shape")


@cache
def unmet() -> Case:
    """Two such products without a barrier between them; the tiles of the first do not meet after they have read what the second
    one's first message overwrites."""
    for m, k, n in ((256, 1024, 512), (256, 1024, 256), (256, 1024, 1024), (512, 512, 512), (384, 1024, 1024)):
        case = build([Arg((m, k), "bf16"), Arg((k, n), "bf16")] * 2,
                     lambda b, x, v, y, w: [b("gemm", x, v), b("gemm", y, w)], "test_2x2")  # fmt: skip
        first, second = (Edit(case, launch.segment) for launch in case.program.launches)
        filled = isa.decode(second.segment.codes[0][second.at("send")[0]])["dst"]
        rows = [isa.decode(row) for row in first.segment.codes[0]]
        reader = max(i for i in first.at("gemm") if filled in (rows[i]["left"], rows[i]["right"]))
        waits = [i for i in first.at("wait_worker") if reader < i < max(first.at("barrier_sub"))]
        if not any(rows[i]["workers"] >> rows[reader]["worker"] & 1 for i in waits):
            return case  # as in `shared`
    raise AssertionError("after every first product its tiles meet; add a shape")


@cache
def chain() -> Case:
    """Two launches: relu, then a product of its result."""
    return build([Arg((64, 96), "bf16"), Arg((96, 130), "bf16")], lambda b, x, w: b("gemm", b("relu", x), w))


def wait_before_barrier(edit: Edit, tile: int) -> int:
    """The row that waits for the engines before the tiles meet for the second time: a fill goes to a buffer that was read."""
    met = edit.at("barrier_sub", tile)[1]
    return max(i for i in edit.at("wait_worker", tile) if i < met)


def test_clean_before_the_edits():
    assert not findings(Edit(shared()).program)
    assert not findings(Edit(chain()).program)
    assert [s.barrier for s in chain().program.segments] == [True, True]


# --- messages ----------------------------------------------------------------------------------


def test_dropped_partial_barrier():
    f = Edit(shared()).drop("barrier_sub", 1).found()[BUSY]
    assert f.name == "send" and f.space == "SPM" and "no barrier_sub" in f.text and "of tile" in f.text


def test_partial_barrier_that_one_tile_passes_too_early():
    """Its engines still read the buffer: the wait for that window is gone."""
    edit = Edit(shared())
    edit.segment.codes[2]["p"][wait_before_barrier(edit, 2), 0] = LOADS
    f = edit.found()[BUSY]
    assert "of tile 2" in f.text and "gemm" in f.text


def test_recv_that_is_missing():
    found = Edit(shared()).drop("recv", -1, tiles=[1]).found()
    assert found[EARLY].tile == 1 and found[EARLY].name == "gemm"
    assert "message not received" in found and "send under way" not in found


def test_recv_behind_its_user():
    f = Edit(shared()).move("recv", 0, "gemm", 0).found()[EARLY]
    assert f.name == "gemm" and "no recv before it" in f.text and "(send)" in f.text


def test_recv_of_too_little():
    f = Edit(shared()).set("recv", -1, tiles=[3], bytes=lambda n: n - 256).found()[EARLY]
    assert f.tile == 3


def test_source_overwritten_before_send_wait():
    edit = Edit(shared())
    for _ in range(3):
        edit.drop("send_wait", 0)
    for t in edit.tiles:  # receivers would vouch for the sends otherwise
        code = edit.segment.codes[t]
        edit.segment.codes[t] = np.delete(code, edit.at("barrier_sub", t))
    found = edit.found()
    assert found[REUSED].name == "rdma" and "no send_wait" in found[REUSED].text


def test_source_reused_right_after_the_send():
    code = CodeBuilder().add("memset", dst=A, value=1, n=64, fmt="f32").add("wait")
    code.add("send", src=A, dst=B, bytes=256, mask=2).add("memset", dst=A, value=2, n=64, fmt="f32").add(
        "send_wait"
    ).finish()
    other = CodeBuilder().add("recv", monitor=0, bytes=256).finish()
    program = small([code, other])
    (f,) = findings(program)
    assert f.kind == REUSED and (f.tile, f.instruction, f.name) == (0, 3, "memset") and f.span == (A, A + 256)
    assert not Edit(program).move("send_wait", 0, "send", 0).found()


def test_send_before_the_load_is_done():
    edit = Edit(shared())
    for t in edit.tiles:
        code = edit.segment.codes[t]
        code["p"][next(i for i in edit.at("wait_worker", t) if code["p"][i, 0] & LOADS), 0] &= ~LOADS
    f = edit.found()[UNREADY]
    assert f.name == "send" and "(rdma, worker 1)" in f.text


def test_a_wait_for_a_later_row_of_the_same_queue_is_one_for_all_before_it():
    code = CodeBuilder().add("memset", dst=A, value=1, n=64, fmt="f32", worker=0)
    code.add("memset", dst=B, value=2, n=64, fmt="f32", worker=1).add("wait_worker", workers=1 << 1)
    code.add("send", src=A, dst=A, bytes=256, mask=2).add("send_wait").add("wait").finish()
    program = small([code, CodeBuilder().add("recv", monitor=0, bytes=256).finish()])
    assert not findings(program)
    f = Edit(program).move("memset", 0, "wait_worker", 0).found()[UNREADY]
    assert f.name == "send" and "instruction 2 (memset, worker 0)" in f.text
    other = CodeBuilder().add("memset", dst=A, value=1, n=64, fmt="f32", worker=0)
    other.add("exp_v", src0=B, dst=B, n=64, fmt="f32", worker=1).add("wait_worker", workers=1 << 1)
    other.add("send", src=A, dst=A, bytes=256, mask=2).add("send_wait").add("wait").finish()
    program = small([other, CodeBuilder().add("recv", monitor=0, bytes=256).finish()])
    assert UNREADY in {f.kind for f in findings(program)}  # another engine's queue says nothing


def test_send_from_the_wrong_address():
    found = Edit(shared()).set("send", 0, tiles=[1], src=0x2A0000).found()
    assert found["uninitialised read"].name == "send" and found["uninitialised read"].tile == 1


def test_send_to_the_wrong_address():
    found = Edit(shared()).set("send", 1, tiles=[0], dst=lambda x: x + 0x100).found()
    assert BUSY in found and "landing" in found[BUSY].text


def test_send_to_the_wrong_monitor():
    found = Edit(shared()).set("send", 0, tiles=[0], monitor=3).found()
    assert "which no recv takes" in found["message not received"].text


def test_send_to_a_tile_that_is_not_there():
    f = Edit(shared()).set("send", 0, tiles=[0], mask=1 << 4).found()["send target"]
    assert "[4]" in f.text and "4 tiles" in f.text


def test_missing_destination_stops_the_receiver():
    found = Edit(shared()).set("send", 0, tiles=[0], mask=0b0111).found()
    assert any("no tile can go on" in f.text and "tile 3" in f.text for f in found.values())


def test_send_that_nobody_waits_for():
    send = (
        CodeBuilder()
        .add("memset", dst=A, value=1, n=64, fmt="f32")
        .add("wait")
        .add("send", src=A, dst=B, bytes=256, mask=2)
        .finish()
    )
    recv = CodeBuilder().add("barrier").add("recv", monitor=0, bytes=256).finish()
    program = small([send.add("wait").add("barrier"), recv])
    found = {f.kind for f in findings(program)}
    assert "send under way" in found


def test_wait_for_the_wrong_window():
    edit = Edit(shared())
    for t in edit.tiles:
        edit.segment.codes[t]["p"][wait_before_barrier(edit, t), 0] = LOADS  # not the engines'
    assert BUSY in edit.found()


def test_rows_through_the_wrong_window():
    """A product of an even fill goes through the loads' window, its store through its own: nothing orders them."""
    f = Edit(shared()).set("gemm", 0, worker=1).found()["unsynchronised workers"]
    assert f.name in ("gemm", "wdma")


def test_swapped_buffers_of_a_shared_operand():
    """The second fill lands where the first is being read."""
    edit = Edit(shared())
    for t in edit.tiles:
        code, (first, second, *_) = edit.segment.codes[t], edit.at("send", t)
        code["spm"][second, 1] = code["spm"][first, 1]
    found = edit.found()
    assert BUSY in found


def test_recv_that_may_take_another_message():
    """Tiles 1 and 2 send to one monitor of tile 0; the first recv may take the bytes of the second message."""
    first = CodeBuilder().add("recv", monitor=0, bytes=256).add("exp_v", src0=A, dst=A + 0x400, n=64, fmt="f32")
    first.add("recv", monitor=0, bytes=256).finish()

    def sender(dst):
        b = CodeBuilder().add("memset", dst=A, value=1, n=64, fmt="f32").add("wait")
        return b.add("send", src=A, dst=dst, bytes=256, mask=1).add("send_wait").finish()

    program = small([first, sender(A), sender(B)])
    found = {f.kind for f in findings(program)}
    assert found & {"ambiguous recv", EARLY}
    edit = Edit(program)  # on monitors of their own they are told apart
    edit.set("send", 0, tiles=[2], monitor=1).set("recv", 1, tiles=[0], monitor=1)
    assert not edit.found()


def test_handshake_orders():
    one = CodeBuilder().add("memset", dst=A, value=1, n=64, fmt="f32").add("wait").add("handshake", peer=1)
    one.add("send", src=A, dst=B, bytes=256, mask=2).add("send_wait").finish()
    two = CodeBuilder().add("memset", dst=B, value=1, n=64, fmt="f32").add("wait").add("handshake", peer=0)
    two.add("recv", monitor=0, bytes=256).finish()
    program = small([one, two])
    assert not findings(program)
    f = Edit(program).drop("handshake").found()["write under a message"]
    assert (f.tile, f.instruction, f.name) == (1, 0, "memset") and "tile 0 instruction" in f.text
    f = Edit(program).drop("wait", 0, tiles=[1]).found()[BUSY]
    assert "no barrier_sub after a wait" in f.text


def small(codes: list[CodeBuilder]) -> Program:
    """A program of one launch on the 2 x 2 machine; tiles without code only take part in the barrier."""
    arrays = [b.code() for b in codes]
    arrays += [CodeBuilder().add("barrier").code() for _ in range(4 - len(arrays))]
    return make_program(SMALL, [make_segment(SMALL, "s", arrays, list(range(4)))], [(0, [])])


# --- launches ----------------------------------------------------------------------------------


def test_dropped_barrier_between_launches():
    f = Edit(chain()).no_barrier().found()["DDR race between launches"]
    assert f.name == "rdma" and f.segment == "gemm" and f.space == "DDR"
    assert "(wdma, worker 0)" in f.text and "of launch 'relu'" in f.text and "no barrier between the launches" in f.text


def side_by_side() -> Case:
    """Two launches that do not need each other and are cut differently: relu by rows, a product by rows and columns."""
    args = [Arg((64, 130), "bf16"), Arg((64, 96), "bf16"), Arg((96, 130), "bf16")]
    case = build(args, lambda b, x, y, w: [b("relu", x), b("gemm", y, w)])
    names = [case.program.segments[launch.segment].name for launch in case.program.launches]
    assert names == ["relu", "gemm"] and not findings(case.program)
    return case


def test_memory_reused_while_it_is_still_read():
    """The second launch writes over the first one's operand: write after read, no barrier between them."""
    edit = Edit(side_by_side())
    launches = edit.program.launches
    launches[1].args[-1] = launches[0].args[0]
    if edit.program.segments[0].barrier:
        assert not {k for k in edit.found() if "race" in k}
        edit.no_barrier()
    f = edit.found()["DDR race between launches"]
    assert f.name == "wdma" and "reads some at the same time" in f.text


def test_two_launches_write_the_same_bytes():
    edit = Edit(side_by_side())
    launches = edit.program.launches
    launches[1].args[-1] = launches[0].args[-1]
    if edit.program.segments[0].barrier:
        edit.no_barrier()
    assert "writes some at the same time" in edit.found()["DDR race between launches"].text


def test_tiles_that_store_to_the_same_bytes():
    edit = Edit(one_op("gemm", Arg((64, 96), "bf16"), Arg((96, 130), "bf16")))
    stores = [t for t in edit.tiles if edit.at("wdma", t)]
    slot = int(edit.segment.codes[stores[1]]["slot"][edit.at("wdma", stores[1])[0]])
    edit.segment.tile_offset[stores[1], slot] = edit.segment.tile_offset[stores[0], slot]
    f = edit.found()["DDR race between tiles"]
    assert f.name == "wdma" and f.tile == stores[1] and f"tile {stores[0]} instruction" in f.text


def test_interleaved_stores_are_no_race():
    """Envelopes of column slices overlap, their bytes do not."""
    edit = Edit(one_op("gemm", Arg((64, 96), "bf16"), Arg((96, 256), "bf16")))
    low = {int(edit.segment.tile_offset[t, 4]) for t in edit.tiles if edit.at("wdma", t)}
    assert min(b - a for a, b in zip(sorted(low), sorted(low)[1:])) < 2 * 256
    assert not edit.found()


def test_routine_against_other_tiles():
    """A routine reads what other tiles' engines of the launch before store."""
    case = build([Arg((33, 77))], lambda b, x: list(b.op("topk", b("relu", x), k=4).results))
    edit = Edit(case)
    assert not edit.found()
    f = Edit(case).no_barrier().found()["DDR race between launches"]
    assert f.name == "kcore" and "(wdma" in f.text


def test_first_message_after_a_launch_without_barrier():
    """Tiles that exchange data must meet first if the launch before them ended without a barrier."""
    program = unmet().program
    first, second = (program.segments[launch.segment] for launch in program.launches)
    assert not first.barrier and second.barrier and max(second.info["shared"]) == 4
    assert not findings(program)
    at = program.launches[1].segment
    edit = Edit(program, at)
    before = Edit(program, 0)
    assert edit.at("barrier_sub")[0] < edit.at("send")[0]
    assert before.at("send")[0] < min([*before.at("barrier_sub"), 1 << 30])
    f = edit.drop("barrier_sub", 0).found()[BUSY]
    assert f.instruction == edit.at("send")[0] and "of launch 'gemm'" in f.text


def test_dropped_barrier_with_messages_around_it():
    """A barrier in the middle of a segment orders DDR; without it the tiles race."""
    store = (
        CodeBuilder()
        .add("memset", dst=A, value=1, n=64, fmt="f32")
        .add("wdma", src=A, run_bytes=256, slot=0)
        .add("wait")
        .add("barrier")
    )
    load = CodeBuilder().add("barrier").add("rdma", dst=B, run_bytes=256, slot=0)
    rest = [CodeBuilder().add("barrier").add("barrier") for _ in range(2)]
    codes = [b.code() for b in (store.finish(), load.finish(), *rest)]
    program = make_program(SMALL, [make_segment(SMALL, "s", codes, [0, 1, 2, 3], [0])], [(0, [DDR_BASE])])
    assert not findings(program)
    kinds = Edit(program).drop("barrier", 0).found()
    assert kinds["DDR race between tiles"].name == "rdma" and kinds["DDR race between tiles"].tile == 1


def test_messages_order_ddr_too():
    """A message tells its receiver that the sender's store, for which it waited, is done."""

    def made(wait: bool) -> Program:
        one = CodeBuilder().add("memset", dst=A, value=1, n=64, fmt="f32").add("wdma", src=A, run_bytes=256, slot=0)
        if wait:
            one.add("wait")
        one.add("send", src=A, dst=B, bytes=256, mask=mask_of([1])).add("send_wait").finish()
        two = CodeBuilder().add("recv", monitor=0, bytes=256).add("rdma", dst=A, run_bytes=256, slot=0).finish()
        codes = [one.code(), two.code(), *[CodeBuilder().add("barrier").code()] * 2]
        segment = make_segment(SMALL, "s", codes, [0, 1, 2, 3], [0])
        return make_program(
            SMALL, [segment], [(0, [DDR_BASE])], outputs=[Tensor("y", (64,), "f32", "f32", "dense", DDR_BASE, 256)]
        )

    assert not findings(made(True))
    assert {"DDR race between tiles", UNREADY} <= {f.kind for f in findings(made(False))}


def test_report_names_the_op():
    edit = Edit(shared())
    assert isa.expand(edit.segment.codes[0]).size == edit.segment.codes[0].size
    f = edit.drop("recv", -1, tiles=[1]).found()[EARLY]
    assert (
        "of op 'gemm'" in f.line()
        and "segment 'gemm'" in f.line()
        and f"tile 1, instruction {f.instruction} (gemm)" in f.line()
    )
